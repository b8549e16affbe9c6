// What the main of every process that is one part of EPIC does: flags, settings, log, serve until a signal,
// drain, stop. Free functions, for main's thread.
#ifndef EPIC_COMMON_PROCESS_PART_PROCESS_H_
#define EPIC_COMMON_PROCESS_PART_PROCESS_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/config.h"
#include "common/http/admin_site.h"
#include "common/http/http_server.h"
#include "common/log/log.h"
#include "common/process/process_parts.h"

namespace epic {

class PartServer {
 public:
  virtual ~PartServer() = default;
  // Doors by name, such as {"gRPC", "127.0.0.1:8081"}.
  virtual std::vector<std::pair<std::string, std::string>> listening() const = 0;
  // Says so on /health; calls go on.
  virtual void Drain() = 0;
  // Waits for running calls, at most deadlines.drain_ms. Idempotent.
  virtual void Stop() = 0;
};

struct PartProcess {
  std::string name;   // of the binary
  std::string about;  // for --help
  // Of the settings that have one; all others of this process are given by --config and --set.
  std::vector<std::string_view> flags;
  // Opens everything: what it returns serves.
  std::function<absl::StatusOr<std::unique_ptr<PartServer>>(const Config&, const Logger&)> start;
};

// The exit code: 0 after SIGINT or SIGTERM, 1 when it cannot start, 2 for wrong usage. A second signal ends
// the process at once. REQUIRES: no other thread was started yet.
int RunPart(const PartProcess& process, int argc, char** argv);

// The admin HTTP door at listen.admin. What is passed is as AdminSource says. Errors: those of
// HttpServer::Start, with the flag.
absl::StatusOr<std::unique_ptr<HttpServer>> StartAdminDoor(const Config& config,
                                                           std::function<PartHealth()> health,
                                                           std::function<std::string()> metrics);

}  // namespace epic

#endif  // EPIC_COMMON_PROCESS_PART_PROCESS_H_
