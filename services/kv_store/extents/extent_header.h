// The first page of an extent file. Little-endian. Free functions.
//
//   offset  size  field
//        0     8  magic "EPICEXT1"
//        8     4  format version, 1
//       12     4  number of the file, as in its name
//       16     4  pages of 4096 bytes that the file may grow to, this one included     2..2^31
//       20     4  CRC32C of bytes 0..19
//       24        zeros to the end of the page
//
// All other pages hold slabs where the object index says so, and anything elsewhere.
#ifndef EPIC_SERVICES_KV_STORE_EXTENTS_EXTENT_HEADER_H_
#define EPIC_SERVICES_KV_STORE_EXTENTS_EXTENT_HEADER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/bytes.h"

namespace epic::kv_store {

struct ExtentHeader {
  uint32_t file = 0;
  uint32_t pages = 0;
  bool operator==(const ExtentHeader&) const = default;
};

// A whole page. REQUIRES: pages within its bounds.
std::string EncodeExtentHeader(const ExtentHeader& header);
// Errors: InvalidArgument (not such a file, or a field out of its bounds), Unimplemented (another format
// version), DataLoss (truncated, or a wrong checksum).
absl::StatusOr<ExtentHeader> DecodeExtentHeader(ByteSpan page);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_EXTENTS_EXTENT_HEADER_H_
