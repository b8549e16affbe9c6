#include "services/kv_store/core/replica_state.h"

#include <cstdio>
#include <random>

#include <gtest/gtest.h>

#include "common/base/random.h"

namespace epic::kv_store {
namespace {

HybridTime At(uint64_t stamp) { return {1000, static_cast<uint32_t>(stamp)}; }

// Few values, so that states meet: the same life, the same stamp of a field with another value.
ReplicaState RandomState(Rng* rng) {
  ReplicaState state;
  if (rng->Below(4) > 0) {
    ContextRecord record;
    record.created = At(1 + rng->Below(3));
    record.created_at_ms = 1;
    record.hidden = rng->Below(2) == 0;
    record.state = static_cast<ContextState>(rng->Below(3));
    record.expiry_changed = At(record.created.counter + rng->Below(3));
    if (rng->Below(2) == 0) record.expires_at_ms = static_cast<int64_t>(rng->Below(3));
    record.pin_changed = At(record.created.counter + rng->Below(3));
    record.pin = static_cast<Pin>(rng->Below(3));
    record.tags_changed = At(record.created.counter + rng->Below(3));
    record.tags = {std::string(1, static_cast<char>('a' + rng->Below(3)))};
    record.name_changed = At(record.created.counter + rng->Below(3));
    record.name = std::string(rng->Below(3), 'n');
    record.hits = rng->Below(3);
    state.record = record;
  }
  if (rng->Below(3) == 0) {
    Tombstone tombstone{.at = At(rng->Below(4))};
    if (rng->Below(2) == 0) {
      tombstone.deleted = At(rng->Below(3));
    } else {
      tombstone.expired_life = At(rng->Below(3));
      tombstone.expired = At(rng->Below(5));
    }
    state.tombstone = tombstone;
  }
  return Join(
      {}, state.record.has_value() && state.tombstone.has_value() && !Counts(*state.record, *state.tombstone)
              ? ReplicaState{std::nullopt, state.tombstone}
              : state);
}

// What readers see of it: there or not, and until when.
std::string Seen(const ReplicaState& state) {
  if (!state.record.has_value()) return state.tombstone.has_value() ? "gone" : "nothing";
  return "life " + std::to_string(state.record->created.counter) + " until " +
         std::to_string(state.record->expires_at_ms.value_or(-1)) + " set " +
         std::to_string(state.record->expiry_changed.counter);
}

TEST(ReplicaStateTest, StatesJoinTheSameInWhateverOrderTheyCome) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Rng rng(seed);
  for (int round = 0; round < 100'000; ++round) {
    const ReplicaState a = RandomState(&rng), b = RandomState(&rng), c = RandomState(&rng);
    ASSERT_EQ(Join(a, a), a);
    ASSERT_EQ(Join(a, b), Join(b, a));
    const ReplicaState joined = Join(a, b);
    ASSERT_EQ(Join(joined, b), joined);
    const ReplicaState left = Join(joined, c), right = Join(a, Join(b, c));
    ASSERT_EQ(Seen(left), Seen(right));
    ASSERT_EQ(left.tombstone, right.tombstone);
    // Nodes that then meet agree in every field.
    ASSERT_EQ(Join(left, right), Join(right, left));
    const bool expires = a.tombstone.has_value() || b.tombstone.has_value() || c.tombstone.has_value();
    if (!expires) {
      ASSERT_EQ(left, right);
    }
  }
}

ContextRecord Record(uint32_t created, uint32_t changed) {
  ContextRecord record;
  record.created = At(created);
  record.expiry_changed = record.pin_changed = record.tags_changed = record.name_changed = At(changed);
  return record;
}

TEST(ReplicaStateTest, ADeletionCountsAgainstCreationAndNotAgainstLaterChanges) {
  EXPECT_FALSE(Counts(Record(1, 9), {.deleted = At(5)}));
  EXPECT_FALSE(Counts(Record(5, 5), {.deleted = At(5)}));
  EXPECT_TRUE(Counts(Record(6, 6), {.deleted = At(5)}));
  const ReplicaState changed{Record(1, 9), std::nullopt};
  const ReplicaState deleted{std::nullopt, Tombstone{.deleted = At(5)}};
  EXPECT_FALSE(Join(changed, deleted).record.has_value());
}

TEST(ReplicaStateTest, AnExpiryCountsAgainstTheExpiryThatCameTrue) {
  const Tombstone expired{.cause = RemovalCause::kExpired, .expired_life = At(2), .expired = At(4)};
  EXPECT_FALSE(Counts(Record(2, 4), expired));
  EXPECT_FALSE(Counts(Record(1, 9), expired));  // an earlier life, whatever was changed in it
  EXPECT_TRUE(Counts(Record(2, 5), expired));   // extended in time
  EXPECT_TRUE(Counts(Record(3, 3), expired));   // created again
}

TEST(ReplicaStateTest, ALaterLifeKeepsNothingOfAnEarlierOne) {
  ContextRecord before = Record(1, 9), after = Record(2, 2);
  before.pin = Pin::kHard;
  before.tags = {"old"};
  const ContextRecord joined = Join(before, after);
  EXPECT_EQ(joined, after);
  EXPECT_EQ(Join(after, before), after);
}

TEST(ReplicaStateTest, FieldsOfALifeAreJoinedEachByItself) {
  ContextRecord a = Record(1, 1), b = Record(1, 1);
  a.pin = Pin::kSoft;
  a.pin_changed = At(3);
  b.tags = {"t"};
  b.tags_changed = At(2);
  b.state = ContextState::kReady;
  a.state = ContextState::kFailed;
  const ContextRecord joined = Join(a, b);
  EXPECT_EQ(joined.pin, Pin::kSoft);
  EXPECT_EQ(joined.tags, b.tags);
  EXPECT_EQ(joined.state, ContextState::kReady);
  EXPECT_EQ(LatestTime({joined, std::nullopt}), At(3));
}

}  // namespace
}  // namespace epic::kv_store
