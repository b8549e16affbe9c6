// Ways between the nodes of a SimCluster that lead through real gRPC servers on loopback, and keep its one
// thread and its order: each message is on its way while that thread waits for it, so that a seed replays.
// Tests only.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_RPC_TESTING_GRPC_WAYS_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_RPC_TESTING_GRPC_WAYS_H_

#include <any>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "services/kv_store/replication/rpc/remote_peer.h"
#include "services/kv_store/replication/rpc/testing/peer_door.h"

namespace epic::kv_store {

// A peer whose calls are all one function of them: for those that carry messages elsewhere.
template <typename Self>
class PassingPeer : public ReplicaPeer {
 public:
  void Send(SendRequest request, int64_t deadline_ns, Done<SendReply> done) override {
    self()->Pass(&ReplicaPeer::Send, std::move(request), deadline_ns, std::move(done));
  }
  void Fetch(FetchRequest request, int64_t deadline_ns, Done<FetchReply> done) override {
    self()->Pass(&ReplicaPeer::Fetch, std::move(request), deadline_ns, std::move(done));
  }
  void Query(QueryRequest request, int64_t deadline_ns, Done<QueryReply> done) override {
    self()->Pass(&ReplicaPeer::Query, std::move(request), deadline_ns, std::move(done));
  }
  void Name(NameRequest request, int64_t deadline_ns, Done<NameReply> done) override {
    self()->Pass(&ReplicaPeer::Name, std::move(request), deadline_ns, std::move(done));
  }
  void Beat(BeatRequest request, int64_t deadline_ns, Done<BeatReply> done) override {
    self()->Pass(&ReplicaPeer::Beat, std::move(request), deadline_ns, std::move(done));
  }
  void Erase(EraseRequest request, int64_t deadline_ns, Done<EraseReply> done) override {
    self()->Pass(&ReplicaPeer::Erase, std::move(request), deadline_ns, std::move(done));
  }
  void Change(ChangeRequest request, int64_t deadline_ns, Done<ChangeReply> done) override {
    self()->Pass(&ReplicaPeer::Change, std::move(request), deadline_ns, std::move(done));
  }

 private:
  Self* self() { return static_cast<Self*>(this); }
};

class GrpcWays {
 public:
  explicit GrpcWays(size_t nodes) {
    for (size_t at = 0; at < nodes; ++at) doors_.push_back(std::make_shared<Door>(&carried_));
  }

  // The way to this node, that ends at `inlet`.
  std::shared_ptr<ReplicaPeer> To(size_t node, std::shared_ptr<ReplicaPeer> inlet) {
    return std::make_shared<Way>(doors_[node], std::move(inlet));
  }
  // Requests that came through.
  uint64_t carried() const { return carried_.load(); }

 private:
  static constexpr int64_t kLongMs = 60'000;

  struct Arrived {
    std::any request, done;
  };

  // Where a server puts what it was asked.
  class Gate final : public PassingPeer<Gate> {
   public:
    explicit Gate(std::atomic<uint64_t>* carried) : carried_(carried) {}
    template <typename Method, typename Request, typename Reply>
    void Pass(Method, Request request, int64_t, Done<Reply> done) {
      ++*carried_;
      arrived.Put({std::move(request), std::move(done)});
    }
    Awaited<Arrived> arrived;

   private:
    std::atomic<uint64_t>* const carried_;
  };

  struct Door {
    explicit Door(std::atomic<uint64_t>* carried)
        : gate(std::make_shared<Gate>(carried)),
          // The time of the simulation is another one than the door's.
          door(gate, {.node_role = "", .most_calls = 1 << 20, .most_ahead_ms = int64_t{1} << 52}),
          peer({.address = door.address(), .most_calls = 1 << 20}) {}
    const std::shared_ptr<Gate> gate;
    PeerDoor door;
    RemotePeer peer;
  };

  class Way final : public PassingPeer<Way> {
   public:
    Way(std::shared_ptr<Door> door, std::shared_ptr<ReplicaPeer> inlet)
        : door_(std::move(door)), inlet_(std::move(inlet)) {}

    template <typename Method, typename Request, typename Reply>
    void Pass(Method method, Request request, int64_t deadline_ns, Done<Reply> done) {
      const auto answer = Begin<Request, Reply>(&door_->peer, method, std::move(request), kLongMs);
      std::optional<Arrived> arrived = door_->gate->arrived.WaitMs(kLongMs);
      EPIC_CHECK(arrived.has_value());
      const auto back = std::any_cast<Done<Reply>>(arrived->done);
      (inlet_.get()->*method)(std::any_cast<Request>(std::move(arrived->request)), deadline_ns,
                              [answer, back, done = std::move(done)](absl::StatusOr<Reply> reply) {
                                back(std::move(reply));
                                std::optional<absl::StatusOr<Reply>> came = answer->WaitMs(kLongMs);
                                EPIC_CHECK(came.has_value());
                                done(*std::move(came));
                              });
    }

   private:
    const std::shared_ptr<Door> door_;
    const std::shared_ptr<ReplicaPeer> inlet_;
  };

  std::atomic<uint64_t> carried_{0};
  std::vector<std::shared_ptr<Door>> doors_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_RPC_TESTING_GRPC_WAYS_H_
