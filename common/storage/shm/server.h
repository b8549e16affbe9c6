// The store's end of the hand-over: a unix socket (0600) on which processes of the same user and host get the
// arena's file, read-only, and leases of objects in it. Owned by whoever owns the store.
//
// A thread accepts; each connection has a thread of its own, up to a bound. Leases belong to their
// connection: when it ends, in whatever way, the socket is shut first and the leases are given up after that,
// so that a reader which finds its connection alive after reading knows that its bytes stayed. A client that
// breaks the protocol loses its connection and nothing else happens. Stop() ends all connections and waits
// for the threads. Not here: which object is where (lease_source.h).
#ifndef EPIC_COMMON_STORAGE_SHM_SERVER_H_
#define EPIC_COMMON_STORAGE_SHM_SERVER_H_

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/storage/shm/lease_source.h"
#include "common/storage/shm/unix_socket.h"

namespace epic::shm {

struct ServerOptions {
  std::string path;            // of the socket; removed by Stop()
  uid_t peer_uid = geteuid();  // who may connect
  int arena_fd = -1;           // opened read-only; outlives the server
  uint64_t arena_bytes = 0;
  uint64_t incarnation = 0;  // of the store: generations of another one mean nothing
  uint32_t connections_max = 64;
  uint32_t leases_max = 1024;  // of a connection
  int64_t timeout_ms = 5000;   // for a client that stops within a frame, or does not read its answer
};

class Server {
 public:
  // `source` outlives the server. Errors: those of ListenOn.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options, LeaseSource* source);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Idempotent. Not to be called from two threads at a time.
  void Stop();

  struct Numbers {
    uint64_t connections = 0;
    uint64_t leases = 0;             // now, of all connections
    uint64_t zero_copy_leases = 0;   // of these
    uint64_t clients_refused = 0;    // of another user, or one too many; since the start
    uint64_t clients_malformed = 0;  // since the start
    uint64_t leases_granted = 0;     // since the start
  };
  Numbers numbers() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Connection;

  Server(const ServerOptions& options, LeaseSource* source, UniqueFd listener);
  void AcceptLoop();
  void Welcome(UniqueFd socket) ABSL_LOCKS_EXCLUDED(mu_);
  bool MayConnect(int fd) const;
  void JoinEnded() ABSL_LOCKS_EXCLUDED(mu_);
  // False when the server stops.
  bool PauseBeforeRetry() ABSL_LOCKS_EXCLUDED(mu_);

  const ServerOptions options_;
  LeaseSource* const source_;
  const UniqueFd listener_;
  const ino_t inode_;  // of the socket file

  mutable Mutex mu_;
  CondVar stopped_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::list<std::unique_ptr<Connection>> connections_ ABSL_GUARDED_BY(mu_);
  Numbers numbers_ ABSL_GUARDED_BY(mu_);

  std::thread acceptor_;  // last: uses all of the above
};

}  // namespace epic::shm

#endif  // EPIC_COMMON_STORAGE_SHM_SERVER_H_
