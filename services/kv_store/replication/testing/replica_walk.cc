#include "services/kv_store/replication/testing/replica_walk.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <gtest/gtest.h>

#include "common/status/error.h"

namespace epic::kv_store {
namespace {

constexpr size_t kContexts = 3;
constexpr int64_t kTtlSeconds = 2;

using Kind = Promises::Kind;

int64_t UntilOf(const ContextRecord& record) { return record.expires_at_ms.value_or(Promises::kNever); }

ReplicaState WithoutUses(ReplicaState state) {
  if (state.record.has_value()) state.record->hits = state.record->last_used_at_ms = 0;
  return state;
}

}  // namespace

ReplicaWalk::ReplicaWalk(uint64_t seed, const SimOptions& options, WalkCounts* counts)
    : options_(options),
      counts_(counts),
      cluster_(seed, options),
      shown_down_(options.nodes, true),
      losses_left_(options.replicas - 1) {
  for (uint64_t at = 0; at < kContexts; ++at) {
    Context context{.context = ContextOf(at + 1), .key = {}, .promises = {}};
    context.key = {context.context.tenant, CacheId::Of(context.context.tenant, context.context.model_identity,
                                                       context.context.tokens)};
    contexts_.push_back(std::move(context));
  }
  for (size_t node = 0; node < cluster_.size(); ++node) {
    cluster_.Start(node);
    shown_down_[node] = false;
  }
}

void ReplicaWalk::Note(const std::string& what) {
  notes_.push_back(std::to_string(cluster_.clock().UnixMs() % 10'000'000) + " " + what);
  if (notes_.size() > 60) notes_.erase(notes_.begin());
}

std::string ReplicaWalk::Standings() const {
  std::string text;
  for (const std::string& note : notes_) text += note + "\n";
  return text;
}

void ReplicaWalk::Run(int steps) {
  ASSERT_TRUE(cluster_.PassUntil(5'000, [&] {
    for (size_t node = 0; node < cluster_.size(); ++node) {
      if (!cluster_.Serves(node)) return false;
    }
    return true;
  })) << "a new cluster does not begin to serve";
  cluster_.network().faults = {.lost = static_cast<int>(Below(4)),
                               .unanswered = static_cast<int>(Below(4)),
                               .failed = static_cast<int>(Below(4)),
                               .doubled = static_cast<int>(Below(10)),
                               .late = static_cast<int>(Below(30)),
                               .most_late_ms = Below(4) == 0 ? 5000 : 100};
  for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
    Step();
    Check();
  }
  if (!::testing::Test::HasFailure()) Settle();
}

void ReplicaWalk::Step() {
  const size_t draw = Below(100);
  // Some node, or none, sees nothing new for a while.
  if (Below(40) == 0) laggard_ = Below(2 * cluster_.size());
  if (draw < 50) {
    for (size_t tasks = 1 + Below(12); tasks > 0 && cluster_.RunOne(); --tasks) {
    }
  } else if (draw < 66) {
    cluster_.Advance(static_cast<int64_t>(1 + Below(60)));
  } else if (draw < 80) {
    const size_t node = Below(cluster_.size());
    if (node != laggard_) cluster_.CatchUp(node);
  } else if (draw < 88) {
    Ask();
  } else if (draw < 91) {
    Fail();
  } else if (draw < 95) {
    Return();
  } else if (draw < 97) {
    const size_t node = Below(cluster_.size());
    if (cluster_.IsAlive(node)) cluster_.store(node)->Housekeep();
  } else {
    // Views and tasks keep up while time passes, for up to some beats.
    cluster_.PassUntil(static_cast<int64_t>(Below(Below(4) == 0 ? 12'000 : 1'500)), laggard_, [&] {
      Check();
      return ::testing::Test::HasFailure();
    });
  }
  GiveUpOld(false);
}

void ReplicaWalk::Ask() {
  const size_t node = Below(cluster_.size());
  if (!cluster_.IsAlive(node)) return;
  const size_t at = Below(contexts_.size());
  Context& context = contexts_[at];
  const int64_t now_ms = cluster_.clock().UnixMs();
  const bool expires = Below(2) == 0;
  const auto kind = static_cast<Kind>(Below(3));
  const int64_t soonest_ms =
      expires ? now_ms + kTtlSeconds * 1000 - 2 * options_.most_skew_ms : Promises::kNever;
  const uint64_t begun = context.promises.Begin(kind, soonest_ms);
  asked_.push_back({at, begun, now_ms + 4'000});
  const std::string name = "context " + std::to_string(at) + " by " + cluster_.name(node);
  Replicator* const replicator = cluster_.replicator(node);
  const std::optional<int64_t> ttl = expires ? std::optional<int64_t>(kTtlSeconds) : std::nullopt;
  if (kind == Kind::kCreate) {
    Note("create " + name);
    NewContext create = context.context;
    create.ttl_seconds = ttl;
    replicator->Create(create, [this, at, begun](const absl::StatusOr<CreateResult>& result) {
      Answered(at, begun, result.status(), result.ok() ? UntilOf(result->record) : 0);
    });
  } else if (kind == Kind::kExpiry) {
    Note("expiry " + name);
    replicator->Update(context.key.tenant, context.key.id, {.ttl_seconds = ttl},
                       [this, at, begun](const absl::StatusOr<ContextRecord>& record) {
                         Answered(at, begun, record.status(), record.ok() ? UntilOf(*record) : 0);
                       });
  } else {
    Note("delete " + name);
    const EraseMode erase = expires ? EraseMode::kWait : EraseMode::kLater;
    replicator->Delete(context.key.tenant, context.key.id, erase,
                       [this, at, begun](const absl::StatusOr<DeleteResult>& result) {
                         Answered(at, begun, result.status(), 0);
                       });
  }
}

void ReplicaWalk::Answered(size_t context, uint64_t begun, const absl::Status& status, int64_t until_ms) {
  const auto asked = std::find_if(asked_.begin(), asked_.end(), [&](const Asked& other) {
    return other.context == context && other.begun == begun;
  });
  if (asked == asked_.end()) return;  // long given up
  asked_.erase(asked);
  Note("answer to change " + std::to_string(begun) + " of context " + std::to_string(context) + ": " +
       std::string(status.ok() ? "ok" : MessageOf(status)));
  if (status.ok()) {
    contexts_[context].promises.Acknowledge(begun, until_ms);
    ++counts_->acknowledged;
  } else {
    contexts_[context].promises.GiveUp(begun);
    ++counts_->given_up;
  }
}

// Those whose node died: by then whoever had the change to make has ended it.
void ReplicaWalk::GiveUpOld(bool all) {
  std::erase_if(asked_, [&](const Asked& asked) {
    if (!all && asked.ends_ms > cluster_.clock().UnixMs()) return false;
    contexts_[asked.context].promises.GiveUp(asked.begun);
    ++counts_->given_up;
    return true;
  });
}

void ReplicaWalk::Fail() {
  const size_t node = Below(cluster_.size());
  size_t down = 0;
  for (const bool shown : shown_down_) down += shown ? 1 : 0;
  if (!cluster_.IsAlive(node)) {
    if (!shown_down_[node]) {
      Note(cluster_.name(node) + " is shown down");
      cluster_.ShowDown(node);
      shown_down_[node] = true;
    } else if (losses_left_ > 0 && Below(3) == 0) {
      Note(cluster_.name(node) + " loses its disk");
      cluster_.LoseDisk(node);
      --losses_left_;
      ++counts_->lost_disks;
    }
    return;
  }
  // Mostly one at a time, sometimes all.
  if (down >= 1 && Below(4) != 0) return;
  if (Below(4) == 0) {
    Note(cluster_.name(node) + " is taken for dead");
    cluster_.ShowDown(node);
    ++counts_->taken_for_dead;
  } else {
    Note(cluster_.name(node) + " crashes");
    cluster_.Crash(node);
    ++counts_->crashes;
  }
}

void ReplicaWalk::Return() {
  const size_t node = Below(cluster_.size());
  if (cluster_.IsAlive(node) || !shown_down_[node]) return;
  Note(cluster_.name(node) + " returns");
  cluster_.Start(node);
  shown_down_[node] = false;
}

void ReplicaWalk::Check() {
  const int64_t now_ms = cluster_.clock().UnixMs();
  for (const Context& context : contexts_) CheckContext(context, now_ms);
}

void ReplicaWalk::CheckContext(const Context& context, int64_t now_ms) {
  const int64_t skew_ms = 2 * options_.most_skew_ms;
  const bool live = context.promises.IsLive(now_ms + skew_ms);
  const bool over = context.promises.IsOver(now_ms - skew_ms);
  const auto group = Placement{options_.replicas}.GroupOf(cluster_.members().latest(), context.key);
  size_t serving = 0, found = 0;
  for (size_t node = 0; node < cluster_.size(); ++node) {
    if (!cluster_.Serves(node)) continue;
    const bool placed = std::any_of(group.begin(), group.end(), [&](const Member* member) {
      return member->node.name == cluster_.name(node);
    });
    const auto record = cluster_.store(node)->GetContext(context.key.tenant, context.key.id);
    const bool known = cluster_.store(node)->StateOf(context.key).has_value();
    ASSERT_TRUE(placed || !known) << cluster_.name(node) << " holds what is not its own\n" << Standings();
    serving += placed ? 1 : 0;
    found += record.ok() ? 1 : 0;
    ASSERT_FALSE(over && record.ok()) << cluster_.name(node) << " serves what is gone\n" << Standings();
    ASSERT_FALSE(live && known && !record.ok()) << cluster_.name(node) << " denies what is live\n"
                                                << Standings();
  }
  ASSERT_FALSE(live && serving >= options_.replicas && found == 0) << "no serving node has a live context\n"
                                                                   << Standings();
  counts_->checks_live += live ? 1 : 0;
  counts_->checks_over += over ? 1 : 0;
}

void ReplicaWalk::Settle() {
  Note("faults end");
  cluster_.network().faults = {};
  cluster_.Pass(8'000);  // what was late arrives, what was asked is answered
  GiveUpOld(true);
  Check();
  for (size_t node = 0; node < cluster_.size(); ++node) {
    if (cluster_.IsAlive(node)) continue;
    if (!shown_down_[node]) cluster_.ShowDown(node);
    cluster_.Start(node);
  }
  const auto all_serve = [&] {
    Check();
    for (size_t node = 0; node < cluster_.size(); ++node) {
      if (!cluster_.Serves(node)) return ::testing::Test::HasFailure();
    }
    return true;
  };
  if (!cluster_.PassUntil(10'000, all_serve)) {
    // A node that lost its disk waits for one that was emptied, and the other way round.
    size_t empty = 0;
    for (size_t node = 0; node < cluster_.size(); ++node) empty += cluster_.IsEmpty(node) ? 1 : 0;
    ++counts_->stuck;
    ASSERT_GE(empty, 2u) << "nodes do not begin to serve\n" << Standings();
    return;
  }
  CheckSettled();
}

void ReplicaWalk::CheckSettled() {
  // Two passes of repair, so that one began after the faults had ended.
  Replicator* const leader = cluster_.replicator(0);
  const uint64_t passes = leader->repair_passes();
  ASSERT_TRUE(cluster_.PassUntil(30'000, [&] { return leader->repair_passes() >= passes + 3; }));
  Check();
  counts_->repaired += leader->repaired();
  for (const Context& context : contexts_) {
    const auto group = Placement{options_.replicas}.GroupOf(cluster_.members().latest(), context.key);
    std::vector<ReplicaState> states;
    for (size_t node = 0; node < cluster_.size(); ++node) {
      const bool placed = std::any_of(group.begin(), group.end(), [&](const Member* member) {
        return member->node.name == cluster_.name(node);
      });
      const auto tokens = cluster_.store(node)->GetTokens(context.key.tenant, context.key.id);
      if (tokens.ok()) {
        EXPECT_EQ(*tokens, context.context.tokens);
      }
      if (placed)
        states.push_back(WithoutUses(cluster_.store(node)->StateOf(context.key).value_or(ReplicaState{})));
      // A user reads the same from any node.
      std::optional<absl::StatusOr<ContextRecord>> read;
      cluster_.replicator(node)->Get(context.key.tenant, context.key.id,
                                     [&](absl::StatusOr<ContextRecord> record) { read = std::move(record); });
      cluster_.PassUntil(1'000, [&] { return read.has_value(); });
      ASSERT_TRUE(read.has_value());
      const int64_t now_ms = cluster_.clock().UnixMs();
      if (context.promises.IsLive(now_ms + 2 * options_.most_skew_ms)) {
        EXPECT_TRUE(read->ok()) << read->status() << "\n" << Standings();
      }
      if (context.promises.IsOver(now_ms - 2 * options_.most_skew_ms)) {
        EXPECT_EQ(read->status().code(), absl::StatusCode::kNotFound) << Standings();
      }
    }
    for (const ReplicaState& state : states) {
      EXPECT_EQ(state.record, states[0].record) << "nodes do not agree\n" << Standings();
    }
  }
}

void WalkSeeds(const SimOptions& options, uint64_t seeds, int steps) {
  const auto named = static_cast<uint64_t>(::testing::GTEST_FLAG(random_seed));
  WalkCounts counts;
  for (uint64_t seed = named != 0 ? named : 1; seed <= (named != 0 ? named : seeds); ++seed) {
    SCOPED_TRACE("--gtest_random_seed=" + std::to_string(seed));
    ReplicaWalk(seed, options, &counts).Run(steps);
    if (::testing::Test::HasFailure()) return;
  }
  std::printf(
      "acknowledged %llu, given up %llu, crashes %llu, disks lost %llu, taken for dead %llu, repaired %llu, "
      "live checked %llu, gone checked %llu, stuck %llu\n",
      static_cast<unsigned long long>(counts.acknowledged), static_cast<unsigned long long>(counts.given_up),
      static_cast<unsigned long long>(counts.crashes), static_cast<unsigned long long>(counts.lost_disks),
      static_cast<unsigned long long>(counts.taken_for_dead),
      static_cast<unsigned long long>(counts.repaired), static_cast<unsigned long long>(counts.checks_live),
      static_cast<unsigned long long>(counts.checks_over), static_cast<unsigned long long>(counts.stuck));
  if (named != 0) return;
  EXPECT_GT(counts.acknowledged, seeds);
  EXPECT_GT(counts.given_up, seeds / 4);
  EXPECT_GT(counts.crashes, seeds / 4);
  EXPECT_GT(counts.checks_live, 10 * seeds);
  EXPECT_GT(counts.checks_over, 10 * seeds);
}

}  // namespace epic::kv_store
