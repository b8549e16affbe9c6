// One EPIC node: all roles in one process, without its doors.
//
// Order of a life: construct (apis() answer 503 `loading`) → open the doors → Start (loads, then serves) →
// Drain (503 `draining`, running requests end) → stop the doors → Stop → destroy. Owns the parts, the cores,
// the executor and the timer thread. apis() are thread-safe; Start, Drain and Stop belong to one thread.
#ifndef EPIC_SERVICES_NODE_NODE_H_
#define EPIC_SERVICES_NODE_NODE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/config/config.h"
#include "common/metrics/metrics.h"
#include "services/node/node_parts.h"
#include "services/router/core/api.h"

namespace epic {

struct NodeOptions {
  Config config;
  std::string build_version;  // part of fingerprints
  uint64_t seed = 0;          // of ids and of seeds where requests have none
  uint32_t executor_threads = 4;
  uint32_t max_requests = 4096;  // in progress
  // What health says beside the node's own causes; such are no hindrance. Called on any thread; never blocks.
  std::function<std::vector<std::string>()> other_causes;
};

class Node {
 public:
  // Clock and metrics outlive the node.
  Node(NodeOptions options, const Clock* clock, Metrics* metrics, PartsLoader loader);
  ~Node();  // stops
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Good from construction until destruction.
  Apis apis();

  // Loads and begins to serve; records left `compiling` are driven in the background. Once.
  absl::Status Start(PackProgress* progress = nullptr);
  // Refuses new requests from now on and returns how many are in progress. Any thread, any number of times.
  uint64_t RefuseNew();
  // Refuses new requests and waits for the running ones, at most `timeout_ms`; what is left is interrupted.
  // True when all ended by themselves.
  bool Drain(int64_t timeout_ms);
  // Ends everything and waits: timers, compiles, engine, executor, store. Idempotent.
  // REQUIRES: no door calls the apis any more, or only to be refused.
  void Stop();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_NODE_NODE_H_
