#include "services/kv_store/config/store_config.h"

#include "common/base/check.h"
#include "common/config/tenant_quotas.h"

namespace epic::kv_store {
namespace {

constexpr int64_t kDiskProbeMs = 1000;

}  // namespace

EmbeddedStoreOptions StoreOptionsOf(const StoreSettings& settings, const Clock* clock) {
  EmbeddedStoreOptions options;
  options.dir = settings.data_dir;
  options.store.memory_bytes = static_cast<uint64_t>(settings.memory_bytes);
  options.store.disk_bytes_max = static_cast<uint64_t>(settings.disk_bytes);
  options.store.eviction = settings.eviction == "lru" ? EvictionKind::kLru : EvictionKind::kS3Fifo;
  options.store.watermarks.low = static_cast<double>(settings.evict_to_percent) / 100;
  const auto quotas = ParseTenantQuotas(settings.quotas);
  EPIC_CHECK(quotas.ok());  // the table of settings has checked it
  for (const TenantQuotaSetting& quota : *quotas) {
    options.store.quotas[quota.tenant] = {.memory_bytes = quota.memory_bytes, .disk_bytes = quota.disk_bytes};
  }
  options.store.clock = clock;
  options.slabs = settings.slabs == "blob_files" ? SlabBackEnd::kBlobFiles : SlabBackEnd::kExtents;
  options.scrub_bytes_per_s = static_cast<uint64_t>(settings.scrub_bytes);
  options.store.disk_wait_ms = settings.disk_wait_ms;
  options.store.disk_probe_ms = kDiskProbeMs;
  options.warm_up_bytes_per_s = static_cast<uint64_t>(settings.warm_up_bytes);
  return options;
}

std::string ShmSocketOf(const StoreSettings& settings) {
  return settings.shm_socket.empty() ? settings.data_dir + "/shm.sock" : settings.shm_socket;
}

}  // namespace epic::kv_store
