// A ReplicaPeer to a node in another process, over gRPC: one channel, to which a node that is slow, hung or
// dead costs its own calls only.
//
// A call is sent once: never again, and never later than its deadline. Errors as peer.h has them: what the
// other node says, with its code where it has one; all else (no connection, a deadline that is over, an
// answer that cannot be read, too many calls under way) is Unavailable without a code of ours. Thread-safe;
// answers come on threads of gRPC, each at its deadline at the latest. Calls under way outlive the peer.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_RPC_REMOTE_PEER_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_RPC_REMOTE_PEER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/rpc/credentials.h"
#include "services/kv_store/replication/peer.h"

namespace epic::kv_store {

struct RemotePeerOptions {
  std::string address;                             // HOST:PORT, or unix:PATH
  std::shared_ptr<const Credentials> credentials;  // null: plain
  const Clock* clock = SystemClock::Get();         // of the deadlines
  uint32_t most_calls = 4096;                      // under way at a time; more fail at once
};

class RemotePeer final : public ReplicaPeer {
 public:
  // Connects when it is first used.
  explicit RemotePeer(const RemotePeerOptions& options);
  ~RemotePeer() override;

  void Send(SendRequest request, int64_t deadline_ns, Done<SendReply> done) override;
  void Fetch(FetchRequest request, int64_t deadline_ns, Done<FetchReply> done) override;
  void Query(QueryRequest request, int64_t deadline_ns, Done<QueryReply> done) override;
  void Name(NameRequest request, int64_t deadline_ns, Done<NameReply> done) override;
  void Beat(BeatRequest request, int64_t deadline_ns, Done<BeatReply> done) override;
  void Erase(EraseRequest request, int64_t deadline_ns, Done<EraseReply> done) override;
  void Change(ChangeRequest request, int64_t deadline_ns, Done<ChangeReply> done) override;

 private:
  struct Way;  // the channel, shared with the calls under way

  const Clock* const clock_;
  const uint32_t most_calls_;
  const std::shared_ptr<Way> way_;

  template <typename ProtoReply, typename Start, typename Request, typename Reply>
  void Call(Start start, const Request& request, int64_t deadline_ns, Done<Reply> done);
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_RPC_REMOTE_PEER_H_
