// v1.LayerPart on the wire, without copying the layer's bytes into a message: read where gRPC has them, sent
// from where they lie. What ReadLayers and WriteLayers of a store and its clients share. No state.
#ifndef EPIC_COMMON_RPC_KV_STORE_LAYER_PART_H_
#define EPIC_COMMON_RPC_KV_STORE_LAYER_PART_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/bytes.h"

namespace epic {

// All of a part but its data; the fields are told in kv_store.proto.
struct LayerPartHead {
  std::string token;
  uint32_t layer = 0;
  uint64_t offset = 0;
  std::vector<uint32_t> block_crcs;
  uint32_t data_crc32c = 0;
};

struct ReceivedPart {
  LayerPartHead head;
  std::vector<grpc::Slice> held;  // keeps the data alive
  std::vector<ByteSpan> data;     // in order
  uint64_t data_bytes = 0;

  // Copies the data; whether it has its checksum. REQUIRES: to.size() == data_bytes.
  bool CopyTo(MutableByteSpan to) const;
};

grpc::ByteBuffer EncodeLayerPart(const LayerPartHead& head, const grpc::Slice& data);
// Fields that are not known are passed over. Errors: InvalidArgument (kInvalidRequest) for what is no
// LayerPart, or has more data than a part may have.
absl::StatusOr<ReceivedPart> DecodeLayerPart(const grpc::ByteBuffer& bytes);

}  // namespace epic

#endif  // EPIC_COMMON_RPC_KV_STORE_LAYER_PART_H_
