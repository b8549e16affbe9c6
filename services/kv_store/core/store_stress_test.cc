// Many threads on one store: the same few contexts are created, deleted, written, read, leased and dropped at
// the same time, in little memory. What a reader gets is always whole and of its context. For
// ThreadSanitizer.
#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr std::string_view kTenant = "default";
constexpr int kThreads = 6;
constexpr int kSteps = 1500;
constexpr uint32_t kTokens = 8;
constexpr uint64_t kContexts = 8;

CacheId IdOf(uint64_t context) { return CacheId::Of(kTenant, {}, TokensOf(context, kTokens)); }

// Each context's objects hold one of a few contents.
bool IsOneOf(const KvObject& object, uint64_t context) {
  for (uint64_t content = 0; content < 3; ++content) {
    if (Holds(object, context * 10 + content)) return true;
  }
  return false;
}

void Hammer(StoreCore* store, uint64_t seed, std::atomic<int>* hits) {
  Rng rng(seed);
  std::vector<std::pair<std::shared_ptr<const KvObject>, uint64_t>> leases;
  const KvLayout layout = LayoutOf(kTokens);
  for (int step = 0; step < kSteps; ++step) {
    const uint64_t context = rng.Below(kContexts);
    const CacheId id = IdOf(context);
    switch (rng.Below(10)) {
      case 0:
      case 1:
        EXPECT_OK(store->CreateContext(ContextOf(context, kTokens)));
        break;
      case 2:
        if (rng.Below(4) == 0) {
          EXPECT_OK(store->DeleteContext(kTenant, id));
        }
        break;
      case 3:
        store->Touch(kTenant, id);
        if (rng.Below(8) == 0) store->Housekeep();
        break;
      case 4:
        if (rng.Below(4) == 0) {
          EXPECT_OK(store->DropObject(kTenant, {id, {}}));
        }
        EXPECT_LE(store->Usage().memory_bytes, store->Usage().memory_capacity_bytes);
        break;
      case 5:
      case 6: {
        const auto object = PutObject(store, kTenant, {id, {}}, layout, context * 10 + rng.Below(3));
        if (object.ok()) {
          EXPECT_TRUE(IsOneOf(**object, context));
        }
        break;
      }
      default: {
        const auto result = store->Acquire(kTenant, {id, {}}, layout);
        ASSERT_OK(result);
        if (result->object == nullptr) break;
        ++*hits;
        EXPECT_TRUE(IsOneOf(*result->object, context));
        leases.emplace_back(result->object, context);
        if (leases.size() > 2) leases.erase(leases.begin());
      }
    }
  }
  for (const auto& [object, context] : leases) EXPECT_TRUE(IsOneOf(*object, context));
}

TEST(StoreStressTest, ThreadsNeverSeeTornOrForeignBytes) {
  std::atomic<int> hits{0};
  {
    auto opened = StoreCore::Open(
        std::make_unique<MemoryTableStore>(std::make_shared<MemoryDisk>()),
        {.memory_bytes = 24 * 4096, .disk_bytes_max = 12 * 4096, .writer = {.max_pending_bytes = 8192}});
    ASSERT_OK(opened);
    StoreCore* const store = opened->get();
    std::vector<std::thread> threads;
    for (uint64_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([store, thread, &hits] { Hammer(store, 77 + thread, &hits); });
    }
    for (std::thread& thread : threads) thread.join();
    store->DrainWrites();
    EXPECT_EQ(store->Usage().reservations, 0u);
    EXPECT_EQ(store->Usage().leased_objects, 0u);
  }
  EXPECT_GT(hits.load(), 100);
}

// The end of a write may fall anywhere into a Reserve that needs the memory of what was written.
TEST(StoreStressTest, ThereIsRoomAgainOnceWhatWasThereIsWritten) {
  auto tables = std::make_unique<MemoryTableStore>(std::make_shared<MemoryDisk>());
  ASSERT_OK_AND_ASSIGN(const auto store,
                       StoreCore::Open(std::move(tables), {.memory_bytes = 4096, .writer = {}}));
  const KvLayout layout = LayoutOf(kTokens);
  for (uint64_t context = 0; context < 2; ++context) {
    ASSERT_OK(store->CreateContext(ContextOf(context, kTokens)));
  }
  for (uint64_t put = 0; put < 20'000; ++put) {
    ASSERT_OK(PutObject(store.get(), kTenant, {IdOf(put % 2), {}}, layout, put)) << "put " << put;
    for (uint64_t wait = 0; wait < put % 8; ++wait) SlabOf(layout, 0, wait);
  }
}

// A name belongs to one context, whoever asks first; the loser gets a clear answer.
TEST(StoreStressTest, OneNameGoesToOneContext) {
  const auto store = MakeMemoryKvStore(1 << 20);
  std::atomic<int> winners{0};
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&store, &winners, thread] {
      NewContext context = ContextOf(thread, kTokens);
      context.name = "wanted";
      const auto created = store->CreateContext(context);
      if (created.ok()) {
        ++winners;
      } else {
        EXPECT_EQ(CodeOf(created.status()), ErrorCode::kNameInUse);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners.load(), 1);
}

}  // namespace
}  // namespace epic::kv_store
