// KV objects by their tokens and compile prefix: compiled once, kept least recently used first out, bounded
// in bytes. An object in use lives on with its users.
//
// Owned by one run; one thread at a time.
#ifndef EPIC_LOADGEN_QUALITY_OBJECT_CACHE_H_
#define EPIC_LOADGEN_QUALITY_OBJECT_CACHE_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/digest.h"
#include "loadgen/quality/memory_object.h"
#include "services/engine/engine.h"

namespace epic::loadgen {

struct ObjectWish {
  std::span<const TokenId> tokens;  // not empty
  std::span<const TokenId> prefix;
};

// Since the cache was made.
struct CompileTotals {
  uint64_t objects = 0;
  uint64_t tokens = 0;         // computed, prefixes included
  uint64_t bytes = 0;          // of the objects
  double seconds = 0;          // wall time spent waiting for compiles
  uint64_t objects_found = 0;  // that needed no compile
};

class ObjectCache {
 public:
  // Engine and clock outlive the cache.
  ObjectCache(Engine* engine, const Clock* clock, uint64_t capacity_bytes)
      : engine_(engine), clock_(clock), capacity_bytes_(capacity_bytes) {}

  // One object for each wish, in order. All that are missing compile at the same time. Errors: those of the
  // engine.
  absl::StatusOr<std::vector<std::shared_ptr<const KvObject>>> Get(std::span<const ObjectWish> wishes);

  const CompileTotals& totals() const { return totals_; }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    Digest key;
    std::shared_ptr<const MemoryObject> object;
  };
  absl::Status CompileMissing(std::span<const ObjectWish> wishes, std::span<const Digest> keys,
                              std::map<Digest, std::shared_ptr<const MemoryObject>>* found);
  void Insert(const Digest& key, std::shared_ptr<const MemoryObject> object);

  Engine* const engine_;
  const Clock* const clock_;
  const uint64_t capacity_bytes_;
  CompileTotals totals_;
  uint64_t bytes_ = 0;
  std::list<Entry> entries_;  // most recent first
  std::map<Digest, std::list<Entry>::iterator> index_;
};

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_QUALITY_OBJECT_CACHE_H_
