// What the cores of the router stand on, and the bounds they keep. Pointers outlive every core; limits are
// constant.
#ifndef EPIC_SERVICES_ROUTER_CORE_ROUTER_PARTS_H_
#define EPIC_SERVICES_ROUTER_CORE_ROUTER_PARTS_H_

#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/base/timers.h"
#include "common/metrics/metrics.h"
#include "common/storage/kv_store.h"
#include "services/router/core/request_registry.h"
#include "services/worker_api/compiler.h"
#include "services/worker_api/linker.h"
#include "services/worker_api/served_model.h"

namespace epic {

struct RouterLimits {
  int64_t messages = 2048;
  int64_t content_parts = 4096;  // of all messages together, contexts included
  int64_t n = 16;
  int64_t stop_count = 4;
  int64_t stop_bytes = 1024;  // of each stop string
  int64_t stop_token_ids = 64;
  int64_t logit_bias = 1024;
  int64_t default_max_tokens = 4096;  // where the request names none and the window leaves more
  int64_t tags = 32;
  int64_t tag_bytes = 128;
  int64_t name_bytes = 256;
  int64_t ttl_seconds = 10LL * 365 * 24 * 3600;
  double default_wait_seconds = 55;
};

struct RouterParts {
  const ServedModel* model = nullptr;
  KvStore* store = nullptr;
  Compiler* compiler = nullptr;
  Linker* linker = nullptr;
  Executor* executor = nullptr;
  Timers* timers = nullptr;
  const Clock* clock = nullptr;
  RequestRegistry* registry = nullptr;
  Metrics* metrics = nullptr;
  RouterLimits limits;
  std::string default_strategy = "legolink-16";
  std::string default_compile_prefix = "bos4";  // of legolink-0
  std::string build_version;
};

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_CORE_ROUTER_PARTS_H_
