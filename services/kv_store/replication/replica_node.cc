#include "services/kv_store/replication/replica_node.h"

#include "common/base/check.h"
#include "common/status/status_macros.h"

namespace epic::kv_store {
namespace {

constexpr char kRowName[] = "replica";

}  // namespace

ReplicaNode::ReplicaNode(const ReplicatorOptions& options, const ReplicatorDeps& deps, NodeRow row)
    : options_(options), deps_(deps), rng_(deps.seed), row_(std::move(row)) {
  EPIC_CHECK(options.change_beats >= 2 &&
             options.tombstone_beats >= options.away_beats + options.change_beats + 2);
}

absl::StatusOr<std::shared_ptr<ReplicaNode>> ReplicaNode::Open(const ReplicatorOptions& options,
                                                               const ReplicatorDeps& deps) {
  EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> bytes, deps.store->GetNodeRow(kRowName));
  NodeRow row;
  if (bytes.has_value()) {
    EPIC_ASSIGN_OR_RETURN(row, DecodeNodeRow(AsBytes(*bytes)));
  }
  return std::shared_ptr<ReplicaNode>(new ReplicaNode(options, deps, std::move(row)));
}

void ReplicaNode::Stop() {
  MutexLock lock(&mu_);
  stopped_ = true;
  serving_ = false;
  while (running_ > 0) left_.Wait(&mu_);
}

bool ReplicaNode::Enter() {
  MutexLock lock(&mu_);
  if (!stopped_) ++running_;
  return !stopped_;
}

void ReplicaNode::Leave() {
  MutexLock lock(&mu_);
  --running_;
  left_.SignalAll();
}

uint64_t ReplicaNode::Random() {
  MutexLock lock(&mu_);
  return rng_.Next();
}

void ReplicaNode::Post(std::function<void()> task) {
  deps_.executor->Submit([self = shared_from_this(), task = std::move(task)]() mutable {
    if (!self->Enter()) return;
    task();
    task = nullptr;  // what it holds goes before Stop returns
    self->Leave();
  });
}

void ReplicaNode::After(int64_t ms, std::function<void()> task) {
  deps_.timers->At(NowNs() + ms * 1'000'000,
                   [self = shared_from_this(), task = std::move(task)] { self->Post(task); });
}

void ReplicaNode::BeginSession() {
  uint64_t session = 0;
  {
    MutexLock lock(&mu_);
    session_ = rng_.Next();
    serving_ = false;
    session = session_;
  }
  deps_.membership->Announce(NodeUp::kJoining, session);
}

void ReplicaNode::BeginServing() {
  uint64_t session = 0;
  {
    MutexLock lock(&mu_);
    if (stopped_) return;
    serving_ = true;
    session = session_;
  }
  deps_.membership->Announce(NodeUp::kServing, session);
}

uint64_t ReplicaNode::session() const {
  MutexLock lock(&mu_);
  return session_;
}

bool ReplicaNode::MayServe() const { return MayServe(*View()); }

bool ReplicaNode::MayServe(const MemberView& view) const {
  const Member* me = view.Find(options_.name);
  MutexLock lock(&mu_);
  return serving_ && me != nullptr && me->up == NodeUp::kServing && me->session == session_;
}

bool ReplicaNode::IsUp(const MemberView& view) const {
  const Member* me = view.Find(options_.name);
  return me != nullptr && me->up != NodeUp::kDown && me->session == session();
}

Standing ReplicaNode::StandingNow() const {
  const auto view = View();
  const bool up = IsUp(*view);
  const bool serving = MayServe(*view);
  MutexLock lock(&mu_);
  return {.session = session_,
          .epoch = view->epoch,
          .up = serving ? NodeUp::kServing
                : up    ? NodeUp::kJoining
                        : NodeUp::kDown,
          .empty = row_.disk != DiskState::kWhole,
          .beat = row_.beats.beat,
          .served_at = row_.served_at};
}

NodeRow ReplicaNode::row() const {
  MutexLock lock(&mu_);
  return row_;
}

absl::Status ReplicaNode::UpdateRow(const std::function<void(NodeRow*)>& change) {
  MutexLock writing(&row_mu_);
  NodeRow next = row();
  change(&next);
  if (next == row()) return absl::OkStatus();
  EPIC_RETURN_IF_ERROR(deps_.store->PutNodeRow(kRowName, EncodeNodeRow(next)));
  MutexLock lock(&mu_);
  row_ = std::move(next);
  return absl::OkStatus();
}

absl::Status ReplicaNode::Learn(const BeatLog& beats) {
  // Stamps of this node are of the beats that it knows of.
  for (const auto& [beat, start] : beats.starts) deps_.store->Tick(start);
  return UpdateRow([&](NodeRow* row) {
    row->beats.Learn(beats, options_.tombstone_beats + 2);
    if (MayServe()) row->served_at = row->beats.beat;
  });
}

}  // namespace epic::kv_store
