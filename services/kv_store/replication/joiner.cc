#include "services/kv_store/replication/joiner.h"

#include <algorithm>
#include <utility>

#include "common/status/status_macros.h"

namespace epic::kv_store {

void Joiner::Step(bool again) {
  {
    MutexLock lock(&mu_);
    if (busy_) return;
    busy_ = true;
  }
  const auto view = node_->View();
  if (KeepSession(*view) && node_->IsUp(*view)) {
    if (AskForBeats(*view)) {
      StartRuns(*view, again);
      TryServe(*view);
    }
  }
  MutexLock lock(&mu_);
  busy_ = false;
}

// False: there is nothing to do under it now.
bool Joiner::KeepSession(const MemberView& view) {
  const bool up = node_->IsUp(view);
  bool begin = false;
  {
    MutexLock lock(&mu_);
    const Member* me = view.Find(node_->name());
    const bool over = me != nullptr && me->session == node_->session() && me->up == NodeUp::kDown;
    begin = !began_ || (seen_ && !up) || over;
    seen_ = up;
    if (begin) {
      serves_ = false;
      merged_.clear();
      running_.clear();
      standings_.clear();
      asked_.clear();
    }
  }
  if (begin) {
    // Neither what an emptying left when a crash cut it short counts for anything, nor what was merged in a
    // session that did not come to serve: it may be deleted since, and forgotten by all others.
    if (!BeginsEmpty().ok()) return false;
    node_->BeginSession();
    MutexLock lock(&mu_);
    began_ = true;
    return false;
  }
  if (!up) return false;
  MutexLock lock(&mu_);
  return !serves_;
}

bool Joiner::AskForBeats(const MemberView& view) {
  const uint64_t session = node_->session();
  const BeatLog known = node_->row().beats;
  const size_t others = view.members.size() - 1;
  const size_t spared = node_->row().disk == DiskState::kWhole ? node_->options().placement.replicas - 1 : 0;
  std::vector<std::string> ask;
  bool enough = false;
  {
    MutexLock lock(&mu_);
    for (const Member& member : view.members) {
      const std::string& name = member.node.name;
      const bool known_or_down = member.up == NodeUp::kDown || standings_.contains(name);
      if (name != node_->name() && !known_or_down && asked_.insert(name).second) ask.push_back(name);
    }
    enough = standings_.size() + spared >= others;
  }
  for (const std::string& name : ask) {
    node_->Call<BeatRequest, BeatReply>(name, &ReplicaPeer::Beat, {.beats = known},
                                        node_->options().call_timeout_ms,
                                        [this, name, session](absl::StatusOr<BeatReply> reply) {
                                          const bool learned = reply.ok() && node_->Learn(reply->beats).ok();
                                          {
                                            MutexLock lock(&mu_);
                                            if (session != node_->session()) return;
                                            asked_.erase(name);
                                            if (learned) standings_[name] = reply->standing;
                                          }
                                          if (learned) Step(false);
                                        });
  }
  return enough;
}

void Joiner::StartRuns(const MemberView& view, bool again) {
  std::vector<RunPtr> runs;
  const uint64_t beat = node_->row().beats.beat;
  {
    MutexLock lock(&mu_);
    for (const Member& member : view.members) {
      const std::string& from = member.node.name;
      if (from == node_->name() || member.up == NodeUp::kDown || running_.contains(from)) continue;
      // One that had nothing to tell may have by now.
      const auto merged = merged_.find(from);
      if (merged != merged_.end() && !(merged->second.empty && again)) continue;
      // One that was away for too long empties itself, and says so when it is asked again.
      const auto standing = standings_.find(from);
      if (standing == standings_.end()) continue;
      if (node_->IsOverdue(standing->second, beat)) {
        if (again) standings_.erase(standing);
        continue;
      }
      running_.insert(from);
      runs.push_back(std::make_shared<Run>());
      runs.back()->from = from;
      runs.back()->session = node_->session();
    }
  }
  for (const RunPtr& run : runs) FetchPage(run);
}

void Joiner::FetchPage(const RunPtr& run) {
  FetchRequest request{
      .node = node_->name(), .session = run->session, .after = run->after, .limit = node_->options().page};
  node_->Call<FetchRequest, FetchReply>(run->from, &ReplicaPeer::Fetch, std::move(request),
                                        node_->options().call_timeout_ms,
                                        [this, run](absl::StatusOr<FetchReply> reply) {
                                          if (!reply.ok()) return EndRun(run, false);
                                          MergePage(run, *std::move(reply));
                                        });
}

void Joiner::MergePage(const RunPtr& run, FetchReply reply) {
  const Standing& standing = reply.standing;
  if (run->from_session == 0) run->from_session = standing.session;
  const bool holds = standing.session == run->from_session && standing.up != NodeUp::kDown;
  if (!holds || run->session != node_->session() || node_->IsTooOld(standing.beat) ||
      node_->IsOverdue(standing, node_->row().beats.beat)) {
    return EndRun(run, false);
  }
  run->page = std::move(reply);
  // Others learn nothing from a node that may have lost what it knew.
  if (standing.empty) run->page.items.clear();
  run->wanted.clear();
  for (const ReplicaItem& item : run->page.items) {
    const absl::Status status = Merge(item, nullptr);
    if (absl::IsFailedPrecondition(status)) {
      run->wanted.push_back(item.key);
    } else if (!status.ok()) {
      return EndRun(run, false);
    }
  }
  FetchTokens(run);
}

void Joiner::FetchTokens(const RunPtr& run) {
  if (run->wanted.empty()) return EndPage(run);
  node_->Call<QueryRequest, QueryReply>(
      run->from, &ReplicaPeer::Query, {.keys = run->wanted, .with_tokens = true},
      node_->options().call_timeout_ms, [this, run](absl::StatusOr<QueryReply> reply) {
        if (!reply.ok() || reply->items.empty() || reply->standing.session != run->from_session ||
            run->session != node_->session() || node_->IsTooOld(reply->standing.beat)) {
          return EndRun(run, false);
        }
        for (const ReplicaItem& item : reply->items) {
          const absl::Status status = Merge(item, item.tokens.get());
          // Token ids that are damaged there are nowhere to be had from it.
          if (!status.ok() && !absl::IsFailedPrecondition(status)) return EndRun(run, false);
        }
        const size_t answered = std::min(reply->items.size(), run->wanted.size());
        run->wanted.erase(run->wanted.begin(), run->wanted.begin() + static_cast<std::ptrdiff_t>(answered));
        FetchTokens(run);
      });
}

absl::Status Joiner::Merge(const ReplicaItem& item, const std::vector<TokenId>* tokens) {
  const auto known = node_->store()->StateOf(item.key);
  if (known.has_value() && known->record.has_value() && !Join(*known, item.state).record.has_value()) {
    EPIC_RETURN_IF_ERROR(node_->UpdateRow([](NodeRow* row) { row->erase_due = true; }));
  }
  return node_->store()->JoinContext(item.key, item.state, tokens);
}

void Joiner::EndPage(const RunPtr& run) {
  if (!run->page.next.has_value()) return EndRun(run, true);
  run->after = run->page.next;
  FetchPage(run);
}

void Joiner::EndRun(const RunPtr& run, bool merged) {
  {
    MutexLock lock(&mu_);
    if (run->session != node_->session()) return;  // of a session that is over: the new one has its own
    running_.erase(run->from);
    if (merged) merged_[run->from] = run->page.standing;
  }
  if (merged) Step(false);
}

bool Joiner::HasEnough(const MemberView& view) {
  const NodeRow row = node_->row();
  uint64_t beat = row.beats.beat;
  size_t sources = 0, empties = 0;
  MutexLock lock(&mu_);
  for (const auto& [from, standing] : merged_) beat = std::max(beat, standing.beat);
  for (const auto& [from, standing] : merged_) {
    empties += standing.empty ? 1 : 0;
    sources += standing.empty || node_->IsOverdue(standing, beat) ? 0 : 1;
  }
  const size_t others = view.members.size() - 1;
  if (row.disk != DiskState::kWhole) return sources + empties == others;
  return sources + node_->options().placement.replicas >= others + 1;
}

void Joiner::TryServe(const MemberView& view) {
  const Standing own = node_->StandingNow();
  if (node_->IsOverdue(own, own.beat)) {
    if (!Empty().ok()) return;
    MutexLock lock(&mu_);
    began_ = false;  // all others are asked anew
    return;
  }
  if (!HasEnough(view)) return;
  if (node_->row().erase_due && !node_->store()->Erase().ok()) return;
  const absl::Status status = node_->UpdateRow([](NodeRow* row) {
    row->disk = DiskState::kWhole;
    row->erase_due = false;
    row->served_at = row->beats.beat;
  });
  if (!status.ok()) return;
  {
    MutexLock lock(&mu_);
    serves_ = true;
  }
  node_->BeginServing();
}

absl::Status Joiner::BeginsEmpty() {
  const DiskState disk = node_->row().disk;
  if (disk == DiskState::kWhole) return absl::OkStatus();
  if (disk == DiskState::kEmpty) {
    EPIC_ASSIGN_OR_RETURN(const std::vector<ContextKey> left, node_->store()->KnownContexts(std::nullopt, 1));
    if (left.empty()) return absl::OkStatus();
  }
  return Empty();
}

absl::Status Joiner::Empty() {
  EPIC_RETURN_IF_ERROR(node_->UpdateRow([](NodeRow* row) { row->disk = DiskState::kEmptying; }));
  while (true) {
    EPIC_ASSIGN_OR_RETURN(const std::vector<ContextKey> keys,
                          node_->store()->KnownContexts(std::nullopt, node_->options().page));
    for (const ContextKey& key : keys) EPIC_RETURN_IF_ERROR(node_->store()->ForgetContext(key));
    if (keys.empty()) break;
  }
  return node_->UpdateRow([](NodeRow* row) {
    row->disk = DiskState::kEmpty;
    row->erase_due = true;
  });
}

}  // namespace epic::kv_store
