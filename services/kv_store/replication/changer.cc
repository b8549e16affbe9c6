#include "services/kv_store/replication/changer.h"

#include <algorithm>
#include <utility>

#include "common/base/absl_std.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic::kv_store {
namespace {

constexpr int kMostRounds = 5;

template <typename Kind>
bool Is(const ChangeRequest& request) {
  return std::holds_alternative<Kind>(request.what);
}

bool IsOfDurabilityOne(const ChangeRequest& request) {
  const auto* context = std::get_if<NewContext>(&request.what);
  return context != nullptr && context->durability == Durability::kOne;
}

}  // namespace

void Changer::Begin(ChangeRequest request, Done done) {
  const int64_t now_ms = node_->NowUnixMs();
  if (now_ms > request.until_unix_ms) {
    return done(Error(ErrorCode::kDeadline, "the change came too late to be begun; send it again"));
  }
  const auto change = std::make_shared<Change>();
  change->deadline_ns = node_->NowNs() + (request.until_unix_ms - now_ms) * 1'000'000;
  change->done = std::move(done);
  if (const auto* context = std::get_if<NewContext>(&request.what)) {
    change->tokens = std::make_shared<const std::vector<TokenId>>(context->tokens);
  }
  change->request = std::move(request);
  bool full = false, first = false;
  {
    MutexLock lock(&mu_);
    for (auto it = seen_.begin(); it != seen_.end();) {
      it = it->second + kMaxClockSkewMs < now_ms ? seen_.erase(it) : std::next(it);
    }
    if (!seen_.emplace(change->request.id, change->request.until_unix_ms).second) return;
    full = under_way_ >= node_->options().most_changes;
    if (!full) {
      ++under_way_;
      auto& waiting = changes_[change->request.key];
      waiting.push_back(change);
      first = waiting.size() == 1;
    }
  }
  if (full) return change->done(Error(ErrorCode::kQueueFull, "too many changes are under way; try again"));
  if (first) node_->Post([this, change] { Start(change); });
}

// Whether this node may coordinate, and how many disks must have the change.
absl::Status Changer::CheckPlace(const ChangeRequest& request, size_t* needed) const {
  const auto view = node_->View();
  const Placement& placement = node_->options().placement;
  size_t serving = 0;
  bool mine = false;
  for (const Member* member : placement.GroupOf(*view, request.key)) {
    serving += member->up == NodeUp::kServing ? 1 : 0;
    mine |= member->node.name == node_->name();
  }
  if (!mine || !node_->MayServe(*view)) {
    return absl::AbortedError("another store node is to coordinate this change");
  }
  *needed = IsOfDurabilityOne(request) ? 1 : placement.replicas;
  if (serving >= *needed) return absl::OkStatus();
  return Error(
      ErrorCode::kInsufficientReplicas,
      "fewer store nodes serve than must keep the context; nothing was changed: try again, or create "
      "with durability one");
}

void Changer::Start(const ChangePtr& change) {
  if (node_->NowNs() > change->deadline_ns) {
    return End(change, Error(ErrorCode::kDeadline,
                             "the change waited too long for others of the same context; "
                             "nothing was changed"));
  }
  if (absl::Status status = CheckPlace(change->request, &change->needed); !status.ok()) {
    {
      MutexLock lock(&mu_);
      seen_.erase(change->request.id);
    }
    return End(change, status);
  }
  change->beat = node_->row().beats.beat;
  KeepTime(change);
  const bool is_known = node_->store()->StateOf(change->request.key).has_value();
  if (is_known || Is<NewContext>(change->request)) return ClaimName(change);
  LookElsewhere(change);
}

bool Changer::SomeDown(const MemberView& view, const ContextKey& key) const {
  const auto group = node_->options().placement.GroupOf(view, key);
  return std::any_of(group.begin(), group.end(),
                     [](const Member* member) { return member->up == NodeUp::kDown; });
}

// What this node does not know of, another may: one that was told of a change that was given up.
void Changer::LookElsewhere(const ChangePtr& change) {
  const auto view = node_->View();
  std::vector<std::string> others;
  const bool some_down = SomeDown(*view, change->request.key);
  for (const Member* member : node_->options().placement.GroupOf(*view, change->request.key)) {
    if (member->up != NodeUp::kDown && member->node.name != node_->name())
      others.push_back(member->node.name);
  }
  struct Asking {
    Mutex mu;
    size_t left ABSL_GUARDED_BY(mu) = 0;
    bool all ABSL_GUARDED_BY(mu) = true;
  };
  const auto asking = std::make_shared<Asking>();
  {
    MutexLock lock(&asking->mu);
    asking->left = others.size() + 1;
  }
  const auto answered = [this, change, asking, some_down](bool answered) {
    bool all = false;
    {
      MutexLock lock(&asking->mu);
      asking->all &= answered;
      if (--asking->left > 0) return;
      all = asking->all;
    }
    const bool known = change->found || node_->store()->StateOf(change->request.key).has_value();
    // A node that is down may have it from a create that was given up: then a tombstone has to wait for it.
    if (Is<DeleteChange>(change->request) && all && !some_down && !known) {
      return End(change, absl::OkStatus());
    }
    if (!Is<DeleteChange>(change->request) && !all && !known) {
      return End(
          change,
          Error(ErrorCode::kInsufficientReplicas,
                "a store node that may know the context did not answer; nothing was changed: try again"));
    }
    ClaimName(change);
  };
  for (const std::string& other : others) {
    QueryRequest query{.keys = {change->request.key}, .with_tokens = !Is<DeleteChange>(change->request)};
    node_->Call<QueryRequest, QueryReply>(other, &ReplicaPeer::Query, std::move(query),
                                          node_->options().call_timeout_ms,
                                          [this, change, answered](absl::StatusOr<QueryReply> reply) {
                                            if (reply.ok()) {
                                              MutexLock lock(&mu_);
                                              if (change->ended) return;
                                            }
                                            if (reply.ok()) Adopt(change.get(), *reply);
                                            answered(reply.ok());
                                          });
  }
  answered(true);
}

void Changer::Adopt(Change* change, const QueryReply& reply) {
  if (reply.items.empty() || reply.standing.empty ||
      node_->IsOverdue(reply.standing, node_->row().beats.beat)) {
    return;
  }
  const ReplicaItem& item = reply.items.front();
  if (Is<DeleteChange>(change->request)) {
    node_->store()->Tick(LatestTime(item.state));
    MutexLock lock(&mu_);
    change->found |= item.state.record.has_value();
    return;
  }
  // Without token ids nothing is learned: then the context is unknown here.
  node_->store()->JoinContext(item.key, item.state, item.tokens.get()).IgnoreError();
}

void Changer::ClaimName(const ChangePtr& change) {
  NameRequest request{.tenant = change->request.key.tenant, .id = change->request.key.id};
  if (const auto* context = std::get_if<NewContext>(&change->request.what)) {
    request.name = context->name;
    request.model_identity = context->model_identity;
  } else if (const auto* patch = std::get_if<ContextPatch>(&change->request.what)) {
    const auto record = node_->store()->GetContext(request.tenant, request.id);
    if (!record.ok()) return End(change, record.status());
    request.name = patch->name.value_or("");
    request.model_identity = record->model_identity;
  }
  if (request.name.empty()) return Make(change);
  change->name = request;
  names_->Claim(request, [this, change](absl::Status status) {
    if (status.ok()) return Make(change);
    change->name.reset();
    End(change, status);
  });
}

void Changer::Make(const ChangePtr& change) {
  size_t needed = 0;
  // In a later round it is here already.
  const bool begun = !change->item.key.id.empty();
  if (absl::Status status = CheckPlace(change->request, &needed); !status.ok()) {
    return begun ? End(change, std::nullopt) : End(change, status);
  }
  if (node_->NowNs() > change->deadline_ns) {
    return begun ? End(change, std::nullopt)
                 : End(change,
                       Error(ErrorCode::kDeadline, "the change came too late to be begun; send it again"));
  }
  ChangeReply reply;
  if (absl::Status status = MakeHere(change.get(), &reply); !status.ok()) return End(change, status);
  const auto state = node_->store()->StateOf(change->request.key);
  {
    MutexLock lock(&mu_);
    reply.changed = change->found;
    change->reply = std::move(reply);
    change->item = {.key = change->request.key,
                    .state = state.value_or(ReplicaState{}),
                    .tokens = change->found ? change->tokens : nullptr};
    change->others.clear();
    ++change->round;
    change->making = false;
  }
  Go(change);
}

absl::Status Changer::MakeHere(Change* change, ChangeReply* reply) {
  StoreCore* const store = node_->store();
  const ContextKey& key = change->request.key;
  if (const auto* context = std::get_if<NewContext>(&change->request.what)) {
    EPIC_ASSIGN_OR_RETURN(CreateResult result, store->CreateContext(*context));
    reply->record = std::move(result.record);
    change->found |= result.created;
    return absl::OkStatus();
  }
  if (const auto* patch = std::get_if<ContextPatch>(&change->request.what)) {
    EPIC_ASSIGN_OR_RETURN(reply->record, store->UpdateContext(key.tenant, key.id, *patch));
    return absl::OkStatus();
  }
  if (const auto* state = std::get_if<SetStateChange>(&change->request.what)) {
    EPIC_RETURN_IF_ERROR(store->SetState(key.tenant, key.id, state->state, state->compile_ms, state->error));
    EPIC_ASSIGN_OR_RETURN(reply->record, store->GetContext(key.tenant, key.id));
    return absl::OkStatus();
  }
  return DeleteHere(change, reply);
}

absl::Status Changer::DeleteHere(Change* change, ChangeReply* reply) {
  StoreCore* const store = node_->store();
  const ContextKey& key = change->request.key;
  const ReplicaState known = store->StateOf(key).value_or(ReplicaState{});
  if (store->GetContext(key.tenant, key.id).ok()) change->found = true;
  // One that is gone is gone by the tombstone that is there, unless somebody knows better, or may.
  if (known.record.has_value() || !known.tombstone.has_value() || change->round > 0 ||
      SomeDown(*node_->View(), key)) {
    Tombstone tombstone{.at = store->Tick(LatestTime(known)), .created_at_ms = std::nullopt};
    tombstone.deleted = tombstone.at;
    if (known.record.has_value()) tombstone.created_at_ms = known.record->created_at_ms;
    EPIC_RETURN_IF_ERROR(store->JoinContext(key, {std::nullopt, tombstone}, nullptr));
  }
  reply->tombstone = store->StateOf(key).value_or(ReplicaState{}).tombstone;
  return absl::OkStatus();
}

void Changer::Go(const ChangePtr& change) {
  const auto view = node_->View();
  const bool may_go_on =
      node_->MayServe(*view) && !node_->IsTooOld(change->beat) && node_->NowNs() < change->deadline_ns;
  std::vector<Sending> sendings;
  int round = 0;
  bool acknowledged = false;
  {
    MutexLock lock(&mu_);
    if (change->ended || change->making) return;
    round = change->round;
    acknowledged = Consider(*view, change, &sendings);
  }
  if (!may_go_on) return End(change, std::nullopt);
  if (acknowledged) return End(change, absl::OkStatus());
  for (Sending& sending : sendings) Send(change, round, std::move(sending));
}

bool Changer::Consider(const MemberView& view, const ChangePtr& change, std::vector<Sending>* sendings) {
  const int64_t now_ns = node_->NowNs();
  size_t disks = 1;
  bool all = true;
  for (const Member* member : node_->options().placement.GroupOf(view, change->request.key)) {
    if (member->up == NodeUp::kDown || member->node.name == node_->name()) continue;
    Progress& progress = change->others[member->node.name];
    if (progress.applied_session != 0 && progress.applied_session == member->session) {
      disks += progress.empty ? 0 : 1;
      continue;
    }
    all = false;
    if (progress.asked || now_ns < progress.next_ns) continue;
    progress.asked = true;
    SendRequest request{.session = member->session, .beat = change->beat, .items = {change->item}};
    request.items[0].key = change->request.key;
    if (progress.wants_tokens) request.items[0].tokens = change->tokens;
    sendings->push_back({member->node.name, std::move(request)});
  }
  return all && disks >= change->needed && change->epoch <= view.epoch;
}

void Changer::Send(const ChangePtr& change, int round, Sending sending) {
  const std::string to = sending.to;
  node_->Call<SendRequest, SendReply>(
      to, &ReplicaPeer::Send, std::move(sending.request), node_->options().call_timeout_ms,
      [this, change, round, to](absl::StatusOr<SendReply> reply) { Answered(change, round, to, reply); });
}

void Changer::Answered(const ChangePtr& change, int round, const std::string& from,
                       const absl::StatusOr<SendReply>& reply) {
  std::optional<ReplicaState> newer;
  bool wants_tokens = false, has_tokens = false;
  {
    MutexLock lock(&mu_);
    if (change->ended || change->making || change->round != round) return;
    Progress& progress = change->others[from];
    progress.asked = false;
    progress.next_ns = node_->NowNs() + node_->options().retry_ms * 1'000'000;
    absl::Status status = reply.status();
    if (reply.ok() && reply->results.size() != 1) status = absl::InternalError("an answer of a wrong length");
    if (status.ok()) {
      const Standing& standing = reply->standing;
      status = reply->results[0].status;
      change->epoch = std::max(change->epoch, standing.epoch);
      wants_tokens = absl::IsFailedPrecondition(status);
      // What a node has that was away for too long may be what was forgotten everywhere else.
      const bool counts =
          standing.up != NodeUp::kDown && !node_->IsOverdue(standing, node_->row().beats.beat);
      if (status.ok() && !counts) status = absl::UnavailableError("the node is to be emptied");
      if (status.ok() && reply->results[0].newer.has_value()) {
        newer = reply->results[0].newer;
        change->making = true;
      } else if (status.ok()) {
        progress.applied_session = standing.session;
        progress.empty = standing.empty;
      }
    }
    progress.wants_tokens |= wants_tokens;
    if (wants_tokens) progress.next_ns = 0;
    if (!status.ok()) change->last_error = status;
    has_tokens = change->tokens != nullptr;
  }
  if (newer.has_value()) return MakeAgain(change, *newer);
  if (wants_tokens && !has_tokens) {
    auto tokens = node_->store()->StoredTokens(change->request.key);
    // Without them it goes on when it is time to try again.
    if (!tokens.ok()) return;
    MutexLock lock(&mu_);
    change->tokens = std::make_shared<const std::vector<TokenId>>(*std::move(tokens));
  }
  Go(change);
}

void Changer::MakeAgain(const ChangePtr& change, const ReplicaState& newer) {
  if (change->round >= kMostRounds) return End(change, std::nullopt);
  node_->store()->Tick(LatestTime(newer));
  TokensPtr tokens;
  {
    MutexLock lock(&mu_);
    tokens = change->tokens;
  }
  if (Is<DeleteChange>(change->request)) {
    change->found |= newer.record.has_value();
  } else if (absl::Status status = node_->store()->JoinContext(change->request.key, newer, tokens.get());
             !status.ok()) {
    return End(change, std::nullopt);
  }
  Make(change);
}

void Changer::KeepTime(const ChangePtr& change) {
  node_->After(node_->options().retry_ms, [this, change] {
    bool making = false;
    {
      MutexLock lock(&mu_);
      if (change->ended) return;
      making = change->making;
    }
    if (!making) Go(change);
    KeepTime(change);
  });
}

void Changer::Reconsider() {
  std::vector<ChangePtr> first;
  {
    MutexLock lock(&mu_);
    for (const auto& [key, waiting] : changes_) first.push_back(waiting.front());
  }
  for (const ChangePtr& change : first) Go(change);
}

absl::Status Changer::GivenUp(const Change& change) const {
  size_t nodes = 1;
  for (const auto& [name, progress] : change.others) nodes += progress.applied_session != 0 ? 1 : 0;
  std::string message = "the change is on " + std::to_string(nodes) +
                        " of the store nodes that must have it (" + std::to_string(change.needed) +
                        " and all that are up), and may be there later: read the context, or send it again";
  if (!change.last_error.ok()) message += "; last: " + MessageOf(change.last_error);
  return Error(ErrorCode::kInsufficientReplicas, message);
}

void Changer::End(const ChangePtr& change, std::optional<absl::Status> status) {
  ChangePtr next;
  ChangeReply reply;
  {
    MutexLock lock(&mu_);
    if (change->ended) return;
    change->ended = true;
    if (!status.has_value()) status = GivenUp(*change);
    reply = change->reply;
    --under_way_;
    auto waiting = changes_.find(change->request.key);
    waiting->second.pop_front();
    if (waiting->second.empty()) {
      changes_.erase(waiting);
    } else {
      next = waiting->second.front();
    }
  }
  if (change->name.has_value()) names_->Release(*change->name);
  change->done(status->ok() ? absl::StatusOr<ChangeReply>(std::move(reply))
                            : absl::StatusOr<ChangeReply>(*status));
  if (next != nullptr) node_->Post([this, next] { Start(next); });
}

}  // namespace epic::kv_store
