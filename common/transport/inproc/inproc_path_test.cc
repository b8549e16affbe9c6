#include "common/transport/inproc/inproc_path.h"

#include "common/transport/testing/transport_contract.h"

namespace epic::transport {
namespace {

class InprocSetup {
 public:
  static constexpr bool kLayerWise = true;
  static constexpr bool kTellsCrcs = true;

  explicit InprocSetup(PeerDownFn peer_down)
      : timers_(SystemClock::Get()),
        endpoint_(std::make_shared<InprocEndpoint>()),
        path_(MakeInprocPath(
            endpoint_,
            {.timers = &timers_, .piece_bytes = uint64_t{100} << 10, .peer_down = std::move(peer_down)})) {}
  void Serve(std::shared_ptr<TestSource> source) {
    source_ = std::move(source);
    endpoint_->Attach(source_.get());
  }
  void Die() { endpoint_->Detach(); }
  Path* path() { return path_.get(); }
  void DropPath() { path_.reset(); }
  std::shared_ptr<const Region> Grant(std::shared_ptr<const Region> region) { return region; }

 private:
  TimerThread timers_;
  std::shared_ptr<InprocEndpoint> endpoint_;
  std::shared_ptr<TestSource> source_;
  std::unique_ptr<Path> path_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Inproc, TransportContract, InprocSetup);

}  // namespace
}  // namespace epic::transport
