// The rules of records, one by one: what a second create changes, expiry, names, order, pages, removal.
#include "services/kv_store/core/record_table.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

class RecordTableTest : public ::testing::Test {
 protected:
  static ContextKey KeyOf(const NewContext& context) {
    return {context.tenant, CacheId::Of(context.tenant, context.model_identity, context.tokens)};
  }
  absl::StatusOr<RecordPlan> Create(const NewContext& context) {
    auto plan = table_.PlanCreate(KeyOf(context), context);
    if (plan.ok()) table_.Apply(*plan);
    return plan;
  }
  ContextRecord Update(const ContextKey& key, const ContextPatch& patch) {
    const auto plan = table_.PlanUpdate(key, patch);
    EXPECT_OK(plan);
    table_.Apply(*plan);
    return plan->record;
  }
  ContextRecord Get(const ContextKey& key) {
    const auto record = table_.Get(key);
    EXPECT_OK(record);
    return *record;
  }
  ErrorCode WhyNot(const ContextKey& key) { return CodeOf(table_.Get(key).status()); }
  void Remove(const ContextKey& key, RemovalCause cause) {
    const auto tombstone = table_.PlanRemoval(key, cause);
    ASSERT_TRUE(tombstone.has_value());
    table_.ApplyRemoval(key, *tombstone);
  }

  ManualClock clock_{1'000'000};
  RecordTable table_{&clock_};
};

TEST_F(RecordTableTest, SecondCreateTakesTheLaterExpiry) {
  NewContext context = ContextOf(1);
  context.ttl_seconds = 100;
  ASSERT_OK(Create(context));
  context.ttl_seconds = 50;
  ASSERT_OK_AND_ASSIGN(const RecordPlan shorter, Create(context));
  EXPECT_FALSE(shorter.created);
  EXPECT_FALSE(shorter.changed);
  EXPECT_EQ(shorter.record.expires_at_ms, 1'100'000);
  clock_.AdvanceMs(80'000);
  ASSERT_OK_AND_ASSIGN(const RecordPlan later, Create(context));
  EXPECT_EQ(later.record.expires_at_ms, 1'130'000);
  EXPECT_EQ(later.record.ttl_seconds, 50);
  EXPECT_EQ(later.record.created_at_ms, 1'000'000);
  context.ttl_seconds = std::nullopt;
  ASSERT_OK_AND_ASSIGN(const RecordPlan never, Create(context));
  EXPECT_EQ(never.record.expires_at_ms, std::nullopt);
  context.ttl_seconds = 1;
  ASSERT_OK_AND_ASSIGN(const RecordPlan still_never, Create(context));
  EXPECT_EQ(still_never.record.expires_at_ms, std::nullopt);
}

TEST_F(RecordTableTest, TtlCountsFromCreationAndFromNowWhenPatched) {
  NewContext context = ContextOf(1);
  context.ttl_seconds = 100;
  ASSERT_OK(Create(context));
  clock_.AdvanceMs(60'000);
  table_.Touch(KeyOf(context));
  EXPECT_EQ(Get(KeyOf(context)).expires_at_ms, 1'100'000) << "uses do not extend it";
  EXPECT_EQ(Update(KeyOf(context), {.ttl_seconds = 100}).expires_at_ms, 1'160'000);
  EXPECT_EQ(Update(KeyOf(context), {.ttl_seconds = std::optional<int64_t>()}).expires_at_ms, std::nullopt);
  EXPECT_GT(Update(KeyOf(context), {.ttl_seconds = INT64_MAX}).expires_at_ms, 1'160'000) << "no overflow";
}

TEST_F(RecordTableTest, StrongerPinWins) {
  NewContext context = ContextOf(1);
  context.pin = Pin::kSoft;
  context.pin_until_ms = 1'050'000;
  ASSERT_OK(Create(context));
  context.pin = Pin::kNone;
  ASSERT_OK(Create(context));
  EXPECT_EQ(Get(KeyOf(context)).pin, Pin::kSoft);
  context.pin = Pin::kSoft;
  context.pin_until_ms = 1'040'000;
  ASSERT_OK(Create(context));
  EXPECT_EQ(Get(KeyOf(context)).pin_until_ms, 1'050'000);
  context.pin = Pin::kHard;
  ASSERT_OK(Create(context));
  EXPECT_EQ(Get(KeyOf(context)).pin, Pin::kHard);
  EXPECT_EQ(Get(KeyOf(context)).pin_until_ms, 1'040'000);
  clock_.AdvanceMs(45'000);  // the hard pin has lapsed
  context.pin = Pin::kSoft;
  context.pin_until_ms = std::nullopt;
  ASSERT_OK(Create(context));
  EXPECT_EQ(Get(KeyOf(context)).pin, Pin::kSoft);
  EXPECT_EQ(Get(KeyOf(context)).pin_until_ms, std::nullopt);
}

TEST_F(RecordTableTest, TagsAreUnitedAndNameIsSetOnlyIfEmpty) {
  NewContext context = ContextOf(1);
  context.tags = {"b", "a", "b"};
  ASSERT_OK(Create(context));
  context.tags = {"c", "a"};
  context.name = "first";
  ASSERT_OK(Create(context));
  EXPECT_EQ(Get(KeyOf(context)).tags, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(Get(KeyOf(context)).name, "first");
  context.name = "second";
  ASSERT_OK(Create(context));
  EXPECT_EQ(Get(KeyOf(context)).name, "first");
  NewContext other = ContextOf(2);
  other.name = "second";
  ASSERT_OK(Create(other)) << "the name that was not taken over is still free";
}

TEST_F(RecordTableTest, NamesAreUniquePerTenantAndModel) {
  NewContext holder = ContextOf(1);
  holder.name = "n";
  holder.ttl_seconds = 10;
  ASSERT_OK(Create(holder));
  NewContext other = ContextOf(2);
  other.name = "n";
  EXPECT_EQ(CodeOf(Create(other).status()), ErrorCode::kNameInUse);
  EXPECT_EQ(ParamOf(Create(other).status()), "name");
  other.tenant = "else";
  EXPECT_OK(Create(other));
  other = ContextOf(3);
  other.name = "n";
  other.model_identity.bytes[0] = 1;
  EXPECT_OK(Create(other));
  ASSERT_OK_AND_ASSIGN(const ContextRecord found, table_.FindByName("default", other.model_identity, "n"));
  EXPECT_EQ(found.id, KeyOf(other).id);
  clock_.AdvanceMs(10'000);  // the holder has expired
  other = ContextOf(2);
  other.name = "n";
  EXPECT_OK(Create(other));
  Remove(KeyOf(holder), RemovalCause::kExpired);
  ASSERT_OK_AND_ASSIGN(const ContextRecord heir, table_.FindByName("default", {}, "n"));
  EXPECT_EQ(heir.id, KeyOf(other).id);
  EXPECT_EQ(Update(KeyOf(other), {.name = ""}).name, "");
  EXPECT_FALSE(table_.FindByName("default", {}, "n").ok());
}

TEST_F(RecordTableTest, NameOfAnExpiredContextIsNotHeldByWhoDoesNotTakeItOver) {
  NewContext expired = ContextOf(1);
  expired.name = "n";
  expired.ttl_seconds = 10;
  ASSERT_OK(Create(expired));
  NewContext named = ContextOf(2);
  named.name = "own";
  ASSERT_OK(Create(named));
  clock_.AdvanceMs(10'000);
  named.name = "n";
  ASSERT_OK(Create(named));
  EXPECT_EQ(Get(KeyOf(named)).name, "own");
  NewContext third = ContextOf(3);
  third.name = "n";
  EXPECT_OK(Create(third));
}

TEST_F(RecordTableTest, AbandonedPlanGivesItsNameBack) {
  NewContext context = ContextOf(1);
  context.name = "n";
  ASSERT_OK_AND_ASSIGN(const RecordPlan plan, table_.PlanCreate(KeyOf(context), context));
  NewContext other = ContextOf(2);
  other.name = "n";
  EXPECT_EQ(CodeOf(Create(other).status()), ErrorCode::kNameInUse);
  EXPECT_FALSE(table_.FindByName("default", {}, "n").ok()) << "a plan is not visible";
  table_.Abandon(plan);
  EXPECT_OK(Create(other));
}

TEST_F(RecordTableTest, SaysWhyAContextIsNotThere) {
  NewContext context = ContextOf(1);
  const ContextKey key = KeyOf(context);
  EXPECT_EQ(WhyNot(key), ErrorCode::kContextNotFound);
  context.ttl_seconds = 10;
  ASSERT_OK(Create(context));
  EXPECT_FALSE(table_.PlanRemoval(key, RemovalCause::kExpired).has_value()) << "not due";
  clock_.AdvanceMs(10'000);
  EXPECT_EQ(WhyNot(key), ErrorCode::kContextExpired) << "before its tombstone is written";
  EXPECT_EQ(table_.Expired(10), std::vector<ContextKey>{key});
  Remove(key, RemovalCause::kExpired);
  EXPECT_EQ(WhyNot(key), ErrorCode::kContextExpired);
  ASSERT_OK_AND_ASSIGN(const RecordPlan again, Create(context));
  EXPECT_TRUE(again.created);
  Remove(key, RemovalCause::kDeleted);
  EXPECT_EQ(WhyNot(key), ErrorCode::kContextDeleted);
  EXPECT_FALSE(table_.PlanRemoval(key, RemovalCause::kDeleted).has_value()) << "nothing left to delete";
}

TEST_F(RecordTableTest, RecreateOutranksItsTombstoneAlsoWhenTheClockStandsStill) {
  const NewContext context = ContextOf(1);
  const ContextKey key = KeyOf(context);
  ASSERT_OK(Create(context));
  const auto tombstone = table_.PlanRemoval(key, RemovalCause::kDeleted);
  table_.ApplyRemoval(key, *tombstone);
  ASSERT_OK_AND_ASSIGN(const RecordPlan plan, Create(context));
  // As another node would see it, in either order.
  RecordTable record_first(&clock_), tombstone_first(&clock_);
  record_first.Load(plan.record);
  record_first.Load(key, *tombstone);
  EXPECT_OK(record_first.Get(key));
  tombstone_first.Load(key, *tombstone);
  tombstone_first.Load(plan.record);
  EXPECT_OK(tombstone_first.Get(key));
}

TEST_F(RecordTableTest, TombstoneOutranksTheRecordBeforeIt) {
  const NewContext context = ContextOf(1);
  ASSERT_OK_AND_ASSIGN(const RecordPlan plan, Create(context));
  const auto tombstone = table_.PlanRemoval(KeyOf(context), RemovalCause::kDeleted);
  RecordTable other(&clock_);
  other.Load(KeyOf(context), *tombstone);
  other.Load(plan.record);
  EXPECT_EQ(CodeOf(other.Get(KeyOf(context)).status()), ErrorCode::kContextDeleted);
}

TEST_F(RecordTableTest, ListsInOrderByPagesWithoutHiddenOrForeignOnes) {
  std::vector<CacheId> ids;
  for (uint64_t seed = 0; seed < 7; ++seed) {
    NewContext context = ContextOf(seed);
    context.hidden = seed == 3;
    context.tags = {seed % 2 == 0 ? "even" : "odd"};
    ASSERT_OK(Create(context));
    if (seed != 3) ids.push_back(KeyOf(context).id);
    clock_.AdvanceMs(1);
  }
  ASSERT_OK(Create(ContextOf(1, 8, "default2")));
  ASSERT_OK(Create(ContextOf(1, 8, "defaul")));
  std::vector<CacheId> seen;
  ContextQuery query{.limit = 4, .descending = false};
  ASSERT_OK_AND_ASSIGN(ContextPage page, table_.List("default", query));
  EXPECT_TRUE(page.has_more);
  for (const auto& record : page.records) seen.push_back(record.id);
  query.after = seen.back();
  ASSERT_OK_AND_ASSIGN(page, table_.List("default", query));
  EXPECT_FALSE(page.has_more);
  for (const auto& record : page.records) seen.push_back(record.id);
  EXPECT_EQ(seen, ids);
  query = {.limit = 2, .descending = true, .tag = "even"};
  ASSERT_OK_AND_ASSIGN(page, table_.List("default", query));
  ASSERT_EQ(page.records.size(), 2u);
  EXPECT_EQ(page.records[0].id, ids.back());
  EXPECT_TRUE(page.has_more);
  EXPECT_EQ(table_.VisibleCount(), 8u);
  EXPECT_FALSE(table_.List("default", {.limit = 0}).ok());
  EXPECT_FALSE(table_.List("default", {.limit = 1001}).ok());
}

TEST_F(RecordTableTest, PagesGoOnAfterAContextThatWasRemovedMeanwhile) {
  std::vector<ContextKey> keys;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    NewContext context = ContextOf(seed);
    if (seed == 3) context.ttl_seconds = 60;
    ASSERT_OK(Create(context));
    keys.push_back(KeyOf(context));
    if (seed != 2) clock_.AdvanceMs(1);  // 2 and 3 have the same age
  }
  std::sort(keys.begin() + 2, keys.begin() + 4);
  const auto after = [&](const ContextKey& key, bool descending) {
    const auto page = table_.List("default", {.after = key.id, .descending = descending});
    EXPECT_OK(page);
    std::vector<CacheId> ids;
    for (const ContextRecord& record : page->records) ids.push_back(record.id);
    return ids;
  };
  const std::vector<CacheId> older = {keys[1].id, keys[0].id}, newer = {keys[4].id, keys[5].id};
  clock_.AdvanceMs(60'000);
  const ContextKey expired = KeyOf(ContextOf(3)), deleted = KeyOf(ContextOf(2));
  EXPECT_EQ(WhyNot(expired), ErrorCode::kContextExpired);
  Remove(deleted, RemovalCause::kDeleted);
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(after(deleted, true), older);
    EXPECT_EQ(after(deleted, false), newer);
    EXPECT_EQ(after(expired, true), older);
    EXPECT_EQ(after(expired, false), newer);
    if (step == 0) Remove(expired, RemovalCause::kExpired);
  }
  ASSERT_OK(Create(ContextOf(2)));  // a new context of the same ID stands where the new ones stand
  EXPECT_EQ(after(deleted, false), std::vector<CacheId>());
  table_.ForgetTombstone(expired);
  const ContextKey never = KeyOf(ContextOf(99));
  for (const ContextKey& key : {expired, never, ContextKey{"default2", keys[0].id}}) {
    const absl::Status status = table_.List(key.tenant, {.after = key.id}).status();
    EXPECT_EQ(CodeOf(status), ErrorCode::kContextNotFound);
    EXPECT_EQ(ParamOf(status), "after");
  }
}

TEST_F(RecordTableTest, ANameIsFreeAgainAfterItsContextOrItsPlanIsGone) {
  NewContext holder = ContextOf(1), other = ContextOf(2);
  holder.name = other.name = "n";
  ASSERT_OK_AND_ASSIGN(const RecordPlan pending, table_.PlanCreate(KeyOf(holder), holder));
  EXPECT_EQ(CodeOf(Create(other).status()), ErrorCode::kNameInUse) << "a plan has reserved it";
  table_.Abandon(pending);
  ASSERT_OK(Create(other));
  ASSERT_OK_AND_ASSIGN(const RecordPlan again, table_.PlanCreate(KeyOf(other), other));
  EXPECT_FALSE(again.changed) << "so that nobody applies or abandons it";
  Remove(KeyOf(other), RemovalCause::kDeleted);
  ASSERT_OK(Create(holder));
  Update(KeyOf(holder), {.name = "m"});
  EXPECT_OK(Create(other));
}

TEST_F(RecordTableTest, UsesAreTakenOnceAndOutliveChanges) {
  const NewContext context = ContextOf(1);
  ASSERT_OK(Create(context));
  ASSERT_OK(Create(ContextOf(2)));
  table_.Touch(KeyOf(context));
  table_.Touch(KeyOf(context));
  table_.Touch(KeyOf(ContextOf(2)));
  Update(KeyOf(context), {.name = "n"});
  Remove(KeyOf(ContextOf(2)), RemovalCause::kDeleted);
  EXPECT_EQ(table_.TakeTouched(), std::vector{KeyOf(context)});
  EXPECT_EQ(Get(KeyOf(context)).hits, 2u);
  EXPECT_TRUE(table_.TakeTouched().empty());
}

TEST_F(RecordTableTest, LookSaysWhetherAContextIsLiveOrWas) {
  NewContext context = ContextOf(1);
  context.model_identity.bytes[3] = 9;
  context.ttl_seconds = 10;
  EXPECT_EQ(table_.Look(RefOf(KeyOf(context))).life, RecordTable::Life::kNever);
  ASSERT_OK(Create(context));
  EXPECT_EQ(table_.Look(RefOf(KeyOf(context))).life, RecordTable::Life::kLive);
  EXPECT_EQ(table_.Look(RefOf(KeyOf(context))).model_identity, context.model_identity);
  clock_.AdvanceMs(10'000);
  EXPECT_EQ(table_.Look(RefOf(KeyOf(context))).life, RecordTable::Life::kGone);
  Remove(KeyOf(context), RemovalCause::kExpired);
  EXPECT_EQ(table_.Look(RefOf(KeyOf(context))).life, RecordTable::Life::kGone);
}

TEST_F(RecordTableTest, VisibleCreateOfAHiddenContextShowsIt) {
  NewContext context = ContextOf(1);
  context.hidden = true;
  ASSERT_OK(Create(context));
  EXPECT_EQ(table_.VisibleCount(), 0u);
  context.hidden = false;
  ASSERT_OK(Create(context));
  EXPECT_EQ(table_.VisibleCount(), 1u);
  context.hidden = true;
  ASSERT_OK(Create(context));
  EXPECT_EQ(table_.VisibleCount(), 1u);
}

TEST_F(RecordTableTest, FieldsOverTheirLimitsAreRefusedByName) {
  NewContext context = ContextOf(1);
  context.tags = {std::string(5000, 't')};
  EXPECT_EQ(ParamOf(Create(context).status()), "tags");
  context = ContextOf(1);
  context.name = std::string(5000, 'n');
  EXPECT_EQ(ParamOf(Create(context).status()), "name");
}

}  // namespace
}  // namespace epic::kv_store
