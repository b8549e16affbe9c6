#include "services/kv_store/replication/replicator.h"

#include <algorithm>
#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/kv_store/replication/answers.h"

namespace epic::kv_store {
namespace {

// Whether this is not what the node says of the change, but what became of the call: the change may be on its
// way still.
bool IsUncertain(const absl::Status& status) {
  return !status.ok() && (IsUnexpected(status) || absl::IsCancelled(status));
}

bool IsLive(const ReplicaState& state, int64_t now_ms) {
  return state.record.has_value() && state.record->expires_at_ms.value_or(now_ms + 1) > now_ms;
}

absl::Status GoneError(const ReplicaState& state) {
  if (!state.record.has_value() && !state.tombstone.has_value()) {
    return Error(ErrorCode::kContextNotFound, "no such context; create it with POST /v1/contexts", "id");
  }
  if (!state.record.has_value() && state.tombstone->cause == RemovalCause::kDeleted) {
    return Error(ErrorCode::kContextDeleted, "the context was deleted; create it again to use it", "id");
  }
  return Error(ErrorCode::kContextExpired, "the context has expired; create it again with a longer ttl",
               "id");
}

}  // namespace

Replicator::Replicator(std::shared_ptr<ReplicaNode> node)
    : node_(std::move(node)),
      joiner_(node_.get()),
      beats_(node_.get()),
      names_(node_.get()),
      changer_(node_.get(), &names_),
      eraser_(node_.get()),
      repairer_(node_.get()) {}

absl::StatusOr<std::shared_ptr<Replicator>> Replicator::Open(const ReplicatorOptions& options,
                                                             ReplicatorDeps deps) {
  const auto self = std::make_shared<LocalPeer>();
  deps.peers[options.name] = self;
  EPIC_ASSIGN_OR_RETURN(std::shared_ptr<ReplicaNode> node, ReplicaNode::Open(options, deps));
  std::shared_ptr<Replicator> replicator(new Replicator(std::move(node)));
  self->Bind(replicator);
  return replicator;
}

void Replicator::Start() {
  node_->Post([this] { Tick(); });
}

void Replicator::Tick() {
  joiner_.Step(true);
  beats_.Step();
  repairer_.Step();
  node_->After(node_->options().tick_ms, [this] { Tick(); });
}

void Replicator::ViewChanged() {
  node_->Post([this] {
    joiner_.Step(false);
    changer_.Reconsider();
  });
}

ChangeRequest Replicator::RequestFor(ContextKey key) const {
  return {.id = node_->Random(),
          .key = std::move(key),
          .what = DeleteChange{},
          .until_unix_ms = node_->NowUnixMs() + node_->options().change_timeout_ms};
}

void Replicator::Route(ChangeRequest request, Done<ChangeReply> done) {
  const auto view = node_->View();
  const Member* home = nullptr;
  for (const Member* member : node_->options().placement.GroupOf(*view, request.key)) {
    if (home == nullptr && member->up == NodeUp::kServing) home = member;
  }
  const int64_t left_ms = request.until_unix_ms - node_->NowUnixMs();
  const auto again = [this, request, done, left_ms](const absl::Status& why) {
    if (left_ms <= node_->options().retry_ms) return done(why);
    node_->After(node_->options().retry_ms, [this, request, done] { Route(request, done); });
  };
  if (home == nullptr) {
    return again(Error(ErrorCode::kInsufficientReplicas,
                       "no store node of the context serves; nothing was changed: try again"));
  }
  // Until then the home may begin it, by its own clock.
  const int64_t end_ns = node_->NowNs() + (left_ms + kMaxClockSkewMs) * 1'000'000;
  node_->Call<ChangeRequest, ChangeReply>(
      home->node.name, &ReplicaPeer::Change, request, left_ms + kMaxClockSkewMs,
      [this, again, done, end_ns](absl::StatusOr<ChangeReply> reply) {
        if (absl::IsAborted(reply.status())) {
          return again(Error(ErrorCode::kInsufficientReplicas,
                             "the store nodes are changing over; nothing was changed: try again"));
        }
        if (reply.ok() || !IsUncertain(reply.status())) return done(std::move(reply));
        // Nobody is told that it failed while it may begin.
        const absl::Status failed =
            Error(ErrorCode::kInsufficientReplicas,
                  "the store node that makes the change did not answer; the change may be there later: read "
                  "the context, or send it again");
        const int64_t wait_ms = (end_ns - node_->NowNs() + 999'999) / 1'000'000;
        if (wait_ms <= 0) return done(failed);
        node_->After(wait_ms, [done, failed] { done(failed); });
      });
}

void Replicator::Create(const NewContext& context, Done<CreateResult> done) {
  ChangeRequest request =
      RequestFor({context.tenant, CacheId::Of(context.tenant, context.model_identity, context.tokens)});
  request.what = context;
  Route(std::move(request), [done = std::move(done)](absl::StatusOr<ChangeReply> reply) {
    if (!reply.ok()) return done(reply.status());
    done(CreateResult{.record = std::move(reply->record), .created = reply->changed});
  });
}

void Replicator::Update(std::string_view tenant, const CacheId& id, const ContextPatch& patch,
                        Done<ContextRecord> done) {
  ChangeRequest request = RequestFor({std::string(tenant), id});
  request.what = patch;
  Route(std::move(request), [done = std::move(done)](absl::StatusOr<ChangeReply> reply) {
    if (!reply.ok()) return done(reply.status());
    done(std::move(reply->record));
  });
}

void Replicator::SetState(std::string_view tenant, const CacheId& id, const SetStateChange& state,
                          Done<ContextRecord> done) {
  ChangeRequest request = RequestFor({std::string(tenant), id});
  request.what = state;
  Route(std::move(request), [done = std::move(done)](absl::StatusOr<ChangeReply> reply) {
    if (!reply.ok()) return done(reply.status());
    done(std::move(reply->record));
  });
}

void Replicator::Delete(std::string_view tenant, const CacheId& id, EraseMode erase,
                        Done<DeleteResult> done) {
  const ContextKey key{std::string(tenant), id};
  Route(RequestFor(key), [this, key, erase, done = std::move(done)](absl::StatusOr<ChangeReply> reply) {
    if (!reply.ok()) return done(reply.status());
    if (erase == EraseMode::kLater) return done(DeleteResult{.existed = reply->changed, .pending = {}});
    EraseEverywhere(key, reply->tombstone.value_or(Tombstone{}), reply->changed, done);
  });
}

void Replicator::EraseEverywhere(const ContextKey& key, const Tombstone& tombstone, bool existed,
                                 Done<DeleteResult> done) {
  struct Erasing {
    Mutex mu;
    size_t left ABSL_GUARDED_BY(mu) = 1;
    DeleteResult result ABSL_GUARDED_BY(mu);
  };
  const auto erasing = std::make_shared<Erasing>();
  const auto ended = [erasing, done](const std::string& pending) {
    DeleteResult result;
    {
      MutexLock lock(&erasing->mu);
      if (!pending.empty()) erasing->result.pending.push_back(pending);
      if (--erasing->left > 0) return;
      result = erasing->result;
    }
    std::sort(result.pending.begin(), result.pending.end());
    done(std::move(result));
  };
  const auto view = node_->View();
  const auto group = node_->options().placement.GroupOf(*view, key);
  {
    MutexLock lock(&erasing->mu);
    erasing->left += group.size();
    erasing->result.existed = existed;
  }
  for (const Member* member : group) {
    const std::string name = member->node.name;
    if (member->up == NodeUp::kDown) {
      ended(name);
      continue;
    }
    node_->Call<EraseRequest, EraseReply>(
        name, &ReplicaPeer::Erase, {key, tombstone}, node_->options().erase_timeout_ms,
        [ended, name](const absl::StatusOr<EraseReply>& reply) { ended(reply.ok() ? "" : name); });
  }
  ended("");
}

void Replicator::Get(std::string_view tenant, const CacheId& id, Done<ContextRecord> done) {
  const ContextKey key{std::string(tenant), id};
  const auto view = node_->View();
  // The common case: it is here.
  if (node_->MayServe(*view)) {
    const auto record = node_->store()->GetContext(tenant, id);
    if (record.ok() && node_->MayServe()) return done(record);
  }
  Look(key, false, [this, done = std::move(done)](absl::StatusOr<ReplicaItem> item) {
    if (!item.ok()) return done(item.status());
    if (!IsLive(item->state, node_->NowUnixMs())) return done(GoneError(item->state));
    done(*item->state.record);
  });
}

void Replicator::GetTokens(std::string_view tenant, const CacheId& id, Done<TokensPtr> done) {
  Look({std::string(tenant), id}, true, [this, done = std::move(done)](absl::StatusOr<ReplicaItem> item) {
    if (!item.ok()) return done(item.status());
    if (!IsLive(item->state, node_->NowUnixMs())) return done(GoneError(item->state));
    if (item->tokens != nullptr) return done(item->tokens);
    done(Error(ErrorCode::kContextObjectMissing,
               "the stored token ids of this context are damaged; create it again with the same text", "id"));
  });
}

void Replicator::Look(const ContextKey& key, bool with_tokens, Done<ReplicaItem> done) {
  const auto view = node_->View();
  std::vector<std::string> others;
  bool mine = false;
  for (const Member* member : node_->options().placement.GroupOf(*view, key)) {
    const bool self = member->node.name == node_->name();
    mine |= self;
    if (!self && member->up == NodeUp::kServing) others.push_back(member->node.name);
  }
  if (!mine || !node_->MayServe(*view)) {
    return LookElsewhere(key, with_tokens, std::move(others), true, done);
  }
  node_->Post([this, key, with_tokens, others, done = std::move(done)] {
    auto reply = AnswerQuery(node_.get(), {.keys = {key}, .with_tokens = with_tokens});
    const bool counts = reply.ok() && reply->standing.up == NodeUp::kServing;
    const bool known = counts && reply->items[0].state != ReplicaState{};
    const bool whole = !known || !with_tokens || reply->items[0].tokens != nullptr ||
                       !reply->items[0].state.record.has_value();
    // What this node does not know of, or has damaged, another may have.
    if (counts && (others.empty() || (known && whole))) return done(std::move(reply->items[0]));
    LookElsewhere(key, with_tokens, others, counts && !known, done);
  });
}

void Replicator::LookElsewhere(const ContextKey& key, bool with_tokens, std::vector<std::string> others,
                               bool sure, Done<ReplicaItem> done) {
  if (others.empty()) {
    return done(
        Error(ErrorCode::kInsufficientReplicas, "no store node that may have the context serves; try again"));
  }
  const std::string to = others.back();
  others.pop_back();
  node_->Call<QueryRequest, QueryReply>(
      to, &ReplicaPeer::Query, {.keys = {key}, .with_tokens = with_tokens}, node_->options().call_timeout_ms,
      [this, key, with_tokens, others, sure, done](absl::StatusOr<QueryReply> reply) {
        const bool counts = reply.ok() && reply->standing.up == NodeUp::kServing && reply->items.size() == 1;
        const bool known = counts && reply->items[0].state != ReplicaState{};
        if (known || (counts && sure && others.empty())) return done(std::move(reply->items[0]));
        LookElsewhere(key, with_tokens, others, sure && counts, done);
      });
}

void Replicator::HandleSend(SendRequest request, Done<SendReply> done) {
  done(AnswerSend(node_.get(), request));
}
void Replicator::HandleFetch(FetchRequest request, Done<FetchReply> done) {
  done(AnswerFetch(node_.get(), request));
}
void Replicator::HandleQuery(QueryRequest request, Done<QueryReply> done) {
  done(AnswerQuery(node_.get(), request));
}
void Replicator::HandleName(NameRequest request, Done<NameReply> done) {
  names_.Handle(std::move(request), std::move(done));
}
void Replicator::HandleBeat(BeatRequest request, Done<BeatReply> done) {
  done(AnswerBeat(node_.get(), request));
}
void Replicator::HandleChange(ChangeRequest request, Done<ChangeReply> done) {
  changer_.Begin(std::move(request), std::move(done));
}

void Replicator::HandleErase(EraseRequest request, Done<EraseReply> done) {
  if (!node_->IsUp(*node_->View())) return done(absl::UnavailableError("the node is not up"));
  if (request.tombstone.deleted != HybridTime{}) {
    const absl::Status status =
        node_->store()->JoinContext(request.key, {std::nullopt, request.tombstone}, nullptr);
    if (!status.ok()) return done(status);
  }
  eraser_.Erase([this, done](absl::Status status) {
    done(status.ok() ? absl::StatusOr<EraseReply>(EraseReply{node_->StandingNow()})
                     : absl::StatusOr<EraseReply>(status));
  });
}

}  // namespace epic::kv_store
