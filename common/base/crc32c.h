// CRC32C (Castagnoli) through ISA-L. Crc32c(Crc32c(0, a), b) == Crc32c(0, a followed by b).
#ifndef EPIC_COMMON_BASE_CRC32C_H_
#define EPIC_COMMON_BASE_CRC32C_H_

#include <cstdint>

#include "common/base/bytes.h"

namespace epic {

// Extends `crc` (0 to begin with) by `bytes`. Standard value: Crc32c(0, "123456789") == 0xE3069283.
uint32_t Crc32c(uint32_t crc, ByteSpan bytes);
// The same, fused with a copy of `from` to `to`: in pieces that are still in the first cache when they are
// summed. The checksum is that of the bytes that were written. REQUIRES: equal sizes, no overlap.
uint32_t CopyWithCrc32c(uint32_t crc, ByteSpan from, MutableByteSpan to);

}  // namespace epic

#endif  // EPIC_COMMON_BASE_CRC32C_H_
