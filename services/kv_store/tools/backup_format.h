// The bytes of a backup: what one node knows of its contexts, without KV. Format version 1, little-endian.
// Value types and free functions; thread-safe. Not here: files (backup_file.h).
//
//   header    8 bytes magic "EPICBAK1", u32 version 1, i64 created_at_ms, u64 incarnation of the node or 0
//             where it is not known, u32 CRC32C of all before
//   entry     u8 kind, u32 payload bytes, u32 CRC32C of these two, payload, u32 CRC32C of the payload
//     kind 1  a context that lives: part context key (core/rows.h), part record, part token ids (both
//             common/storage/record_codec.h), part tombstone (core/rows.h) of an earlier life or no bytes
//     kind 2  a context that is gone: part context key, part tombstone
//     kind 255, the last entry: u64 entries of kind 1, u64 of kind 2, u64 token ids in all, 32 bytes SHA-256
//             of all before this entry. Nothing follows it
//
// A part is a u32 length, then the bytes. Entries of kind 1 stand before those of kind 2, each kind in
// ascending order of keys, none twice. Keys, records, tombstones and token ids are those of the tables, of
// any version that this build reads, with their own checksums.
#ifndef EPIC_SERVICES_KV_STORE_TOOLS_BACKUP_FORMAT_H_
#define EPIC_SERVICES_KV_STORE_TOOLS_BACKUP_FORMAT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/base/digest.h"
#include "services/kv_store/core/replica_state.h"
#include "services/kv_store/core/rows.h"

namespace epic::kv_store {

inline constexpr uint32_t kBackupVersion = 1;
inline constexpr size_t kBackupHeaderBytes = 32;
inline constexpr size_t kBackupFrameBytes = 9;  // before a payload
// Of a payload: 2^24 token ids, the largest record, key and tombstone, and then some.
inline constexpr uint32_t kMaxBackupPayload = uint32_t{80} << 20;

struct BackupHeader {
  int64_t created_at_ms = 0;
  uint64_t incarnation = 0;
  bool operator==(const BackupHeader&) const = default;
};

enum class BackupKind : uint8_t { kLive = 1, kGone = 2, kEnd = 255 };

struct BackupFrame {
  BackupKind kind = BackupKind::kEnd;
  uint32_t payload_bytes = 0;
};

// One context. The state has a record, or at least a tombstone.
struct BackupEntry {
  ContextKey key;
  ReplicaState state;
  std::vector<TokenId> tokens;  // of the record; empty without one
  bool operator==(const BackupEntry&) const = default;
};

struct BackupCounts {
  uint64_t live = 0;
  uint64_t gone = 0;
  uint64_t tokens = 0;
  bool operator==(const BackupCounts&) const = default;
};

struct BackupEnd {
  BackupCounts counts;
  Digest digest;
};

// Whether an entry holds together: a record of this key, whose token ids hash to its Cache ID and which its
// tombstone does not remove. Errors: InvalidArgument.
absl::Status CheckBackupEntry(const BackupEntry& entry);

std::string EncodeBackupHeader(const BackupHeader& header);
// REQUIRES: CheckBackupEntry(entry).ok(). The whole entry, its frame included.
std::string EncodeBackupEntry(const BackupEntry& entry);
std::string EncodeBackupEnd(const BackupEnd& end);

// Errors of what follows: InvalidArgument (not that, or a field out of its bounds), Unimplemented (a newer
// version), DataLoss (a wrong checksum).

// REQUIRES: kBackupHeaderBytes bytes.
absl::StatusOr<BackupHeader> DecodeBackupHeader(ByteSpan bytes);
// REQUIRES: kBackupFrameBytes bytes.
absl::StatusOr<BackupFrame> DecodeBackupFrame(ByteSpan bytes);
// `bytes`: the payload and its checksum. CheckBackupEntry holds for what is returned.
absl::StatusOr<BackupEntry> DecodeBackupEntry(BackupKind kind, ByteSpan bytes);
absl::StatusOr<BackupEnd> DecodeBackupEnd(ByteSpan bytes);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TOOLS_BACKUP_FORMAT_H_
