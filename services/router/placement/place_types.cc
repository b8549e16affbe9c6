#include "services/router/placement/place_types.h"

#include "common/base/bytes.h"
#include "common/base/check.h"

namespace epic::router {
namespace {

constexpr size_t kPrefix = 4;       // ctx_
constexpr size_t kCharacters = 32;  // of base32, 5 bits each

uint64_t Base32Value(char c) { return static_cast<uint64_t>(c >= 'a' ? c - 'a' : c - '2' + 26); }

// A bijection that spreads every bit over all (the finisher of SplitMix64).
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace

PlaceKey PlaceKey::OfObject(const CacheId& id, const Digest& variant) {
  const std::string& text = id.text();
  EPIC_CHECK(text.size() == kPrefix + kCharacters);
  // The first 60 bits each; the last 40 join in, so that all of the ID counts.
  uint64_t a = 0, b = 0, rest = 0;
  for (size_t at = 0; at < 12; ++at) {
    a = a << 5 | Base32Value(text[kPrefix + at]);
    b = b << 5 | Base32Value(text[kPrefix + 12 + at]);
  }
  for (size_t at = 24; at < kCharacters; ++at) rest = rest << 5 | Base32Value(text[kPrefix + at]);
  const ByteSpan digest = AsBytes(variant.view());
  return {Mix((a ^ rest << 24) ^ LoadLittle<uint64_t>(digest)),
          Mix((b ^ rest << 20) ^ LoadLittle<uint64_t>(digest, 8))};
}

}  // namespace epic::router
