// A store whose memory is handed to clients: what they read, what their leases keep, and that no byte is ever
// another object's, through evictions, deletions and kill -9, with clients in processes of their own.
#include "services/kv_store/core/store_leases.h"

#include <atomic>
#include <cstdio>
#include <thread>

#include <gtest/gtest.h>

#include "common/storage/shm/client.h"
#include "common/storage/shm/server.h"
#include "common/storage/shm/testing/child_process.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

using shm::Outcome;

constexpr std::string_view kTenant = "default";
constexpr uint32_t kTokens = 8;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kContexts = 8;
constexpr uint64_t kContents = 3;

ObjectKey KeyOf(uint64_t context) { return {CacheId::Of(kTenant, {}, TokensOf(context, kTokens)), {}}; }

class StoreLeasesTest : public ::testing::Test {
 protected:
  void Open(uint64_t pages) {
    ASSERT_OK_AND_ASSIGN(store_, StoreCore::Open(std::make_unique<MemoryTableStore>(disk_),
                                                 {.memory_bytes = pages * kPage, .writer = {}}));
    leases_ = std::make_unique<StoreLeases>(store_.get());
    ASSERT_OK_AND_ASSIGN(server_, shm::Server::Start({.path = path_,
                                                      .arena_fd = store_->arena().read_only_fd(),
                                                      .arena_bytes = store_->arena().capacity_bytes()},
                                                     leases_.get()));
  }
  std::unique_ptr<shm::Client> Connect() {
    auto client = shm::Client::Connect({.path = path_});
    EXPECT_OK(client);
    return *std::move(client);
  }
  void Put(uint64_t context, const KvLayout& layout, uint64_t seed) {
    ASSERT_OK(store_->CreateContext(ContextOf(context, kTokens)));
    ASSERT_OK(PutObject(store_.get(), kTenant, KeyOf(context), layout, seed));
  }
  shm::LeaseSource::Lease Find(uint64_t context, const KvLayout& layout) {
    return leases_->Find({.tenant = std::string(kTenant), .key = KeyOf(context), .layout = layout});
  }
  bool IsCurrent(uint64_t context, const shm::LeaseSource::Lease& lease) {
    return leases_->IsCurrent(std::string(kTenant), KeyOf(context), lease.answer.object.generation);
  }
  // Answers of one connection are in order: after one, the releases before it are done.
  static void Settle(shm::Client* client) { EXPECT_OK(client->Hold("none", KeyOf(1), LayoutOf(kTokens))); }

  const epic::testing::TempDir dir_;
  const std::string path_ = dir_.path() + "/store.sock";
  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  std::unique_ptr<StoreCore> store_;
  std::unique_ptr<StoreLeases> leases_;
  std::unique_ptr<shm::Server> server_;
};

std::string ContentOf(const KvLayout& layout, uint64_t seed) {
  std::string content;
  for (uint32_t layer = 0; layer < layout.layers; ++layer) content += SlabOf(layout, layer, seed);
  return content;
}

std::string CopyOf(shm::Client* client, uint64_t context, const KvLayout& layout) {
  std::string to(layout.TotalBytes(), '\0');
  const auto result = client->Copy(kTenant, KeyOf(context), layout, std::as_writable_bytes(std::span(to)));
  EXPECT_OK(result);
  return result.ok() && result->outcome == Outcome::kHit ? to : "";
}

TEST_F(StoreLeasesTest, ClientsReadWhatTheStoreHasInOneExtentOrSeveral) {
  Open(/*pages=*/8);
  std::vector<std::shared_ptr<const KvObject>> gaps;
  for (uint64_t context = 0; context < 8; ++context) {
    Put(context, LayoutOf(kTokens), context);
    if (context % 3 == 0) {
      gaps.push_back(store_->Acquire(kTenant, KeyOf(context), LayoutOf(kTokens))->object);
    }
  }
  store_->DrainWrites();
  const KvLayout layout =
      LayoutOf(kTokens, /*layers=*/3, /*kv_heads=*/2, /*head_dim=*/64);  // a page for each layer
  Put(100, layout, 100);
  const auto client = Connect();
  EXPECT_EQ(CopyOf(client.get(), 100, layout), ContentOf(layout, 100));
  EXPECT_EQ(CopyOf(client.get(), 3, LayoutOf(kTokens)), ContentOf(LayoutOf(kTokens), 3));
  const auto held = client->Hold(kTenant, KeyOf(100), layout);
  ASSERT_OK(held);
  ASSERT_NE(held->object, nullptr);
  EXPECT_TRUE(Holds(*held->object, 100));
  EXPECT_EQ(held->object->build(), store_->Acquire(kTenant, KeyOf(100), layout)->object->build());
}

TEST_F(StoreLeasesTest, WhatAClientHoldsIsNeitherEvictedNorUsedAgain) {
  Open(/*pages=*/6);
  const KvLayout layout = LayoutOf(kTokens);
  Put(1, layout, 1);
  store_->DrainWrites();  // what the writer holds is counted apart, and may end between the two counts
  const auto client = Connect();
  auto held = client->Hold(kTenant, KeyOf(1), layout)->object;
  ASSERT_NE(held, nullptr);
  EXPECT_EQ(store_->Usage().leased_objects, 1u);
  for (uint64_t context = 2; context < 30; ++context) Put(context, layout, context);
  EXPECT_TRUE(Holds(*held, 1));
  EXPECT_EQ(store_->arena().numbers().quarantined_bytes, 0u) << "it was not evicted";
  EXPECT_EQ(CopyOf(client.get(), 1, layout), ContentOf(layout, 1));

  ASSERT_OK(store_->DeleteContext(kTenant, KeyOf(1).id));
  EXPECT_EQ(store_->Usage().memory_quarantined_bytes, kPage);
  EXPECT_EQ(store_->Usage().memory_held_bytes, kPage);
  EXPECT_EQ(CopyOf(client.get(), 1, layout), "");
  for (uint64_t context = 30; context < 60; ++context) Put(context, layout, context);
  EXPECT_TRUE(Holds(*held, 1)) << "its reader finishes";
  EXPECT_TRUE(held->StillHeld());
  EXPECT_EQ(store_->Usage().leased_objects, 1u);
  held.reset();
  Settle(client.get());
  EXPECT_EQ(store_->arena().numbers().quarantined_bytes, 0u);
  EXPECT_EQ(store_->arena().numbers().held_bytes, 0u);
}

TEST_F(StoreLeasesTest, BeyondTheirShareOfTheArenaReadersCopy) {
  Open(/*pages=*/8);
  const KvLayout layout = LayoutOf(kTokens);
  const auto client = Connect();
  std::vector<std::shared_ptr<const shm::HeldObject>> held;
  for (uint64_t context = 0; context < 5; ++context) {
    Put(context, layout, context);
    const auto result = client->Hold(kTenant, KeyOf(context), layout);
    ASSERT_OK(result);
    EXPECT_EQ(result->outcome, context < 4 ? Outcome::kHit : Outcome::kMustCopy) << context;
    held.push_back(result->object);
  }
  EXPECT_EQ(CopyOf(client.get(), 4, layout), ContentOf(layout, 4));
  held[0].reset();
  EXPECT_EQ(client->Hold(kTenant, KeyOf(4), layout)->outcome, Outcome::kHit);
}

TEST_F(StoreLeasesTest, ACopyCountsOnlyIfItsObjectStayed) {
  Open(/*pages=*/4);
  const KvLayout layout = LayoutOf(kTokens);
  Put(1, layout, 1);
  auto lease = Find(1, layout);
  EXPECT_TRUE(IsCurrent(1, lease));
  EXPECT_FALSE(IsCurrent(2, lease));
  ASSERT_OK(store_->DropObject(kTenant, KeyOf(1)));
  EXPECT_FALSE(IsCurrent(1, lease));
  Put(1, layout, 2);
  EXPECT_FALSE(IsCurrent(1, lease)) << "it was replaced, if in the same place";
  lease = Find(1, layout);
  EXPECT_TRUE(IsCurrent(1, lease));
  std::vector<std::shared_ptr<const KvObject>> others;  // they take all memory
  for (uint64_t context = 2; context < 6; ++context) {
    Put(context, layout, context);
    others.push_back(store_->Acquire(kTenant, KeyOf(context), layout)->object);
  }
  EXPECT_FALSE(IsCurrent(1, lease)) << "it was evicted";
  others.clear();
  store_->DrainWrites();
  EXPECT_EQ(CopyOf(Connect().get(), 1, layout), ContentOf(layout, 2)) << "from disk";
  lease = Find(1, layout);
  ASSERT_OK(store_->DeleteContext(kTenant, KeyOf(1).id));
  EXPECT_FALSE(IsCurrent(1, lease));
  EXPECT_EQ(Find(1, layout).answer.cause, MissCause::kDeleted);
}

// --- many processes

struct Contents {
  explicit Contents(const KvLayout& layout) {
    for (uint64_t seed = 0; seed < kContexts * 10; ++seed) all.push_back(ContentOf(layout, seed));
  }
  bool IsOf(uint64_t context, std::string_view content) const {
    for (uint64_t which = 0; which < kContents; ++which) {
      if (all[context * 10 + which] == content) return true;
    }
    return false;
  }
  std::vector<std::string> all;
};

std::string ReadAll(const KvObject& object) {
  std::string content;
  for (uint32_t layer = 0; layer < object.layout().layers; ++layer) content += AsText(object.Layer(layer));
  return content;
}

// Copies and holds objects at random until the parent speaks; returns 0, or what was wrong.
int ReadUntilTold(const std::string& path, uint64_t seed, const shm::ChildProcess::Ends& parent) {
  const KvLayout layout = LayoutOf(kTokens, 3, 2, 64);
  const Contents contents(layout);
  auto client = shm::Client::Connect({.path = path});
  if (!client.ok()) return 2;
  Rng rng(seed);
  std::vector<std::pair<std::shared_ptr<const shm::HeldObject>, std::string>> held;
  std::string to(layout.TotalBytes(), '\0');
  uint64_t hits = 0;
  for (uint64_t step = 0; step < 4000; ++step) {
    const uint64_t context = rng.Below(kContexts);
    if (rng.Below(3) == 0) {
      const auto result = (*client)->Hold(kTenant, KeyOf(context), layout);
      if (!result.ok()) return 3;
      if (result->object == nullptr) continue;
      held.emplace_back(result->object, ReadAll(*result->object));
      if (!contents.IsOf(context, held.back().second)) return 4;
      if (held.size() > 2) held.erase(held.begin());
    } else {
      const auto result =
          (*client)->Copy(kTenant, KeyOf(context), layout, std::as_writable_bytes(std::span(to)));
      if (!result.ok()) return 5;
      if (result->outcome == Outcome::kDamaged) return 6;
      if (result->outcome != Outcome::kHit) continue;
      if (!contents.IsOf(context, to)) return 7;
    }
    for (const auto& [object, content] : held) {
      if (ReadAll(*object) != content && object->StillHeld()) return 8;
    }
    if (++hits == 50) parent.Tell('r');
  }
  if (hits < 50) return 9;
  parent.Tell('e');
  parent.Hear();
  return 0;
}

// Puts, drops, deletes and reads at random in little memory.
void Churn(StoreCore* store, uint64_t seed, const std::atomic<bool>* done) {
  const KvLayout layout = LayoutOf(kTokens, 3, 2, 64);
  Rng rng(seed);
  while (!done->load()) {
    const uint64_t context = rng.Below(kContexts);
    switch (rng.Below(8)) {
      case 0:
        EXPECT_OK(store->DropObject(kTenant, KeyOf(context)));
        break;
      case 1:
        EXPECT_OK(store->DeleteContext(kTenant, KeyOf(context).id));
        break;
      case 2:
      case 3:
      case 4:
        EXPECT_OK(store->CreateContext(ContextOf(context, kTokens)));
        // May fail: the context was deleted meanwhile, or all memory is held.
        PutObject(store, kTenant, KeyOf(context), layout, context * 10 + rng.Below(kContents))
            .status()
            .IgnoreError();
        break;
      default:
        EXPECT_OK(store->Acquire(kTenant, KeyOf(context), layout));
    }
  }
}

TEST_F(StoreLeasesTest, ClientsNeverSeeTornOrForeignBytes) {
  const uint64_t seed = 99;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  const auto read = [this](uint64_t child) {
    return
        [this, child](const shm::ChildProcess::Ends& parent) { return ReadUntilTold(path_, child, parent); };
  };
  shm::ChildProcess reader(read(seed));
  shm::ChildProcess killed(read(seed + 1));
  Open(/*pages=*/15);  // five objects of three pages, of eight
  const auto watcher = Connect();
  std::atomic<bool> done{false};
  std::thread churn([&] { Churn(store_.get(), seed + 2, &done); });
  std::thread more_churn([&] { Churn(store_.get(), seed + 3, &done); });
  reader.Start();
  killed.Start();
  EXPECT_EQ(killed.Hear(), 'r');
  killed.Kill();
  EXPECT_EQ(reader.Hear(), 'r');
  EXPECT_EQ(reader.Hear(), 'e');
  done = true;
  churn.join();
  more_churn.join();
  reader.Tell('e');
  EXPECT_EQ(reader.Wait(), 0);
  server_->Stop();
  EXPECT_EQ(server_->numbers().leases, 0u);
  store_->DrainWrites();
  const Arena::Numbers numbers = store_->arena().numbers();
  EXPECT_EQ(numbers.held_bytes, 0u);
  EXPECT_EQ(numbers.quarantined_bytes, 0u);
  EXPECT_EQ(numbers.regions, store_->Usage().objects_in_memory);
  std::printf("%llu leases\n", static_cast<unsigned long long>(server_->numbers().leases_granted));
}

}  // namespace
}  // namespace epic::kv_store
