// The order in which a tier gives way: quotas, pins, deadlines, last uses. Random runs against rules that
// look at every entry, then single cases. A failing seed is printed.
#include "services/kv_store/core/eviction/tier_eviction.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kSeeds = 200;
constexpr int kSteps = 300;
constexpr uint64_t kQuotas[] = {0, 60, 30, 0};  // of tenants 0..3; 0: none

// What a tier knows of its entries, in the plainest way.
struct Known {
  EntrySlot slot = kNoEntry;
  uint64_t bytes = 0;
  uint32_t tenant = 0;
  PinState pin;
  int64_t used = 0;  // order of the last use
  bool held = false;
};

class TierRun {
 public:
  TierRun(EvictionKind kind, uint64_t seed, bool with_held)
      : kind_(kind), with_held_(with_held), rng_(seed), tier_(kind, &clock_) {
    for (uint32_t tenant = 0; tenant < std::size(kQuotas); ++tenant) {
      if (kQuotas[tenant] > 0) tier_.SetQuota(tenant, kQuotas[tenant]);
    }
  }
  void Step() {
    clock_.AdvanceMs(1);
    const uint64_t key = rng_.Below(60);
    const auto found = known_.find(key);
    switch (rng_.Below(9)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return found == known_.end() ? Add(key) : Use(&found->second);
      case 4:
        if (found != known_.end()) Remove(key);
        return;
      case 5:
        if (found != known_.end() && with_held_) found->second.held = !found->second.held;
        return;
      case 6:
        if (found != known_.end()) Pin(&found->second);
        return;
      default:
        return EvictSome();
    }
  }
  void Check() const {
    uint64_t bytes = 0;
    std::map<uint32_t, uint64_t> tenants;
    for (const auto& [key, entry] : known_) {
      bytes += entry.bytes;
      tenants[entry.tenant] += entry.bytes;
    }
    EXPECT_EQ(tier_.bytes(), bytes);
    EXPECT_EQ(tier_.entries(), known_.size());
    for (const auto& [tenant, sum] : tenants) EXPECT_EQ(tier_.TenantBytes(tenant), sum);
  }

 private:
  PinState AnyPin() {
    PinState pin{.pin = static_cast<epic::Pin>(rng_.Below(3)), .until_ms = {}};
    if (rng_.Below(2) == 0) pin.until_ms = clock_.UnixMs() + static_cast<int64_t>(rng_.Below(40));
    return pin;
  }
  void Add(uint64_t key) {
    Known entry{.bytes = 1 + rng_.Below(10),
                .tenant = static_cast<uint32_t>(rng_.Below(std::size(kQuotas))),
                .pin = rng_.Below(3) == 0 ? AnyPin() : PinState{},
                .used = clock_.SteadyNs()};
    entry.slot = tier_.Add(key, key, entry.bytes, entry.tenant, entry.pin);
    known_[key] = entry;
  }
  void Use(Known* entry) {
    entry->used = clock_.SteadyNs();
    tier_.Use(entry->slot);
  }
  void Pin(Known* entry) {
    entry->pin = AnyPin();
    tier_.SetPin(entry->slot, entry->pin);
    // Where it stands among those of its new pin is where a use would put it.
    Use(entry);
  }
  void Remove(uint64_t key) {
    tier_.Remove(known_.at(key).slot);
    known_.erase(key);
  }
  epic::Pin PinOf(const Known& entry) const {
    const bool lapsed = entry.pin.until_ms.has_value() && *entry.pin.until_ms <= clock_.UnixMs();
    return lapsed ? epic::Pin::kNone : entry.pin.pin;
  }
  uint64_t Excess(uint32_t tenant) const {
    uint64_t bytes = 0;
    for (const auto& [key, entry] : known_) bytes += entry.tenant == tenant ? entry.bytes : 0;
    return kQuotas[tenant] != 0 && bytes > kQuotas[tenant] ? bytes - kQuotas[tenant] : 0;
  }
  // The keys of which one goes next.
  std::set<uint64_t> Candidates() const {
    std::set<uint64_t> best;
    std::pair<uint64_t, epic::Pin> rank;
    for (const auto& [key, entry] : known_) {
      if (entry.held) continue;
      const std::pair<uint64_t, epic::Pin> mine{Excess(entry.tenant), PinOf(entry)};
      const bool better = mine.first != rank.first ? mine.first > rank.first : mine.second < rank.second;
      if (best.empty() || better) {
        best = {key};
        rank = mine;
      } else if (mine == rank) {
        best.insert(key);
      }
    }
    return best;
  }
  void EvictSome() {
    const MayGo may_go = [&](const EvictionEntry& entry) { return !known_.at(entry.owner).held; };
    const uint64_t wanted = 1 + rng_.Below(20);
    const auto foreseen = tier_.Preview(wanted, may_go);
    uint64_t freed = 0;
    size_t went = 0;
    for (; freed < wanted; ++went) {
      const std::set<uint64_t> candidates = Candidates();
      const EntrySlot slot = tier_.Next(may_go);
      ASSERT_EQ(slot == kNoEntry, candidates.empty());
      if (slot == kNoEntry) break;
      const EvictionStanding standing = tier_.Explain(slot);
      const uint64_t key = standing.owner;
      ASSERT_TRUE(candidates.contains(key)) << "key " << key;
      ASSERT_LT(went, foreseen.size());
      EXPECT_EQ(foreseen[went].owner, key) << "what was foreseen";
      const Known& entry = known_.at(key);
      EXPECT_EQ(standing.pin, PinOf(entry));
      EXPECT_EQ(standing.bytes, entry.bytes);
      EXPECT_EQ(standing.over_quota(), Excess(entry.tenant) > 0);
      EXPECT_EQ(standing.idle_ms, (clock_.SteadyNs() - entry.used) / 1'000'000);
      if (kind_ == EvictionKind::kLru && !with_held_) CheckLeastRecent(key, candidates);
      freed += entry.bytes;
      tier_.Evict(slot);
      known_.erase(key);
    }
    EXPECT_EQ(went, foreseen.size());
  }
  // A pin that lapsed put its entry to the young end, whenever it was used.
  void CheckLeastRecent(uint64_t key, const std::set<uint64_t>& candidates) const {
    for (const uint64_t other : candidates) {
      if (known_.at(other).pin.until_ms.has_value()) continue;
      EXPECT_LE(known_.at(key).used, known_.at(other).used) << key << " before " << other;
    }
  }

  const EvictionKind kind_;
  const bool with_held_;
  Rng rng_;
  ManualClock clock_;
  TierEviction tier_;
  std::map<uint64_t, Known> known_;
};

class TierEvictionTest : public ::testing::TestWithParam<EvictionKind> {
 protected:
  static bool Any(const EvictionEntry&) { return true; }
  uint64_t EvictOne(const MayGo& may_go = Any) {
    const EntrySlot slot = tier_.Next(may_go);
    if (slot == kNoEntry) return kNobody;
    const uint64_t owner = tier_.Explain(slot).owner;
    tier_.Evict(slot);
    return owner;
  }
  static constexpr uint64_t kNobody = 999;

  ManualClock clock_;
  TierEviction tier_{GetParam(), &clock_};
};

TEST_P(TierEvictionTest, EveryVictimIsOneThatTheRulesName) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TierRun run(GetParam(), seed, /*with_held=*/seed % 2 == 0);
    for (int step = 0; step < kSteps && !HasFailure(); ++step) run.Step();
    run.Check();
    if (HasFailure()) return;
  }
}

TEST_P(TierEvictionTest, ATenantOverItsQuotaGivesWayBeforeAnyOther) {
  tier_.SetQuota(1, 10);
  tier_.Add(100, 100, 5, 0, {});
  clock_.AdvanceMs(1000);
  for (uint64_t key = 1; key <= 4; ++key) {
    tier_.Add(key, key, 4, 1, {.pin = key < 4 ? Pin::kNone : Pin::kHard, .until_ms = {}});
    clock_.AdvanceMs(1);
  }
  EXPECT_EQ(tier_.NextOverQuota(Any), tier_.Next(Any));
  EXPECT_EQ(EvictOne(), 1u) << "although the other tenant's object is older";
  EXPECT_EQ(EvictOne(), 2u);
  EXPECT_EQ(tier_.NextOverQuota(Any), kNoEntry) << "8 of 10 bytes";
  EXPECT_EQ(EvictOne(), 100u);
  EXPECT_EQ(EvictOne(), 3u);
  EXPECT_EQ(EvictOne(), 4u);
  EXPECT_EQ(EvictOne(), kNobody);
}

TEST_P(TierEvictionTest, PinsHoldUntilTheirDeadline) {
  tier_.Add(1, 1, 1, 0, {.pin = Pin::kHard, .until_ms = clock_.UnixMs() + 100});
  tier_.Add(2, 2, 1, 0, {.pin = Pin::kSoft, .until_ms = {}});
  const EntrySlot third = tier_.Add(3, 3, 1, 0, {});
  tier_.Add(4, 4, 1, 0, {});
  tier_.SetPin(third, {.pin = Pin::kSoft, .until_ms = {}});
  EXPECT_EQ(EvictOne(), 4u);
  tier_.SetPin(third, {});
  EXPECT_EQ(EvictOne(), 3u);
  clock_.AdvanceMs(100);
  EXPECT_EQ(EvictOne(), 1u) << "its pin has lapsed";
  EXPECT_EQ(EvictOne(), 2u);
}

TEST_P(TierEvictionTest, WhatIsHeldNeverGoes) {
  for (uint64_t key = 0; key < 5; ++key) tier_.Add(key, key, 1, 0, {});
  const MayGo odd = [](const EvictionEntry& entry) { return entry.owner % 2 == 1; };
  EXPECT_EQ(tier_.Preview(10, odd).size(), 2u);
  EXPECT_EQ(EvictOne(odd), 1u);
  EXPECT_EQ(EvictOne(odd), 3u);
  EXPECT_EQ(EvictOne(odd), kNobody);
  EXPECT_EQ(tier_.entries(), 3u);
}

TEST_P(TierEvictionTest, AnEntryTakesFewBytes) {
  constexpr uint64_t kEntries = 500'000;
  for (uint64_t key = 0; key < kEntries; ++key) tier_.Add(key, key, 1, 0, {});
  EXPECT_LE(tier_.memory_bytes(), kEntries * 58 + (4u << 20)) << "the last block of the pool may be empty";
}

INSTANTIATE_TEST_SUITE_P(Kinds, TierEvictionTest,
                         ::testing::Values(EvictionKind::kLru, EvictionKind::kS3Fifo), [](const auto& param) {
                           return param.param == EvictionKind::kLru ? "Lru" : "S3Fifo";
                         });

TEST(WatermarksTest, EvictsDownToTheLowMarkOnceTheHighOneIsPassed) {
  const Watermarks marks{.high = 0.9, .low = 0.5};
  EXPECT_EQ(BytesToEvict(marks, 80, 10, 100), 0u);
  EXPECT_EQ(BytesToEvict(marks, 81, 10, 100), 41u);
  EXPECT_EQ(BytesToEvict(marks, 10, 95, 100), 10u) << "never more than there is";
  EXPECT_EQ(BytesToEvict({.high = 1, .low = 1}, 100, 7, 100), 7u);
  EXPECT_EQ(BytesToEvict(marks, 0, 0, 0), 0u);
}

}  // namespace
}  // namespace epic::kv_store
