// A network between Replicators that fails on purpose: requests and answers are lost, late, doubled, in
// another order, or answered with an error though they were done; and links that are cut. By seeded draws;
// one thread at a time. Tests only.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_TESTING_FAULTY_PEER_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_TESTING_FAULTY_PEER_H_

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/base/timers.h"
#include "services/kv_store/replication/peer.h"

namespace epic::kv_store {

// Chances in percent, each drawn by itself for each message.
struct NetworkFaults {
  int lost = 0;        // the other side never hears of it
  int unanswered = 0;  // it does, and its answer is lost
  int failed = 0;      // ... and its answer is an error
  int doubled = 0;
  int late = 0;  // by up to most_late_ms
  int64_t most_late_ms = 1000;
};

class FaultyNetwork {
 public:
  FaultyNetwork(uint64_t seed, Timers* timers, const Clock* clock)
      : rng_(seed), timers_(timers), clock_(clock) {}

  NetworkFaults faults;
  std::set<std::string> cut;  // nodes that no message leaves or reaches

  bool Strikes(int NetworkFaults::*rate) { return rng_.Below(100) < static_cast<uint64_t>(faults.*rate); }
  // Runs it now, or late.
  void Carry(std::function<void()> message) {
    if (!Strikes(&NetworkFaults::late)) return message();
    const auto late_ms = static_cast<int64_t>(rng_.Below(static_cast<uint64_t>(faults.most_late_ms)) + 1);
    timers_->At(clock_->SteadyNs() + late_ms * 1'000'000, std::move(message));
  }

 private:
  Rng rng_;
  Timers* const timers_;
  const Clock* const clock_;
};

class FaultyPeer final : public ReplicaPeer {
 public:
  FaultyPeer(std::string from, std::string to, std::shared_ptr<ReplicaPeer> inner, FaultyNetwork* network)
      : from_(std::move(from)), to_(std::move(to)), inner_(std::move(inner)), network_(network) {}

  void Send(SendRequest request, int64_t deadline_ns, Done<SendReply> done) override {
    Pass<SendRequest, SendReply>(&ReplicaPeer::Send, request, deadline_ns, done);
  }
  void Fetch(FetchRequest request, int64_t deadline_ns, Done<FetchReply> done) override {
    Pass<FetchRequest, FetchReply>(&ReplicaPeer::Fetch, request, deadline_ns, done);
  }
  void Query(QueryRequest request, int64_t deadline_ns, Done<QueryReply> done) override {
    Pass<QueryRequest, QueryReply>(&ReplicaPeer::Query, request, deadline_ns, done);
  }
  void Name(NameRequest request, int64_t deadline_ns, Done<NameReply> done) override {
    Pass<NameRequest, NameReply>(&ReplicaPeer::Name, request, deadline_ns, done);
  }
  void Beat(BeatRequest request, int64_t deadline_ns, Done<BeatReply> done) override {
    Pass<BeatRequest, BeatReply>(&ReplicaPeer::Beat, request, deadline_ns, done);
  }
  void Erase(EraseRequest request, int64_t deadline_ns, Done<EraseReply> done) override {
    Pass<EraseRequest, EraseReply>(&ReplicaPeer::Erase, request, deadline_ns, done);
  }
  void Change(ChangeRequest request, int64_t deadline_ns, Done<ChangeReply> done) override {
    Pass<ChangeRequest, ChangeReply>(&ReplicaPeer::Change, request, deadline_ns, done);
  }

 private:
  template <typename Request, typename Reply>
  void Pass(void (ReplicaPeer::*method)(Request, int64_t, Done<Reply>), const Request& request,
            int64_t deadline_ns, const Done<Reply>& done) {
    const auto is_cut = [network = network_, from = from_, to = to_] {
      return network->cut.contains(from) || network->cut.contains(to);
    };
    const int copies = network_->Strikes(&NetworkFaults::doubled) ? 2 : 1;
    for (int copy = 0; copy < copies; ++copy) {
      if (network_->Strikes(&NetworkFaults::lost)) continue;
      network_->Carry([inner = inner_, network = network_, is_cut, method, request, deadline_ns, done] {
        if (is_cut()) return;
        ((*inner).*method)(request, deadline_ns, [network, is_cut, done](absl::StatusOr<Reply> reply) {
          if (network->Strikes(&NetworkFaults::unanswered)) return;
          if (network->Strikes(&NetworkFaults::failed)) reply = absl::UnavailableError("injected");
          network->Carry([is_cut, done, reply = std::move(reply)] {
            if (!is_cut()) done(reply);
          });
        });
      });
    }
  }

  const std::string from_, to_;
  const std::shared_ptr<ReplicaPeer> inner_;
  FaultyNetwork* const network_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_TESTING_FAULTY_PEER_H_
