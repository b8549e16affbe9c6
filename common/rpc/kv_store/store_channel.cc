#include "common/rpc/kv_store/store_channel.h"

#include <grpcpp/support/channel_arguments.h>

#include <chrono>

#include "common/base/clock.h"
#include "common/rpc/grpc_status.h"

namespace epic {
namespace {

constexpr int kMinBackoffMs = 100;
constexpr int kMaxBackoffMs = 1000;
constexpr int kConnectMs = 5000;  // a try has at least so long, handshakes included
constexpr int64_t kLookAgainNs = 5'000'000'000;

std::shared_ptr<grpc::Channel> Connect(const StoreChannelOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kMinBackoffMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxBackoffMs);
  // A connection of its own: bytes of layers do not wait behind those of other clients of the process.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return MakeChannel(options.address, options.credentials.get(), arguments);
}

}  // namespace

StoreChannel::StoreChannel(const StoreChannelOptions& options)
    : options_(options), channel_(Connect(options)), stub_(v1::KvStoreService::NewStub(channel_)) {}

void StoreChannel::SetDeadline(grpc::ClientContext* context, int64_t ms) {
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(ms));
}

absl::Status StoreChannel::ToStatus(const grpc::Status& status) { return FromGrpcStatus(status); }

absl::Status StoreChannel::WhyUnreachable(const grpc::Status& status) const {
  // Reached, so it is what the node itself says.
  if (channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY) return ToStatus(status);
  const int64_t now_ns = SystemClock::Get()->SteadyNs();
  std::string message = "the store at " + options_.address + " cannot be reached: ";
  MutexLock lock(&mu_);
  if (looked_ns_ == 0 || now_ns - looked_ns_ > kLookAgainNs) {
    looked_ns_ = now_ns;
    found_ = FindConnectionFault(options_.address, options_.credentials.get());
  }
  message += found_.empty() ? status.error_message() : "it " + found_;
  return absl::UnavailableError(message);
}

}  // namespace epic
