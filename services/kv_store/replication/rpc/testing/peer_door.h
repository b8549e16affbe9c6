// The door of a node for other nodes, on loopback: a server with nothing but ReplicationService. And what
// tests of peers share: an answer that is waited for. Tests only.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_RPC_TESTING_PEER_DOOR_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_RPC_TESTING_PEER_DOOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/request_ids.h"
#include "common/rpc/grpc_listener.h"
#include "services/kv_store/replication/rpc/replica_convert.h"
#include "services/kv_store/replication/rpc/replication_service.h"

namespace epic::kv_store {

class PeerDoor {
 public:
  explicit PeerDoor(std::shared_ptr<ReplicaPeer> node, ReplicationServiceOptions options = {},
                    std::shared_ptr<const Credentials> credentials = nullptr)
      : credentials_(std::move(credentials)), service_(parts_, std::move(node), std::move(options)) {
    Start();
  }
  ~PeerDoor() { Stop(); }

  // At the same address as before.
  void Start() {
    listener_ = std::make_unique<GrpcListener>();
    ListenOptions listen;
    listen.credentials = credentials_;
    listen.max_message_bytes = kMaxReplicaMessageBytes;
    EPIC_CHECK(listener_->Listen(address_, listen, {&service_}).ok());
    address_ = "127.0.0.1:" + std::to_string(listener_->port());
  }
  // Ends its calls at once.
  void Stop() {
    if (listener_ != nullptr) listener_->Stop(0);
    listener_.reset();
  }
  const std::string& address() const { return address_; }
  const ReplicationRpcService& service() const { return service_; }

 private:
  std::string address_ = "127.0.0.1:0";
  const std::shared_ptr<const Credentials> credentials_;
  RequestIds request_ids_{1};
  const RpcParts parts_{SystemClock::Get(), nullptr, &request_ids_, nullptr};
  ReplicationRpcService service_;
  std::unique_ptr<GrpcListener> listener_;
};

// Something that another thread will say, once.
template <typename Value>
class Awaited {
 public:
  void Put(Value value) {
    MutexLock lock(&mu_);
    value_ = std::move(value);
    put_.SignalAll();
  }
  // nullopt: it did not in that time.
  std::optional<Value> WaitMs(int64_t ms) {
    const int64_t end_ns = SystemClock::Get()->SteadyNs() + ms * 1'000'000;
    MutexLock lock(&mu_);
    while (!value_.has_value()) {
      const int64_t left_ns = end_ns - SystemClock::Get()->SteadyNs();
      if (left_ns <= 0) break;
      put_.WaitForMs(&mu_, left_ns / 1'000'000 + 1);
    }
    return std::exchange(value_, std::nullopt);
  }

 private:
  Mutex mu_;
  CondVar put_;
  std::optional<Value> value_ ABSL_GUARDED_BY(mu_);
};

// Calls a peer; the answer may be waited for.
template <typename Request, typename Reply>
std::shared_ptr<Awaited<absl::StatusOr<Reply>>> Begin(ReplicaPeer* peer,
                                                      void (ReplicaPeer::*method)(Request, int64_t,
                                                                                  ReplicaPeer::Done<Reply>),
                                                      Request request, int64_t timeout_ms) {
  auto answer = std::make_shared<Awaited<absl::StatusOr<Reply>>>();
  (peer->*method)(std::move(request), SystemClock::Get()->SteadyNs() + timeout_ms * 1'000'000,
                  [answer](absl::StatusOr<Reply> reply) { answer->Put(std::move(reply)); });
  return answer;
}

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_RPC_TESTING_PEER_DOOR_H_
