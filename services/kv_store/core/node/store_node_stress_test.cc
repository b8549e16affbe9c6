// Writers, readers, sweeps and deletions of one node on many threads, while time runs on by hand: no byte is
// wrong, and at the end nothing is held. For ThreadSanitizer too.
#include <atomic>
#include <thread>

#include "common/status/error.h"
#include "services/kv_store/core/node/store_node_fixture.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kKeys = 6;
constexpr int kRounds = 2000;

class StoreNodeStressTest : public StoreNodeFixture {
 protected:
  void Write(Rng* rng, PeerId peer) {
    const uint64_t seed = rng->Below(kKeys);
    const ReserveResult reserved = Reserve(keys_[seed], "w", peer);
    if (reserved.outcome != ReserveOutcome::kReserved) return;
    if (rng->Below(8) == 0) return;  // dies
    if (!SendAll(reserved.token, seed).ok()) return;
    // Two calls of one commit, as after a time-out.
    std::thread again([&] { Commit(reserved.token, seed).IgnoreError(); });
    const auto committed = Commit(reserved.token, seed);
    again.join();
    if (committed.ok()) {
      EXPECT_EQ(committed->build, SentObject(layout_, seed).build);
      ++commits_;
    }
  }
  void Read(Rng* rng, PeerId peer) {
    std::vector<AcquireItem> items;
    std::vector<uint64_t> seeds;
    for (int item = 0; item < 4; ++item) {
      seeds.push_back(rng->Below(kKeys));
      items.push_back({.tenant = kTenant, .key = keys_[seeds.back()], .layout = layout_});
    }
    const std::vector<LeaseResult> results = node_->Acquire(peer, items, 1000);
    for (size_t item = 0; item < results.size(); ++item) {
      if (results[item].outcome != AcquireOutcome::kLeased) continue;
      const auto object = node_->Read(peer, results[item].lease);
      if (object.ok()) {
        EXPECT_TRUE(Holds(**object, seeds[item]));
        ++reads_;
      }
      if (rng->Below(4) != 0) Confirm(results[item].lease, /*release=*/true, peer);
    }
  }
  void Disturb(Rng* rng) {
    const ObjectKey& key = keys_[rng->Below(kKeys)];
    switch (rng->Below(6)) {
      case 0:
        clock_.AdvanceMs(static_cast<int64_t>(rng->Below(5000)));
        return;
      case 1:
        node_->Sweep();
        return;
      case 2:
        node_->Goodbye(1 + rng->Below(4));
        return;
      case 3: {
        const std::vector<ObjectName> names = {{.tenant = kTenant, .key = key}};
        node_->Drop(names);
        return;
      }
      case 4:
        node_->Explain({.tenant = kTenant, .key = key}, layout_);
        return;
      default:
        node_->Inventory({}, 4);
    }
  }

  std::vector<ObjectKey> keys_;
  std::atomic<uint64_t> commits_ = 0;
  std::atomic<uint64_t> reads_ = 0;
};

TEST_F(StoreNodeStressTest, NoByteIsWrongAndNothingIsLeftHeld) {
  OpenStore(4 * SlabFootprint(layout_));
  for (uint64_t seed = 0; seed < kKeys; ++seed) keys_.push_back(Create(seed));
  std::vector<std::thread> threads;
  for (PeerId peer = 1; peer <= 4; ++peer) {
    threads.emplace_back([this, peer] {
      Rng rng(peer);
      for (int round = 0; round < kRounds; ++round) peer % 2 == 0 ? Write(&rng, peer) : Read(&rng, peer);
    });
  }
  std::atomic<bool> done = false;
  std::thread disturber([&] {
    Rng rng(9);
    while (!done) Disturb(&rng);
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  disturber.join();
  EXPECT_GT(commits_.load(), 0u);
  EXPECT_GT(reads_.load(), 0u);
  clock_.AdvanceMs(300'000);
  node_->Sweep();
  store_->DrainWrites();
  EXPECT_EQ(node_->lease_counts().held, 0u);
  EXPECT_EQ(node_->reservation_counts().open, 0u);
  EXPECT_EQ(store_->Usage().reservations, 0u);
  EXPECT_EQ(store_->Usage().leased_objects, 0u);
}

}  // namespace
}  // namespace epic::kv_store
