#include "services/router/rpc/call_scope.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string_view>

namespace epic {
namespace {

constexpr char kRequestId[] = "x-request-id";
constexpr size_t kMaxRequestIdLength = 128;

bool IsSafe(std::string_view id) {
  const auto safe = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == ':' || c == '-';
  };
  return !id.empty() && id.size() <= kMaxRequestIdLength && std::all_of(id.begin(), id.end(), safe);
}

std::string NewRequestId(const Clock& clock) {
  static std::atomic<uint64_t> counter{0};
  return "rpc-" + std::to_string(clock.UnixMs()) + "-" + std::to_string(counter.fetch_add(1));
}

}  // namespace

RequestScope MakeScope(grpc::CallbackServerContext* context, const Clock& clock, CancelToken cancel) {
  RequestScope scope;
  const auto& metadata = context->client_metadata();
  if (const auto found = metadata.find(kRequestId); found != metadata.end()) {
    const std::string_view id(found->second.data(), found->second.size());
    if (IsSafe(id)) scope.request_id = std::string(id);
  }
  if (scope.request_id.empty()) scope.request_id = NewRequestId(clock);
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
