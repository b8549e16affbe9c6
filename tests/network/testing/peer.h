// A peer in a network of its own: the process epic_transport_peer, and the link to it. Its calls are
// thread-safe (a path asks for tickets on its own thread). Tests and benches only.
#ifndef EPIC_TESTS_NETWORK_TESTING_PEER_H_
#define EPIC_TESTS_NETWORK_TESTING_PEER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/transport/transport.h"
#include "common/transport/ucx/testing/child.h"
#include "common/transport/ucx/ticket.h"
#include "common/transport/ucx/ucx_settings.h"
#include "tests/network/testing/forwarder.h"

namespace epic::network {

enum class LinkKind { kVeth, kForwarder };

struct PeerOptions {
  std::vector<std::string> objects;  // arguments of the process: what it serves
  LinkKind link = LinkKind::kVeth;
  int64_t delay_us = 0;        // each way; kForwarder
  bool whole_packets = false;  // kVeth: packets as on a wire, not dozens in one
};

class Peer final : public transport::TicketSource {
 public:
  // The names of the two ends; the peer's is in its network.
  static constexpr const char* kHere = "epic0";
  static constexpr const char* kThere = "epic1";

  // Starts the process, makes the link and has it serve. REQUIRES: EnterOwnNetwork was OK; one at a time.
  static absl::StatusOr<std::unique_ptr<Peer>> Start(const PeerOptions& options);
  // Kills the process; its network and the link go with it.
  ~Peer() override;

  // In both networks; each a command for Run().
  absl::Status RunThere(const std::string& command) ABSL_LOCKS_EXCLUDED(mu_);
  // Packets that arrive are dropped, on both sides: `percent` of them by chance, 100 for all. 0 ends it.
  absl::Status Drop(int percent) ABSL_LOCKS_EXCLUDED(mu_);

  std::string grpc_address() const { return grpc_address_; }
  // For a node that fetches over the link.
  transport::UcxSettings ucx_settings() const;
  void Ask(std::function<void(absl::StatusOr<std::string>)> done) override ABSL_LOCKS_EXCLUDED(mu_);
  // Objects that it has open; -1 when it does not answer.
  int Open() ABSL_LOCKS_EXCLUDED(mu_);
  bool IsAlive() const ABSL_LOCKS_EXCLUDED(mu_);
  const Forwarder* forwarder() const { return forwarder_.get(); }

 private:
  Peer() = default;
  absl::Status Init(const PeerOptions& options);
  absl::Status MakeLink(const PeerOptions& options);
  std::optional<std::string> Say(const std::string& line) ABSL_LOCKS_EXCLUDED(mu_);

  mutable Mutex mu_;
  std::unique_ptr<transport::Child> child_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Forwarder> forwarder_;  // constant after Start, like the address
  std::string grpc_address_;
};

// A path to it. The node outlives the path.
std::unique_ptr<transport::Path> MakeGrpcPathTo(const Peer& peer);

}  // namespace epic::network

#endif  // EPIC_TESTS_NETWORK_TESTING_PEER_H_
