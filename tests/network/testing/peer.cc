#include "tests/network/testing/peer.h"

#include <cstdlib>

#include "common/status/status_macros.h"
#include "common/testing/paths.h"
#include "common/transport/grpc/grpc_path.h"
#include "common/transport/ucx/testing/text_door.h"
#include "tests/network/testing/network.h"

namespace epic::network {
namespace {

constexpr const char* kOwnIp = "10.83.0.1";
constexpr const char* kPeerIp = "10.83.0.2";

}  // namespace

absl::StatusOr<std::unique_ptr<Peer>> Peer::Start(const PeerOptions& options) {
  std::unique_ptr<Peer> peer(new Peer());
  EPIC_RETURN_IF_ERROR(peer->Init(options));
  return peer;
}

absl::Status Peer::Init(const PeerOptions& options) {
  std::vector<std::string> arguments = {testing::BuildDir() + "/bin/epic_transport_peer"};
  arguments.insert(arguments.end(), options.objects.begin(), options.objects.end());
  std::string pid;
  {
    MutexLock lock(&mu_);
    child_ = std::make_unique<transport::Child>(std::move(arguments));
    pid = child_->Hear().value_or("");
  }
  if (pid.empty()) return absl::UnavailableError("the peer has no network of its own");
  if (options.link == LinkKind::kVeth) {
    EPIC_RETURN_IF_ERROR(
        Run(std::string("ip link add ") + kHere + " type veth peer name " + kThere + " netns " + pid));
  } else {
    EPIC_ASSIGN_OR_RETURN(forwarder_, Forwarder::Make(kHere, kThere, options.delay_us));
    EPIC_RETURN_IF_ERROR(Run(std::string("ip link set ") + kThere + " netns " + pid));
  }
  const std::string whole = options.whole_packets ? " gso_max_segs 1" : "";
  EPIC_RETURN_IF_ERROR(Run(std::string("ip addr add ") + kOwnIp + "/24 dev " + kHere));
  EPIC_RETURN_IF_ERROR(Run(std::string("ip link set ") + kHere + " up" + whole));
  EPIC_RETURN_IF_ERROR(RunThere(std::string("ip addr add ") + kPeerIp + "/24 dev " + kThere));
  EPIC_RETURN_IF_ERROR(RunThere(std::string("ip link set ") + kThere + " up" + whole));
  EPIC_RETURN_IF_ERROR(AwaitCarrier(kHere));
  const std::optional<std::string> port = Say(std::string("serve ") + kPeerIp + " " + kThere);
  if (!port.has_value()) return absl::UnavailableError("the peer does not serve");
  grpc_address_ = std::string(kPeerIp) + ":" + *port;
  return absl::OkStatus();
}

Peer::~Peer() {
  {
    MutexLock lock(&mu_);
    child_.reset();
  }
  forwarder_.reset();
  // A namespace goes a little after its last process: this end of a veth goes with it, or now.
  (void)Run(std::string("ip link del ") + kHere);
}

absl::Status Peer::RunThere(const std::string& command) {
  const std::optional<std::string> answer = Say("run " + command);
  if (answer == "ok") return absl::OkStatus();
  return absl::InternalError("at the peer: " + answer.value_or("no answer"));
}

absl::Status Peer::Drop(int percent) {
  const auto both = [this](const std::string& command) {
    EPIC_RETURN_IF_ERROR(RunThere(command));
    return Run(command);
  };
  if (percent == 0) return both("nft delete table inet faults");
  const std::string which = percent == 100 ? "" : " numgen random mod 100 < " + std::to_string(percent);
  EPIC_RETURN_IF_ERROR(both("nft add table inet faults"));
  EPIC_RETURN_IF_ERROR(both("nft add chain inet faults arrive { type filter hook input priority 0 ; }"));
  return both("nft add rule inet faults arrive" + which + " counter drop");
}

transport::UcxSettings Peer::ucx_settings() const {
  return {.net_devices = {kHere}, .listen_ip = "", .trusted_network = true};
}

std::optional<std::string> Peer::Say(const std::string& line) {
  MutexLock lock(&mu_);
  child_->Say(line);
  return child_->Hear();
}

void Peer::Ask(std::function<void(absl::StatusOr<std::string>)> done) {
  const std::optional<std::string> ticket = Say("ticket");
  if (!ticket.has_value()) return done(transport::PathDownStatus("the peer does not answer"));
  done(transport::FromHex(*ticket));
}

int Peer::Open() {
  const std::optional<std::string> count = Say("open");
  return count.has_value() ? std::atoi(count->c_str()) : -1;
}

bool Peer::IsAlive() const {
  MutexLock lock(&mu_);
  return child_->IsAlive();
}

std::unique_ptr<transport::Path> MakeGrpcPathTo(const Peer& peer) {
  return transport::MakeGrpcPath(
      {.channel = std::make_shared<StoreChannel>(StoreChannelOptions{.address = peer.grpc_address()})});
}

}  // namespace epic::network
