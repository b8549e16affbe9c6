// Ten thousand transfers over UCX, many of them cancelled at random points or by deadlines, on several
// threads: each ends, no wrong byte is called good, no buffer is written to once it was given back, and
// nothing is left.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/testing/status_matchers.h"
#include "common/transport/testing/fetch_log.h"
#include "common/transport/testing/test_source.h"
#include "common/transport/ucx/ucx_node.h"

namespace epic::transport {
namespace {

constexpr int kThreads = 4;
constexpr int kTransfersEach = 2'500;

class NodeDoor final : public TicketSource {
 public:
  explicit NodeDoor(UcxNode* node) : node_(node) {}
  void Ask(std::function<void(absl::StatusOr<std::string>)> done) override { done(node_->IssueTicket()); }

 private:
  UcxNode* const node_;
};

// 2 layers of 128 KiB, 2 pieces each.
KvLayout StressLayout() {
  KvLayout layout = SmallLayout(2, 4);
  layout.kv_heads = 512;
  return layout;
}

struct Counts {
  std::atomic<int> whole{0};
  std::atomic<int> cancelled{0};
  std::atomic<int> late{0};
};

// One thread's transfers, one after the other, with buffers that are used again at once.
void Transfer(Path* path, const TestSource& source, const std::vector<std::shared_ptr<const Region>>& regions,
              uint64_t seed, Counts* counts) {
  Rng rng(seed);
  std::array<std::vector<std::byte>, 2> buffers;
  for (auto& buffer : buffers) buffer.resize(StressLayout().LayerBytes());
  for (int i = 0; i < kTransfersEach; ++i) {
    const auto& region = regions[rng.Below(regions.size())];
    const bool hurried = rng.Below(16) == 0;
    FetchRequest request{
        .region = region,
        .deadline_steady_ns = SystemClock::Get()->SteadyNs() +
                              (hurried ? static_cast<int64_t>(rng.Below(1'000'000)) : 20'000'000'000)};
    for (uint32_t layer = 0; layer < 2; ++layer)
      request.ranges.push_back({.layer = layer, .to = buffers[layer]});
    const uint64_t point = rng.Below(4);
    std::atomic<FetchId> id{0};
    const auto log = std::make_shared<FetchLog>(2, [&](size_t) {
      if (point == 1) path->Cancel(id.load());
    });
    id = path->Fetch(std::move(request), log);
    if (point == 0) {
      for (uint64_t turns = rng.Below(200); turns > 0; --turns) std::this_thread::yield();
      path->Cancel(id.load());
    }
    switch (EndOf(log->WaitDone())) {
      case FetchEnd::kOk:
        counts->whole += 1;
        break;
      case FetchEnd::kCancelled:
        counts->cancelled += 1;
        break;
      case FetchEnd::kDeadline:
        EXPECT_TRUE(hurried);
        counts->late += 1;
        break;
      default:
        ADD_FAILURE() << log->WaitDone();
    }
    for (uint32_t layer = 0; layer < 2; ++layer) {
      if (!log->range(layer).ok()) continue;
      const ByteSpan right = source.Bytes(*region, layer);
      ASSERT_TRUE(std::equal(right.begin(), right.end(), buffers[layer].begin())) << "wrong bytes";
    }
    // The buffers are this thread's again: a late write would be seen.
    const auto mark = static_cast<std::byte>(i);
    for (auto& buffer : buffers) std::fill(buffer.begin(), buffer.end(), mark);
    for (uint64_t turns = rng.Below(20); turns > 0; --turns) std::this_thread::yield();
    for (const auto& buffer : buffers) {
      ASSERT_TRUE(std::all_of(buffer.begin(), buffer.end(), [mark](std::byte b) { return b == mark; }));
    }
  }
}

TEST(UcxCancelStressTest, TenThousandTransfersEndAsTheyShould) {
  const uint64_t seed = ::testing::UnitTest::GetInstance()->random_seed() != 0
                            ? static_cast<uint64_t>(::testing::UnitTest::GetInstance()->random_seed())
                            : 4242;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  TestSource source(5);
  std::vector<std::shared_ptr<const Region>> regions;
  for (uint64_t i = 0; i < 8; ++i) regions.push_back(source.Put(i + 1, StressLayout()));
  ASSERT_OK_AND_ASSIGN(const auto server, UcxNode::Start({.source = &source}));
  ASSERT_OK_AND_ASSIGN(const auto reader, UcxNode::Start({}));
  auto path = reader->MakePath(std::make_shared<NodeDoor>(server.get()), {});
  Counts counts;
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back(
        [&, thread] { Transfer(path.get(), source, regions, seed * kThreads + thread, &counts); });
  }
  for (auto& thread : threads) thread.join();
  std::printf("%d whole, %d cancelled, %d late\n", counts.whole.load(), counts.cancelled.load(),
              counts.late.load());
  EXPECT_GT(counts.whole.load(), kThreads * kTransfersEach / 3);
  EXPECT_GT(counts.cancelled.load(), kThreads * kTransfersEach / 20);
  EXPECT_TRUE(source.WaitForOpen(0));
  path.reset();
}

}  // namespace
}  // namespace epic::transport
