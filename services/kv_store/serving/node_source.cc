#include "services/kv_store/serving/node_source.h"

#include <functional>
#include <span>
#include <utility>

#include "common/storage/object_codec.h"
#include "common/transport/transport.h"

namespace epic::kv_store {
namespace {

// A place among what is open; counted from the constructor to the destructor.
class OpenPlace {
 public:
  explicit OpenPlace(std::shared_ptr<std::atomic<size_t>> open)
      : open_(std::move(open)), number_(open_->fetch_add(1)) {}
  ~OpenPlace() { open_->fetch_sub(1); }
  OpenPlace(const OpenPlace&) = delete;
  OpenPlace& operator=(const OpenPlace&) = delete;
  // How many were open before.
  size_t number() const { return number_; }

 private:
  const std::shared_ptr<std::atomic<size_t>> open_;
  const size_t number_;
};

}  // namespace

class NodeSource::Opened final : public transport::SourceObject {
 public:
  Opened(std::unique_ptr<OpenPlace> place, StoreNode* node, const transport::LeaseName& lease,
         ObjectPtr object)
      : place_(std::move(place)),
        node_(node),
        lease_(lease),
        object_(std::make_shared<const ObjectPtr>(std::move(object))) {}

  const KvLayout& layout() const override { return object().layout(); }

  void WhenLayer(uint32_t layer, std::function<void(const absl::Status&)> ready) override {
    if (layer < object().ReadyLayers()) return ready(absl::OkStatus());
    // The load holds its waiters to its end: they must not hold the object.
    object().OnLayer(layer, [weak = std::weak_ptr(object_), layer, ready = std::move(ready)] {
      const std::shared_ptr<const ObjectPtr> held = weak.lock();
      if (held == nullptr) return;  // let go
      ready((*held)->WaitLayer(layer).ok()
                ? absl::OkStatus()
                : transport::LeaseEndedStatus("the rest of the object could not be read from disk; acquire "
                                              "it again to hear why"));
    });
  }

  ByteSpan Layer(uint32_t layer) const override { return object().Layer(layer); }
  std::span<const uint32_t> LayerCrcs(uint32_t layer) const override {
    const uint64_t blocks = BlocksPerLayer(object().layout());
    return std::span(object().head().block_crcs).subspan(layer * blocks, blocks);
  }
  bool StillLeased() const override {
    const LeaseId id{.incarnation = lease_.incarnation, .number = lease_.number};
    return node_->Confirm(lease_.holder, std::span(&id, 1), /*release=*/false).front() == LeaseState::kHeld;
  }

 private:
  const HostObject& object() const { return **object_; }

  const std::unique_ptr<OpenPlace> place_;
  StoreNode* const node_;
  const transport::LeaseName lease_;
  const std::shared_ptr<const ObjectPtr> object_;  // shared with callbacks that run
};

NodeSource::NodeSource(StoreNode* node, size_t open_max)
    : node_(node), open_max_(open_max), open_(std::make_shared<std::atomic<size_t>>(0)) {}

absl::StatusOr<std::shared_ptr<transport::SourceObject>> NodeSource::Open(const transport::LeaseName& lease) {
  auto place = std::make_unique<OpenPlace>(open_);
  if (place->number() >= open_max_) {
    return transport::PathDownStatus("the node has as many objects open as it may; try again");
  }
  auto object = node_->Read(lease.holder, {.incarnation = lease.incarnation, .number = lease.number});
  if (!object.ok()) return object.status();
  return std::make_shared<Opened>(std::move(place), node_, lease, *std::move(object));
}

}  // namespace epic::kv_store
