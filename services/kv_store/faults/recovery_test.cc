// A store whose disk fails in its syncs and flushes, and works again: it goes on without a restart, and
// memory and disk agree from then on, also after a crash.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/faults/testing/faulty_rocks_file_system.h"
#include "services/kv_store/faults/testing/whole_store.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr std::string_view kTenant = "default";
constexpr uint32_t kTokens = 8;
constexpr uint64_t kSeeds = 12;
const ObjectVariant kVariant;

CacheId IdOf(uint64_t number) { return CacheId::Of(kTenant, {}, TokensOf(number, kTokens)); }
KvLayout SmallLayout() { return LayoutOf(kTokens, 2, 2, 8); }
KvLayout LargeLayout() { return LayoutOf(kTokens, 2, 2, 1024); }

// A store on a disk in memory, and what its callers were told.
class FailingStore {
 public:
  explicit FailingStore(uint64_t seed, SlabBackEnd slabs = SlabBackEnd::kExtents)
      : rng_(seed),
        whole_(seed, {.slabs = slabs,
                      .store = {.memory_bytes = 64 * LargeLayout().TotalBytes(),
                                .disk_bytes_max = uint64_t{64} << 20,
                                .clock = &clock_}}) {
    whole_.rocks()->SetLostOfFailedSyncs(static_cast<int>(seed % 3) * 50);
    EXPECT_OK(whole_.Open());
  }

  StoreCore* core() { return whole_.core(); }
  FaultyRocksFileSystem* disk() { return whole_.rocks(); }
  WholeStore* whole() { return &whole_; }

  absl::Status Create(uint64_t number, Durability durability = Durability::kReplicas) {
    NewContext context = ContextOf(number, kTokens);
    context.durability = durability;
    return core()->CreateContext(context).status();
  }
  absl::Status Delete(uint64_t number) { return core()->DeleteContext(kTenant, IdOf(number)).status(); }
  absl::Status Rename(uint64_t number, const std::string& name) {
    return core()->UpdateContext(kTenant, IdOf(number), {.name = name}).status();
  }
  absl::Status Put(uint64_t number, const KvLayout& layout) {
    return PutObject(core(), kTenant, {IdOf(number), kVariant}, layout, number).status();
  }
  bool Hits(uint64_t number, const KvLayout& layout) {
    const auto result = core()->Acquire(kTenant, {IdOf(number), kVariant}, layout);
    EXPECT_OK(result);
    return result.ok() && result->object != nullptr && Holds(*result->object, number);
  }
  // nullopt: it is there.
  std::optional<ErrorCode> WhyNot(uint64_t number) {
    const auto record = core()->GetContext(kTenant, IdOf(number));
    if (record.ok()) return std::nullopt;
    return CodeOf(record.status());
  }
  std::string NameOf(uint64_t number) {
    const auto record = core()->GetContext(kTenant, IdOf(number));
    EXPECT_OK(record);
    return record.ok() ? record->name : "";
  }
  void ExpectThere(uint64_t number) {
    const auto tokens = core()->GetTokens(kTenant, IdOf(number));
    ASSERT_OK(tokens) << "context " << number;
    EXPECT_EQ(*tokens, TokensOf(number, kTokens));
  }
  // Some time, in which the store may try again.
  void Wait() { clock_.AdvanceMs(10'000); }
  void CrashAndOpen() {
    whole_.Crash(&rng_);
    ASSERT_OK(whole_.Open());
  }
  void CloseAndOpen() {
    whole_.Close();
    ASSERT_OK(whole_.Open());
  }

 private:
  ManualClock clock_;
  Rng rng_;
  WholeStore whole_;
};

// --- the log

TEST(RecoveryTest, AfterOneFailedSyncOfTheLogTheNextChangeSucceedsAndACrashKeepsAll) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FailingStore store(seed);
    for (uint64_t number = 0; number < 5; ++number) ASSERT_OK(store.Create(number));
    store.disk()->FailNamed(RocksOp::kSync, ".log", 1);
    EXPECT_FALSE(store.Create(5).ok());
    EXPECT_GT(store.core()->Disk().errors, 0u);
    EXPECT_EQ(store.WhyNot(5), ErrorCode::kContextNotFound);
    for (uint64_t number = 0; number < 5; ++number) store.ExpectThere(number);
    EXPECT_OK(store.Create(6));
    EXPECT_OK(store.Delete(0));
    ASSERT_NO_FATAL_FAILURE(store.CrashAndOpen());
    for (const uint64_t number : {1, 2, 3, 4, 6}) store.ExpectThere(number);
    EXPECT_EQ(store.WhyNot(0), ErrorCode::kContextDeleted);
    EXPECT_EQ(store.WhyNot(5), ErrorCode::kContextNotFound) << "a refused create is back";
    EXPECT_OK(store.Create(5));
  }
}

TEST(RecoveryTest, RefusedChangesAreUndoneOnTheDiskAsInMemory) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FailingStore store(seed);
    for (uint64_t number = 0; number < 4; ++number) ASSERT_OK(store.Create(number));
    ASSERT_OK(store.Rename(1, "old"));
    ASSERT_OK(store.Put(2, SmallLayout()));
    store.core()->DrainWrites();
    const std::vector<std::function<absl::Status()>> changes = {[&] { return store.Create(9); },
                                                                [&] { return store.Delete(2); },
                                                                [&] { return store.Rename(1, "new"); }};
    for (const auto& change : changes) {
      store.disk()->FailNamed(RocksOp::kSync, ".log", 1);
      EXPECT_FALSE(change().ok());
      EXPECT_OK(store.Rename(3, "n" + std::to_string(seed)));  // it goes on
      store.Wait();
    }
    for (const bool crash : {false, true}) {
      if (crash) {
        ASSERT_NO_FATAL_FAILURE(store.CrashAndOpen());
      } else {
        ASSERT_NO_FATAL_FAILURE(store.CloseAndOpen());
      }
      EXPECT_EQ(store.WhyNot(9), ErrorCode::kContextNotFound) << "a refused create is back";
      store.ExpectThere(2);
      EXPECT_TRUE(store.Hits(2, SmallLayout())) << "an object of a refused deletion is gone";
      EXPECT_EQ(store.NameOf(1), "old") << "a refused change is back";
      EXPECT_EQ(store.NameOf(3), "n" + std::to_string(seed));
    }
  }
}

TEST(RecoveryTest, WhatWasAcknowledgedWithoutASyncIsThereAfterTheRecovery) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FailingStore store(seed);
    ASSERT_OK(store.Create(1));
    ASSERT_OK(store.Create(2));
    ASSERT_OK(store.core()->SetState(kTenant, IdOf(1), ContextState::kReady, 1, ""));
    ASSERT_OK(store.Put(2, SmallLayout()));
    store.core()->DrainWrites();
    store.disk()->FailNamed(RocksOp::kSync, ".log", 1);
    EXPECT_FALSE(store.Create(3).ok());
    EXPECT_OK(store.Create(4));
    ASSERT_NO_FATAL_FAILURE(store.CrashAndOpen());
    const auto record = store.core()->GetContext(kTenant, IdOf(1));
    ASSERT_OK(record);
    EXPECT_EQ(record->state, ContextState::kReady);
    EXPECT_TRUE(store.Hits(2, SmallLayout()));
  }
}

TEST(RecoveryTest, TwentyFailedOperationsAreRefusedAndThenItGoesOn) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FailingStore store(seed);
    ASSERT_OK(store.Create(1));
    store.disk()->FailNth(RocksOp::kSync, 1, 20);
    std::vector<uint64_t> refused;
    uint64_t number = 100;
    for (; number < 200; ++number) {
      if (store.Create(number).ok()) break;
      refused.push_back(number);
      store.Wait();
      store.ExpectThere(1);
    }
    EXPECT_GE(refused.size(), 3u);
    ASSERT_LT(number, 200u) << "it does not recover";
    ASSERT_NO_FATAL_FAILURE(store.CrashAndOpen());
    store.ExpectThere(1);
    store.ExpectThere(number);
    for (const uint64_t other : refused) {
      EXPECT_EQ(store.WhyNot(other), ErrorCode::kContextNotFound) << "a refused create is back: " << other;
    }
  }
}

TEST(RecoveryTest, WhileTheDiskRefusesAllAttemptsToGoOnAreFew) {
  FailingStore store(1);
  ASSERT_OK(store.Create(1));
  store.disk()->FailNamed(RocksOp::kSync, "MANIFEST", 1'000'000);  // no opening succeeds
  store.disk()->FailNth(RocksOp::kSync, 1);
  EXPECT_FALSE(store.Create(2).ok());
  const uint64_t before = store.disk()->Calls(RocksOp::kRename);
  for (int call = 0; call < 50; ++call) EXPECT_FALSE(store.Create(3).ok());
  EXPECT_LE(store.disk()->Calls(RocksOp::kRename) - before, 4u) << "one opening, then a while none";
  EXPECT_EQ(store.core()->GetContext(kTenant, IdOf(1))->id, IdOf(1)) << "records are served from memory";
  store.disk()->FailNamed(RocksOp::kSync, "MANIFEST", 0);
  store.Wait();
  EXPECT_OK(store.Create(3));
  store.ExpectThere(1);
}

// --- manifest and flushes

TEST(RecoveryTest, AFailedSyncOfTheManifestIsRecoveredFrom) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FailingStore store(seed, seed % 2 == 0 ? SlabBackEnd::kExtents : SlabBackEnd::kBlobFiles);
    ASSERT_OK(store.Create(1));
    ASSERT_OK(store.Put(1, LargeLayout()));
    store.core()->DrainWrites();
    store.disk()->FailNamed(RocksOp::kSync, "MANIFEST", 1);
    EXPECT_FALSE(store.core()->Erase().ok());
    EXPECT_OK(store.Create(2));
    ASSERT_NO_FATAL_FAILURE(store.CrashAndOpen());
    store.ExpectThere(1);
    store.ExpectThere(2);
    EXPECT_TRUE(store.Hits(1, LargeLayout()));
  }
}

TEST(RecoveryTest, AFailedFlushIsRecoveredFrom) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const RocksOp op : {RocksOp::kSync, RocksOp::kAppend}) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      FailingStore store(seed);
      ASSERT_OK(store.Create(1));
      store.disk()->FailNamed(op, ".sst", 1);
      EXPECT_FALSE(store.core()->Erase().ok());
      EXPECT_GT(store.core()->Disk().errors, 0u);
      EXPECT_OK(store.Create(2));
      EXPECT_OK(store.core()->Erase());
      ASSERT_NO_FATAL_FAILURE(store.CrashAndOpen());
      store.ExpectThere(1);
      store.ExpectThere(2);
    }
  }
}

// --- objects in blob files

TEST(RecoveryTest, AnObjectInBlobFilesIsRefusedOrThereAfterACrash) {
  struct Fault {
    RocksOp op;
    const char* part;
  };
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const Fault& fault :
         {Fault{RocksOp::kSync, ".blob"}, Fault{RocksOp::kAppend, ".blob"}, Fault{RocksOp::kSync, ".sst"},
          Fault{RocksOp::kSync, "MANIFEST"}, Fault{RocksOp::kSync, ".log"}}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + " " + fault.part);
      FailingStore store(seed, SlabBackEnd::kBlobFiles);
      for (uint64_t number = 1; number <= 4; ++number) {
        ASSERT_OK(store.Create(number, Durability::kObject));
      }
      ASSERT_OK(store.Put(1, LargeLayout()));
      store.disk()->FailNamed(fault.op, fault.part, 1);
      const bool second = store.Put(2, LargeLayout()).ok();
      EXPECT_TRUE(store.Hits(2, LargeLayout())) << "from memory";
      store.Wait();
      EXPECT_OK(store.Put(3, LargeLayout()));
      EXPECT_OK(store.Put(4, LargeLayout()));
      ASSERT_NO_FATAL_FAILURE(store.CrashAndOpen());
      for (const uint64_t number : {1, 3, 4}) {
        EXPECT_TRUE(store.Hits(number, LargeLayout())) << "a durable object is lost: " << number;
      }
      if (second) {
        EXPECT_TRUE(store.Hits(2, LargeLayout()));
      }
      EXPECT_EQ(store.whole()->Leaks(), "");
    }
  }
}

// Whatever step of the disk fails once: of a first put, which makes files, or of a later one.
TEST(RecoveryTest, AfterOneFailedStepOfAPutDurableObjectsOutliveACrash) {
  for (const SlabBackEnd slabs : {SlabBackEnd::kExtents, SlabBackEnd::kBlobFiles}) {
    for (uint64_t step = 0; step < 24; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      FailingStore store(step, slabs);
      for (uint64_t number = 0; number < 4; ++number) ASSERT_OK(store.Create(number, Durability::kObject));
      const uint64_t first = step % 2;  // 0: of all
      for (uint64_t number = 0; number < first; ++number) ASSERT_OK(store.Put(number, LargeLayout()));
      store.whole()->power()->FailAfter(step / 2, 1);
      const bool put = store.Put(first, LargeLayout()).ok();
      store.Wait();
      store.core()->Housekeep();
      store.whole()->power()->Restore();
      EXPECT_OK(store.Put(2, LargeLayout()));
      EXPECT_OK(store.Put(3, LargeLayout()));
      ASSERT_NO_FATAL_FAILURE(store.CrashAndOpen());
      for (uint64_t number = 0; number < 4; ++number) {
        if (number == first ? !put : number == 1) continue;
        EXPECT_TRUE(store.Hits(number, LargeLayout())) << "a durable object is lost: " << number;
      }
      EXPECT_EQ(store.whole()->Leaks(), "");
    }
  }
}

TEST(RecoveryTest, AfterAFullDiskADurableObjectOutlivesACrash) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FailingStore store(seed, SlabBackEnd::kBlobFiles);
    for (uint64_t number = 1; number <= 4; ++number) {
      ASSERT_OK(store.Create(number, Durability::kObject));
    }
    ASSERT_OK(store.Put(1, LargeLayout()));
    store.disk()->SetCapacity(store.disk()->UsedBytes() + 100);
    EXPECT_EQ(CodeOf(store.Create(5)), ErrorCode::kStorageFull);
    EXPECT_EQ(CodeOf(store.Create(6)), ErrorCode::kStorageFull);
    EXPECT_TRUE(store.core()->Disk().full);
    store.disk()->SetCapacity(uint64_t{1} << 40);
    EXPECT_OK(store.Create(7));
    EXPECT_FALSE(store.core()->Disk().full);
    EXPECT_OK(store.Put(2, LargeLayout()));
    EXPECT_OK(store.Put(3, LargeLayout()));
    ASSERT_NO_FATAL_FAILURE(store.CrashAndOpen());
    for (const uint64_t number : {1, 2, 3}) {
      EXPECT_TRUE(store.Hits(number, LargeLayout())) << "a durable object is lost: " << number;
    }
    store.ExpectThere(7);
    EXPECT_EQ(store.WhyNot(5), ErrorCode::kContextNotFound);
  }
}

// --- many threads

TEST(RecoveryStressTest, ReadersAndWritersOutliveFailedSyncs) {
  constexpr uint64_t kWriters = 3;
  constexpr uint64_t kChanges = 60;
  for (const SlabBackEnd slabs : {SlabBackEnd::kExtents, SlabBackEnd::kBlobFiles}) {
    FailingStore store(2, slabs);
    ASSERT_OK(store.Create(1));
    ASSERT_OK(store.Put(1, SmallLayout()));
    std::atomic<bool> done{false};
    std::vector<std::vector<uint64_t>> acknowledged(kWriters);
    std::vector<std::vector<uint64_t>> refused(kWriters);
    std::vector<std::thread> threads;
    for (int reader = 0; reader < 2; ++reader) {
      threads.emplace_back([&] {
        while (!done.load()) {
          const auto tokens = store.core()->GetTokens(kTenant, IdOf(1));
          if (tokens.ok()) {
            EXPECT_EQ(*tokens, TokensOf(1, kTokens));
          }
          EXPECT_TRUE(store.Hits(1, SmallLayout()));
          store.core()->KnownContexts(std::nullopt, 16).status().IgnoreError();
          store.core()->Usage();
        }
      });
    }
    std::vector<std::thread> writers;
    for (uint64_t writer = 0; writer < kWriters; ++writer) {
      writers.emplace_back([&, writer] {
        for (uint64_t change = 0; change < kChanges; ++change) {
          const uint64_t number = 1000 * (writer + 1) + change;
          if (writer == 0 && change % 8 == 3) store.disk()->FailNamed(RocksOp::kSync, ".log", 1);
          (store.Create(number).ok() ? acknowledged : refused)[writer].push_back(number);
          if (change % 4 == 0) store.Put(number, LargeLayout()).IgnoreError();
          store.Wait();
        }
      });
    }
    for (std::thread& writer : writers) writer.join();
    done = true;
    for (std::thread& thread : threads) thread.join();
    EXPECT_OK(store.Create(2));
    ASSERT_NO_FATAL_FAILURE(store.CrashAndOpen());
    uint64_t kept = 0;
    for (const auto& numbers : acknowledged) {
      for (const uint64_t number : numbers) store.ExpectThere(number);
      kept += numbers.size();
    }
    uint64_t undone = 0;
    for (const auto& numbers : refused) {
      for (const uint64_t number : numbers) EXPECT_EQ(store.WhyNot(number), ErrorCode::kContextNotFound);
      undone += numbers.size();
    }
    EXPECT_GT(kept, kWriters * kChanges / 4);
    EXPECT_GT(undone, 0u);
    std::printf("%llu changes acknowledged, %llu refused\n", static_cast<unsigned long long>(kept),
                static_cast<unsigned long long>(undone));
  }
}

}  // namespace
}  // namespace epic::kv_store
