// The text of the setting store.quotas: what KV objects of single tenants may take. Pure.
#ifndef EPIC_COMMON_CONFIG_TENANT_QUOTAS_H_
#define EPIC_COMMON_CONFIG_TENANT_QUOTAS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace epic {

struct TenantQuotaSetting {
  std::string tenant;
  uint64_t memory_bytes = 0;  // 0: as much as there is
  uint64_t disk_bytes = 0;    // the same
};

// "a=64MiB/1GiB,b=0/10GiB"; empty: none. Errors: InvalidArgument that says how to write it.
absl::StatusOr<std::vector<TenantQuotaSetting>> ParseTenantQuotas(std::string_view text);

}  // namespace epic

#endif  // EPIC_COMMON_CONFIG_TENANT_QUOTAS_H_
