#include "common/base/digest.h"

#include <openssl/evp.h>

namespace epic {

std::string Digest::Hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(64);
  for (uint8_t byte : bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  EPIC_CHECK(state_->context != nullptr);
  EPIC_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;

Sha256& Sha256::Update(ByteSpan bytes) {
  EPIC_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
  return *this;
}

Digest Sha256::Finish() {
  Digest digest;
  unsigned int size = 0;
  EPIC_CHECK(EVP_DigestFinal_ex(state_->context, digest.bytes.data(), &size) == 1);
  EPIC_CHECK(size == digest.bytes.size());
  return digest;
}

Digest Sha256Of(ByteSpan bytes) { return Sha256().Update(bytes).Finish(); }

std::string Base32Lower(ByteSpan bytes) {
  static constexpr char kAlphabet[] = "abcdefghijklmnopqrstuvwxyz234567";
  std::string out;
  out.reserve((bytes.size() * 8 + 4) / 5);
  uint32_t buffer = 0;
  int bits = 0;
  for (std::byte byte : bytes) {
    buffer = (buffer << 8) | static_cast<uint32_t>(byte);
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      out += kAlphabet[(buffer >> bits) & 31];
    }
  }
  if (bits > 0) out += kAlphabet[(buffer << (5 - bits)) & 31];
  return out;
}

}  // namespace epic
