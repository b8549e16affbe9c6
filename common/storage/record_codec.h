// The bytes of context records (format version 2) and of token ids (1). Little-endian; text(max) is a u32
// length of at most max, then the bytes; opt is a u8 flag, then the value or zeros; hybrid is i64 unix_ms,
// u32 counter. Thread-safe: free functions without state.
//
//   record    u32 magic "ECR1", u32 version 2,
//             text(256) tenant, 36 bytes Cache ID, 32 model identity, text(1024) model, u32 token count,
//             i64 created_at_ms, u8 hidden, u8 durability,
//             u8 prefix kind, u32 prefix tokens (at most 2^20) and the ids as u32,
//             u8 has prefix context, 36 bytes its Cache ID if it has one,
//             u8 state, i64 compile_ms, text(4096) error,
//             opt i64 ttl_seconds, opt i64 expires_at_ms, hybrid,
//             u8 pin, opt i64 pin_until_ms, hybrid,
//             u32 tags (at most 1024), each text(1024), sorted, unique, hybrid,
//             text(1024) name, hybrid,
//             hybrid created; not in version 1: there it is the least of the others,
//             i64 last_used_at_ms, u64 hits,
//             u32 CRC32C of all before
//   tokens    u32 magic "ETK1", u32 version 1, u32 count (at most 2^24), the ids as u32,
//             u32 CRC32C of all before
//
// A reader takes every version up to its own; a newer one is refused, never guessed at.
#ifndef EPIC_COMMON_STORAGE_RECORD_CODEC_H_
#define EPIC_COMMON_STORAGE_RECORD_CODEC_H_

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/storage/byte_reader.h"
#include "common/storage/cache_id.h"
#include "common/storage/context_record.h"

namespace epic {

inline constexpr uint32_t kRecordFormatVersion = 2;
inline constexpr uint32_t kTokensFormatVersion = 1;
inline constexpr uint32_t kMaxRecordErrorBytes = 4096;

// A hybrid time, as records and tombstones have it.
void AppendHybrid(std::string* out, const HybridTime& time);
HybridTime TakeHybrid(ByteReader* reader);

// Whether every field fits its bound above. Errors: InvalidArgument with the field as its param.
absl::Status ValidateRecord(const ContextRecord& record);

// REQUIRES: ValidateRecord(record).ok(). `variants` and `bytes` are not stored.
std::string EncodeRecord(const ContextRecord& record);
// Errors: InvalidArgument (not a record, a field out of bounds), Unimplemented (a newer version), DataLoss
// (truncated, or a wrong checksum).
absl::StatusOr<ContextRecord> DecodeRecord(ByteSpan bytes);

// REQUIRES: at most 2^24 tokens.
std::string EncodeTokens(std::span<const TokenId> tokens);
// Errors as DecodeRecord.
absl::StatusOr<std::vector<TokenId>> DecodeTokens(ByteSpan bytes);

}  // namespace epic

#endif  // EPIC_COMMON_STORAGE_RECORD_CODEC_H_
