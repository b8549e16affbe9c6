#include "common/storage/shm/server.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "common/base/absl_std.h"
#include "common/base/check.h"
#include "common/status/status_macros.h"
#include "common/storage/object_codec.h"

namespace epic::shm {
namespace {

constexpr int64_t kAcceptRetryMs = 50;

ino_t InodeOf(const std::string& path) {
  struct stat info = {};
  return lstat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

LeaseSource::Lease Refused(std::string reason) {
  LeaseSource::Lease lease;
  lease.answer.outcome = LeaseOutcome::kRefused;
  lease.answer.reason = std::move(reason);
  return lease;
}

}  // namespace

// One client and its leases. Run() is its thread.
class Server::Connection {
 public:
  Connection(Server* server, UniqueFd socket)
      : server_(server),
        channel_(std::move(socket), server->options_.timeout_ms),
        thread_([this] { Run(); }) {}
  ~Connection() { thread_.join(); }

  void Close() { channel_.Close(); }
  bool ended() const { return ended_; }

 private:
  struct Lease {
    std::string tenant;
    ObjectKey key;
    uint64_t generation = 0;
    std::shared_ptr<const void> hold;  // null: for copying
  };

  void Run() {
    const absl::Status status = Serve();
    channel_.Close();  // before the leases go: see server.h
    const bool malformed = absl::IsInvalidArgument(status) || absl::IsUnimplemented(status);
    for (auto lease = leases_.begin(); lease != leases_.end();) lease = Drop(lease);
    {
      MutexLock lock(&server_->mu_);
      --server_->numbers_.connections;
      if (malformed) ++server_->numbers_.clients_malformed;
    }
    ended_ = true;
  }

  // Until the client is gone, or does what it must not: InvalidArgument or Unimplemented.
  absl::Status Serve() {
    const auto hello = channel_.Receive(kMaxRequestBytes);
    if (absl::IsUnimplemented(hello.status())) {
      // It is told why; whether that arrives changes nothing.
      channel_.Send(EncodeFrame(FrameType::kRefused, 0, EncodeReason(ToStd(hello.status().message()))))
          .IgnoreError();
    }
    EPIC_RETURN_IF_ERROR(hello.status());
    if (hello->header.type != FrameType::kHello) return absl::InvalidArgumentError("it does not say hello");
    const std::string welcome = EncodeWelcome(
        {.incarnation = server_->options_.incarnation, .arena_bytes = server_->options_.arena_bytes});
    EPIC_RETURN_IF_ERROR(channel_.Send(EncodeFrame(FrameType::kWelcome, hello->header.number, welcome),
                                       server_->options_.arena_fd));
    while (true) {
      EPIC_ASSIGN_OR_RETURN(const Frame frame, channel_.ReceiveWhenever(kMaxRequestBytes));
      EPIC_RETURN_IF_ERROR(Answer(frame));
    }
  }

  absl::Status Answer(const Frame& frame) {
    switch (frame.header.type) {
      case FrameType::kLease:
        return AnswerLease(frame);
      case FrameType::kConfirm:
        return AnswerConfirm(frame);
      case FrameType::kRelease:
        return Release(frame);
      default:
        return absl::InvalidArgumentError("a frame that clients do not send");
    }
  }

  absl::Status AnswerLease(const Frame& frame) {
    EPIC_ASSIGN_OR_RETURN(const LeaseRequest request, DecodeLeaseRequest(AsBytes(frame.body)));
    LeaseSource::Lease lease = Find(request);
    LeaseAnswer& answer = lease.answer;
    if (answer.outcome == LeaseOutcome::kLeased) {
      EPIC_CHECK(request.zero_copy == (lease.hold != nullptr));
      answer.object.lease = next_lease_++;
      Add(answer.object.lease, {.tenant = request.tenant,
                                .key = request.key,
                                .generation = answer.object.generation,
                                .hold = std::move(lease.hold)});
    }
    return channel_.Send(EncodeFrame(FrameType::kAnswer, frame.header.number, EncodeLeaseAnswer(answer)));
  }

  LeaseSource::Lease Find(const LeaseRequest& request) {
    if (leases_.size() >= server_->options_.leases_max) {
      return Refused("this connection has as many leases as it may; release some");
    }
    if (BlockCount(request.layout) > kMaxBlocks) {
      return Refused("an object of this shape has too many blocks; fetch it by gRPC");
    }
    return server_->source_->Find(request);
  }

  absl::Status AnswerConfirm(const Frame& frame) {
    EPIC_ASSIGN_OR_RETURN(const uint64_t number, DecodeLeaseNumber(AsBytes(frame.body)));
    const auto lease = leases_.find(number);
    if (lease == leases_.end() || lease->second.hold != nullptr) {
      return absl::InvalidArgumentError("it confirms a lease that is none, or not for copying");
    }
    const bool current =
        server_->source_->IsCurrent(lease->second.tenant, lease->second.key, lease->second.generation);
    Drop(lease);
    return channel_.Send(EncodeFrame(FrameType::kConfirmed, frame.header.number, EncodeConfirmed(current)));
  }

  absl::Status Release(const Frame& frame) {
    EPIC_ASSIGN_OR_RETURN(const uint64_t number, DecodeLeaseNumber(AsBytes(frame.body)));
    const auto lease = leases_.find(number);
    if (lease == leases_.end()) return absl::InvalidArgumentError("it releases a lease that is none");
    Drop(lease);
    return absl::OkStatus();
  }

  void Add(uint64_t number, Lease lease) {
    MutexLock lock(&server_->mu_);
    ++server_->numbers_.leases;
    ++server_->numbers_.leases_granted;
    if (lease.hold != nullptr) ++server_->numbers_.zero_copy_leases;
    leases_.emplace(number, std::move(lease));
  }

  std::map<uint64_t, Lease>::iterator Drop(std::map<uint64_t, Lease>::iterator lease) {
    const bool held = lease->second.hold != nullptr;
    const auto next = leases_.erase(lease);
    MutexLock lock(&server_->mu_);
    --server_->numbers_.leases;
    if (held) --server_->numbers_.zero_copy_leases;
    return next;
  }

  Server* const server_;
  Channel channel_;
  std::atomic<bool> ended_{false};
  // Its own thread only.
  std::map<uint64_t, Lease> leases_;
  uint64_t next_lease_ = 1;

  std::thread thread_;  // last: uses all of the above
};

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, LeaseSource* source) {
  EPIC_CHECK(options.arena_fd >= 0 && options.arena_bytes > 0);
  EPIC_ASSIGN_OR_RETURN(UniqueFd listener, ListenOn(options.path));
  return std::unique_ptr<Server>(new Server(options, source, std::move(listener)));
}

Server::Server(const ServerOptions& options, LeaseSource* source, UniqueFd listener)
    : options_(options),
      source_(source),
      listener_(std::move(listener)),
      inode_(InodeOf(options.path)),
      acceptor_([this] { AcceptLoop(); }) {}

Server::~Server() { Stop(); }

void Server::AcceptLoop() {
  while (true) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    JoinEnded();
    if (socket.valid()) {
      Welcome(std::move(socket));
    } else if (!PauseBeforeRetry()) {
      return;
    }
  }
}

// After accept failed: the process is out of descriptors, a client was gone already, or Stop() shut the
// listener.
bool Server::PauseBeforeRetry() {
  MutexLock lock(&mu_);
  if (!stopping_) stopped_.WaitForMs(&mu_, kAcceptRetryMs);
  return !stopping_;
}

bool Server::MayConnect(int fd) const {
  const auto uid = PeerUid(fd);
  return uid.ok() && *uid == options_.peer_uid;
}

void Server::Welcome(UniqueFd socket) {
  const bool may_connect = MayConnect(socket.get());
  MutexLock lock(&mu_);
  if (stopping_) return;
  if (!may_connect || numbers_.connections >= options_.connections_max) {
    ++numbers_.clients_refused;
    return;
  }
  ++numbers_.connections;
  connections_.push_back(std::make_unique<Connection>(this, std::move(socket)));
}

void Server::JoinEnded() {
  std::list<std::unique_ptr<Connection>> ended;  // joined without the lock
  MutexLock lock(&mu_);
  for (auto connection = connections_.begin(); connection != connections_.end();) {
    const auto next = std::next(connection);
    if ((*connection)->ended()) ended.splice(ended.end(), connections_, connection);
    connection = next;
  }
}

void Server::Stop() {
  if (!acceptor_.joinable()) return;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    stopped_.SignalAll();
    for (const auto& connection : connections_) connection->Close();
  }
  shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  std::list<std::unique_ptr<Connection>> connections;
  {
    MutexLock lock(&mu_);
    connections.swap(connections_);
  }
  connections.clear();
  if (inode_ != 0 && InodeOf(options_.path) == inode_) unlink(options_.path.c_str());
}

Server::Numbers Server::numbers() const {
  MutexLock lock(&mu_);
  return numbers_;
}

}  // namespace epic::shm
