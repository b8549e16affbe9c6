// A client's way to one store node: channel, deadlines, and the one retry that a restart of the node calls
// for. Owned by the clients that share it (record_client.h, remote_kv_store.h). Thread-safe.
#ifndef EPIC_COMMON_RPC_KV_STORE_STORE_CHANNEL_H_
#define EPIC_COMMON_RPC_KV_STORE_STORE_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/rpc/credentials.h"
#include "epic/v1/kv_store.grpc.pb.h"

namespace epic {

struct StoreChannelOptions {
  std::string address;                             // HOST:PORT, or unix:PATH
  std::shared_ptr<const Credentials> credentials;  // null: plain
  int64_t call_ms = 10'000;                        // deadline of a call that moves no layers
  int64_t min_bytes_per_s = int64_t{4} << 20;      // of a transfer: its deadline is longer by that
  int64_t reconnect_ms = 2'000;  // how long the one retry waits for a node that is being restarted
  int64_t max_message_bytes = int64_t{128} << 20;  // of an answer: token ids of the longest contexts
};

class StoreChannel {
 public:
  using Stub = v1::KvStoreService::Stub;

  // Connects when it is first used.
  explicit StoreChannel(const StoreChannelOptions& options);

  // A call with one answer. Tried again once when the node cannot be reached: what is sent must bear to
  // arrive twice. Errors: what the node says; Unavailable when it cannot be reached; DeadlineExceeded.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                const Request& request) {
    Response response;
    const absl::Status status = Try([&](grpc::ClientContext* context) {
      response.Clear();
      return (stub_.get()->*method)(context, request, &response);
    });
    if (!status.ok()) return status;
    return response;
  }

  // The deadline of a transfer.
  int64_t TransferMs(uint64_t bytes) const {
    return options_.call_ms + static_cast<int64_t>(bytes) * 1000 / options_.min_bytes_per_s;
  }
  Stub* stub() const { return stub_.get(); }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  const StoreChannelOptions& options() const { return options_; }

 private:
  template <typename Attempt>
  absl::Status Try(Attempt attempt) const {
    grpc::ClientContext first;
    SetDeadline(&first, options_.call_ms);
    const grpc::Status status = attempt(&first);
    if (!IsUnreachable(status)) return ToStatus(status);
    grpc::ClientContext second;
    second.set_wait_for_ready(true);
    SetDeadline(&second, options_.reconnect_ms);
    const grpc::Status again = attempt(&second);
    // What was wrong, rather than that waiting for it did not help.
    const bool waited = again.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    return IsUnreachable(again) || waited ? WhyUnreachable(waited ? status : again) : ToStatus(again);
  }
  static void SetDeadline(grpc::ClientContext* context, int64_t ms);
  static absl::Status ToStatus(const grpc::Status& status);
  static bool IsUnreachable(const grpc::Status& status) {
    return status.error_code() == grpc::StatusCode::UNAVAILABLE;
  }
  // With what a look at the other side finds.
  absl::Status WhyUnreachable(const grpc::Status& status) const ABSL_LOCKS_EXCLUDED(mu_);

  const StoreChannelOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<Stub> stub_;

  mutable Mutex mu_;  // held while looking: one look at a time, and the next one not at once
  mutable int64_t looked_ns_ ABSL_GUARDED_BY(mu_) = 0;
  mutable std::string found_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic

#endif  // EPIC_COMMON_RPC_KV_STORE_STORE_CHANNEL_H_
