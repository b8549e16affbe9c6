// A disk under the whole store that is full, slow or stands still: what is in memory is served as ever, who
// needs the disk gets an answer in time, StoreDisk says what is wrong, and the store goes on by itself once
// the disk does.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/storage/names.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/faults/testing/whole_store.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

using std::chrono::steady_clock;

constexpr std::string_view kTenant = "default";
constexpr uint32_t kTokens = 64;
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kFitInMemory = 16;  // objects, and the whole of memory
constexpr int64_t kWaitMs = 1000;      // far longer than this disk in memory needs

class DiskFaultsTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(whole_.Open()); }
  StoreCore* store() { return whole_.core(); }
  Power* power() { return whole_.power(); }
  static CacheId IdOf(uint64_t seed) { return CacheId::Of(kTenant, {}, TokensOf(seed, kTokens)); }
  absl::Status Create(uint64_t seed, Durability durability = Durability::kReplicas) {
    NewContext context = ContextOf(seed, kTokens);
    context.durability = durability;
    return store()->CreateContext(context).status();
  }
  absl::Status PutContent(uint64_t seed, uint64_t content) {
    return PutObject(store(), kTenant, {IdOf(seed), {}}, layout_, content).status();
  }
  void Put(uint64_t seed) {
    ASSERT_OK(Create(seed));
    ASSERT_OK(PutContent(seed, seed));
  }
  // Of contexts [1, count], written; those that came first are on disk alone.
  void PutMoreThanFit(uint64_t count) {
    for (uint64_t seed = 1; seed <= count; ++seed) {
      Put(seed);
      store()->DrainWrites();
    }
  }
  AcquireResult Get(uint64_t seed, uint64_t content) {
    const auto result = store()->Acquire(kTenant, {IdOf(seed), {}}, layout_);
    EXPECT_OK(result);
    if (!result.ok()) return {};
    EXPECT_TRUE(result->object == nullptr || Holds(*result->object, content)) << "wrong bytes: " << seed;
    return *result;
  }
  ::testing::AssertionResult Hits(uint64_t seed, uint64_t content) {
    const AcquireResult result = Get(seed, content);
    if (result.object != nullptr) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << NameOf(result.cause);
  }
  ::testing::AssertionResult Hits(uint64_t seed) { return Hits(seed, seed); }
  bool InMemory(uint64_t seed) { return store()->Where(kTenant, {IdOf(seed), {}}).in_memory; }
  // What is served without the disk.
  void UseMemory(uint64_t seed) {
    EXPECT_TRUE(Hits(seed));
    EXPECT_TRUE(store()->Exists(kTenant, {IdOf(seed), {}}));
    EXPECT_OK(store()->GetContext(kTenant, IdOf(seed)));
    EXPECT_OK(store()->ListContexts(kTenant, {}));
    store()->Explain(kTenant, {IdOf(seed), {}});
    store()->Touch(kTenant, IdOf(seed));
    EXPECT_GT(store()->Usage().objects_in_memory, 0u);
  }
  // Until the disk is seen to be quick.
  void UseUntilQuick() {
    for (uint64_t seed = 10'000; store()->Disk().slow; ++seed) ASSERT_OK(Create(seed));
  }
  void ExpectWhole() {
    store()->DrainWrites();
    EXPECT_EQ(whole_.Leaks(), "");
  }

  const KvLayout layout_ = LayoutOf(kTokens, 4, 2, 128);  // 4 slabs of 64 KiB
  ManualClock clock_;
  WholeStore whole_{1,
                    {.store = {.memory_bytes = kFitInMemory * 4 * 64 * 1024,
                               .disk_bytes_max = 64 * kMiB,
                               .clock = &clock_,
                               .disk_wait_ms = kWaitMs,
                               .writer = {.max_pending_bytes = 2 * kMiB}}}};
};

// --- slow

TEST_F(DiskFaultsTest, ASlowDiskIsToldAndCostsNothingInMemory) {
  for (uint64_t seed = 101; seed < 141; ++seed) ASSERT_OK(Create(seed));
  Put(1);
  store()->DrainWrites();
  EXPECT_FALSE(store()->Disk().slow);
  power()->SetHook([this](uint64_t) { clock_.AdvanceMs(100); });
  for (uint64_t seed = 2; seed < 12; ++seed) ASSERT_OK(Create(seed));
  EXPECT_TRUE(store()->Disk().slow);
  EXPECT_GT(store()->Disk().wait_ns, 50'000'000);
  const int64_t before_ns = clock_.SteadyNs();
  UseMemory(1);
  EXPECT_EQ(clock_.SteadyNs(), before_ns) << "something in memory asked the disk";

  power()->SetHook(nullptr);
  UseUntilQuick();
  EXPECT_EQ(store()->Disk().errors, 0u);
  ExpectWhole();
}

TEST_F(DiskFaultsTest, ALargeObjectOnAnOrdinaryDiskIsNotSlow) {
  power()->SetHook([this](uint64_t bytes) { clock_.AdvanceMs(1 + static_cast<int64_t>(bytes >> 17)); });
  PutMoreThanFit(2 * kFitInMemory);
  for (uint64_t seed = 1; seed <= 2 * kFitInMemory; ++seed) EXPECT_TRUE(Hits(seed));
  EXPECT_FALSE(store()->Disk().slow) << store()->Disk().wait_ns;
}

class ProbedDiskTest : public DiskFaultsTest {
 protected:
  ProbedDiskTest() {
    options_.store.disk_probe_ms = 1;
    probed_ = std::make_unique<WholeStore>(2, options_);
  }
  void SetUp() override { ASSERT_OK(probed_->Open()); }

  WholeStoreOptions options_{.store = {.memory_bytes = kFitInMemory * 4 * 64 * 1024,
                                       .disk_bytes_max = 64 * kMiB,
                                       .clock = &clock_,
                                       .disk_wait_ms = 60'000}};
  std::unique_ptr<WholeStore> probed_;
};

TEST_F(ProbedDiskTest, ThatItIsQuickAgainIsSeenWithoutAnybodysUse) {
  StoreCore* const core = probed_->core();
  const auto put = [&](uint64_t seed) {
    ASSERT_OK(core->CreateContext(ContextOf(seed, kTokens)));
    ASSERT_OK(PutObject(core, kTenant, {IdOf(seed), {}}, layout_, seed));
    core->DrainWrites();
  };
  for (uint64_t seed = 1; seed <= 2 * kFitInMemory; ++seed) put(seed);
  probed_->power()->SetHook([this](uint64_t) { clock_.AdvanceMs(1500); });
  put(100);                                                      // so writing is slow
  core->Acquire(kTenant, {IdOf(1), {}}, layout_).IgnoreError();  // and reading
  EXPECT_TRUE(core->Disk().slow);
  probed_->power()->SetHook(nullptr);
  while (core->Disk().slow) std::this_thread::yield();
  EXPECT_EQ(core->Disk().errors, 0u);
  EXPECT_EQ(probed_->Leaks(), "");
}

// --- standing still

TEST_F(DiskFaultsTest, GetsFromMemoryNeverWaitForADiskThatStandsStill) {
  for (uint64_t seed = 1; seed <= 4; ++seed) Put(seed);
  store()->DrainWrites();
  power()->SetGate(false);
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;  // who keep asking for what needs the disk
  for (uint64_t other = 0; other < 4; ++other) {
    others.emplace_back([this, &stop, other] {
      for (uint64_t seed = 100 * (other + 1); !stop; ++seed) {
        EXPECT_EQ(CodeOf(Create(seed)), ErrorCode::kDeadline);
        EXPECT_OK(PutContent(1 + seed % 4, 1 + seed % 4));
      }
    });
  }
  power()->AwaitHeld(1);
  constexpr int kGets = 20'000;
  std::vector<int64_t> waits_us;
  for (int get = 0; get < kGets; ++get) {
    const auto begin = steady_clock::now();
    const auto result = store()->Acquire(kTenant, {IdOf(1 + get % 4), {}}, layout_);
    waits_us.push_back(
        std::chrono::duration_cast<std::chrono::microseconds>(steady_clock::now() - begin).count());
    ASSERT_OK(result);
    ASSERT_NE(result->object, nullptr);
  }
  for (uint64_t seed = 1; seed <= 4; ++seed) UseMemory(seed);
  stop = true;
  for (std::thread& other : others) other.join();
  std::sort(waits_us.begin(), waits_us.end());
  const int64_t p99_us = waits_us[kGets / 100 * 99];
  std::printf("gets while the disk stands still: p50 %lld us, p99 %lld us, longest %lld us\n",
              static_cast<long long>(waits_us[kGets / 2]), static_cast<long long>(p99_us),
              static_cast<long long>(waits_us.back()));
  EXPECT_LT(p99_us, 5'000);
  clock_.AdvanceMs(5'000);
  EXPECT_TRUE(store()->Disk().slow);
  EXPECT_GT(store()->Disk().wait_ns, 4'900'000'000);
  EXPECT_GT(store()->Disk().late, 0u);
  power()->SetGate(true);
  while (!Create(1000).ok()) std::this_thread::yield();
  UseUntilQuick();
  ExpectWhole();
}

TEST_F(DiskFaultsTest, AMissThatNeedsTheDiskIsAnsweredInTimeAndComesLater) {
  PutMoreThanFit(2 * kFitInMemory);
  ASSERT_FALSE(InMemory(1));
  power()->SetGate(false);
  EXPECT_EQ(Get(1, 1).cause, MissCause::kDiskSlow);
  const auto begin = steady_clock::now();
  for (int again = 0; again < 20; ++again) EXPECT_EQ(Get(1, 1).cause, MissCause::kDiskSlow);
  EXPECT_LT(steady_clock::now() - begin, std::chrono::milliseconds(20 * kWaitMs)) << "only one waits for it";
  EXPECT_EQ(store()->Disk().late, 1u);
  EXPECT_EQ(store()->Disk().errors, 0u);
  power()->SetGate(true);
  while (!InMemory(1)) std::this_thread::yield();  // the read that was late
  EXPECT_TRUE(Hits(1));
  ExpectWhole();
}

TEST_F(DiskFaultsTest, OthersWhoWaitForTheSameReadLeaveWithItsReader) {
  PutMoreThanFit(2 * kFitInMemory);
  ASSERT_FALSE(InMemory(1));
  power()->SetGate(false);
  std::vector<std::future<MissCause>> readers;
  for (int reader = 0; reader < 6; ++reader) {
    readers.push_back(std::async(std::launch::async, [this] { return Get(1, 1).cause; }));
  }
  for (auto& reader : readers) EXPECT_EQ(reader.get(), MissCause::kDiskSlow);
  power()->SetGate(true);
  while (!InMemory(1)) std::this_thread::yield();
  ExpectWhole();
}

TEST_F(DiskFaultsTest, LayersThatAreWaitedForFailInTime) {
  PutMoreThanFit(2 * kFitInMemory);
  ASSERT_FALSE(InMemory(1));
  power()->SetGate(false);
  {
    const auto streaming = store()->AcquireStreaming(kTenant, {IdOf(1), {}}, layout_);
    ASSERT_OK(streaming);
    ASSERT_NE(streaming->object, nullptr);
    EXPECT_EQ(CodeOf(streaming->object->WaitLayer(0)), ErrorCode::kDeadline);
    EXPECT_EQ(store()->AcquireStreaming(kTenant, {IdOf(1), {}}, layout_)->cause, MissCause::kDiskSlow);
    EXPECT_EQ(Get(1, 1).cause, MissCause::kDiskSlow);
  }
  EXPECT_EQ(store()->Disk().late, 1u);
  EXPECT_EQ(store()->Disk().errors, 0u);
  power()->SetGate(true);
  store()->DrainLoads();
  EXPECT_TRUE(Hits(1)) << "its copy on disk was not given up";
  ExpectWhole();
}

TEST_F(DiskFaultsTest, ALateReadReplacesNothingThatCameMeanwhile) {
  PutMoreThanFit(2 * kFitInMemory);
  for (const uint64_t seed : {1, 2, 3}) ASSERT_FALSE(InMemory(seed));
  power()->SetGate(false);
  for (const uint64_t seed : {1, 2, 3}) EXPECT_EQ(Get(seed, seed).cause, MissCause::kDiskSlow);
  ASSERT_OK(PutContent(1, 77));  // compiled again
  EXPECT_TRUE(Hits(1, 77));
  EXPECT_EQ(CodeOf(store()->DeleteContext(kTenant, IdOf(2)).status()), ErrorCode::kDeadline);
  power()->SetGate(true);
  while (!InMemory(3)) std::this_thread::yield();
  while (!store()->DeleteContext(kTenant, IdOf(2)).ok()) std::this_thread::yield();
  EXPECT_TRUE(Hits(1, 77));
  EXPECT_EQ(Get(2, 2).cause, MissCause::kDeleted);
  EXPECT_TRUE(Hits(3));
  store()->DrainWrites();
  whole_.Close();
  ASSERT_OK(whole_.Open());
  EXPECT_TRUE(Hits(1, 77));
  EXPECT_EQ(CodeOf(store()->GetContext(kTenant, IdOf(2)).status()), ErrorCode::kContextDeleted);
  ExpectWhole();
}

TEST_F(DiskFaultsTest, AChangeIsAnsweredInTimeAndIsToBeSentAgain) {
  Put(1);
  store()->DrainWrites();
  power()->SetGate(false);
  const absl::Status late = Create(2);
  EXPECT_EQ(CodeOf(late), ErrorCode::kDeadline);
  EXPECT_TRUE(MayRetry(late));
  EXPECT_TRUE(RetryAfterMsOf(late).has_value());
  // While that one goes on others are refused at once, and change nothing.
  const auto begin = steady_clock::now();
  for (uint64_t seed = 3; seed < 23; ++seed) EXPECT_EQ(CodeOf(Create(seed)), ErrorCode::kDeadline);
  EXPECT_EQ(CodeOf(store()->UpdateContext(kTenant, IdOf(1), {.pin = Pin::kHard}).status()),
            ErrorCode::kDeadline);
  EXPECT_EQ(CodeOf(store()->DeleteContext(kTenant, IdOf(1)).status()), ErrorCode::kDeadline);
  EXPECT_EQ(CodeOf(store()->SetState(kTenant, IdOf(1), ContextState::kReady, 1, "")), ErrorCode::kDeadline);
  EXPECT_EQ(CodeOf(store()->DropObject(kTenant, {IdOf(1), {}})), ErrorCode::kDeadline);
  EXPECT_LT(steady_clock::now() - begin, std::chrono::milliseconds(20 * kWaitMs));
  power()->SetGate(true);
  while (!store()->GetContext(kTenant, IdOf(2)).ok()) std::this_thread::yield();  // it comes by itself
  while (!Create(2).ok()) std::this_thread::yield();
  for (uint64_t seed = 3; seed < 23; ++seed) {
    EXPECT_EQ(CodeOf(store()->GetContext(kTenant, IdOf(seed)).status()), ErrorCode::kContextNotFound);
  }
  EXPECT_EQ(store()->GetContext(kTenant, IdOf(1))->pin, Pin::kNone);
  EXPECT_TRUE(Hits(1));
  Rng rng(1);
  whole_.Crash(&rng);
  ASSERT_OK(whole_.Open());
  EXPECT_OK(store()->GetTokens(kTenant, IdOf(2)));
  ExpectWhole();
}

TEST_F(DiskFaultsTest, ADurableCommitIsAnsweredInTimeAndMayBeMadeAgain) {
  ASSERT_OK(Create(1, Durability::kObject));
  auto writer = store()->Reserve(kTenant, {IdOf(1), {}}, layout_);
  ASSERT_OK(writer);
  for (uint32_t layer = 0; layer < layout_.layers; ++layer) {
    ASSERT_OK((*writer)->WriteLayer(layer, AsBytes(SlabOf(layout_, layer, 1))));
  }
  power()->SetGate(false);
  const absl::Status late = (*writer)->Commit().status();
  EXPECT_EQ(CodeOf(late), ErrorCode::kDeadline) << late;
  EXPECT_TRUE(MayRetry(late));
  UseMemory(1);
  power()->SetGate(true);
  absl::Status committed = late;
  while (!committed.ok()) committed = (*writer)->Commit().status();
  writer->reset();
  Rng rng(1);
  whole_.Crash(&rng);
  ASSERT_OK(whole_.Open());
  EXPECT_TRUE(Hits(1));
  ExpectWhole();
}

TEST_F(DiskFaultsTest, WritesThatWaitDoNotFillMemory) {
  constexpr uint64_t kObjects = 4 * kFitInMemory;
  for (uint64_t seed = 1; seed <= kObjects; ++seed) ASSERT_OK(Create(seed));
  power()->SetGate(false);
  ASSERT_OK(PutContent(1, 1));
  power()->AwaitHeld(1);  // the write of it
  // The first ones find out how slow the disk is, by waiting; the others know.
  for (uint64_t seed = 2; seed <= kFitInMemory + 2; ++seed) {
    if (seed == 11) clock_.AdvanceMs(5'000);
    ASSERT_OK(PutContent(seed, seed));
  }
  const auto begin = steady_clock::now();
  for (uint64_t seed = kFitInMemory + 3; seed <= kObjects; ++seed) {
    ASSERT_OK(PutContent(seed, seed));
    EXPECT_TRUE(Hits(seed));
  }
  EXPECT_LT(steady_clock::now() - begin, std::chrono::milliseconds(20 * kWaitMs));
  EXPECT_GT(store()->Disk().not_written, 0u);
  EXPECT_LE(store()->Usage().memory_bytes, store()->Usage().memory_capacity_bytes);
  power()->SetGate(true);
  store()->DrainWrites();
  UseUntilQuick();
  const uint64_t not_written = store()->Disk().not_written;
  for (uint64_t seed = 1; seed <= kObjects; ++seed) Get(seed, seed);  // the right bytes, or a miss
  Put(1000);
  store()->DrainWrites();
  EXPECT_EQ(store()->Disk().not_written, not_written);
  EXPECT_TRUE(store()->Where(kTenant, {IdOf(1000), {}}).on_disk);
  ExpectWhole();
}

TEST_F(DiskFaultsTest, StopWaitsForWhatWasBegunOnly) {
  for (uint64_t seed = 1; seed <= 8; ++seed) ASSERT_OK(Create(seed));
  power()->SetGate(false);
  for (uint64_t seed = 1; seed <= 8; ++seed) ASSERT_OK(PutContent(seed, seed));
  EXPECT_EQ(CodeOf(Create(100)), ErrorCode::kDeadline);
  auto stop = std::async(std::launch::async, [this] { store()->Stop(); });
  EXPECT_EQ(stop.wait_for(std::chrono::milliseconds(3 * kWaitMs)), std::future_status::timeout)
      << "a write is on its way";
  power()->SetGate(true);
  stop.get();
  EXPECT_GT(store()->Disk().not_written, 0u) << "what the disk had no time for";
  whole_.Close();
  ASSERT_OK(whole_.Open());
  EXPECT_OK(store()->GetContext(kTenant, IdOf(100))) << "it was begun";
  for (uint64_t seed = 1; seed <= 8; ++seed) Get(seed, seed);
  ExpectWhole();
}

// An erasure waits for every object that is queued. While the store stops it waits no longer than others do.
TEST_F(DiskFaultsTest, StopGivesUpWhatIsQueuedAlsoWhileAnErasureWaitsForIt) {
  constexpr uint64_t kObjects = 7;
  for (uint64_t seed = 1; seed <= kObjects; ++seed) ASSERT_OK(Create(seed));
  ASSERT_OK(Create(100));
  std::promise<void> released, held;
  std::atomic<bool> is_held{false};
  // Slabs wait, the log does not.
  power()->SetHook([&, until = released.get_future().share()](uint64_t bytes) {
    if (bytes < 64 * 1024) return;
    if (!is_held.exchange(true)) held.set_value();
    until.wait();
  });
  for (uint64_t seed = 1; seed <= kObjects; ++seed) ASSERT_OK(PutContent(seed, seed));
  held.get_future().wait();
  std::promise<size_t> erased;
  ASSERT_OK(store()->EraseContext(kTenant, IdOf(100),
                                  [&](std::vector<std::string> names) { erased.set_value(names.size()); }));
  auto stop = std::async(std::launch::async, [this] { store()->Stop(); });
  EXPECT_EQ(stop.wait_for(std::chrono::milliseconds(3 * kWaitMs)), std::future_status::timeout)
      << "a write is on its way";
  released.set_value();
  stop.get();
  erased.get_future().wait();  // it is told, one way or the other
  EXPECT_EQ(store()->Disk().not_written, kObjects - 1);
  power()->SetHook(nullptr);
  whole_.Close();
  ASSERT_OK(whole_.Open());
  store()->DrainErasures();
  EXPECT_EQ(CodeOf(store()->GetContext(kTenant, IdOf(100)).status()), ErrorCode::kContextDeleted);
  for (uint64_t seed = 1; seed <= kObjects; ++seed) Get(seed, seed);
  ExpectWhole();
}

// --- full, and failing

TEST_F(DiskFaultsTest, AFullDiskRefusesContextsAndTakesThemAgainOnceThereIsRoom) {
  Put(1);
  store()->DrainWrites();
  whole_.rocks()->SetCapacity(whole_.rocks()->UsedBytes() + 4096);
  absl::Status refused;
  for (uint64_t seed = 2; seed < 100 && refused.ok(); ++seed) refused = Create(seed);
  EXPECT_EQ(CodeOf(refused), ErrorCode::kStorageFull) << refused;
  for (int again = 0; again < 5; ++again) {
    EXPECT_EQ(CodeOf(Create(200)), ErrorCode::kStorageFull);
    UseMemory(1);
  }
  EXPECT_TRUE(store()->Disk().full);
  EXPECT_GT(store()->Disk().errors, 0u);
  whole_.rocks()->SetCapacity(std::numeric_limits<uint64_t>::max());
  ASSERT_OK(Create(200));
  EXPECT_FALSE(store()->Disk().full);
  ASSERT_OK(store()->DeleteContext(kTenant, IdOf(1)));
  ExpectWhole();
}

TEST_F(DiskFaultsTest, ReadsThatFailNowAndThenLeaveNoMemoryBehind) {
  PutMoreThanFit(40);
  whole_.extents()->SetFaults({.read_error = 5, .short_read = 5, .bit_flip = 5});
  for (int round = 0; round < 10; ++round) {
    for (uint64_t seed = 1; seed <= 40; ++seed) Hits(seed);
  }
  EXPECT_GT(store()->Disk().errors, 0u);
  whole_.extents()->SetFaults({});
  const StoreUsage usage = store()->Usage();
  EXPECT_EQ(usage.leased_objects, 0u);
  EXPECT_EQ(usage.memory_bytes, usage.objects_in_memory * layout_.TotalBytes());
  ExpectWhole();
}

}  // namespace
}  // namespace epic::kv_store
