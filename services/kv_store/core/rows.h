// The rows of the store's tables: keys of all, values of tombstones and of the object index. Records, token
// ids and object heads have codecs of their own in common/storage. Free functions and value types.
//
//   key or value   of                            bytes
//   context key    records, tokens, tombstones   u16 big-endian tenant length, tenant, 36 bytes Cache ID
//   object key     objects                       context key, 32 bytes variant digest
//   slab key       slabs                         u64 object number, u32 layer, u32 piece, all big-endian
//   tombstone      tombstones                    u32 magic "ETB1", u32 version 3, i64 unix_ms, u32 counter,
//                                                u8 cause, u8 has created_at_ms, i64 created_at_ms, then
//                                                deleted, expired_life and expired, each i64 unix_ms and u32
//                                                counter, u32 CRC32C. Version 2 ends after created_at_ms,
//                                                which it always has; version 1 before it
//   object entry   objects                       u32 magic "EOE1", u32 version, u64 object number,
//                                                u8 prefix kind, 32 bytes prefix digest, u8 dtype,
//                                                u8 compute format, u32 head bytes,
//                                                head (common/storage/object_codec.h), u32 CRC32C;
//                                                version 1: its slabs are rows; version 2: they are in
//                                                extents, told before the checksum: u32 runs 1..64, for each
//                                                u32 file, u32 first page, u32 pages of 4096 bytes
//
// A slab is cut into pieces of 64 MiB. Object numbers are never used twice within the life of a directory's
// process and grow; rows of slabs whose number no object entry names are orphans.
#ifndef EPIC_SERVICES_KV_STORE_CORE_ROWS_H_
#define EPIC_SERVICES_KV_STORE_CORE_ROWS_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/storage/context_record.h"
#include "common/storage/object_codec.h"
#include "services/kv_store/core/slab_store.h"

namespace epic::kv_store {

inline constexpr uint64_t kSlabPieceBytes = uint64_t{64} << 20;

struct ContextKey {
  std::string tenant;
  CacheId id;
  auto operator<=>(const ContextKey&) const = default;
};

struct TenantObjectKey {
  ContextKey context;
  ObjectVariant variant;
  auto operator<=>(const TenantObjectKey&) const = default;
};

enum class RemovalCause : uint8_t { kDeleted = 0, kExpired = 1 };

struct Tombstone {
  HybridTime at;                                // when it was written: it ages from there
  RemovalCause cause = RemovalCause::kDeleted;  // what readers are told
  // A record is gone whose life began up to `deleted`; or before `expired_life`; or then and its expiry was
  // set up to `expired`. Zero: none.
  HybridTime deleted;
  HybridTime expired_life, expired;
  // When the context was created: its place in lists, for pages that go on after it. nullopt in rows of
  // version 1.
  std::optional<int64_t> created_at_ms;
  bool operator==(const Tombstone&) const = default;
};

struct ObjectEntry {
  uint64_t number = 0;
  SlabExtents extents;  // empty: its slabs are rows
  ObjectVariant variant;
  ObjectHead head;
};

// The row of the table `node` that says that an erasure is due; its value is empty, its name ends in the
// number, 16 hexadecimal digits.
std::string EraseRowName(uint64_t number);
// nullopt: another row.
std::optional<uint64_t> ParseEraseRowName(std::string_view row);

std::string RowKey(const ContextKey& key);
std::string RowKey(const TenantObjectKey& key);
std::string SlabRowKey(uint64_t number, uint32_t layer, uint32_t piece);
// The first key behind all slabs of `number`.
std::string SlabEndKey(uint64_t number);

// Errors: InvalidArgument when the bytes are not such a key.
absl::StatusOr<ContextKey> ParseContextKey(std::string_view row);
// The context of an object row; the variant stands in its entry.
absl::StatusOr<ContextKey> ParseObjectContextKey(std::string_view row);

std::string EncodeTombstone(const Tombstone& tombstone);
// Errors of both: InvalidArgument, Unimplemented (another version), DataLoss.
absl::StatusOr<Tombstone> DecodeTombstone(ByteSpan bytes);
std::string EncodeObjectEntry(const ObjectEntry& entry);
absl::StatusOr<ObjectEntry> DecodeObjectEntry(ByteSpan bytes);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_ROWS_H_
