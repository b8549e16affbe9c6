// What one rendering may still spend. One thread at a time. Model files are untrusted, so every loop and
// every string that a template makes is paid for here.
#ifndef EPIC_SERVICES_MODEL_JINJA_BUDGET_H_
#define EPIC_SERVICES_MODEL_JINJA_BUDGET_H_

#include <cstdint>

#include "absl/status/status.h"

namespace epic::jinja {

class Budget {
 public:
  Budget(uint64_t steps, uint64_t bytes) : steps_(steps), bytes_(bytes) {}

  // Errors: ResourceExhausted once spent.
  absl::Status Spend(uint64_t steps) {
    if (steps > steps_) return absl::ResourceExhaustedError("the chat template takes too many steps");
    steps_ -= steps;
    return absl::OkStatus();
  }
  absl::Status SpendBytes(uint64_t bytes) {
    if (bytes > bytes_) return absl::ResourceExhaustedError("the chat template makes too much text");
    bytes_ -= bytes;
    return absl::OkStatus();
  }

 private:
  uint64_t steps_;
  uint64_t bytes_;
};

}  // namespace epic::jinja

#endif  // EPIC_SERVICES_MODEL_JINJA_BUDGET_H_
