#include "common/coordination/member_table.h"

#include <algorithm>
#include <set>
#include <utility>

namespace epic {

const Member* MemberView::Find(std::string_view id) const {
  const auto found =
      std::lower_bound(members.begin(), members.end(), id,
                       [](const Member& member, std::string_view id) { return member.node.id < id; });
  return found != members.end() && found->node.id == id ? &*found : nullptr;
}

std::vector<const Member*> MemberView::OfKind(NodeKind kind) const {
  std::vector<const Member*> found;
  for (const Member& member : members) {
    if (member.node.kind == kind) found.push_back(&member);
  }
  return found;
}

MemberTable::MemberTable(Options options) : options_(std::move(options)) {}

void MemberTable::Listed(const Listing& listing, bool doubtful, int64_t now_ms) {
  if (doubtful) doubtful_until_ms_ = now_ms + options_.grace_ms;
  std::set<std::string> listed;
  for (const KeyValue& item : listing.items) {
    const std::string id = item.key.substr(options_.prefix.size());
    listed.insert(id);
    Put(item, doubtful, now_ms);
  }
  std::vector<std::string> gone;
  for (const auto& [id, entry] : entries_) {
    if (!listed.contains(id)) gone.push_back(id);
  }
  for (const std::string& id : gone) Remove(id, now_ms);
  revision_ = listing.revision;
  Tick(now_ms);
}

void MemberTable::Changed(const WatchUpdate& update, int64_t now_ms) {
  for (const KeyChange& change : update.changes) {
    if (change.is_put) {
      Put(change.item, /*doubtful=*/false, now_ms);
    } else {
      Remove(change.item.key.substr(options_.prefix.size()), now_ms);
    }
    revision_ = change.item.modified;
  }
  Tick(now_ms);
}

void MemberTable::SetUp(bool up, int64_t now_ms) {
  if (!up && up_) down_since_ms_ = now_ms;
  if (up && !up_) {
    if (now_ms - down_since_ms_ >= options_.outage_ms) doubtful_until_ms_ = now_ms + options_.grace_ms;
    for (auto& [id, kept] : kept_) kept.until_ms = now_ms + options_.grace_ms;
    for (auto& [id, suspicion] : suspicions_) {
      suspicion.lift_ms = now_ms + suspicion.lease_ms + options_.suspect_margin_ms;
    }
  }
  up_ = up;
  Tick(now_ms);
}

bool MemberTable::IsDoubtful(int64_t now_ms) const {
  return now_ms < doubtful_until_ms_ || (!up_ && now_ms - down_since_ms_ >= options_.outage_ms);
}

void MemberTable::Put(const KeyValue& item, bool doubtful, int64_t now_ms) {
  const std::string id = item.key.substr(options_.prefix.size());
  absl::StatusOr<NodeInfo> node = DecodeMember(item.value);
  if (!node.ok() || node->id != id) {
    ++bad_records_;
    return;
  }
  bool from_older_state = false;
  if (const Entry* current = Current(id); doubtful) {
    const bool goes_back = current != nullptr && current->node.incarnation > node->incarnation;
    from_older_state = current == nullptr || goes_back;
    if (goes_back) kept_[id] = {Entry(*current), now_ms + options_.grace_ms};
  }
  const auto suspicion = suspicions_.find(id);
  if (suspicion != suspicions_.end()) {
    const Incarnation& suspected = suspicion->second.incarnation;
    const bool again = node->incarnation == suspected && item.modified != suspicion->second.revision;
    if (node->incarnation > suspected || (again && !doubtful)) suspicions_.erase(suspicion);
  }
  const auto kept = kept_.find(id);
  if (kept != kept_.end() && node->incarnation >= kept->second.entry.node.incarnation) kept_.erase(kept);
  entries_[id] = {*std::move(node), item.modified, from_older_state};
}

void MemberTable::Remove(const std::string& id, int64_t now_ms) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  Entry entry = std::move(found->second);
  entries_.erase(found);
  const auto suspicion = suspicions_.find(id);
  const bool suspected =
      suspicion != suspicions_.end() && suspicion->second.incarnation >= entry.node.incarnation;
  const bool left = entry.node.state == NodeState::kDraining;
  if (!IsDoubtful(now_ms) || left || suspected || entry.from_older_state) return;
  const auto kept = kept_.find(id);
  if (kept != kept_.end() && kept->second.entry.node.incarnation > entry.node.incarnation) return;
  kept_[id] = {std::move(entry), now_ms + options_.grace_ms};
}

const MemberTable::Entry* MemberTable::Current(const std::string& id) const {
  const auto entry = entries_.find(id);
  const auto kept = kept_.find(id);
  if (kept == kept_.end()) return entry == entries_.end() ? nullptr : &entry->second;
  return &kept->second.entry;  // Put has dropped it where the store has as new a life
}

void MemberTable::ReportDown(std::string_view id_view, const Incarnation& incarnation, std::string_view why,
                             int64_t now_ms) {
  const std::string id(id_view);
  const Entry* entry = Current(id);
  if (entry == nullptr || incarnation < entry->node.incarnation) return;  // of a life that is over
  Suspicion& suspicion = suspicions_[id];
  suspicion.incarnation = std::max(suspicion.incarnation, incarnation);
  suspicion.revision = entry->revision;
  suspicion.lease_ms = entry->node.lease_ms;
  suspicion.lift_ms = now_ms + suspicion.lease_ms + options_.suspect_margin_ms;
  suspicion.why = std::string(why.substr(0, NodeInfo::kTextBytes));
  // Neither the store nor a connection knows it.
  const auto kept = kept_.find(id);
  if (kept != kept_.end() && kept->second.entry.node.incarnation <= incarnation) kept_.erase(kept);
}

void MemberTable::ReportUp(std::string_view id, const Incarnation& incarnation) {
  const auto found = suspicions_.find(std::string(id));
  if (found != suspicions_.end() && incarnation >= found->second.incarnation) suspicions_.erase(found);
}

void MemberTable::Tick(int64_t now_ms) {
  std::erase_if(kept_, [&](const auto& kept) { return up_ && now_ms >= kept.second.until_ms; });
  std::erase_if(suspicions_, [&](const auto& suspicion) {
    return Current(suspicion.first) == nullptr || (up_ && now_ms >= suspicion.second.lift_ms);
  });
}

std::vector<Member> MemberTable::Members() const {
  std::map<std::string, Member> members;
  for (const auto& [id, entry] : entries_) members[id] = {entry.node, entry.revision};
  for (const auto& [id, kept] : kept_) members[id] = {kept.entry.node, kept.entry.revision, false};
  std::vector<Member> sorted;
  for (auto& [id, member] : members) {
    const auto suspicion = suspicions_.find(id);
    if (suspicion != suspicions_.end() && suspicion->second.incarnation >= member.node.incarnation) {
      member.suspected = true;
      member.why = suspicion->second.why;
    }
    sorted.push_back(std::move(member));
  }
  return sorted;
}

std::shared_ptr<const MemberView> MemberTable::view() {
  std::vector<Member> members = Members();
  if (members == view_->members && revision_ == view_->revision) return view_;
  view_ = std::make_shared<MemberView>(MemberView{view_->version + 1, revision_, std::move(members)});
  return view_;
}

}  // namespace epic
