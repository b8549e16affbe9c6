#include "common/config/tenant_quotas.h"

#include <algorithm>
#include <optional>

#include "common/config/settings.h"

namespace epic {
namespace {

absl::Status Malformed() {
  return absl::InvalidArgumentError(
      "must be a list of tenant=MEMORY/DISK, each tenant once, such as a=64MiB/1GiB,b=0/10GiB");
}

}  // namespace

absl::StatusOr<std::vector<TenantQuotaSetting>> ParseTenantQuotas(std::string_view text) {
  std::vector<TenantQuotaSetting> quotas;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view entry = text.substr(0, comma);
    if (comma + 1 == text.size()) return Malformed();  // nothing behind the comma
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t equals = entry.find('='), slash = entry.rfind('/');
    if (equals == std::string_view::npos || slash == std::string_view::npos || slash < equals) {
      return Malformed();
    }
    const std::optional<int64_t> memory = ParseBytes(entry.substr(equals + 1, slash - equals - 1));
    const std::optional<int64_t> disk = ParseBytes(entry.substr(slash + 1));
    if (!memory.has_value() || !disk.has_value()) return Malformed();
    const std::string tenant(entry.substr(0, equals));
    const auto same = [&](const TenantQuotaSetting& quota) { return quota.tenant == tenant; };
    if (std::any_of(quotas.begin(), quotas.end(), same)) return Malformed();
    quotas.push_back({tenant, static_cast<uint64_t>(*memory), static_cast<uint64_t>(*disk)});
  }
  return quotas;
}

}  // namespace epic
