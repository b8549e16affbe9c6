#include "services/kv_store/replication/repairer.h"

#include <algorithm>
#include <utility>

#include "services/kv_store/replication/answers.h"

namespace epic::kv_store {
namespace {

// What differs in use only is not worth a message.
ReplicaState WithoutUses(ReplicaState state) {
  if (state.record.has_value()) {
    state.record->hits = 0;
    state.record->last_used_at_ms = 0;
  }
  return state;
}

bool BringsNews(const ReplicaState& from, const ReplicaState& to) {
  const ReplicaState before = WithoutUses(to);
  return Join(before, WithoutUses(from)) != before;
}

}  // namespace

void Repairer::Step() {
  const auto view = node_->View();
  if (view->leader != node_->name() || !node_->MayServe(*view)) return;
  const auto page = std::make_shared<Page>();
  FetchRequest request;
  request.limit = std::max<uint32_t>(
      1, static_cast<uint32_t>(node_->options().repaired_per_s * node_->options().tick_ms / 1000));
  {
    MutexLock lock(&mu_);
    if (busy_) return;
    if (at_ >= view->members.size()) {
      at_ = 0;
      ++passes_;
    }
    page->from = view->members[at_].node.name;
    if (view->members[at_].up != NodeUp::kServing) return NextNode();
    request.after = after_;
    busy_ = true;
  }
  node_->Call<FetchRequest, FetchReply>(
      page->from, &ReplicaPeer::Fetch, std::move(request), node_->options().call_timeout_ms,
      [this, page](absl::StatusOr<FetchReply> reply) {
        const bool serves = reply.ok() && reply->standing.up == NodeUp::kServing;
        {
          MutexLock lock(&mu_);
          after_ = serves ? reply->next : std::nullopt;
          if (!after_.has_value()) NextNode();
        }
        if (serves) {
          page->standing = reply->standing;
          page->items = std::move(reply->items);
          Compare(page);
        }
        Leave(page);
      });
}

void Repairer::NextNode() {
  ++at_;
  after_.reset();
}

void Repairer::Leave(const PagePtr& page) {
  MutexLock lock(&mu_);
  if (--page->left == 0) busy_ = false;
}

void Repairer::Compare(const PagePtr& page) {
  const auto view = node_->View();
  std::map<std::string, std::vector<size_t>> by_member;
  for (size_t at = 0; at < page->items.size(); ++at) {
    for (const Member* member : node_->options().placement.GroupOf(*view, page->items[at].key)) {
      const bool other = member->node.name != page->from;
      if (other && member->up == NodeUp::kServing) by_member[member->node.name].push_back(at);
    }
  }
  for (auto& [name, items] : by_member) CompareWith(page, *view->Find(name), std::move(items));
}

void Repairer::CompareWith(const PagePtr& page, const Member& member, std::vector<size_t> items) {
  QueryRequest query;
  for (const size_t at : items) query.keys.push_back(page->items[at].key);
  {
    MutexLock lock(&mu_);
    ++page->left;
  }
  node_->Call<QueryRequest, QueryReply>(
      member.node.name, &ReplicaPeer::Query, std::move(query), node_->options().call_timeout_ms,
      [this, page, to = member.node.name, session = member.session,
       items = std::move(items)](absl::StatusOr<QueryReply> reply) {
        std::vector<ReplicaItem> news;
        std::vector<ContextKey> wanted;
        const bool counts =
            reply.ok() && reply->standing.session == session && reply->items.size() == items.size();
        for (size_t at = 0; counts && at < items.size(); ++at) {
          const ReplicaItem& item = page->items[items[at]];
          const ReplicaState& there = reply->items[at].state;
          if (!BringsNews(item.state, there)) continue;
          if (item.state.record.has_value() && !there.record.has_value()) {
            wanted.push_back(item.key);
          } else {
            news.push_back(item);
          }
        }
        if (!news.empty() || !wanted.empty()) {
          SendMissing(page, to, session, std::move(news), std::move(wanted));
        }
        Leave(page);
      });
}

void Repairer::SendMissing(const PagePtr& page, const std::string& to, uint64_t session,
                           std::vector<ReplicaItem> items, std::vector<ContextKey> wanted) {
  SendRequest request{.session = session, .beat = page->standing.beat, .items = std::move(items)};
  if (!request.items.empty()) Send(page, to, std::move(request));
  if (wanted.empty()) return;
  {
    MutexLock lock(&mu_);
    ++page->left;
  }
  QueryRequest query{.keys = std::move(wanted), .with_tokens = true};
  node_->Call<QueryRequest, QueryReply>(
      page->from, &ReplicaPeer::Query, query, node_->options().call_timeout_ms,
      [this, page, to, session, keys = query.keys](absl::StatusOr<QueryReply> reply) {
        if (reply.ok() && !reply->items.empty() && reply->standing.up == NodeUp::kServing) {
          const size_t answered = std::min(reply->items.size(), keys.size());
          Send(page, to,
               {.session = session, .beat = reply->standing.beat, .items = std::move(reply->items)});
          std::vector<ContextKey> rest(keys.begin() + static_cast<std::ptrdiff_t>(answered), keys.end());
          if (!rest.empty()) SendMissing(page, to, session, {}, std::move(rest));
        }
        Leave(page);
      });
}

void Repairer::Send(const PagePtr& page, const std::string& to, SendRequest request) {
  {
    MutexLock lock(&mu_);
    ++page->left;
  }
  node_->Call<SendRequest, SendReply>(to, &ReplicaPeer::Send, std::move(request),
                                      node_->options().call_timeout_ms,
                                      [this, page](const absl::StatusOr<SendReply>& reply) {
                                        if (reply.ok()) {
                                          for (const ItemResult& result : reply->results) {
                                            if (result.status.ok()) ++repaired_;
                                          }
                                        }
                                        Leave(page);
                                      });
}

}  // namespace epic::kv_store
