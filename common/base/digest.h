// SHA-256 digests and RFC 4648 base32 in lower case: the identity of models, contexts and objects.
#ifndef EPIC_COMMON_BASE_DIGEST_H_
#define EPIC_COMMON_BASE_DIGEST_H_

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/bytes.h"

namespace epic {

// 32 bytes of SHA-256. All zero means "none".
struct Digest {
  std::array<uint8_t, 32> bytes{};
  auto operator<=>(const Digest&) const = default;
  // 64 lower-case hexadecimal characters.
  std::string Hex() const;
  std::string_view view() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
};

// Streaming SHA-256. One thread at a time.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  Sha256& Update(ByteSpan bytes);
  Sha256& Update(std::string_view text) { return Update(AsBytes(text)); }
  // The digest of all bytes so far; the object must not be used afterwards.
  Digest Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Digest Sha256Of(ByteSpan bytes);

// RFC 4648 base32, alphabet a-z2-7, no padding. 20 bytes give 32 characters.
std::string Base32Lower(ByteSpan bytes);

}  // namespace epic

#endif  // EPIC_COMMON_BASE_DIGEST_H_
