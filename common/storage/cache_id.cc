#include "common/storage/cache_id.h"

#include "absl/status/status.h"

namespace epic {
namespace {
constexpr std::string_view kPrefix = "ctx_";
constexpr size_t kDigits = 32;
constexpr size_t kDigestBytes = 20;
}  // namespace

absl::StatusOr<CacheId> CacheId::Parse(std::string_view text) {
  const bool shape = text.size() == kPrefix.size() + kDigits && text.starts_with(kPrefix);
  const bool digits =
      shape && text.substr(kPrefix.size()).find_first_not_of("abcdefghijklmnopqrstuvwxyz234567") ==
                   std::string_view::npos;
  if (!digits) {
    return absl::InvalidArgumentError("a Cache ID is ctx_ followed by 32 characters of a-z and 2-7");
  }
  CacheId id;
  id.text_ = std::string(text);
  return id;
}

CacheId CacheId::Of(std::string_view tenant, const Digest& model_identity, std::span<const TokenId> tokens) {
  std::string fields;
  AppendField(&fields, "epic.cache_id.v1");
  AppendField(&fields, tenant);
  AppendField(&fields, model_identity.view());
  AppendLittle<uint64_t>(&fields, tokens.size_bytes());
  const Digest digest = Sha256().Update(fields).Update(AsBytes(tokens)).Finish();
  CacheId id;
  id.text_ = std::string(kPrefix) + Base32Lower(AsBytes(digest.view().substr(0, kDigestBytes)));
  return id;
}

}  // namespace epic
