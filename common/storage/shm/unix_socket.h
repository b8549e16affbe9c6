// Unix stream sockets that carry frames (wire.h), and one descriptor where asked. Every call blocks; a peer
// that does not move for the time limit is given up. Close() from another thread ends a call that waits. Not
// here: what the frames mean, who may connect.
#ifndef EPIC_COMMON_STORAGE_SHM_UNIX_SOCKET_H_
#define EPIC_COMMON_STORAGE_SHM_UNIX_SOCKET_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/shm/wire.h"

namespace epic::shm {

// Owns a descriptor, or none (-1).
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { Reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Reset(int fd = -1);

 private:
  int fd_ = -1;
};

// A listening socket file that its owner alone can connect to (mode 0600). A socket file that nobody listens
// to is replaced. Errors: InvalidArgument when the path is too long, AlreadyExists when somebody listens
// there, Unavailable.
absl::StatusOr<UniqueFd> ListenOn(const std::string& path);
// Errors: InvalidArgument, Unavailable when nobody listens there.
absl::StatusOr<UniqueFd> ConnectTo(const std::string& path);
// The user on the other end when the connection was made. Errors: Unavailable.
absl::StatusOr<uid_t> PeerUid(int fd);

struct Frame {
  FrameHeader header;
  std::string body;
};

// One connection. One thread sends and receives at a time; Close and PeerIsGone may be called from any.
class Channel {
 public:
  // `timeout_ms`: of a send or receive that does not move. REQUIRES: a connected socket, timeout_ms > 0.
  Channel(UniqueFd socket, int64_t timeout_ms);

  // Errors: Unavailable (the peer is gone), DeadlineExceeded. `pass_fd`: a descriptor that goes with it, or
  // -1.
  absl::Status Send(std::string_view frame, int pass_fd = -1);
  // The next frame. `passed`: takes a descriptor that came with it; descriptors that were not asked for are
  // dropped. Errors: Unavailable (the peer is gone), DeadlineExceeded, and those of DecodeFrameHeader.
  absl::StatusOr<Frame> Receive(uint32_t max_body_bytes, UniqueFd* passed = nullptr);
  // The same, and a peer that says nothing is waited for; only half a frame is bound by the time limit.
  absl::StatusOr<Frame> ReceiveWhenever(uint32_t max_body_bytes);

  // Ends the connection both ways; the descriptor stays open until destruction.
  void Close();
  // Whether the peer closed its end, or Close() was called.
  bool PeerIsGone() const;
  int fd() const { return socket_.get(); }

 private:
  absl::StatusOr<Frame> Next(uint32_t max_body_bytes, bool whenever, UniqueFd* passed);
  absl::Status Fill(size_t bytes, bool whenever, UniqueFd* passed);
  absl::StatusOr<size_t> ReadSome(char* to, size_t bytes, UniqueFd* passed);

  const UniqueFd socket_;
  std::string received_;  // not yet returned
};

}  // namespace epic::shm

#endif  // EPIC_COMMON_STORAGE_SHM_UNIX_SOCKET_H_
