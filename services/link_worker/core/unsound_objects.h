// What is done about stored objects that hold NaN or infinity under right checksums.
//
// Objects are checked before they are stored, so a link does not pay for another look. Only when the engine
// failed a prompt are its objects read again; those at fault are dropped, which makes them misses, and misses
// are compiled anew. No state; thread-safe. Calls may block on the disk.
#ifndef EPIC_SERVICES_LINK_WORKER_CORE_UNSOUND_OBJECTS_H_
#define EPIC_SERVICES_LINK_WORKER_CORE_UNSOUND_OBJECTS_H_

#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "common/metrics/metrics.h"
#include "common/storage/kv_store.h"

namespace epic {

// An object that a prompt read.
struct StoredObject {
  ObjectKey key;
  KvLayout layout;
};

class UnsoundObjects {
 public:
  // The store outlives this; metrics may be null.
  UnsoundObjects(KvStore* store, Metrics* metrics);

  // True for failures of the engine that a stored object may have caused.
  static bool MayBeBehind(const absl::Status& failure);
  // Drops those of `objects` that are at fault. Returns what the client shall read: that sending the request
  // again helps when one was dropped, else `failure`.
  absl::Status DropBehind(const absl::Status& failure, const std::string& tenant,
                          std::span<const StoredObject> objects) const;

 private:
  KvStore* const store_;
  std::optional<Counter> dropped_;  // none without metrics
};

}  // namespace epic

#endif  // EPIC_SERVICES_LINK_WORKER_CORE_UNSOUND_OBJECTS_H_
