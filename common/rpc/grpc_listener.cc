#include "common/rpc/grpc_listener.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>

#include <chrono>
#include <mutex>

#include "common/rpc/port_probe.h"
#include "common/status/status_macros.h"

namespace epic {
namespace {

void InitPluginsOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

}  // namespace

absl::Status GrpcListener::Listen(const std::string& address, const ListenOptions& options,
                                  const std::vector<grpc::Service*>& services) {
  if (!address.starts_with("unix:")) EPIC_RETURN_IF_ERROR(CheckCanListen(address));
  InitPluginsOnce();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, ServerCredentialsOf(options.credentials.get()), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  if (options.keepalive_ms > 0) {
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(options.keepalive_ms));
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(options.keepalive_ms));
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  }
  if (options.buffer_bytes_max > 0) {
    builder.SetResourceQuota(grpc::ResourceQuota("door").Resize(options.buffer_bytes_max));
  }
  for (grpc::Service* service : services) builder.RegisterService(service);
  credentials_ = options.credentials;
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port == 0) {
    return absl::UnavailableError("cannot listen on " + address +
                                  "; choose another address or stop what uses it");
  }
  port_ = static_cast<uint16_t>(port);
  server_->GetHealthCheckService()->SetServingStatus(true);
  return absl::OkStatus();
}

void GrpcListener::Stop(int64_t drain_ms) {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(drain_ms));
  server_->Wait();
  server_.reset();
  credentials_.reset();
}

}  // namespace epic
