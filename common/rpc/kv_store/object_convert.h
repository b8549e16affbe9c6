// Keys, layouts and miss causes of objects between epic.v1 (kv_store.proto) and common/storage, both ways.
// Pure. A batch of keys has what many share (variants, layouts) once; Cache IDs travel as the 20 bytes that
// their text stands for.
#ifndef EPIC_COMMON_RPC_KV_STORE_OBJECT_CONVERT_H_
#define EPIC_COMMON_RPC_KV_STORE_OBJECT_CONVERT_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/storage/kv_store.h"
#include "epic/v1/kv_store.pb.h"

namespace epic {

inline constexpr size_t kMaxBatchItems = 1024;
inline constexpr size_t kCacheIdBytes = 20;
inline constexpr size_t kTokenBytes = 16;
inline constexpr size_t kRequestIdBytes = 16;  // of a reserve
inline constexpr uint64_t kMaxPartBytes = uint64_t{1} << 20;

// Errors of all: kInvalidRequest with the field's name as param.

// OK when a batch of so many items may go in one call.
absl::Status CheckBatch(size_t items, std::string_view field);

void AppendCacheId(const CacheId& id, std::string* bytes);
// REQUIRES: bytes.size() == kCacheIdBytes.
CacheId CacheIdFromBytes(std::string_view bytes);

v1::KvLayout ToProto(const KvLayout& layout);
// Checks the dtype only: ValidateLayout is for the store.
absl::StatusOr<KvLayout> FromProto(const v1::KvLayout& proto);

// `layouts`: one for each key, or none.
v1::ObjectKeys ToProto(std::span<const ObjectKey> keys, std::span<const KvLayout> layouts);
absl::StatusOr<std::vector<ObjectKey>> KeysFromProto(const v1::ObjectKeys& proto);
// One for each key.
absl::StatusOr<std::vector<KvLayout>> LayoutsFromProto(const v1::ObjectKeys& proto);

v1::MissCause ToProto(MissCause cause);
// What a later version may say is read as kNeverStored: a miss all the same.
MissCause FromProto(v1::MissCause cause);

// `bytes` cut into pieces of `size`, at most kMaxBatchItems of them.
absl::StatusOr<std::vector<std::string_view>> PiecesOf(const std::string& bytes, size_t size,
                                                       std::string_view field);

}  // namespace epic

#endif  // EPIC_COMMON_RPC_KV_STORE_OBJECT_CONVERT_H_
