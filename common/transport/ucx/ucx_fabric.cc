#include "common/transport/ucx/ucx_fabric.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/status/status_macros.h"
#include "common/transport/ucx/ucx_status.h"

namespace epic::transport {
namespace {

// How long Stop progresses lanes that were closed by force before it takes the worker away.
constexpr int64_t kShutdownNs = 2'000'000'000;

// "1.2.3.4:5" or "[::1]:5".
std::optional<sockaddr_storage> ParseAddress(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, port);
  if (error != std::errc() || stop != end || port == 0) return std::nullopt;
  std::string ip(text.substr(0, colon));
  sockaddr_storage address{};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
  if (inet_pton(AF_INET, ip.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    return address;
  }
  if (ip.size() < 2 || ip.front() != '[' || ip.back() != ']') return std::nullopt;
  ip = ip.substr(1, ip.size() - 2);
  if (inet_pton(AF_INET6, ip.c_str(), &v6->sin6_addr) != 1) return std::nullopt;
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(port);
  return address;
}

std::string AddressText(const std::string& ip, uint16_t port) {
  return (ip.find(':') == std::string::npos ? ip : "[" + ip + "]") + ":" + std::to_string(port);
}

uint16_t PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                                            : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

ucs_sock_addr_t SocketAddress(const sockaddr_storage& address) {
  ucs_sock_addr_t result{};
  result.addr = reinterpret_cast<const sockaddr*>(&address);
  result.addrlen = address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  return result;
}

// A body that waits at the sender until it is received.
class RendezvousBody final : public IncomingBody {
 public:
  RendezvousBody(UcxLane* lane, void* descriptor, uint64_t size)
      : lane_(lane), descriptor_(descriptor), size_(size) {}
  uint64_t size() const override { return size_; }
  void ReceiveInto(MutableByteSpan to, MemoryKind kind, LaneDone done) override {
    EPIC_CHECK(!taken_ && to.size() == size_);
    taken_ = true;
    lane_->Receive(descriptor_, to, kind, std::move(done));
  }
  bool taken() const { return taken_; }

 private:
  UcxLane* const lane_;
  void* const descriptor_;
  const uint64_t size_;
  bool taken_ = false;
};

// Bytes that came with the header. Nobody of ours sends a body so: it can only be refused.
class UnaskedBody final : public IncomingBody {
 public:
  UnaskedBody(UcxLane* lane, uint64_t size) : lane_(lane), size_(size) {}
  uint64_t size() const override { return size_; }
  void ReceiveInto(MutableByteSpan to, MemoryKind kind, LaneDone done) override {
    lane_->Fail(std::move(done), absl::DataLossError("a body came without a rendezvous"));
  }

 private:
  UcxLane* const lane_;
  const uint64_t size_;
};

}  // namespace

UcxFabric::UcxFabric(const Clock* clock, LaneAcceptor* acceptor) : clock_(clock), acceptor_(acceptor) {}

absl::StatusOr<std::unique_ptr<UcxFabric>> UcxFabric::Start(const UcxSettings& settings, const Clock* clock,
                                                            LaneAcceptor* acceptor) {
  EPIC_RETURN_IF_ERROR(CheckUcxSettings(settings));
  EPIC_CHECK(acceptor != nullptr || settings.listen_ip.empty());
  std::unique_ptr<UcxFabric> fabric(new UcxFabric(clock, acceptor));
  EPIC_RETURN_IF_ERROR(fabric->Init(settings));
  return fabric;
}

absl::Status UcxFabric::Init(const UcxSettings& settings) {
  max_lanes_ = settings.max_lanes;
  EPIC_ASSIGN_OR_RETURN(worker_, UcxWorker::Make(settings));
  shared_.worker = worker_->handle();
  if (worker_->has_rma()) {
    registrations_ = std::make_unique<RegistrationCache>(worker_.get(), settings.registration_cache_bytes,
                                                         settings.registration_cache_entries);
    shared_.registrations = registrations_.get();
  }
  EPIC_RETURN_IF_ERROR(SetHandlers());
  if (!settings.listen_ip.empty()) EPIC_RETURN_IF_ERROR(Listen(settings));
  EventSource* const source = this;
  auto loop = std::make_shared<ProgressLoop>(clock_, source, settings.max_commands, settings.poll_us * 1000);
  EPIC_RETURN_IF_ERROR(loop->Start());
  loop_ = std::move(loop);
  return absl::OkStatus();
}

absl::Status UcxFabric::SetHandlers() {
  handlers_.resize(kMaxKind + 1);
  for (uint8_t kind = 1; kind <= kMaxKind; ++kind) {
    handlers_[kind] = {.fabric = this, .kind = kind};
    ucp_am_handler_param_t param{};
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    param.id = kind;
    param.flags = UCP_AM_FLAG_WHOLE_MSG;
    param.cb = OnMessage;
    param.arg = &handlers_[kind];
    EPIC_RETURN_IF_ERROR(
        FromUcx(ucp_worker_set_am_recv_handler(worker_->handle(), &param), "take messages of peers"));
  }
  return absl::OkStatus();
}

absl::Status UcxFabric::Listen(const UcxSettings& settings) {
  // Port 0 is for the system to choose; ParseAddress refuses it in the addresses of others.
  std::optional<sockaddr_storage> address = ParseAddress(AddressText(settings.listen_ip, 1));
  EPIC_CHECK(address.has_value());
  auto& port = address->ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(*address).sin_port
                                             : reinterpret_cast<sockaddr_in6&>(*address).sin6_port;
  port = htons(settings.listen_port);
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = SocketAddress(*address);
  params.conn_handler = {.cb = OnConnection, .arg = this};
  EPIC_RETURN_IF_ERROR(FromUcx(ucp_listener_create(worker_->handle(), &params, &listener_),
                               "listen on " + AddressText(settings.listen_ip, settings.listen_port)));
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  EPIC_RETURN_IF_ERROR(FromUcx(ucp_listener_query(listener_, &attributes), "ask a listener for its port"));
  address_ = AddressText(settings.listen_ip, PortOf(attributes.sockaddr));
  return absl::OkStatus();
}

void UcxFabric::Stop(std::function<void()> last) {
  if (loop_ != nullptr) {
    loop_->Stop([this, last = std::move(last)] {
      if (last != nullptr) last();
      Shutdown();
    });
  } else if (worker_ != nullptr) {
    // Init has failed.
    Shutdown();
    worker_.reset();
  }
}

void UcxFabric::Shutdown() {
  for (const ucp_conn_request_h request : connections_) ucp_listener_reject(listener_, request);
  connections_.clear();
  if (listener_ != nullptr) ucp_listener_destroy(listener_);
  listener_ = nullptr;
  std::vector<UcxLane*> open;
  for (const auto& [endpoint, lane] : by_endpoint_) open.push_back(lane);
  for (UcxLane* const lane : shared_.to_close) std::erase(open, lane);
  for (UcxLane* const lane : open) lane->Close();
  const int64_t deadline_ns = clock_->SteadyNs() + kShutdownNs;
  while ((!lanes_.empty() || Progress()) && clock_->SteadyNs() < deadline_ns) Progress();
  for (const auto& [lane, owned] : lanes_) lane->ReleaseRegions();
  worker_->DestroyWorker();
  for (const auto& [lane, owned] : lanes_) lane->EndAll();
  TellEnded();
  lanes_.clear();
  registrations_.reset();
}

absl::StatusOr<UcxLane*> UcxFabric::MakeLane(ucp_ep_params_t params, LaneEvents* events) {
  params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = OnError, .arg = this};
  ucp_ep_h endpoint = nullptr;
  EPIC_RETURN_IF_ERROR(FromUcx(ucp_ep_create(worker_->handle(), &params, &endpoint), "open a lane"));
  auto lane = std::make_unique<UcxLane>(&shared_, endpoint, events);
  UcxLane* const made = lane.get();
  lanes_.emplace(made, std::move(lane));
  by_endpoint_.emplace(endpoint, made);
  return made;
}

absl::StatusOr<Lane*> UcxFabric::Connect(std::string_view address, LaneEvents* events) {
  if (lanes_.size() >= max_lanes_) return absl::ResourceExhaustedError("too many lanes");
  const std::optional<sockaddr_storage> parsed = ParseAddress(address);
  if (!parsed.has_value()) return absl::InvalidArgumentError("the address of a peer makes no sense");
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr = SocketAddress(*parsed);
  EPIC_ASSIGN_OR_RETURN(Lane* const lane, MakeLane(params, events));
  return lane;
}

absl::StatusOr<std::string> UcxFabric::Export(ByteSpan region) {
  if (registrations_ == nullptr) return absl::UnimplementedError("these devices have no RMA");
  EPIC_ASSIGN_OR_RETURN(void* const registration, registrations_->Pin(region, MemoryKind::kHost));
  return worker_->PackKey(registration);
}

void UcxFabric::ForgetMemory(ByteSpan memory) {
  if (registrations_ != nullptr) registrations_->Forget(memory);
}

bool UcxFabric::Progress() {
  bool did = worker_->Progress();
  did = TakeConnections() || did;
  did = TellEnded() || did;
  did = TellDown() || did;
  return CloseLanes() || did;
}

bool UcxFabric::Arm() {
  // Tasks and timers may have noted something since the last Progress.
  if (!connections_.empty() || !shared_.ended.empty() || !down_.empty() || !shared_.to_close.empty()) {
    return false;
  }
  return worker_->Arm();
}

bool UcxFabric::TakeConnections() {
  if (connections_.empty()) return false;
  for (const ucp_conn_request_h request : std::exchange(connections_, {})) {
    if (lanes_.size() >= max_lanes_) {
      ucp_listener_reject(listener_, request);
      continue;
    }
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = request;
    const absl::StatusOr<UcxLane*> lane = MakeLane(params, nullptr);
    if (!lane.ok()) continue;  // UCX has rejected it
    LaneEvents* const events = acceptor_->OnLane(*lane);
    if (events == nullptr) {
      (*lane)->Close();
    } else {
      (*lane)->set_events(events);
    }
  }
  return true;
}

bool UcxFabric::TellEnded() {
  if (shared_.ended.empty()) return false;
  // Those that end meanwhile are for the next round.
  std::list<LaneOp> ended;
  ended.swap(shared_.ended);
  for (LaneOp& op : ended) {
    op.lane->Forget();
    UcxLane* const lane = op.lane;
    std::exchange(op.done, nullptr)(op.status);
    if (lane->done()) lanes_.erase(lane);
  }
  return true;
}

bool UcxFabric::TellDown() {
  if (down_.empty()) return false;
  for (const ucp_ep_h endpoint : std::exchange(down_, {})) {
    const auto found = by_endpoint_.find(endpoint);
    if (found == by_endpoint_.end()) continue;
    UcxLane* const lane = found->second;
    if (lane->events() != nullptr) lane->events()->OnDown(lane->down());
  }
  return true;
}

bool UcxFabric::CloseLanes() {
  if (shared_.to_close.empty()) return false;
  for (UcxLane* const lane : std::exchange(shared_.to_close, {})) {
    by_endpoint_.erase(lane->endpoint());
    lane->EndClose();
    if (lane->done()) lanes_.erase(lane);
  }
  return true;
}

ucs_status_t UcxFabric::OnMessage(void* arg, const void* header, size_t header_size, void* data, size_t size,
                                  const ucp_am_recv_param_t* param) {
  const auto* handler = static_cast<const Handler*>(arg);
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) return UCS_OK;
  const auto found = handler->fabric->by_endpoint_.find(param->reply_ep);
  if (found == handler->fabric->by_endpoint_.end()) return UCS_OK;
  UcxLane* const lane = found->second;
  if (lane->events() == nullptr || header_size > kMaxHeaderBytes) return UCS_OK;
  const ByteSpan header_bytes(static_cast<const std::byte*>(header), header_size);
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
    UnaskedBody body(lane, size);
    lane->events()->OnMessage(handler->kind, header_bytes, body);
    return UCS_OK;
  }
  RendezvousBody body(lane, data, size);
  lane->events()->OnMessage(handler->kind, header_bytes, body);
  // UCX lets the sender go when nobody takes the body.
  return body.taken() ? UCS_INPROGRESS : UCS_OK;
}

void UcxFabric::OnConnection(ucp_conn_request_h request, void* arg) {
  static_cast<UcxFabric*>(arg)->connections_.push_back(request);
}

void UcxFabric::OnError(void* arg, ucp_ep_h endpoint, ucs_status_t status) {
  auto* const fabric = static_cast<UcxFabric*>(arg);
  const auto found = fabric->by_endpoint_.find(endpoint);
  if (found != fabric->by_endpoint_.end() && found->second->MarkDown(status)) {
    fabric->down_.push_back(endpoint);
  }
}

}  // namespace epic::transport
