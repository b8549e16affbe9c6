#include "services/kv_store/replication/node_row.h"

#include <algorithm>
#include <iterator>

#include "absl/status/status.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/storage/byte_reader.h"
#include "common/storage/record_codec.h"

namespace epic::kv_store {
namespace {

constexpr uint32_t kMagic = 0x31524e45;  // "ENR1"
constexpr uint32_t kVersion = 1;

}  // namespace

void BeatLog::Learn(const BeatLog& other, uint64_t keep) {
  EPIC_CHECK(keep <= kMaxBeatStarts);
  beat = std::max(beat, other.beat);
  starts.insert(other.starts.begin(), other.starts.end());
  const uint64_t first = beat - std::min(beat, keep) + 1;
  starts.erase(starts.begin(), starts.lower_bound(first));
}

uint64_t BeatLog::BeatOf(const HybridTime& time) const {
  for (const auto& [at, start] : starts) {
    if (start > time) return at - 1;
  }
  return beat;
}

std::optional<HybridTime> BeatLog::Before(uint64_t beats) const {
  if (beat < beats) return std::nullopt;
  const auto behind = starts.upper_bound(beat - beats + 1);
  if (behind == starts.begin()) return std::nullopt;
  return std::prev(behind)->second;
}

std::string EncodeNodeRow(const NodeRow& row) {
  EPIC_CHECK(row.beats.starts.size() <= kMaxBeatStarts);
  std::string out;
  AppendLittle<uint32_t>(&out, kMagic);
  AppendLittle<uint32_t>(&out, kVersion);
  AppendLittle<uint8_t>(&out, static_cast<uint8_t>(row.disk));
  AppendLittle<uint8_t>(&out, row.erase_due ? 1 : 0);
  AppendLittle<uint64_t>(&out, row.served_at);
  AppendLittle<uint64_t>(&out, row.beats.beat);
  AppendLittle<uint32_t>(&out, static_cast<uint32_t>(row.beats.starts.size()));
  for (const auto& [beat, start] : row.beats.starts) {
    AppendLittle<uint64_t>(&out, beat);
    AppendHybrid(&out, start);
  }
  AppendLittle<uint32_t>(&out, Crc32c(0, AsBytes(out)));
  return out;
}

absl::StatusOr<NodeRow> DecodeNodeRow(ByteSpan bytes) {
  if (bytes.size() < 3 * sizeof(uint32_t)) return absl::DataLossError("node row: truncated");
  if (LoadLittle<uint32_t>(bytes) != kMagic) return absl::InvalidArgumentError("node row: wrong magic");
  if (LoadLittle<uint32_t>(bytes, 4) != kVersion) {
    return absl::UnimplementedError("node row: a format version that this build does not read");
  }
  const ByteSpan body = bytes.first(bytes.size() - sizeof(uint32_t));
  if (Crc32c(0, body) != LoadLittle<uint32_t>(bytes, body.size())) {
    return absl::DataLossError("node row: wrong checksum");
  }
  ByteReader reader(body.subspan(2 * sizeof(uint32_t)));
  NodeRow row;
  row.disk = static_cast<DiskState>(reader.TakeUpTo<uint8_t>(2));
  row.erase_due = reader.TakeUpTo<uint8_t>(1) != 0;
  row.served_at = reader.Take<uint64_t>();
  row.beats.beat = reader.Take<uint64_t>();
  uint64_t last = 0;
  for (uint32_t left = reader.TakeUpTo<uint32_t>(kMaxBeatStarts); left > 0 && reader.ok(); --left) {
    const uint64_t beat = reader.Take<uint64_t>();
    if (beat <= last || beat > row.beats.beat) reader.Fail();
    row.beats.starts[beat] = TakeHybrid(&reader);
    last = beat;
  }
  if (!reader.AtEnd()) return absl::InvalidArgumentError("node row: a field is out of its bounds");
  return row;
}

}  // namespace epic::kv_store
