// CRC32C (Castagnoli) through ISA-L. Crc32c(Crc32c(0, a), b) == Crc32c(0, a followed by b).
#ifndef EPIC_COMMON_BASE_CRC32C_H_
#define EPIC_COMMON_BASE_CRC32C_H_

#include <cstdint>

#include "common/base/bytes.h"

namespace epic {

// Extends `crc` (0 to begin with) by `bytes`. Standard value: Crc32c(0, "123456789") == 0xE3069283.
uint32_t Crc32c(uint32_t crc, ByteSpan bytes);

}  // namespace epic

#endif  // EPIC_COMMON_BASE_CRC32C_H_
