#include "common/base/crc32c.h"

#include <algorithm>
#include <cstring>

#include <isa-l/crc.h>

namespace epic {

uint32_t Crc32c(uint32_t crc, ByteSpan bytes) {
  // ISA-L takes an int length and works on the raw register: the standard's inversions are ours.
  constexpr size_t kPiece = size_t{1} << 30;
  uint32_t state = ~crc;
  while (!bytes.empty()) {
    const size_t take = std::min(bytes.size(), kPiece);
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
    state = crc32_iscsi(data, static_cast<int>(take), state);
    bytes = bytes.subspan(take);
  }
  return ~state;
}

uint32_t CopyWithCrc32c(uint32_t crc, ByteSpan from, MutableByteSpan to) {
  constexpr size_t kPiece = 8 << 10;
  EPIC_CHECK(from.size() == to.size());
  for (size_t at = 0; at < from.size(); at += kPiece) {
    const size_t take = std::min(from.size() - at, kPiece);
    std::memcpy(to.data() + at, from.data() + at, take);
    crc = Crc32c(crc, to.subspan(at, take));
  }
  return crc;
}

}  // namespace epic
