// What a store node keeps on its disk about itself as one of several: whether it still holds what it promised
// to hold, and the beats, in which the cluster counts how long nodes are away and tombstones live.
//
// A beat passes only while every group can take changes (replicator.h), so a cluster that was switched off
// forgets nothing. The log knows at which hybrid time beats began: a tombstone is of the latest beat that its
// time may belong to, so beats that were missed only keep it longer. Values; no I/O.
//
//   row "replica" of table node: u32 magic "ENR1", u32 version 1, u8 disk (0 whole, 1 empty, 2 being
//   emptied), u8 erase due, u64 served at, u64 beat, u32 starts (at most 1024), each u64 beat, i64 unix_ms,
//   u32 counter, their beats growing, from 1 up to the beat; u32 CRC32C of all before. Little-endian.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_NODE_ROW_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_NODE_ROW_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/storage/context_record.h"

namespace epic::kv_store {

inline constexpr uint32_t kMaxBeatStarts = 1024;

struct BeatLog {
  uint64_t beat = 0;
  std::map<uint64_t, HybridTime> starts;  // of some beats; none is later than `beat`
  bool operator==(const BeatLog&) const = default;

  // What another node knows, of the last `keep` beats. REQUIRES: keep <= kMaxBeatStarts.
  void Learn(const BeatLog& other, uint64_t keep);
  // The latest beat in which something of this time can have happened.
  uint64_t BeatOf(const HybridTime& time) const;
  // What is older happened at least `beats` beats ago; nullopt: that is known of nothing.
  std::optional<HybridTime> Before(uint64_t beats) const;
};

enum class DiskState : uint8_t { kWhole = 0, kEmpty = 1, kEmptying = 2 };

struct NodeRow {
  DiskState disk = DiskState::kEmpty;
  // What other nodes had deleted was removed here, and may not be physically gone yet.
  bool erase_due = false;
  uint64_t served_at = 0;  // beat
  BeatLog beats;
  bool operator==(const NodeRow&) const = default;
};

// REQUIRES: at most kMaxBeatStarts starts.
std::string EncodeNodeRow(const NodeRow& row);
// Errors: InvalidArgument, Unimplemented (another version), DataLoss.
absl::StatusOr<NodeRow> DecodeNodeRow(ByteSpan bytes);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_NODE_ROW_H_
