// The other process of the transport bench: serves the bench's objects over shm, gRPC and UCX, and a plain
// socket that writes as many bytes as it is asked for. The bench starts itself anew as that process.
//
// BenchPeer is the bench's handle; its calls are thread-safe (a path asks for tickets on its own thread).
#ifndef EPIC_COMMON_TRANSPORT_BENCH_TESTING_BENCH_PEER_H_
#define EPIC_COMMON_TRANSPORT_BENCH_TESTING_BENCH_PEER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/testing/paths.h"
#include "common/transport/ucx/testing/child.h"
#include "common/transport/ucx/ticket.h"

namespace epic::transport {

// The process: until its input ends. `arguments`: a folder for sockets, UcxSettings::poll_us, then sizes.
int RunBenchPeer(const std::vector<std::string>& arguments);

// CPU seconds of this process so far, of all threads.
double CpuSeconds();

class BenchPeer final : public TicketSource {
 public:
  // `program`: this one. Ends the process with a message when the other one does not come up.
  BenchPeer(const std::string& program, int64_t ucx_poll_us, const std::vector<uint64_t>& sizes);
  ~BenchPeer() override = default;

  std::string shm_path() const { return folder_.path() + "/shm"; }
  const std::string& grpc_address() const { return grpc_address_; }
  // Connected to the plain socket: who writes a size as a u64 reads so many bytes. Owned by this.
  int socket() const { return socket_; }
  void Ask(std::function<void(absl::StatusOr<std::string>)> done) override ABSL_LOCKS_EXCLUDED(mu_);
  // Of the other process.
  double PeerCpuSeconds() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::string Say(const std::string& line) ABSL_LOCKS_EXCLUDED(mu_);

  testing::TempDir folder_;
  Mutex mu_;
  std::unique_ptr<Child> child_ ABSL_GUARDED_BY(mu_);
  std::string grpc_address_;  // constant after construction, like socket_
  int socket_ = -1;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_BENCH_TESTING_BENCH_PEER_H_
