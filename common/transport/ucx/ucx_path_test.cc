// The contract of every path, over UCX and TCP on the loopback device.
#include "common/transport/ucx/ucx_path.h"

#include <memory>

#include "common/transport/testing/transport_contract.h"
#include "common/transport/ucx/ucx_node.h"

namespace epic::transport {
namespace {

// The authenticated channel, within one process: a peer that may not be there.
class LocalDoor final : public TicketSource {
 public:
  void Ask(std::function<void(absl::StatusOr<std::string>)> done) override {
    absl::StatusOr<std::string> ticket = PathDownStatus("nobody there");
    {
      MutexLock lock(&mu_);
      if (node_ != nullptr) ticket = node_->IssueTicket();
    }
    done(std::move(ticket));
  }
  void Lead(UcxNode* node) {
    MutexLock lock(&mu_);
    node_ = node;
  }

 private:
  Mutex mu_;
  UcxNode* node_ ABSL_GUARDED_BY(mu_) = nullptr;
};

class UcxSetup {
 public:
  static constexpr bool kLayerWise = true;
  static constexpr bool kTellsCrcs = true;

  explicit UcxSetup(PeerDownFn peer_down) : door_(std::make_shared<LocalDoor>()) {
    auto node = UcxNode::Start({});
    EPIC_CHECK(node.ok());
    reader_ = *std::move(node);
    path_ = reader_->MakePath(door_, std::move(peer_down));
  }
  void Serve(std::shared_ptr<TestSource> source) {
    source_ = std::move(source);
    auto node = UcxNode::Start({.source = source_.get()});
    EPIC_CHECK(node.ok());
    peer_ = *std::move(node);
    door_->Lead(peer_.get());
  }
  void Die() {
    door_->Lead(nullptr);
    peer_.reset();
  }
  Path* path() { return path_.get(); }
  void DropPath() { path_.reset(); }
  std::shared_ptr<const Region> Grant(std::shared_ptr<const Region> region) { return region; }

 private:
  std::shared_ptr<LocalDoor> door_;
  std::shared_ptr<TestSource> source_;
  std::unique_ptr<UcxNode> peer_;
  std::unique_ptr<UcxNode> reader_;
  std::unique_ptr<Path> path_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Ucx, TransportContract, UcxSetup);

}  // namespace
}  // namespace epic::transport
