// An ObjectWriter whose layers are filled in place: who moves the bytes (a stream of parts, a pull from the
// writer's memory) puts them into the arena itself, and the store checks them where they lie. Made by
// StoreCore::ReserveInArena. Not here: who may fill a layer, and until when (node/reservations.h).
//
// Different layers may be filled and finished by different threads at a time; all else, and what an
// ObjectWriter can do, by one thread after those.
#ifndef EPIC_SERVICES_KV_STORE_CORE_ARENA_WRITER_H_
#define EPIC_SERVICES_KV_STORE_CORE_ARENA_WRITER_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "common/base/bytes.h"
#include "common/base/digest.h"
#include "common/storage/kv_store.h"

namespace epic::kv_store {

class ArenaWriter : public ObjectWriter {
 public:
  // Where the bytes of a layer go: layout.LayerBytes() of them. REQUIRES: layer < layers, not committed yet,
  // and the layer not finished.
  virtual MutableByteSpan Buffer(uint32_t layer) = 0;
  // Takes what lies in Buffer(layer) as the layer; nobody writes there any more. `crcs` are the sender's, one
  // for each block of the layer (object_codec.h). Errors: InvalidArgument for a wrong number of them or a
  // layer out of range; FailedPrecondition when it is finished already; DataLoss (kLayerDamaged) when the
  // bytes do not have these checksums: the layer may be filled again.
  virtual absl::Status FinishLayer(uint32_t layer, std::span<const uint32_t> crcs) = 0;
  // Of all layers, as readers will get it. REQUIRES: all are written or finished, not committed yet.
  virtual Digest Build() const = 0;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_ARENA_WRITER_H_
