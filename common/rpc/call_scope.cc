#include "common/rpc/call_scope.h"

#include <chrono>
#include <string_view>

namespace epic {
namespace {

constexpr char kRequestId[] = "x-request-id";

}  // namespace

RequestScope MakeScope(grpc::CallbackServerContext* context, const Clock& clock, RequestIds* ids,
                       CancelToken cancel) {
  RequestScope scope;
  const auto& metadata = context->client_metadata();
  const auto sent = metadata.find(kRequestId);
  scope.request_id =
      ids->TakeOrMake(sent == metadata.end() ? std::string_view()
                                             : std::string_view(sent->second.data(), sent->second.size()));
  context->AddInitialMetadata(kRequestId, scope.request_id);
  scope.cancel = std::move(cancel);
  scope.received_steady_ns = clock.SteadyNs();
  const auto deadline = context->deadline();
  if (deadline != std::chrono::system_clock::time_point::max()) {
    const auto left = deadline - std::chrono::system_clock::now();
    scope.deadline_steady_ns =
        scope.received_steady_ns + std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  }
  return scope;
}

}  // namespace epic
