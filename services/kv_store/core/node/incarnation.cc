#include "services/kv_store/core/node/incarnation.h"

#include <optional>
#include <string>

#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/status/status_macros.h"
#include "services/kv_store/core/store_core.h"

namespace epic::kv_store {
namespace {

constexpr std::string_view kRowName = "boot_counter";
constexpr uint32_t kMagic = 0x31434245;  // "EBC1"
constexpr uint32_t kVersion = 1;
constexpr size_t kRowBytes = 20;
constexpr int kRandomBits = 40;

}  // namespace

uint64_t MakeIncarnation(uint64_t boots, uint64_t random) {
  EPIC_CHECK(boots > 0);
  const uint64_t incarnation = boots << kRandomBits | random >> (64 - kRandomBits);
  return incarnation == 0 ? 1 : incarnation;
}

std::string EncodeBootCounter(uint64_t boots) {
  std::string out;
  AppendLittle<uint32_t>(&out, kMagic);
  AppendLittle<uint32_t>(&out, kVersion);
  AppendLittle<uint64_t>(&out, boots);
  AppendLittle<uint32_t>(&out, Crc32c(0, AsBytes(out)));
  return out;
}

absl::StatusOr<uint64_t> DecodeBootCounter(ByteSpan bytes) {
  if (bytes.size() < 2 * sizeof(uint32_t)) return absl::DataLossError("boot counter: truncated");
  if (LoadLittle<uint32_t>(bytes) != kMagic) return absl::InvalidArgumentError("boot counter: wrong magic");
  if (LoadLittle<uint32_t>(bytes, 4) != kVersion) {
    return absl::UnimplementedError(
        "the store's boot counter is of a newer EPIC; open the directory with that version");
  }
  if (bytes.size() != kRowBytes) return absl::DataLossError("boot counter: wrong size");
  if (LoadLittle<uint32_t>(bytes, kRowBytes - 4) != Crc32c(0, bytes.first(kRowBytes - 4))) {
    return absl::DataLossError("boot counter: wrong checksum");
  }
  return LoadLittle<uint64_t>(bytes, 8);
}

absl::StatusOr<uint64_t> CountBoot(StoreCore* store) {
  const auto row = store->GetNodeRow(kRowName);
  if (!row.ok() && !absl::IsDataLoss(row.status())) return row.status();
  uint64_t boots = 0;
  if (row.ok() && row->has_value()) {
    const absl::StatusOr<uint64_t> counted = DecodeBootCounter(AsBytes(**row));
    if (absl::IsUnimplemented(counted.status())) return counted.status();
    if (counted.ok()) boots = *counted;
  }
  ++boots;
  EPIC_RETURN_IF_ERROR(store->PutNodeRow(kRowName, EncodeBootCounter(boots)));
  return boots;
}

}  // namespace epic::kv_store
