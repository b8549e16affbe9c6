#include "services/kv_store/replication/local_peer.h"

#include <utility>

#include "services/kv_store/replication/replicator.h"

namespace epic::kv_store {

void LocalPeer::Bind(std::weak_ptr<Replicator> target) {
  MutexLock lock(&mu_);
  target_ = std::move(target);
}

template <typename Request, typename Reply>
void LocalPeer::Pass(void (Replicator::*handle)(Request, Done<Reply>), Request request, Done<Reply> done) {
  std::shared_ptr<Replicator> target;
  {
    MutexLock lock(&mu_);
    target = target_.lock();
  }
  if (target == nullptr) return;
  // No task runs once the target was stopped, which its end is preceded by.
  target->node()->Post([to = target.get(), handle, request = std::move(request), done = std::move(done)] {
    (to->*handle)(request, done);
  });
}

void LocalPeer::Send(SendRequest request, int64_t, Done<SendReply> done) {
  Pass<SendRequest, SendReply>(&Replicator::HandleSend, std::move(request), std::move(done));
}
void LocalPeer::Fetch(FetchRequest request, int64_t, Done<FetchReply> done) {
  Pass<FetchRequest, FetchReply>(&Replicator::HandleFetch, std::move(request), std::move(done));
}
void LocalPeer::Query(QueryRequest request, int64_t, Done<QueryReply> done) {
  Pass<QueryRequest, QueryReply>(&Replicator::HandleQuery, std::move(request), std::move(done));
}
void LocalPeer::Name(NameRequest request, int64_t, Done<NameReply> done) {
  Pass<NameRequest, NameReply>(&Replicator::HandleName, std::move(request), std::move(done));
}
void LocalPeer::Beat(BeatRequest request, int64_t, Done<BeatReply> done) {
  Pass<BeatRequest, BeatReply>(&Replicator::HandleBeat, std::move(request), std::move(done));
}
void LocalPeer::Erase(EraseRequest request, int64_t, Done<EraseReply> done) {
  Pass<EraseRequest, EraseReply>(&Replicator::HandleErase, std::move(request), std::move(done));
}
void LocalPeer::Change(ChangeRequest request, int64_t, Done<ChangeReply> done) {
  Pass<ChangeRequest, ChangeReply>(&Replicator::HandleChange, std::move(request), std::move(done));
}

}  // namespace epic::kv_store
