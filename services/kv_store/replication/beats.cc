#include "services/kv_store/replication/beats.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace epic::kv_store {

void Beats::Step() {
  const auto view = node_->View();
  const int64_t now_ns = node_->NowNs();
  const size_t members = view->members.size();
  const bool leads = view->leader == node_->name() && node_->MayServe(*view);
  const bool passes = leads && members - view->Serving() <= node_->options().placement.Spare(members);
  {
    MutexLock lock(&mu_);
    // A node that was stopped for long counts one tick: others may have been away meanwhile.
    const int64_t most_ns = 2 * node_->options().tick_ms * 1'000'000;
    if (passes && last_ns_ != 0) passed_ns_ += std::clamp<int64_t>(now_ns - last_ns_, 0, most_ns);
    last_ns_ = passes ? now_ns : 0;
  }
  if (passes) Lead(*view);
  if (!node_->MayServe(*view)) return;
  const auto before = node_->row().beats.Before(node_->options().tombstone_beats);
  // What the disk refuses is tried again.
  if (before.has_value()) node_->store()->ForgetTombstonesBefore(*before).IgnoreError();
}

void Beats::Lead(const MemberView& view) {
  BeatLog beats = node_->row().beats;
  std::vector<std::string> tell;
  bool counts = false;
  {
    MutexLock lock(&mu_);
    bool all_know = true;
    for (const Member& member : view.members) {
      const std::string& name = member.node.name;
      if (member.up == NodeUp::kDown || name == node_->name()) continue;
      const auto known = known_.find(name);
      if (known != known_.end() && known->second == std::pair(member.session, beats.beat)) continue;
      all_know = false;
      if (!std::exchange(asked_[name], true)) tell.push_back(name);
    }
    counts = all_know && passed_ns_ >= node_->options().beat_ms * 1'000'000;
    if (counts) passed_ns_ = 0;
  }
  if (counts) {
    BeatLog next{.beat = beats.beat + 1, .starts = {}};
    next.starts[next.beat] = node_->store()->Tick({});
    node_->Learn(next).IgnoreError();  // not counted, if the disk refuses it
    return;
  }
  for (const std::string& name : tell) {
    node_->Call<BeatRequest, BeatReply>(name, &ReplicaPeer::Beat, {.beats = beats},
                                        node_->options().call_timeout_ms,
                                        [this, name](absl::StatusOr<BeatReply> reply) {
                                          // One led before who knew of more.
                                          if (reply.ok()) node_->Learn(reply->beats).IgnoreError();
                                          MutexLock lock(&mu_);
                                          asked_[name] = false;
                                          if (!reply.ok()) return;
                                          known_[name] = {reply->standing.session, reply->standing.beat};
                                        });
  }
}

}  // namespace epic::kv_store
