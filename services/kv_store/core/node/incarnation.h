// What tells one life of a node from every other one of it: the number of the start, kept on its disk, and
// random bits, which differ also where the disk is new, or back from a copy. Free functions.
//
//   row of the table kNode, named "boot_counter":
//   u32 magic "EBC1", u32 version 1, u64 starts so far, u32 CRC32C; little-endian
#ifndef EPIC_SERVICES_KV_STORE_CORE_NODE_INCARNATION_H_
#define EPIC_SERVICES_KV_STORE_CORE_NODE_INCARNATION_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/bytes.h"

namespace epic::kv_store {

class StoreCore;

// Uniform 64 bits that nobody can foretell. Called by one thread at a time.
using RandomSource = std::function<uint64_t()>;

// 24 bits of the number of the start, then 40 random ones. Never 0. REQUIRES: boots > 0.
uint64_t MakeIncarnation(uint64_t boots, uint64_t random);

// Counts this start in the store's node table, synced, and returns the number, 1 for the first. A damaged row
// counts as none: the random bits stand in. Errors: Unimplemented when the row is of a newer EPIC, those of
// the disk.
absl::StatusOr<uint64_t> CountBoot(StoreCore* store);

std::string EncodeBootCounter(uint64_t boots);
// Errors: InvalidArgument (no such row), Unimplemented (another version), DataLoss.
absl::StatusOr<uint64_t> DecodeBootCounter(ByteSpan bytes);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_NODE_INCARNATION_H_
