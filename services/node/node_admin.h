// What operators ask of a running `epic serve`: effective settings, log level, drain.
//
// Owns the list of settings, which follows the log level. Thread-safe. The door is services/router/rpc.
#ifndef EPIC_SERVICES_NODE_NODE_ADMIN_H_
#define EPIC_SERVICES_NODE_NODE_ADMIN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/config/config.h"
#include "common/log/log.h"
#include "services/router/core/api.h"

namespace epic {

class NodeAdmin final : public AdminApi {
 public:
  // Refuses new requests from now on and returns how many are in progress. Any thread, any number of times.
  using DrainNode = std::function<uint64_t()>;

  NodeAdmin(const Config& config, const Logger& log, DrainNode drain);

  std::vector<EffectiveSetting> Settings() const override ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::string> SetLogLevel(const std::string& level) override ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t Drain() override;

 private:
  const Logger log_;
  const DrainNode drain_;
  mutable Mutex mu_;
  std::vector<EffectiveSetting> settings_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic

#endif  // EPIC_SERVICES_NODE_NODE_ADMIN_H_
