// Three real stores do what the machine of model/records_model.h does: on random walks through it every
// change, fetch, copy, crash, lost disk and tick is done to them too, and each answers for the context as its
// node in the machine does.
#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/model/records_model.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

using Model = RecordsModel;

constexpr int64_t kStartMs = 1'700'000'000'000;
constexpr uint8_t kTicks = 8;
// A store by itself forgets tombstones after their life; here the machine says when.
constexpr int64_t kTickMs = kTombstoneLifeMs / (kTicks + 1);

HybridTime StampOf(uint8_t stamp) { return {kStartMs, stamp}; }

class Nodes {
 public:
  explicit Nodes(uint64_t seed) : rng_(seed), context_(ContextOf(1)) {
    key_ = {context_.tenant, CacheId::Of(context_.tenant, context_.model_identity, context_.tokens)};
    for (int n = 0; n < Model::kNodes; ++n) Replace(n);
  }

  // Does what the step from `before` to `after` does.
  void Follow(const StepName& step, const Model::State& before, const Model::State& after) {
    const std::string_view what = step.what;
    if (what == "apply") {
      const Model::Change& change = after.changes[step.who];
      const bool is_refused = change.kind == Model::Kind::kExpiry && change.refused != 0;
      if (!is_refused) Join(step.whom, Brought(change, before.clock));
    } else if (what == "fetch") {
      if (const auto state = stores_[step.whom]->StateOf(key_)) Join(step.who, *state);
    } else if (what == "copy leaves") {
      copy_ = stores_[step.whom]->StateOf(key_);
    } else if (what == "copy arrives") {
      ASSERT_TRUE(copy_.has_value());
      Join(step.who, *copy_);
    } else if (what == "crash" && before.nodes[step.who].empty != 0) {
      Replace(step.who);  // it begins anew
    } else if (what == "crash") {
      stores_[step.who].reset();
      disks_[step.who]->Crash(&rng_);
      Open(step.who);
      // Forgetting is not synced: a crash may bring the tombstone back, which only denies what nobody was
      // promised. The store forgets it again, as the machine's node has.
      const Model::Held& held = after.nodes[step.who].memory;
      if (held.deleted + held.expired == 0) {
        EXPECT_OK(stores_[step.who]->ForgetTombstone(key_));
      }
    } else if (what == "lose disk" || what == "remove") {
      Replace(step.who);
    } else if (what == "tick") {
      clock_.AdvanceMs(kTickMs);
    } else if (what == "expire") {
      stores_[step.who]->Housekeep();
    } else if (what == "forget") {
      EXPECT_OK(stores_[step.who]->ForgetTombstone(key_));
    }
  }

  bool Answers(int node) const { return stores_[node]->GetContext(key_.tenant, key_.id).ok(); }
  bool HasTokens(int node) const {
    const auto tokens = stores_[node]->GetTokens(key_.tenant, key_.id);
    return tokens.ok() && *tokens == context_.tokens;
  }

 private:
  void Open(int node) {
    auto store =
        StoreCore::Open(std::make_unique<MemoryTableStore>(disks_[node]),
                        {.memory_bytes = 1 << 20, .clock = &clock_, .writer = {.period_ms = 1'000'000'000}});
    ASSERT_OK(store.status());
    stores_[node] = *std::move(store);
  }
  void Replace(int node) {
    stores_[node].reset();
    disks_[node] = std::make_shared<MemoryDisk>();
    Open(node);
  }
  void Join(int node, const ReplicaState& state) {
    EXPECT_OK(stores_[node]->JoinContext(key_, state, &context_.tokens));
  }

  // What a change tells a node.
  ReplicaState Brought(const Model::Change& change, uint8_t clock) const {
    if (change.kind == Model::Kind::kDelete) {
      return {std::nullopt, Tombstone{.at = {kStartMs + clock * kTickMs, change.stamp},
                                      .deleted = StampOf(change.stamp),
                                      .created_at_ms = std::nullopt}};
    }
    ContextRecord record;
    record.tenant = key_.tenant;
    record.id = key_.id;
    record.model_identity = context_.model_identity;
    record.model = context_.model;
    record.token_count = static_cast<uint32_t>(context_.tokens.size());
    record.created = StampOf(change.kind == Model::Kind::kCreate ? change.stamp : change.created);
    record.created_at_ms = kStartMs + record.created.counter;
    record.expiry_changed = StampOf(change.stamp);
    record.pin_changed = record.tags_changed = record.name_changed = record.created;
    if (change.expiry != Model::kNever) record.expires_at_ms = kStartMs + change.expiry * kTickMs;
    return {record, std::nullopt};
  }

  Rng rng_;
  ManualClock clock_{kStartMs};
  const NewContext context_;
  ContextKey key_;
  std::array<std::shared_ptr<MemoryDisk>, Model::kNodes> disks_;
  std::array<std::unique_ptr<StoreCore>, Model::kNodes> stores_;
  std::optional<ReplicaState> copy_;
};

using Step = std::pair<StepName, Model::State>;

std::vector<Step> StepsOf(const Model& model, const Model::State& state) {
  std::vector<Step> steps;
  model.Steps(state, [&](const StepName& name, const Model::State& next) { steps.emplace_back(name, next); });
  return steps;
}

void Walk(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Model model({}, {.changes = 12, .crashes = 4, .losses = 1, .ticks = kTicks, .expires = true});
  Rng rng(seed);
  Nodes nodes(seed);
  Model::State state = model.First();
  std::string way;
  for (int i = 0; i < 150; ++i) {
    const std::vector<Step> steps = StepsOf(model, state);
    if (steps.empty()) break;
    const auto& [name, next] = steps[rng.Below(steps.size())];
    way += name.Text() + "\n" + "      " + model.Describe(next) + "\n";
    nodes.Follow(name, state, next);
    state = next;
    ASSERT_EQ(model.Fault(state), "") << way;
    for (int n = 0; n < Model::kNodes; ++n) {
      const Model::Held& held = state.nodes[n].memory;
      const bool expected = model.Answers(held, state.clock);
      ASSERT_EQ(nodes.Answers(n), expected) << "node " << n << "\n" << way;
      ASSERT_EQ(nodes.HasTokens(n), expected) << "node " << n << "\n" << way;
    }
  }
}

TEST(ReplicasTest, RealNodesAnswerAsThoseOfTheMachine) {
  const uint64_t first = std::random_device{}();
  std::printf("seeds from %llu\n", static_cast<unsigned long long>(first));
  for (uint64_t seed = first; seed < first + 500 && !::testing::Test::HasFailure(); ++seed) Walk(seed);
}

}  // namespace
}  // namespace epic::kv_store
