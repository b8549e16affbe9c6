// What a store node serves to the paths of readers (common/transport): its leased objects, also those that
// are still on their way up from disk. Owned by the process beside the node; thread-safe, and no call blocks.
//
// An object that was opened stays in memory until it is let go, whatever becomes of its lease; whether its
// bytes count is asked of the lease afterwards (SourceObject::StillLeased). Opening it changes nothing about
// the lease: several fetches may share one. Not here: who is granted leases (core/node/store_node.h), the
// streams of the gRPC door (rpc/layer_streams.h), which speak to the node themselves.
#ifndef EPIC_SERVICES_KV_STORE_SERVING_NODE_SOURCE_H_
#define EPIC_SERVICES_KV_STORE_SERVING_NODE_SOURCE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/transport/kv_source.h"
#include "services/kv_store/core/node/store_node.h"

namespace epic::kv_store {

class NodeSource final : public transport::KvSource {
 public:
  // `node` outlives this and what it opened. `open_max`: objects open at a time; further ones are PathDown.
  explicit NodeSource(StoreNode* node, size_t open_max = 8192);
  NodeSource(const NodeSource&) = delete;
  NodeSource& operator=(const NodeSource&) = delete;

  uint64_t incarnation() const override { return node_->incarnation(); }
  absl::StatusOr<std::shared_ptr<transport::SourceObject>> Open(const transport::LeaseName& lease) override;
  // Objects that are open now.
  size_t open() const { return open_->load(); }

 private:
  class Opened;

  StoreNode* const node_;
  const size_t open_max_;
  const std::shared_ptr<std::atomic<size_t>> open_;  // shared with what is open
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_SERVING_NODE_SOURCE_H_
