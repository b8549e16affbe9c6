#include "services/kv_store/replication/names.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/bytes.h"
#include "common/status/error.h"

namespace epic::kv_store {

CacheId Names::Take(const NameRequest& request, Claims* claims) {
  const int64_t now_ns = node_->NowNs();
  for (auto it = claims->begin(); it != claims->end();) {
    it = it->second.until_ns <= now_ns ? claims->erase(it) : std::next(it);
  }
  Claimed& claimed = (*claims)[KeyOf(request)];
  if (claimed.times > 0 && claimed.id != request.id) return claimed.id;
  if (claimed.times == 0 || claimed.home != request.home) claimed.granted = false;
  claimed.id = request.id;
  claimed.home = request.home;
  claimed.until_ns = now_ns + 2 * node_->options().change_timeout_ms * 1'000'000;
  ++claimed.times;
  return {};
}

void Names::Drop(const NameRequest& request, Claims* claims) {
  const auto claimed = claims->find(KeyOf(request));
  if (claimed == claims->end() || claimed->second.id != request.id) return;
  if (--claimed->second.times == 0) claims->erase(claimed);
}

NameReply Names::HolderHere(const NameRequest& request) {
  NameReply reply;
  {
    MutexLock lock(&mu_);
    const auto claimed = own_.find(KeyOf(request));
    // One that the same home has yet to decide on stands in nobody's way.
    const bool holds = claimed != own_.end() && claimed->second.until_ns > node_->NowNs() &&
                       (claimed->second.granted || claimed->second.home != request.home);
    if (holds && claimed->second.id != request.id) reply.holder = claimed->second.id;
  }
  const auto record = node_->store()->FindByName(request.tenant, request.model_identity, request.name);
  if (record.ok() && record->id != request.id) reply.holder = record->id;
  reply.standing = node_->StandingNow();
  return reply;
}

void Names::Handle(NameRequest request, Done done) {
  switch (request.what) {
    case NameRequest::What::kAsk:
      return done(HolderHere(request));
    case NameRequest::What::kRelease: {
      MutexLock lock(&mu_);
      Drop(request, &granted_);
      break;
    }
    case NameRequest::What::kClaim: {
      if (!node_->MayServe()) return done(absl::UnavailableError("this node does not serve"));
      CacheId holder;
      {
        MutexLock lock(&mu_);
        holder = Take(request, &granted_);
      }
      if (!holder.empty()) return done(NameReply{node_->StandingNow(), holder});
      return AskAll(request, [this, request, done = std::move(done)](absl::StatusOr<NameReply> reply) {
        if (!reply.ok() || !reply->holder.empty()) {
          MutexLock lock(&mu_);
          Drop(request, &granted_);
        }
        done(std::move(reply));
      });
    }
  }
  done(NameReply{node_->StandingNow(), {}});
}

void Names::AskAll(const NameRequest& request, Done done) {
  struct Asking {
    Mutex mu;
    size_t left ABSL_GUARDED_BY(mu) = 1;
    NameReply found ABSL_GUARDED_BY(mu);
    absl::Status error ABSL_GUARDED_BY(mu);
  };
  const auto asking = std::make_shared<Asking>();
  const auto answered = [this, asking, done](absl::StatusOr<NameReply> reply) {
    absl::StatusOr<NameReply> result = NameReply{};
    {
      MutexLock lock(&asking->mu);
      if (!reply.ok()) {
        asking->error = reply.status();
      } else if (!reply->holder.empty()) {
        asking->found.holder = reply->holder;
      }
      if (--asking->left > 0) return;
      if (asking->found.holder.empty() && !asking->error.ok()) {
        result = asking->error;
      } else {
        result = asking->found;
      }
    }
    if (result.ok()) result->standing = node_->StandingNow();
    done(std::move(result));
  };
  NameRequest ask = request;
  ask.what = NameRequest::What::kAsk;
  std::vector<std::string> others;
  for (const Member& member : node_->View()->members) {
    if (member.up == NodeUp::kServing && member.node.name != node_->name())
      others.push_back(member.node.name);
  }
  {
    MutexLock lock(&asking->mu);
    asking->left += others.size();
  }
  for (const std::string& other : others) {
    node_->Call<NameRequest, NameReply>(other, &ReplicaPeer::Name, ask, node_->options().call_timeout_ms,
                                        answered);
  }
  answered(HolderHere(ask));
}

std::optional<std::string> Names::HomeOf(const NameRequest& request) const {
  std::string text;
  AppendField(&text, request.tenant);
  AppendField(&text, request.model_identity.view());
  AppendField(&text, request.name);
  const auto view = node_->View();
  std::vector<PlacedNode> nodes;
  for (const Member& member : view->members) nodes.push_back(member.node);
  for (const size_t at : RendezvousOrder(nodes, text)) {
    if (view->members[at].up == NodeUp::kServing) return nodes[at].name;
  }
  return std::nullopt;
}

void Names::Claim(NameRequest request, std::function<void(absl::Status)> done) {
  request.what = NameRequest::What::kClaim;
  const std::optional<std::string> home = HomeOf(request);
  if (!home.has_value()) return done(absl::UnavailableError("no store node serves"));
  request.home = *home;
  const auto in_use = [] {
    return Error(ErrorCode::kNameInUse,
                 "the name belongs to another context; choose another or rename that one", "name");
  };
  CacheId holder;
  {
    MutexLock lock(&mu_);
    holder = Take(request, &own_);
  }
  if (!holder.empty()) return done(in_use());
  const auto ended = [this, request, in_use, done](absl::StatusOr<NameReply> reply) {
    absl::Status status = reply.status();
    if (reply.ok() && !reply->holder.empty()) status = in_use();
    if (!status.ok()) {
      Release(request);
    } else {
      MutexLock lock(&mu_);
      const auto claimed = own_.find(KeyOf(request));
      if (claimed != own_.end() && claimed->second.id == request.id) claimed->second.granted = true;
    }
    done(status);
  };
  if (*home == node_->name()) return Handle(request, ended);
  node_->Call<NameRequest, NameReply>(*home, &ReplicaPeer::Name, request, node_->options().call_timeout_ms,
                                      ended);
}

void Names::Release(NameRequest request) {
  {
    MutexLock lock(&mu_);
    Drop(request, &own_);
  }
  request.what = NameRequest::What::kRelease;
  const std::optional<std::string> home = HomeOf(request);
  if (!home.has_value()) return;
  // One that gets lost ends by itself.
  if (*home == node_->name()) return Handle(request, [](const absl::StatusOr<NameReply>&) {});
  node_->Call<NameRequest, NameReply>(*home, &ReplicaPeer::Name, request, node_->options().call_timeout_ms,
                                      [](const absl::StatusOr<NameReply>&) {});
}

}  // namespace epic::kv_store
