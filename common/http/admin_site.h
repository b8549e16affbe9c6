// The admin HTTP door of a process that is one part of EPIC: /health, /live, /ready, /metrics, /version.
// Answers GET and HEAD.
#ifndef EPIC_COMMON_HTTP_ADMIN_SITE_H_
#define EPIC_COMMON_HTTP_ADMIN_SITE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/http/http_site.h"

namespace epic {

struct PartHealth {
  bool able = true;           // false: 503
  std::string status = "ok";  // ok, degraded, stuck, draining
  std::vector<std::string> causes;
};

// Called from any thread of the server; outlived by what they use.
struct AdminSource {
  std::function<PartHealth()> health;    // never blocks
  std::function<std::string()> metrics;  // in the text form of Prometheus
  std::string version;
  std::string build;
};

std::unique_ptr<const HttpSite> MakeAdminSite(AdminSource source);

}  // namespace epic

#endif  // EPIC_COMMON_HTTP_ADMIN_SITE_H_
