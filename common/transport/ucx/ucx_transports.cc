// What the devices of this host can do, asked of UCX's transport layer: every memory domain, every transport
// on it, and the capabilities of an interface opened on it for the question.
#include <memory>

#include <uct/api/uct.h>

#include "common/status/status_macros.h"
#include "common/transport/ucx/ucx_status.h"
#include "common/transport/ucx/ucx_worker.h"

namespace epic::transport {
namespace {

template <typename T, void (*Free)(T*)>
struct Deleter {
  void operator()(T* pointer) const { Free(pointer); }
};
template <typename T, void (*Free)(T*)>
using Owned = std::unique_ptr<T, Deleter<T, Free>>;

using Async = Owned<ucs_async_context_t, ucs_async_context_destroy>;
using Worker = Owned<uct_worker, uct_worker_destroy>;
using Domain = Owned<uct_md, uct_md_close>;
using Interface = Owned<uct_iface, uct_iface_close>;
using Config = Owned<void, uct_config_release>;

// A transport that cannot be opened can do nothing.
UcxDeviceTransport Describe(uct_md_h domain, uct_worker_h worker, const uct_tl_resource_desc_t& resource) {
  UcxDeviceTransport described{.device = resource.dev_name, .transport = resource.tl_name};
  uct_iface_config_t* raw_config = nullptr;
  if (uct_md_iface_config_read(domain, resource.tl_name, nullptr, nullptr, &raw_config) != UCS_OK) {
    return described;
  }
  const Config config(raw_config);
  uct_iface_params_t params{};
  params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE;
  params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
  params.mode.device.tl_name = resource.tl_name;
  params.mode.device.dev_name = resource.dev_name;
  uct_iface_h raw_interface = nullptr;
  if (uct_iface_open(domain, worker, &params, raw_config, &raw_interface) != UCS_OK) return described;
  const Interface interface(raw_interface);
  uct_iface_attr_t attributes{};
  if (uct_iface_query(raw_interface, &attributes) != UCS_OK) return described;
  described.rma_read = (attributes.cap.flags & UCT_IFACE_FLAG_GET_ZCOPY) != 0;
  described.peer_error_handling = (attributes.cap.flags & UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE) != 0;
  return described;
}

void ListDomain(uct_component_h component, const char* name, uct_worker_h worker,
                std::vector<UcxDeviceTransport>* listed) {
  uct_md_config_t* raw_config = nullptr;
  if (uct_md_config_read(component, nullptr, nullptr, &raw_config) != UCS_OK) return;
  const Config config(raw_config);
  uct_md_h raw_domain = nullptr;
  if (uct_md_open(component, name, raw_config, &raw_domain) != UCS_OK) return;
  const Domain domain(raw_domain);
  uct_tl_resource_desc_t* resources = nullptr;
  unsigned count = 0;
  if (uct_md_query_tl_resources(raw_domain, &resources, &count) != UCS_OK) return;
  for (unsigned i = 0; i < count; ++i) {
    if (resources[i].dev_type != UCT_DEVICE_TYPE_NET) continue;
    listed->push_back(Describe(raw_domain, worker, resources[i]));
  }
  uct_release_tl_resource_list(resources);
}

void ListComponent(uct_component_h component, uct_worker_h worker, std::vector<UcxDeviceTransport>* listed) {
  uct_component_attr_t attributes{};
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
  if (uct_component_query(component, &attributes) != UCS_OK) return;
  std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
  if (domains.empty()) return;
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  attributes.md_resources = domains.data();
  if (uct_component_query(component, &attributes) != UCS_OK) return;
  for (const uct_md_resource_desc_t& domain : domains) ListDomain(component, domain.md_name, worker, listed);
}

}  // namespace

absl::StatusOr<std::vector<UcxDeviceTransport>> ListUcxTransports() {
  ucs_async_context_t* raw_async = nullptr;
  EPIC_RETURN_IF_ERROR(
      FromUcx(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &raw_async), "list devices"));
  const Async async(raw_async);
  uct_worker_h raw_worker = nullptr;
  EPIC_RETURN_IF_ERROR(
      FromUcx(uct_worker_create(raw_async, UCS_THREAD_MODE_SINGLE, &raw_worker), "list devices"));
  const Worker worker(raw_worker);
  uct_component_h* components = nullptr;
  unsigned count = 0;
  EPIC_RETURN_IF_ERROR(FromUcx(uct_query_components(&components, &count), "list devices"));
  std::vector<UcxDeviceTransport> listed;
  for (unsigned i = 0; i < count; ++i) ListComponent(components[i], raw_worker, &listed);
  uct_release_component_list(components);
  return listed;
}

bool ChooseRma(const std::vector<UcxDeviceTransport>& transports,
               const std::vector<std::string>& net_devices) {
  for (const std::string& device : net_devices) {
    bool can = false;
    for (const UcxDeviceTransport& transport : transports) {
      can = can || (transport.device == device && transport.transport != "tcp" && transport.rma_read &&
                    transport.peer_error_handling);
    }
    if (!can) return false;
  }
  return !net_devices.empty();
}

}  // namespace epic::transport
