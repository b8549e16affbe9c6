// LRU and S3-FIFO against references written in the plainest way, step by step through random calls; then
// single rules of each. A seed that fails is printed; run it alone by setting it as kFirstSeed.
#include "services/kv_store/core/eviction/eviction_policy.h"

#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kFirstSeed = 1;
constexpr uint64_t kSeeds = 300;
constexpr int kSteps = 400;

using Held = std::set<uint64_t>;  // keys that may not go

// What a policy does, told again: queues are lists of keys, oldest first.
class Reference {
 public:
  virtual ~Reference() = default;
  virtual void Add(uint64_t key, uint64_t bytes) = 0;
  virtual void Use(uint64_t key) = 0;
  virtual void Remove(uint64_t key) = 0;
  virtual void Evict(uint64_t key) = 0;
  virtual std::optional<uint64_t> Next(const Held& held) = 0;
};

class LruReference final : public Reference {
 public:
  void Add(uint64_t key, uint64_t) override { order_.push_back(key); }
  void Use(uint64_t key) override {
    order_.remove(key);
    order_.push_back(key);
  }
  void Remove(uint64_t key) override { order_.remove(key); }
  void Evict(uint64_t key) override { order_.remove(key); }
  std::optional<uint64_t> Next(const Held& held) override {
    const auto free =
        std::find_if(order_.begin(), order_.end(), [&](uint64_t key) { return !held.contains(key); });
    if (free == order_.end()) return std::nullopt;
    const std::list<uint64_t> passed(order_.begin(), free);
    order_.erase(order_.begin(), free);
    order_.insert(order_.end(), passed.begin(), passed.end());
    return order_.front();
  }

 private:
  std::list<uint64_t> order_;
};

class S3FifoReference final : public Reference {
 public:
  void Add(uint64_t key, uint64_t bytes) override {
    const auto ghost =
        std::find_if(ghosts_.begin(), ghosts_.end(), [&](const auto& g) { return g.first == key; });
    const bool known = ghost != ghosts_.end();
    if (known) ghosts_.erase(ghost);
    items_[key] = {bytes, 0};
    (known ? main_ : small_).push_back(key);
  }
  void Use(uint64_t key) override { items_[key].uses = std::min(items_[key].uses + 1, 3); }
  void Remove(uint64_t key) override {
    small_.remove(key);
    main_.remove(key);
    items_.erase(key);
  }
  void Evict(uint64_t key) override {
    if (std::find(small_.begin(), small_.end(), key) != small_.end())
      ghosts_.push_back({key, items_[key].bytes});
    Remove(key);
    while (GhostBytes() > BytesOf(small_) + BytesOf(main_)) ghosts_.pop_front();
  }
  std::optional<uint64_t> Next(const Held& held) override {
    while (!small_.empty() || !main_.empty()) {
      // Nothing in main can go any more: every key there is held, and none has uses left to lose.
      const bool stuck = std::all_of(main_.begin(), main_.end(), [&](uint64_t key) {
        return items_[key].uses == 0 && held.contains(key);
      });
      const uint64_t small = BytesOf(small_);
      if (!small_.empty() && (stuck || small * 10 >= small + BytesOf(main_))) {
        const uint64_t key = small_.front();
        if (items_[key].uses == 0 && !held.contains(key)) return key;
        items_[key].uses = 0;
        small_.pop_front();
        main_.push_back(key);
      } else {
        if (stuck) return std::nullopt;
        const uint64_t key = main_.front();
        if (items_[key].uses == 0 && !held.contains(key)) return key;
        items_[key].uses = std::max(items_[key].uses - 1, 0);
        main_.pop_front();
        main_.push_back(key);
      }
    }
    return std::nullopt;
  }

 private:
  struct Item {
    uint64_t bytes = 0;
    int uses = 0;
  };
  uint64_t BytesOf(const std::list<uint64_t>& queue) {
    uint64_t sum = 0;
    for (const uint64_t key : queue) sum += items_[key].bytes;
    return sum;
  }
  uint64_t GhostBytes() const {
    uint64_t sum = 0;
    for (const auto& [key, bytes] : ghosts_) sum += bytes;
    return sum;
  }
  std::map<uint64_t, Item> items_;
  std::list<uint64_t> small_, main_;
  std::list<std::pair<uint64_t, uint64_t>> ghosts_;
};

class PolicyRun {
 public:
  PolicyRun(EvictionKind kind, uint64_t seed) : rng_(seed), policy_(MakeEvictionPolicy(kind, &pool_)) {
    if (kind == EvictionKind::kLru) {
      reference_ = std::make_unique<LruReference>();
    } else {
      reference_ = std::make_unique<S3FifoReference>();
    }
  }
  void Step() {
    const uint64_t key = rng_.Below(40);
    const auto known = slots_.find(key);
    switch (rng_.Below(8)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return known == slots_.end() ? Add(key) : Use(key);
      case 4:
        if (known != slots_.end()) Remove(key);
        return;
      case 5:
        return Hold(key);
      default:
        return EvictSome(1 + rng_.Below(3));
    }
  }
  // Evicts all that is left, once from a copy and once from the policy itself.
  void Drain() {
    held_.clear();
    EntryPool pool(pool_);
    const auto copy = policy_->CloneOnto(&pool);
    std::vector<uint64_t> foreseen;
    const auto may_go = [](const EvictionEntry&) { return true; };
    for (EntrySlot slot = copy->Next(may_go); slot != kNoEntry; slot = copy->Next(may_go)) {
      foreseen.push_back(pool[slot].owner);
      copy->Evict(slot);
    }
    std::vector<uint64_t> went;
    while (!slots_.empty() && !::testing::Test::HasFailure()) went.push_back(EvictOne());
    EXPECT_EQ(went, foreseen) << "a copy foresees what goes";
    EXPECT_EQ(policy_->bytes(), 0u);
    EXPECT_EQ(policy_->entries(), 0u);
  }

 private:
  void Add(uint64_t key) {
    const uint64_t bytes = 1 + rng_.Below(20);
    const EntrySlot slot = pool_.Add({.owner = key, .fingerprint = key, .bytes = bytes});
    slots_[key] = slot;
    policy_->Add(slot);
    reference_->Add(key, bytes);
  }
  void Use(uint64_t key) {
    policy_->Use(slots_[key]);
    reference_->Use(key);
  }
  void Forget(uint64_t key) {
    pool_.Erase(slots_[key]);
    slots_.erase(key);
  }
  void Remove(uint64_t key) {
    policy_->Remove(slots_[key]);
    reference_->Remove(key);
    Forget(key);
  }
  void Hold(uint64_t key) {
    if (!held_.erase(key)) held_.insert(key);
  }
  uint64_t EvictOne() {
    const MayGo may_go = [&](const EvictionEntry& entry) { return !held_.contains(entry.owner); };
    const EntrySlot slot = policy_->Next(may_go);
    const auto expected = reference_->Next(held_);
    EXPECT_EQ(slot != kNoEntry, expected.has_value());
    if (slot == kNoEntry || !expected.has_value()) return 0;
    const uint64_t key = pool_[slot].owner;
    EXPECT_EQ(key, *expected);
    EXPECT_EQ(policy_->Next(may_go), slot) << "asking again changes nothing";
    reference_->Next(held_);
    policy_->Evict(slot);
    reference_->Evict(key);
    Forget(key);
    return key;
  }
  void EvictSome(uint64_t count) {
    while (count-- > 0) EvictOne();
  }

  Rng rng_;
  EntryPool pool_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::unique_ptr<Reference> reference_;
  std::map<uint64_t, EntrySlot> slots_;
  Held held_;
};

class EvictionPolicyTest : public ::testing::TestWithParam<EvictionKind> {};

TEST_P(EvictionPolicyTest, GoesInTheOrderOfTheReference) {
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    PolicyRun run(GetParam(), seed);
    for (int step = 0; step < kSteps && !HasFailure(); ++step) run.Step();
    run.Drain();
    if (HasFailure()) return;
  }
}

TEST_P(EvictionPolicyTest, WhereEverythingIsHeldNothingGoesAndTheCallEnds) {
  EntryPool pool;
  const auto policy = MakeEvictionPolicy(GetParam(), &pool);
  std::vector<EntrySlot> slots;
  for (uint64_t key = 0; key < 1000; ++key) {
    slots.push_back(pool.Add({.owner = key, .fingerprint = key, .bytes = 1}));
    policy->Add(slots.back());
    for (uint64_t use = 0; use < key % 5; ++use) policy->Use(slots.back());
  }
  uint64_t asked = 0;
  const auto held = [&](const EvictionEntry&) { return ++asked == 0; };
  EXPECT_EQ(policy->Next(held), kNoEntry);
  EXPECT_LE(asked, 6000u);
  EXPECT_EQ(policy->entries(), 1000u);
  EXPECT_NE(policy->Next([](const EvictionEntry&) { return true; }), kNoEntry);
}

INSTANTIATE_TEST_SUITE_P(Kinds, EvictionPolicyTest,
                         ::testing::Values(EvictionKind::kLru, EvictionKind::kS3Fifo), [](const auto& param) {
                           return param.param == EvictionKind::kLru ? "Lru" : "S3Fifo";
                         });

class S3FifoPolicyTest : public ::testing::Test {
 protected:
  EntrySlot Add(uint64_t key, uint64_t bytes = 1) {
    const EntrySlot slot = pool_.Add({.owner = key, .fingerprint = key, .bytes = bytes});
    policy_->Add(slot);
    return slot;
  }
  uint64_t EvictOne() {
    const EntrySlot slot = policy_->Next([](const EvictionEntry&) { return true; });
    const uint64_t key = pool_[slot].owner;
    policy_->Evict(slot);
    pool_.Erase(slot);
    return key;
  }

  EntryPool pool_;
  const std::unique_ptr<EvictionPolicy> policy_ = MakeEvictionPolicy(EvictionKind::kS3Fifo, &pool_);
};

TEST_F(S3FifoPolicyTest, AScanPassesThroughTheSmallQueue) {
  std::vector<EntrySlot> hot;
  for (uint64_t key = 0; key < 90; ++key) hot.push_back(Add(key));
  for (const EntrySlot slot : hot) policy_->Use(slot);
  for (uint64_t key = 1000; key < 1010; ++key) Add(key);
  for (uint64_t key = 2000; key < 4000; ++key) {
    EXPECT_GE(EvictOne(), 1000u) << "what was used stays";
    Add(key);
  }
  for (const EntrySlot slot : hot) EXPECT_EQ(policy_->QueueOf(slot), "main");
}

TEST_F(S3FifoPolicyTest, WhatComesBackSoonStandsInMainAndLaterInSmall) {
  for (uint64_t key = 0; key < 10; ++key) Add(key);
  EXPECT_EQ(EvictOne(), 0u);
  EXPECT_EQ(policy_->QueueOf(Add(0)), "main");
  EXPECT_EQ(EvictOne(), 1u);
  for (uint64_t key = 10; key < 40; ++key) {
    Add(key);
    EvictOne();
  }
  EXPECT_EQ(policy_->QueueOf(Add(1)), "small") << "more has gone since than there is room for";
}

TEST_F(S3FifoPolicyTest, GhostsTakeBoundedMemory) {
  for (uint64_t key = 0; key < 100; ++key) Add(key);
  for (uint64_t key = 100; key < 50'000; ++key) {
    Add(key);
    EvictOne();
  }
  EXPECT_LT(policy_->memory_bytes(), 100u * 200);
}

}  // namespace
}  // namespace epic::kv_store
