// KV objects that come from peers: one fetch for each object, however many wait for it. One per process that
// reads from peers. Thread-safe.
//
// An object that is on its way is a KvObject whose layers appear in order, each once its bytes are there and
// have their checksums. The last one appears when the peer has also said that the lease was held all the
// while, and the object has the build that was promised: an object that is whole is confirmed. Whoever holds
// the pointer holds the memory; when the last one lets go of an object that is on its way, its fetch is
// cancelled. Not here: leases, which path (path_chooser.h), how long whole objects are kept.
#ifndef EPIC_COMMON_TRANSPORT_OBJECT_FETCHER_H_
#define EPIC_COMMON_TRANSPORT_OBJECT_FETCHER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "common/storage/kv_object.h"
#include "common/transport/transport.h"

namespace epic::transport {

// Memory aligned to 64 bytes; nullptr when there is none.
using AllocateFn = std::function<std::shared_ptr<std::byte>(uint64_t bytes)>;
std::shared_ptr<std::byte> AllocateFromHeap(uint64_t bytes);

class ObjectFetcher {
 public:
  explicit ObjectFetcher(AllocateFn allocate = AllocateFromHeap);

  // The object of `region`: the one that others hold already, if its fetch did not fail, or a new one whose
  // fetch begins now. Who joins a fetch joins its deadline, too; after it failed, Get begins a new one. What
  // ends an object early is what FetchListener::OnDone says, and DamagedStatus when it has another build.
  // `path` outlives those who hold objects that are not whole. build() is the region's from the start; where
  // that has none the last layer brings it, and nobody may ask before.
  // Errors: InvalidArgument (a layout that cannot be); ResourceExhausted (no memory).
  absl::StatusOr<std::shared_ptr<const KvObject>> Get(Path* path, std::shared_ptr<const Region> region,
                                                      TrafficClass traffic, int64_t deadline_steady_ns);
  // Objects that somebody holds, whole or on their way.
  size_t held() const;

 private:
  class Arrival;
  class Handle;
  class Table;

  const AllocateFn allocate_;
  const std::shared_ptr<Table> table_;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_OBJECT_FETCHER_H_
