#include "common/rpc/kv_store/store_channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <chrono>

#include "common/rpc/grpc_status.h"

namespace epic {
namespace {

constexpr int kMinBackoffMs = 100;
constexpr int kMaxBackoffMs = 1000;

std::shared_ptr<grpc::Channel> Connect(const StoreChannelOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kMinBackoffMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kMinBackoffMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxBackoffMs);
  // A connection of its own: bytes of layers do not wait behind those of other clients of the process.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(options.address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

StoreChannel::StoreChannel(const StoreChannelOptions& options)
    : options_(options), channel_(Connect(options)), stub_(v1::KvStoreService::NewStub(channel_)) {}

void StoreChannel::SetDeadline(grpc::ClientContext* context, int64_t ms) {
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(ms));
}

absl::Status StoreChannel::ToStatus(const grpc::Status& status) { return FromGrpcStatus(status); }

}  // namespace epic
