// The path to a store on the same host: out of its memory, handed over as a file (common/storage/shm), so
// that the store moves no byte. Fetches copy, each with its checksums in one pass; Hold gives the memory
// itself. Thread-safe.
//
// A few workers, each with a connection of its own, ask for an object and copy; a thread for the clock ends
// what is late or was cancelled before its bytes are touched. Callbacks come on one of these threads, for one
// fetch one at a time. The store finds objects by key, not by lease: a region whose generation or build it
// has no more in memory is NotOnThisPath, and another path may bring it by its lease. An object that is not
// whole yet is waited for by the store, not layer by layer.
#ifndef EPIC_COMMON_TRANSPORT_SHM_SHM_PATH_H_
#define EPIC_COMMON_TRANSPORT_SHM_SHM_PATH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/timers.h"
#include "common/storage/shm/client.h"
#include "common/transport/transport.h"

namespace epic::transport {

// Where the peer hands its memory over, as far as that is known.
struct ShmPlace {
  std::string socket;        // empty: nowhere that this process can reach
  uint64_t incarnation = 0;  // of the peer that said so; 0: whoever is there
};

struct ShmPathOptions {
  // `timeout_ms`: also the longest that Hold waits, whatever its deadline, and that Stop waits for a store
  // which does not say hello.
  shm::ClientOptions store;
  // Asked before each connection, instead of `store.path`; must not block. Empty: the peer is at
  // `store.path`.
  std::function<ShmPlace()> find;
  // False: a region that is on its way (transport.h) is left to other paths.
  bool waits_for_whole = true;
  const Clock* clock = SystemClock::Get();
  Timers* timers = nullptr;                  // of the same clock; outlives the path
  uint32_t workers = 4;                      // fetches at a time; connections, beside one for Hold
  uint64_t piece_bytes = uint64_t{1} << 20;  // copied between two looks for a cancel
  size_t fetches_max = 1024;                 // under way; further ones end with PathDown
  PeerDownFn peer_down;
};

// Connects when it is first used. REQUIRES: options.timers, workers > 0, piece_bytes > 0.
std::unique_ptr<Path> MakeShmPath(const ShmPathOptions& options);

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_SHM_SHM_PATH_H_
