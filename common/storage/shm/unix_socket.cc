#include "common/storage/shm/unix_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/base/absl_std.h"
#include "common/base/check.h"
#include "common/status/status_macros.h"

namespace epic::shm {
namespace {

constexpr int kBacklog = 64;
constexpr size_t kReadBytes = 16 << 10;

absl::Status SystemError(std::string_view what, const std::string& path) {
  return absl::UnavailableError(
      ToAbsl("cannot " + std::string(what) + " " + path + ": " + std::strerror(errno)));
}

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        ToAbsl("the path of a socket has 1 to " + std::to_string(sizeof(address.sun_path) - 1) +
               " bytes; this one has " + std::to_string(path.size()) + ": " + path));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

const sockaddr* AsSockaddr(const sockaddr_un& address) { return reinterpret_cast<const sockaddr*>(&address); }

absl::StatusOr<UniqueFd> NewSocket(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return SystemError("make a socket for", path);
  return fd;
}

// A file that is left of a process that ended: nobody listens, which is not the same as that we cannot
// connect.
bool RemoveIfStale(const std::string& path, const sockaddr_un& address) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return false;
  const auto socket = NewSocket(path);
  if (!socket.ok() || connect(socket->get(), AsSockaddr(address), sizeof(address)) == 0) return false;
  return errno == ECONNREFUSED && unlink(path.c_str()) == 0;
}

}  // namespace

void UniqueFd::Reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

absl::StatusOr<UniqueFd> ListenOn(const std::string& path) {
  EPIC_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  EPIC_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(path));
  // The mode of the socket is that of the file which bind makes.
  if (fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0) return SystemError("protect", path);
  int bound = bind(fd.get(), AsSockaddr(address), sizeof(address));
  if (bound != 0 && errno == EADDRINUSE) {
    if (!RemoveIfStale(path, address))
      return absl::AlreadyExistsError(ToAbsl("something else is at " + path));
    bound = bind(fd.get(), AsSockaddr(address), sizeof(address));
  }
  if (bound != 0) return SystemError("bind", path);
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0 || (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    unlink(path.c_str());
    return SystemError("protect", path);
  }
  if (listen(fd.get(), kBacklog) != 0) return SystemError("listen on", path);
  return fd;
}

absl::StatusOr<UniqueFd> ConnectTo(const std::string& path) {
  EPIC_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  EPIC_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(path));
  if (connect(fd.get(), AsSockaddr(address), sizeof(address)) != 0) return SystemError("connect to", path);
  return fd;
}

absl::StatusOr<uid_t> PeerUid(int fd) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return absl::UnavailableError("the peer of a unix socket has no credentials");
  }
  return peer.uid;
}

Channel::Channel(UniqueFd socket, int64_t timeout_ms) : socket_(std::move(socket)) {
  EPIC_CHECK(socket_.valid() && timeout_ms > 0);
  const timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
  EPIC_CHECK(setsockopt(fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
  EPIC_CHECK(setsockopt(fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0);
}

absl::Status Channel::Send(std::string_view frame, int pass_fd) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  while (!frame.empty()) {
    iovec bytes = {.iov_base = const_cast<char*>(frame.data()), .iov_len = frame.size()};
    msghdr message = {};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    if (pass_fd >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &pass_fd, sizeof(int));
    }
    const ssize_t sent = sendmsg(fd(), &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return absl::DeadlineExceededError("the other end of the hand-over does not read");
    }
    if (sent < 0) return absl::UnavailableError("the other end of the hand-over is gone");
    frame.remove_prefix(static_cast<size_t>(sent));
    pass_fd = -1;  // it went with the first byte
  }
  return absl::OkStatus();
}

// Bytes that were read: 0 at the end of the connection. DeadlineExceeded: none came in time.
absl::StatusOr<size_t> Channel::ReadSome(char* to, size_t bytes, UniqueFd* passed) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec place = {.iov_base = to, .iov_len = bytes};
  while (true) {
    msghdr message = {};
    message.msg_iov = &place;
    message.msg_iovlen = 1;
    if (passed != nullptr) {
      message.msg_control = control;
      message.msg_controllen = CMSG_LEN(sizeof(int));  // one descriptor: the system drops any more
    }
    const ssize_t got = recvmsg(fd(), &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return absl::DeadlineExceededError("the other end of the hand-over does not answer");
    }
    if (got < 0) return absl::UnavailableError("the other end of the hand-over is gone");
    const cmsghdr* const header = passed == nullptr ? nullptr : CMSG_FIRSTHDR(&message);
    if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
      passed->Reset(fd);
    }
    return static_cast<size_t>(got);
  }
}

// Until `bytes` are in received_.
absl::Status Channel::Fill(size_t bytes, bool whenever, UniqueFd* passed) {
  while (received_.size() < bytes) {
    const size_t before = received_.size();
    received_.resize(before + std::max(bytes - before, kReadBytes));
    const auto got = ReadSome(received_.data() + before, received_.size() - before, passed);
    received_.resize(before + (got.ok() ? *got : 0));
    if (got.ok() && *got > 0) continue;
    if (got.ok()) return absl::UnavailableError("the other end of the hand-over is gone");
    const bool idle = whenever && received_.empty() && absl::IsDeadlineExceeded(got.status());
    if (!idle) return got.status();
  }
  return absl::OkStatus();
}

absl::StatusOr<Frame> Channel::Next(uint32_t max_body_bytes, bool whenever, UniqueFd* passed) {
  EPIC_RETURN_IF_ERROR(Fill(kFrameHeaderBytes, whenever, passed));
  Frame frame;
  EPIC_ASSIGN_OR_RETURN(frame.header,
                        DecodeFrameHeader(AsBytes(received_).first(kFrameHeaderBytes), max_body_bytes));
  const size_t end = kFrameHeaderBytes + frame.header.body_bytes;
  EPIC_RETURN_IF_ERROR(Fill(end, whenever, passed));
  frame.body = received_.substr(kFrameHeaderBytes, frame.header.body_bytes);
  received_.erase(0, end);
  return frame;
}

absl::StatusOr<Frame> Channel::Receive(uint32_t max_body_bytes, UniqueFd* passed) {
  return Next(max_body_bytes, /*whenever=*/false, passed);
}

absl::StatusOr<Frame> Channel::ReceiveWhenever(uint32_t max_body_bytes) {
  return Next(max_body_bytes, /*whenever=*/true, nullptr);
}

void Channel::Close() { shutdown(fd(), SHUT_RDWR); }

bool Channel::PeerIsGone() const {
  pollfd state = {.fd = fd(), .events = POLLRDHUP, .revents = 0};
  return poll(&state, 1, 0) != 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

}  // namespace epic::shm
