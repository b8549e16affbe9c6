#include "services/kv_store/extents/extent_header.h"

#include <algorithm>
#include <string_view>

#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/storage/byte_reader.h"
#include "services/kv_store/core/slab_store.h"

namespace epic::kv_store {
namespace {

constexpr std::string_view kMagic = "EPICEXT1";
constexpr uint32_t kVersion = 1;
constexpr size_t kFieldBytes = 20;
constexpr uint32_t kMinPages = 2;
constexpr uint32_t kMaxPages = uint32_t{1} << 31;

bool PagesAreInBounds(uint32_t pages) { return pages >= kMinPages && pages <= kMaxPages; }

}  // namespace

std::string EncodeExtentHeader(const ExtentHeader& header) {
  EPIC_CHECK(PagesAreInBounds(header.pages));
  std::string out(kMagic);
  AppendLittle<uint32_t>(&out, kVersion);
  AppendLittle<uint32_t>(&out, header.file);
  AppendLittle<uint32_t>(&out, header.pages);
  AppendLittle<uint32_t>(&out, Crc32c(0, AsBytes(out)));
  out.resize(kSlabPageBytes, '\0');
  return out;
}

absl::StatusOr<ExtentHeader> DecodeExtentHeader(ByteSpan page) {
  if (page.size() < kSlabPageBytes) return absl::DataLossError("extent file: shorter than its header");
  ByteReader reader(page.first(kSlabPageBytes));
  if (AsText(reader.TakeBytes(kMagic.size())) != kMagic) {
    return absl::InvalidArgumentError("extent file: wrong magic");
  }
  if (reader.Take<uint32_t>() != kVersion) {
    return absl::UnimplementedError("extent file: a format version that this build does not read");
  }
  if (Crc32c(0, page.first(kFieldBytes)) != LoadLittle<uint32_t>(page, kFieldBytes)) {
    return absl::DataLossError("extent file: wrong checksum of its header");
  }
  ExtentHeader header;
  header.file = reader.Take<uint32_t>();
  header.pages = reader.Take<uint32_t>();
  reader.Take<uint32_t>();  // the checksum, compared above
  const ByteSpan rest = reader.TakeBytes(kSlabPageBytes - kFieldBytes - sizeof(uint32_t));
  const bool zero =
      std::all_of(rest.begin(), rest.end(), [](std::byte byte) { return byte == std::byte{0}; });
  if (!reader.AtEnd() || !zero || !PagesAreInBounds(header.pages)) {
    return absl::InvalidArgumentError("extent file: a field of its header is out of its bounds");
  }
  return header;
}

}  // namespace epic::kv_store
