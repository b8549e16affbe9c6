// What a peer serves to the paths of others: leased objects, whose layers may still be on their way up from
// a disk or out of a compile. A store node, or a compile worker, implements it; the serving ends of the paths
// (such as ucx) call it from their progress threads, so no call blocks.
//
// Whoever holds a SourceObject holds the bytes: they stay where they are until it is let go, also when the
// lease ends meanwhile, the object is deleted or the store is full. Serving ends let go as soon as the fetch
// is over, was cancelled, or its client is gone.
#ifndef EPIC_COMMON_TRANSPORT_KV_SOURCE_H_
#define EPIC_COMMON_TRANSPORT_KV_SOURCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/storage/kv_object.h"
#include "common/transport/transport.h"

namespace epic::transport {

// One leased object, opened for one fetch. Thread-safe.
class SourceObject {
 public:
  // Lets go. Callbacks that have not begun are dropped.
  virtual ~SourceObject() = default;
  virtual const KvLayout& layout() const = 0;

  // Calls `ready` once: OK when the layer can be read from then on, or why it never can (the compile failed,
  // the disk did). Within the call, where that is known already, or later on any thread; cheap. Dropped when
  // the object is let go first, but one may just be running then: it must not depend on what outlives the
  // object only. REQUIRES: layer < layout().layers.
  virtual void WhenLayer(uint32_t layer, std::function<void(const absl::Status&)> ready) = 0;

  // REQUIRES, both: WhenLayer said OK for it.
  // The slab. Shape: [2][kv_heads][tokens][head_dim]. A damaged store may give fewer bytes: a serving end
  // takes that for DamagedStatus.
  virtual ByteSpan Layer(uint32_t layer) const = 0;
  // Shape: [BlocksPerLayer(layout)].
  virtual std::span<const uint32_t> LayerCrcs(uint32_t layer) const = 0;

  // Whether the lease was held up to now: asked after the last byte, for FetchListener::OnDone.
  virtual bool StillLeased() const = 0;
};

class KvSource {
 public:
  virtual ~KvSource() = default;
  // Of this life of the peer. Constant.
  virtual uint64_t incarnation() const = 0;
  // Never waits for a disk or a compile. Errors: LeaseEndedStatus (over, unknown, of another incarnation or
  // holder), PathDownStatus when too much is open.
  virtual absl::StatusOr<std::shared_ptr<SourceObject>> Open(const LeaseName& lease) = 0;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_KV_SOURCE_H_
