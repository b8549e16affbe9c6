// Cache IDs: what names a context. Content-addressed, the same on every machine and in every version of EPIC.
#ifndef EPIC_COMMON_STORAGE_CACHE_ID_H_
#define EPIC_COMMON_STORAGE_CACHE_ID_H_

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/base/digest.h"

namespace epic {

using TokenId = uint32_t;

// "ctx_" and 32 characters of lower-case base32. A value type; empty means "none".
class CacheId {
 public:
  CacheId() = default;
  // Errors: InvalidArgument when `text` has not the form of a Cache ID.
  static absl::StatusOr<CacheId> Parse(std::string_view text);
  // ctx_ + base32 of the first 20 bytes of
  //   SHA-256(field("epic.cache_id.v1") field(tenant) field(model identity, 32 bytes)
  //           field(token ids as u32)),
  // where field(x) is the byte length of x as u64 followed by x, everything little-endian.
  static CacheId Of(std::string_view tenant, const Digest& model_identity, std::span<const TokenId> tokens);

  const std::string& text() const { return text_; }
  bool empty() const { return text_.empty(); }
  auto operator<=>(const CacheId&) const = default;

 private:
  std::string text_;
};

}  // namespace epic

#endif  // EPIC_COMMON_STORAGE_CACHE_ID_H_
