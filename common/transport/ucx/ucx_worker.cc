#include "common/transport/ucx/ucx_worker.h"

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <utility>

#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>

#include "common/base/check.h"
#include "common/status/status_macros.h"
#include "common/transport/ucx/ucx_status.h"

namespace epic::transport {
namespace {

// UCX writes its log to the standard output, which belongs to the program.
ucs_log_func_rc_t LogToStderr(const char* file, unsigned line, const char* function, ucs_log_level_t level,
                              const ucs_log_component_config_t* component, const char* format, va_list args) {
  if (level > UCS_LOG_LEVEL_WARN) return UCS_LOG_FUNC_RC_STOP;
  char text[512];
  std::vsnprintf(text, sizeof(text), format, args);
  std::fprintf(stderr, "ucx: %s\n", text);
  return UCS_LOG_FUNC_RC_STOP;
}

// What UCX does to a process just by being loaded: it catches fatal signals. Ours shall end the process as
// without it.
void TameTheLibrary() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(signal);
    ucs_log_push_handler(LogToStderr);
  });
}

std::string Join(const std::vector<std::string>& names) {
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : ",") + name;
  return joined;
}

// Over TCP the data of a rendezvous comes as active messages. UCX would rather write to the address that the
// receiver names, and such a write may still arrive after the receiver has closed the lane and taken its
// memory back; an active message finds its request by a number, or is dropped.
absl::Status Configure(ucp_config_t* config, const UcxSettings& settings, bool rma) {
  std::vector<std::pair<const char*, std::string>> values = {{"NET_DEVICES", Join(settings.net_devices)}};
  if (rma) {
    values.emplace_back("TLS", "rc,dc");
    values.emplace_back("SOCKADDR_TLS_PRIORITY", "rdmacm");
  } else {
    values.emplace_back("TLS", "tcp");
    values.emplace_back("SOCKADDR_TLS_PRIORITY", "tcp");
    values.emplace_back("RNDV_SCHEME", "am");
    values.emplace_back("PUT_ENABLE", "n");
  }
  for (const auto& [name, value] : values) {
    EPIC_RETURN_IF_ERROR(FromUcx(ucp_config_modify(config, name, value.c_str()),
                                 std::string("set UCX's ") + name + " to " + value));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<UcxWorker>> UcxWorker::Make(const UcxSettings& settings) {
  TameTheLibrary();
  std::unique_ptr<UcxWorker> made(new UcxWorker());
  EPIC_RETURN_IF_ERROR(made->Init(settings));
  return made;
}

absl::Status UcxWorker::Init(const UcxSettings& settings) {
  EPIC_ASSIGN_OR_RETURN(const std::vector<UcxDeviceTransport> transports, ListUcxTransports());
  has_rma_ = ChooseRma(transports, settings.net_devices);

  ucp_config_t* config = nullptr;
  EPIC_RETURN_IF_ERROR(FromUcx(ucp_config_read(nullptr, nullptr, &config), "read UCX's configuration"));
  absl::Status status = Configure(config, settings, has_rma_);
  if (status.ok()) {
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP | (has_rma_ ? UCP_FEATURE_RMA : 0);
    params.name = "epic";
    status = FromUcx(ucp_init(&params, config, &context_), "open UCX on " + Join(settings.net_devices));
  }
  ucp_config_release(config);
  EPIC_RETURN_IF_ERROR(status);

  ucp_context_attr_t context_attributes{};
  context_attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  EPIC_RETURN_IF_ERROR(FromUcx(ucp_context_query(context_, &context_attributes), "ask UCX what it can do"));
  reaches_device_memory_ = (context_attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;

  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  EPIC_RETURN_IF_ERROR(FromUcx(ucp_worker_create(context_, &worker_params, &worker_), "make a UCX worker"));
  ucp_worker_attr_t worker_attributes{};
  worker_attributes.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
  EPIC_RETURN_IF_ERROR(FromUcx(ucp_worker_query(worker_, &worker_attributes), "ask a UCX worker"));
  if (worker_attributes.max_am_header < Fabric::kMaxHeaderBytes) {
    return absl::UnimplementedError("UCX takes shorter message headers than EPIC needs");
  }
  return FromUcx(ucp_worker_get_efd(worker_, &event_fd_), "get the events of a UCX worker");
}

void UcxWorker::DestroyWorker() {
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  worker_ = nullptr;
}

UcxWorker::~UcxWorker() {
  DestroyWorker();
  if (context_ != nullptr) ucp_cleanup(context_);
}

bool UcxWorker::Arm() {
  const ucs_status_t status = ucp_worker_arm(worker_);
  EPIC_CHECK(status == UCS_OK || status == UCS_ERR_BUSY);
  return status == UCS_OK;
}

absl::StatusOr<void*> UcxWorker::Register(ByteSpan memory, MemoryKind kind) {
  ucp_mem_map_params_t params{};
  params.field_mask =
      UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.address = const_cast<std::byte*>(memory.data());
  params.length = memory.size();
  params.memory_type = kind == MemoryKind::kCuda ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
  ucp_mem_h handle = nullptr;
  EPIC_RETURN_IF_ERROR(FromUcx(ucp_mem_map(context_, &params, &handle), "register memory"));
  return static_cast<void*>(handle);
}

void UcxWorker::Unregister(void* handle) {
  EPIC_CHECK(ucp_mem_unmap(context_, static_cast<ucp_mem_h>(handle)) == UCS_OK);
}

absl::StatusOr<std::string> UcxWorker::PackKey(void* registration) {
  void* packed = nullptr;
  size_t size = 0;
  EPIC_RETURN_IF_ERROR(FromUcx(ucp_rkey_pack(context_, static_cast<ucp_mem_h>(registration), &packed, &size),
                               "export memory"));
  std::string key(static_cast<const char*>(packed), size);
  ucp_rkey_buffer_release(packed);
  return key;
}

}  // namespace epic::transport
