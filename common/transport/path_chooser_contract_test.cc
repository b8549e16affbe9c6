// The chooser keeps the contract of a path, over a path to nobody and one that works; and it brings every
// object whole while one of its paths works, whatever the others do.
#include <memory>
#include <string>
#include <vector>

#include "common/transport/inproc/inproc_path.h"
#include "common/transport/path_chooser.h"
#include "common/transport/testing/faulty_path.h"
#include "common/transport/testing/transport_contract.h"

namespace epic::transport {
namespace {

ChooserOptions Options(Timers* timers, ProgressThread* thread, TrafficBudget* budget) {
  return {.timers = timers,
          .thread = thread,
          .budget = budget,
          .cooldown = {.min_ms = 1, .max_ms = 20},
          .batch_bytes = uint64_t{300} << 10,
          .prefetch_bytes = uint64_t{1} << 20,
          .stall_ms = 20,
          .probe_ms = 200};
}

class ChooserSetup {
 public:
  static constexpr bool kLayerWise = true;
  static constexpr bool kTellsCrcs = true;

  explicit ChooserSetup(PeerDownFn peer_down) {
    ChooserOptions options = Options(&timers_, &thread_, &budget_);
    options.peer_down = std::move(peer_down);
    const auto maker = [this](const std::shared_ptr<InprocEndpoint>& endpoint) {
      return [this, endpoint](PeerDownFn down) {
        return MakeInprocPath(endpoint, {.timers = &timers_, .peer_down = std::move(down)});
      };
    };
    path_ = MakePathChooser({maker(nobody_), maker(endpoint_)}, options);
  }
  void Serve(std::shared_ptr<TestSource> source) {
    source_ = std::move(source);
    endpoint_->Attach(source_.get());
  }
  void Die() { endpoint_->Detach(); }
  Path* path() { return path_.get(); }
  void DropPath() {
    path_.reset();
    thread_.Stop();
    for (const uint64_t bytes : budget_.usage().in_flight_bytes) EXPECT_EQ(bytes, 0u);
  }
  std::shared_ptr<const Region> Grant(std::shared_ptr<const Region> region) { return region; }

 private:
  TimerThread timers_{SystemClock::Get()};
  TrafficBudget budget_{{}, SystemClock::Get(), &timers_};
  ProgressThread thread_;
  std::shared_ptr<InprocEndpoint> nobody_ = std::make_shared<InprocEndpoint>();
  std::shared_ptr<InprocEndpoint> endpoint_ = std::make_shared<InprocEndpoint>();
  std::shared_ptr<TestSource> source_;
  std::unique_ptr<Path> path_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Chooser, TransportContract, ChooserSetup);

class ChooserOverFaultsTest : public ::testing::Test {
 protected:
  ChooserOverFaultsTest() : source_(std::make_shared<TestSource>(1)) { endpoint_->Attach(source_.get()); }

  std::unique_ptr<Path> Make(const std::vector<PathFaults>& paths, uint64_t seed) {
    std::vector<PathMaker> makers;
    for (const PathFaults& faults : paths) {
      makers.push_back([this, faults, seed, at = makers.size()](PeerDownFn down) {
        return std::make_unique<FaultyPath>(MakeInprocPath(endpoint_, {.timers = &timers_}), faults,
                                            seed * 31 + at, SystemClock::Get(), &timers_, std::move(down));
      });
    }
    return MakePathChooser(makers, Options(&timers_, &thread_, &budget_));
  }

  // Fetches of random objects, some cancelled: the rest must be whole.
  void Run(Path* path, uint64_t seed, int fetches, int cancel_percent) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    std::deque<std::unique_ptr<ContractFetch>> running;
    std::deque<bool> cancelled;
    for (int i = 0; i < fetches || !running.empty(); ++i) {
      if (i < fetches) {
        auto fetch = std::make_unique<ContractFetch>();
        const auto tokens = static_cast<uint32_t>(16 + rng.Below(6000));
        fetch->region =
            source_->Put(rng.Next(), SmallLayout(1 + static_cast<uint32_t>(rng.Below(6)), tokens));
        fetch->request.region = fetch->region;
        fetch->AddWholeLayers();
        fetch->request.deadline_steady_ns = SystemClock::Get()->SteadyNs() + 20'000'000'000;
        fetch->log = std::make_shared<FetchLog>(fetch->request.ranges.size());
        fetch->id = path->Fetch(fetch->request, fetch->log);
        cancelled.push_back(rng.Below(100) < static_cast<uint64_t>(cancel_percent));
        if (cancelled.back()) path->Cancel(fetch->id);
        running.push_back(std::move(fetch));
      }
      if (i < fetches && running.size() < 6) continue;
      const ContractFetch& oldest = *running.front();
      const absl::Status done = oldest.log->WaitDone();
      EXPECT_TRUE(done.ok() || (cancelled.front() && EndOf(done) == FetchEnd::kCancelled)) << done.ToString();
      for (size_t range = 0; range < oldest.request.ranges.size(); ++range) {
        if (!oldest.log->range(range).ok()) continue;
        const ByteSpan right = source_->Bytes(*oldest.region, static_cast<uint32_t>(range));
        EXPECT_TRUE(std::equal(right.begin(), right.end(), oldest.buffers[range].begin()));
      }
      running.pop_front();
      cancelled.pop_front();
    }
  }

  TimerThread timers_{SystemClock::Get()};
  TrafficBudget budget_{{}, SystemClock::Get(), &timers_};
  ProgressThread thread_;
  std::shared_ptr<InprocEndpoint> endpoint_ = std::make_shared<InprocEndpoint>();
  std::shared_ptr<TestSource> source_;
};

TEST_F(ChooserOverFaultsTest, EveryObjectComesWholeWhileOnePathWorks) {
  const PathFaults bad = {.delay = 20, .reorder = 20, .truncate = 10, .corrupt = 10, .die = 20};
  const PathFaults good = {.delay = 10, .reorder = 10, .delay_max_ms = 2};
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const auto path = Make({bad, bad, good}, seed);
    Run(path.get(), seed, 60, /*cancel_percent=*/20);
  }
}

TEST_F(ChooserOverFaultsTest, APeerThatIsDeadOnOnePathForEverIsReachedByTheOther) {
  const auto path = Make({{.die = 100, .dead_ms = 0}, {}}, 9);
  Run(path.get(), 9, 60, /*cancel_percent=*/0);
}

TEST_F(ChooserOverFaultsTest, RangesThatAreSwallowedEndAtTheDeadlineOrWhenCancelled) {
  const auto path = Make({{.drop = 100}}, 3);
  auto fetch = std::make_unique<ContractFetch>();
  fetch->region = source_->Put(3, SmallLayout());
  fetch->request.region = fetch->region;
  fetch->AddWholeLayers();
  fetch->request.deadline_steady_ns = SystemClock::Get()->SteadyNs() + 100'000'000;
  fetch->log = std::make_shared<FetchLog>(fetch->request.ranges.size());
  fetch->id = path->Fetch(fetch->request, fetch->log);
  EXPECT_THAT(fetch->log->WaitDone(), EndsAs(FetchEnd::kDeadline));
  auto other = std::make_unique<ContractFetch>();
  other->region = fetch->region;
  other->request.region = fetch->region;
  other->AddWholeLayers();
  other->request.deadline_steady_ns = SystemClock::Get()->SteadyNs() + 20'000'000'000;
  other->log = std::make_shared<FetchLog>(other->request.ranges.size());
  other->id = path->Fetch(other->request, other->log);
  path->Cancel(other->id);
  EXPECT_THAT(other->log->WaitDone(), EndsAs(FetchEnd::kCancelled));
}

TEST_F(ChooserOverFaultsTest, LeasesOfAnotherLifeOfThePeerAreOver) {
  const auto path = Make({{.die = 100, .another_life = true}}, 4);
  auto fetch = std::make_unique<ContractFetch>();
  fetch->region = source_->Put(4, SmallLayout());
  fetch->request.region = fetch->region;
  fetch->AddWholeLayers();
  fetch->request.deadline_steady_ns = SystemClock::Get()->SteadyNs() + 20'000'000'000;
  for (int i = 0; i < 2000; ++i) {
    fetch->log = std::make_shared<FetchLog>(fetch->request.ranges.size());
    path->Fetch(fetch->request, fetch->log);
    const absl::Status done = fetch->log->WaitDone();
    if (EndOf(done) == FetchEnd::kLeaseEnded) return;
    EXPECT_TRUE(done.ok() || EndOf(done) == FetchEnd::kPathDown) << done.ToString();
  }
  FAIL() << "the lease was never said to be over";
}

}  // namespace
}  // namespace epic::transport
