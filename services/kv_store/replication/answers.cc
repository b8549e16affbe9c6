#include "services/kv_store/replication/answers.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/status/status_macros.h"

namespace epic::kv_store {
namespace {

constexpr uint32_t kMostItems = 4096;

absl::Status Later(const char* why) { return absl::UnavailableError(why); }

bool IsInGroupOf(const ReplicaNode& node, const MemberView& view, std::string_view name,
                 const ContextKey& key) {
  const auto group = node.options().placement.GroupOf(view, key);
  return std::any_of(group.begin(), group.end(),
                     [&](const Member* member) { return member->node.name == name; });
}

auto TimesOf(const ContextRecord& record) {
  return std::tie(record.created, record.expiry_changed, record.pin_changed, record.tags_changed,
                  record.name_changed);
}

}  // namespace

absl::StatusOr<FetchReply> AnswerFetch(ReplicaNode* node, const FetchRequest& request) {
  // From here on the one that asks is up for whoever sees a view as new as this one: what is changed after it
  // was read here is not acknowledged without it.
  const auto view = node->View();
  if (!request.node.empty()) {
    const Member* member = view->Find(request.node);
    if (member == nullptr || member->up == NodeUp::kDown || member->session != request.session) {
      return Later("the node that asks is not known to be up yet");
    }
  }
  const Standing before = node->StandingNow();
  FetchReply reply;
  const uint32_t limit = std::clamp<uint32_t>(request.limit, 1, kMostItems);
  EPIC_ASSIGN_OR_RETURN(const std::vector<ContextKey> keys,
                        node->store()->KnownContexts(request.after, limit));
  for (const ContextKey& key : keys) {
    if (!request.node.empty() && !IsInGroupOf(*node, *view, request.node, key)) continue;
    // Removed and forgotten since its row was read: nothing is known.
    if (auto state = node->store()->StateOf(key)) reply.items.push_back({key, *std::move(state), nullptr});
  }
  if (keys.size() == limit) reply.next = keys.back();
  reply.standing = node->StandingNow();
  if (reply.standing.up == NodeUp::kDown || reply.standing.session != before.session) {
    return Later("the node that was asked is not up");
  }
  // As old as what was read.
  reply.standing.beat = before.beat;
  return reply;
}

absl::StatusOr<QueryReply> AnswerQuery(ReplicaNode* node, const QueryRequest& request) {
  QueryReply reply;
  const Standing before = node->StandingNow();
  uint64_t bytes = 0;
  for (const ContextKey& key : request.keys) {
    if (reply.items.size() >= kMostItems) break;
    ReplicaItem item{key, node->store()->StateOf(key).value_or(ReplicaState{}), nullptr};
    if (request.with_tokens && item.state.record.has_value()) {
      bytes += sizeof(TokenId) * item.state.record->token_count;
      if (!reply.items.empty() && bytes > node->options().page_bytes) break;
      // Damaged ones are nowhere to be had from here.
      if (auto tokens = node->store()->StoredTokens(key); tokens.ok()) {
        item.tokens = std::make_shared<const std::vector<TokenId>>(*std::move(tokens));
      }
    }
    reply.items.push_back(std::move(item));
  }
  reply.standing = node->StandingNow();
  if (reply.standing.up == NodeUp::kDown || reply.standing.session != before.session) {
    return Later("the node that was asked is not up");
  }
  reply.standing.beat = before.beat;
  return reply;
}

bool Overrules(const ReplicaState& known, const ReplicaState& sent) {
  if (!sent.record.has_value()) return sent.tombstone.has_value() && known.record.has_value();
  return !known.record.has_value() || TimesOf(*known.record) != TimesOf(*sent.record);
}

absl::StatusOr<SendReply> AnswerSend(ReplicaNode* node, const SendRequest& request) {
  const auto view = node->View();
  if (!node->IsUp(*view) || request.session != node->session()) {
    return Later("the node is not up under the session that was meant");
  }
  if (node->row().disk == DiskState::kEmptying) return Later("the node is being emptied");
  // Tombstones of its time may be forgotten here.
  if (node->IsTooOld(request.beat)) return absl::DeadlineExceededError("what was sent is too old");
  SendReply reply;
  for (const ReplicaItem& item : request.items) {
    ItemResult& result = reply.results.emplace_back();
    if (!IsInGroupOf(*node, *view, node->name(), item.key)) {
      result.status = absl::InvalidArgumentError("this node is not to hold the context");
      continue;
    }
    result.status = node->store()->JoinContext(item.key, item.state, item.tokens.get());
    if (!result.status.ok()) continue;
    ReplicaState known = node->store()->StateOf(item.key).value_or(ReplicaState{});
    if (Overrules(known, item.state)) result.newer = std::move(known);
  }
  // Read after the states were joined: whoever fetched before is up in that view.
  reply.standing = node->StandingNow();
  if (reply.standing.session != request.session) return Later("the session has ended meanwhile");
  return reply;
}

absl::StatusOr<BeatReply> AnswerBeat(ReplicaNode* node, const BeatRequest& request) {
  EPIC_RETURN_IF_ERROR(node->Learn(request.beats));
  return BeatReply{node->StandingNow(), node->row().beats};
}

}  // namespace epic::kv_store
