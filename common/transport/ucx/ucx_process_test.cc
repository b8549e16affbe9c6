// Two processes over UCX, one of which is killed, stopped and started again: right bytes or a clear error in
// bounded time, the other side unharmed, nothing held any more, and the peer usable again.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "common/transport/testing/fetch_log.h"
#include "common/transport/testing/test_source.h"
#include "common/transport/ucx/testing/child.h"
#include "common/transport/ucx/testing/text_door.h"
#include "common/transport/ucx/ucx_node.h"

namespace epic::transport {
namespace {

constexpr int kObjects = 3;
constexpr uint32_t kTokens = 20'000;  // 10 MiB an object, 12 pieces

std::unique_ptr<Child> Start(const std::string& what, uint64_t incarnation) {
  return std::make_unique<Child>(std::vector<std::string>{testing::BuildDir() + "/bin/epic_ucx_peer", what,
                                                          std::to_string(incarnation),
                                                          std::to_string(kObjects), std::to_string(kTokens)});
}

// Tickets of a child; it may be gone, or stopped.
class ChildDoor final : public TicketSource {
 public:
  void Ask(std::function<void(absl::StatusOr<std::string>)> done) override {
    absl::StatusOr<std::string> ticket = PathDownStatus("nobody there");
    {
      MutexLock lock(&mu_);
      if (child_ != nullptr) {
        child_->Say("ticket");
        if (const auto line = child_->Hear(500); line.has_value()) ticket = FromHex(*line);
      }
    }
    done(std::move(ticket));
  }
  void Lead(Child* child) {
    MutexLock lock(&mu_);
    child_ = child;
  }
  // Throws away what a child that was stopped says late.
  void Drain() {
    MutexLock lock(&mu_);
    while (child_->Hear(200).has_value()) {
    }
  }

 private:
  Mutex mu_;
  Child* child_ ABSL_GUARDED_BY(mu_) = nullptr;
};

// The same objects as in a child that was started with this incarnation.
struct Twin {
  explicit Twin(uint64_t incarnation) : source(incarnation) {
    for (uint64_t i = 0; i < kObjects; ++i) regions.push_back(source.Put(i + 1, SmallLayout(4, kTokens)));
  }
  TestSource source;
  std::vector<std::shared_ptr<const Region>> regions;
};

struct Running {
  std::shared_ptr<const Region> region;
  std::vector<std::vector<std::byte>> buffers;
  std::shared_ptr<FetchLog> log;
};

Running Fetch(Path* path, std::shared_ptr<const Region> region, int64_t deadline_ms = 20'000) {
  Running running{.region = std::move(region)};
  FetchRequest request{.region = running.region,
                       .deadline_steady_ns = SystemClock::Get()->SteadyNs() + deadline_ms * 1'000'000};
  running.buffers.resize(running.region->layout.layers);
  for (uint32_t layer = 0; layer < running.region->layout.layers; ++layer) {
    running.buffers[layer].assign(running.region->layout.LayerBytes(), std::byte{0xA5});
    request.ranges.push_back({.layer = layer, .to = running.buffers[layer]});
  }
  running.log = std::make_shared<FetchLog>(request.ranges.size());
  path->Fetch(std::move(request), running.log);
  return running;
}

// The end of a fetch; every range that is called good has the right bytes.
FetchEnd EndOf(const Running& running, const TestSource& source) {
  const FetchEnd end = transport::EndOf(running.log->WaitDone());
  for (uint32_t layer = 0; layer < running.buffers.size(); ++layer) {
    if (!running.log->range(layer).ok()) continue;
    const ByteSpan right = source.Bytes(*running.region, layer);
    EXPECT_TRUE(std::equal(right.begin(), right.end(), running.buffers[layer].begin())) << "wrong bytes";
  }
  return end;
}

UcxNodeOptions Impatient() {
  UcxNodeOptions options;
  options.path.end_grace_ms = 300;
  options.path.link = {.connect_timeout_ms = 2'000, .ping_after_ms = 200, .dead_after_ms = 1'000};
  options.server.send_timeout_ms = 1'000;
  options.server.silence_timeout_ms = 4'000;
  return options;
}

UcxNodeGauges Gauges(UcxNode* node) {
  Mutex mu;
  CondVar changed;
  std::optional<UcxNodeGauges> gauges;
  EXPECT_TRUE(node->Inspect([&](const UcxNodeGauges& told) {
    MutexLock lock(&mu);
    gauges = told;
    changed.SignalAll();
  }));
  MutexLock lock(&mu);
  while (!gauges.has_value()) changed.Wait(&mu);
  return *gauges;
}

// Looks until it is so, at most 20 s.
bool Eventually(const std::function<bool()>& so) {
  const int64_t deadline_ns = SystemClock::Get()->SteadyNs() + 20'000'000'000;
  while (!so()) {
    if (SystemClock::Get()->SteadyNs() > deadline_ns) return false;
    std::this_thread::yield();
  }
  return true;
}

class UcxReaderProcessTest : public ::testing::Test {
 protected:
  UcxReaderProcessTest() : door_(std::make_shared<ChildDoor>()) {
    std::signal(SIGPIPE, SIG_IGN);
    auto node = UcxNode::Start(Impatient());
    EPIC_CHECK(node.ok());
    node_ = *std::move(node);
    path_ = node_->MakePath(door_, [this](const absl::Status&) { downs_ += 1; });
    Serve(1);
  }
  ~UcxReaderProcessTest() override {
    path_.reset();
    EXPECT_TRUE(Eventually([this] { return Gauges(node_.get()).lanes == 0; })) << "lanes are left";
    EXPECT_EQ(Gauges(node_.get()).pieces, 0u);
  }
  void Serve(uint64_t incarnation) {
    twin_ = std::make_unique<Twin>(incarnation);
    child_ = Start("serve", incarnation);
    ASSERT_EQ(child_->Hear(), "ready");
    door_->Lead(child_.get());
  }
  void Kill() {
    door_->Lead(nullptr);
    child_->Kill();
  }

  std::shared_ptr<ChildDoor> door_;
  std::unique_ptr<UcxNode> node_;
  std::unique_ptr<Path> path_;
  std::unique_ptr<Child> child_;
  std::unique_ptr<Twin> twin_;
  std::atomic<int> downs_{0};
};

TEST_F(UcxReaderProcessTest, APeerThatIsKilledEndsItsFetchesAndItsNextLifeIsFound) {
  for (uint64_t life = 2; life < 5; ++life) {
    EXPECT_EQ(EndOf(Fetch(path_.get(), twin_->regions[0]), twin_->source), FetchEnd::kOk);
    std::vector<Running> running;
    for (int i = 0; i < 6; ++i) running.push_back(Fetch(path_.get(), twin_->regions[i % kObjects]));
    EXPECT_OK(running[0].log->WaitRange(0));
    const int64_t killed_ns = SystemClock::Get()->SteadyNs();
    Kill();
    for (const Running& fetch : running) {
      const FetchEnd end = EndOf(fetch, twin_->source);
      EXPECT_TRUE(end == FetchEnd::kOk || end == FetchEnd::kPathDown) << static_cast<int>(end);
    }
    EXPECT_LT(SystemClock::Get()->SteadyNs() - killed_ns, 10'000'000'000);
    const auto old = std::move(twin_);
    Serve(life);
    EXPECT_EQ(EndOf(Fetch(path_.get(), old->regions[0]), old->source), FetchEnd::kLeaseEnded);
    EXPECT_EQ(EndOf(Fetch(path_.get(), twin_->regions[1]), twin_->source), FetchEnd::kOk);
  }
  EXPECT_GE(downs_.load(), 3);
}

TEST_F(UcxReaderProcessTest, APeerThatIsStoppedIsGivenUpAndUsedAgainWhenItGoesOn) {
  EXPECT_EQ(EndOf(Fetch(path_.get(), twin_->regions[0]), twin_->source), FetchEnd::kOk);
  std::vector<Running> running;
  for (int i = 0; i < 4; ++i) running.push_back(Fetch(path_.get(), twin_->regions[i % kObjects]));
  Running hurried = Fetch(path_.get(), twin_->regions[0], /*deadline_ms=*/400);
  EXPECT_OK(running[0].log->WaitRange(0));
  child_->Signal(SIGSTOP);
  const int64_t stopped_ns = SystemClock::Get()->SteadyNs();
  const FetchEnd hurried_end = EndOf(hurried, twin_->source);
  EXPECT_TRUE(hurried_end == FetchEnd::kDeadline || hurried_end == FetchEnd::kOk ||
              hurried_end == FetchEnd::kPathDown);
  for (const Running& fetch : running) {
    const FetchEnd end = EndOf(fetch, twin_->source);
    EXPECT_TRUE(end == FetchEnd::kOk || end == FetchEnd::kPathDown) << static_cast<int>(end);
  }
  EXPECT_LT(SystemClock::Get()->SteadyNs() - stopped_ns, 10'000'000'000);
  for (Running& fetch : running) {
    for (auto& buffer : fetch.buffers) std::fill(buffer.begin(), buffer.end(), std::byte{0x3C});
  }
  child_->Signal(SIGCONT);
  door_->Drain();
  EXPECT_TRUE(child_->IsAlive()) << "the peer did not outlive being stopped";
  EXPECT_EQ(EndOf(Fetch(path_.get(), twin_->regions[1]), twin_->source), FetchEnd::kOk);
  EXPECT_TRUE(child_->IsAlive());
  for (const Running& fetch : running) {
    for (const auto& buffer : fetch.buffers) {
      EXPECT_TRUE(std::all_of(buffer.begin(), buffer.end(), [](std::byte b) { return b == std::byte{0x3C}; }))
          << "written to after it was given back";
    }
  }
}

TEST_F(UcxReaderProcessTest, AShortStopGoesUnnoticed) {
  EXPECT_EQ(EndOf(Fetch(path_.get(), twin_->regions[0]), twin_->source), FetchEnd::kOk);
  std::vector<Running> running;
  for (int i = 0; i < 3; ++i) running.push_back(Fetch(path_.get(), twin_->regions[i]));
  child_->Signal(SIGSTOP);
  Running probe = Fetch(path_.get(), twin_->regions[0], /*deadline_ms=*/100);
  (void)EndOf(probe, twin_->source);
  child_->Signal(SIGCONT);
  for (const Running& fetch : running) EXPECT_EQ(EndOf(fetch, twin_->source), FetchEnd::kOk);
}

TEST_F(UcxReaderProcessTest, ALeaseThatEndsAmidTheTransferIsNoticed) {
  int ended = 0;
  for (int round = 0; round < kObjects; ++round) {
    const Running fetch = Fetch(path_.get(), twin_->regions[round]);
    EXPECT_OK(fetch.log->WaitRange(0));
    child_->Say("end " + std::to_string(round));
    const FetchEnd end = EndOf(fetch, twin_->source);
    EXPECT_TRUE(end == FetchEnd::kOk || end == FetchEnd::kLeaseEnded);
    ended += end == FetchEnd::kLeaseEnded ? 1 : 0;
    EXPECT_TRUE(Eventually([&] {
      return EndOf(Fetch(path_.get(), twin_->regions[round]), twin_->source) == FetchEnd::kLeaseEnded;
    }));
  }
  std::printf("%d of %d leases ended in time for the fetch to notice\n", ended, kObjects);
}

TEST_F(UcxReaderProcessTest, EightThreadsSurviveAPeerThatIsKilledAgainAndAgain) {
  const uint64_t seed = 5;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  for (uint64_t life = 2; life < 6; ++life) {
    std::atomic<int> whole{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 8; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < 3; ++i) {
          const FetchEnd end =
              EndOf(Fetch(path_.get(), twin_->regions[(thread + i) % kObjects], 5'000), twin_->source);
          EXPECT_TRUE(end == FetchEnd::kOk || end == FetchEnd::kPathDown || end == FetchEnd::kDeadline);
          whole += end == FetchEnd::kOk ? 1 : 0;
        }
      });
    }
    const int before = static_cast<int>(rng.Below(6));
    Eventually([&] { return whole.load() >= before; });
    Kill();
    for (auto& thread : threads) thread.join();
    Serve(life);
    EXPECT_EQ(EndOf(Fetch(path_.get(), twin_->regions[0]), twin_->source), FetchEnd::kOk);
  }
}

class UcxServerProcessTest : public ::testing::Test {
 protected:
  UcxServerProcessTest() : twin_(std::make_unique<Twin>(1)) {
    std::signal(SIGPIPE, SIG_IGN);
    UcxNodeOptions options = Impatient();
    options.source = &twin_->source;
    auto node = UcxNode::Start(std::move(options));
    EPIC_CHECK(node.ok());
    node_ = *std::move(node);
  }
  // Until the reader has said it so often; answers what it asks.
  void Hear(Child* reader, const std::string& word, int count) {
    while (count > 0) {
      const auto line = reader->Hear();
      ASSERT_TRUE(line.has_value()) << "the reader says nothing more";
      ASSERT_NE(*line, "wrong");
      if (*line == "ask") reader->Say(ToHex(*node_->IssueTicket()));
      if (*line == word) count -= 1;
    }
  }

  std::unique_ptr<Twin> twin_;
  std::unique_ptr<UcxNode> node_;
};

TEST_F(UcxServerProcessTest, AReaderThatIsKilledLeavesNothingOpen) {
  for (int round = 0; round < 4; ++round) {
    const auto reader = Start("read", 1);
    Hear(reader.get(), "ok", 1 + round);
    reader->Kill();
    EXPECT_TRUE(twin_->source.WaitForOpen(0));
    EXPECT_TRUE(Eventually([this] {
      const UcxNodeGauges gauges = Gauges(node_.get());
      return gauges.sessions == 0 && gauges.lanes == 0;
    }));
  }
}

TEST_F(UcxServerProcessTest, AReaderThatIsStoppedHoldsNothingForLongAndGoesOnAfterwards) {
  const auto reader = Start("read", 1);
  Hear(reader.get(), "ok", 2);
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(twin_->source.WaitForOpen(1));
    reader->Signal(SIGSTOP);
    const bool was_open = twin_->source.open() > 0;
    EXPECT_TRUE(twin_->source.WaitForOpen(0)) << "held for a reader that is stopped";
    std::printf("an object was%s open when the reader was stopped\n", was_open ? "" : " not");
    reader->Signal(SIGCONT);
    Hear(reader.get(), "ok", 2);
  }
  EXPECT_TRUE(reader->IsAlive());
}

}  // namespace
}  // namespace epic::transport
