// Without faults the decorator keeps the contract; what it damages is never called good.
#include "common/transport/testing/faulty_path.h"

#include "common/transport/inproc/inproc_path.h"
#include "common/transport/testing/transport_contract.h"

namespace epic::transport {
namespace {

class FaultySetup {
 public:
  static constexpr bool kLayerWise = true;
  static constexpr bool kTellsCrcs = true;

  explicit FaultySetup(PeerDownFn peer_down)
      : path_(std::make_unique<FaultyPath>(
            MakeInprocPath(endpoint_, {.timers = &timers_, .peer_down = std::move(peer_down)}),
            PathFaults{.delay = 10, .reorder = 20, .delay_max_ms = 1}, /*seed=*/1, SystemClock::Get(),
            &timers_)) {}
  void Serve(std::shared_ptr<TestSource> source) {
    source_ = std::move(source);
    endpoint_->Attach(source_.get());
  }
  void Die() { endpoint_->Detach(); }
  Path* path() { return path_.get(); }
  void DropPath() { path_.reset(); }
  std::shared_ptr<const Region> Grant(std::shared_ptr<const Region> region) { return region; }

 private:
  TimerThread timers_{SystemClock::Get()};
  std::shared_ptr<InprocEndpoint> endpoint_ = std::make_shared<InprocEndpoint>();
  std::shared_ptr<TestSource> source_;
  std::unique_ptr<Path> path_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Faulty, TransportContract, FaultySetup);

TEST(FaultyPathTest, WhatItDamagesIsSaidToBeDamaged) {
  TimerThread timers(SystemClock::Get());
  auto endpoint = std::make_shared<InprocEndpoint>();
  TestSource source(1);
  endpoint->Attach(&source);
  FaultyPath path(MakeInprocPath(endpoint, {.timers = &timers}), {.truncate = 50, .corrupt = 50}, 7,
                  SystemClock::Get(), &timers);
  int damaged = 0;
  int whole = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    ContractFetch fetch;
    fetch.region = source.Put(seed, SmallLayout(6));
    fetch.request.region = fetch.region;
    fetch.AddWholeLayers();
    fetch.request.deadline_steady_ns = SystemClock::Get()->SteadyNs() + 20'000'000'000;
    fetch.log = std::make_shared<FetchLog>(6);
    path.Fetch(fetch.request, fetch.log);
    (void)fetch.log->WaitDone();
    for (uint32_t layer = 0; layer < 6; ++layer) {
      const ByteSpan right = source.Bytes(*fetch.region, layer);
      const bool same = std::equal(right.begin(), right.end(), fetch.buffers[layer].begin());
      EXPECT_EQ(fetch.log->range(layer).ok(), same);
      EXPECT_THAT(fetch.log->range(layer), EndsAs(same ? FetchEnd::kOk : FetchEnd::kDamaged));
      ++(same ? whole : damaged);
    }
  }
  EXPECT_GT(damaged, 60);
  EXPECT_GT(whole, 0);
  path.Stop();
}

}  // namespace
}  // namespace epic::transport
