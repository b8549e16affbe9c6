// How a store fills its memory again after a start: with those objects on disk that were used most before, in
// the background, and only as far as nobody else needs disk or memory. What a pass does is StoreCore's
// (store_warm_up.cc); its thread is a Scrubber that makes one pass.
#ifndef EPIC_SERVICES_KV_STORE_CORE_WARM_UP_H_
#define EPIC_SERVICES_KV_STORE_CORE_WARM_UP_H_

#include <cstdint>

namespace epic::kv_store {

struct WarmUpOptions {
  uint64_t bytes_per_s = 0;      // at most so much is read; 0: nothing is
  uint32_t memory_percent = 50;  // of the arena: beyond it nothing is read, whoever fills it
  int64_t delay_ms = 1000;       // after the start
};

// Since the store was opened.
struct WarmUpCounts {
  bool done = false;     // the pass has come to its end, or was not wanted
  uint64_t objects = 0;  // read to memory
  uint64_t bytes = 0;    // of these
  uint64_t pauses = 0;   // times that it waited since others used the disk
  uint64_t errors = 0;   // objects that were damaged, or that the disk did not let us read
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_WARM_UP_H_
