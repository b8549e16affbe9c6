// A random trace of calls of clients against a real StoreCore with memory for two objects, followed by the
// objects' model (model/objects_tracker.h): every answer has to be one that the model allows. Tests only; one
// thread, beside the store's own.
//
// Moves: create, delete and drop; reserve, write a layer, commit, commit again, discard; acquire, streaming
// or whole, and release, zero-copy holds and copies layer by layer by way of StoreLeases; crashes of a disk
// in memory (rows, or extents of files that lose what was not synced), a disk that stands still while clients
// go on, orderly restarts. Eviction is by pressure. Bytes follow from the seed, so that they tell their
// build. A seed names the draws; how far the store's own thread is at each move may differ from run to run.
#ifndef EPIC_SERVICES_KV_STORE_TESTING_STORE_TRACE_H_
#define EPIC_SERVICES_KV_STORE_TESTING_STORE_TRACE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/storage/kv_store.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/core/store_leases.h"
#include "services/kv_store/model/objects_tracker.h"
#include "services/kv_store/testing/faulty_file_system.h"
#include "services/kv_store/testing/faulty_table_store.h"

namespace epic::kv_store {

// What happened in traces, to see that they were worth walking.
struct TraceCounts {
  uint64_t moves = 0;
  uint64_t commits = 0;
  uint64_t second_builds = 0;  // commits that found another build of the key
  uint64_t repeated_commits = 0;
  uint64_t late_commits = 0;  // refused: the context was gone
  uint64_t hits = 0;
  uint64_t hits_after_restart = 0;  // of builds of before it
  uint64_t streamed = 0;            // of objects that were still read from disk
  uint64_t misses = 0;
  uint64_t held_deletes = 0;  // of what a reader held
  uint64_t confirmed = 0;
  uint64_t denied = 0;  // copies that were not confirmed
  uint64_t crashes = 0;
  uint64_t stalls = 0;
  uint64_t most_states = 0;  // that the tracker had to think of at a time
};

class StoreTrace {
 public:
  // Even seeds have all the disk they want, others room for an object or two. Of three seeds one has extents.
  StoreTrace(uint64_t seed, TraceCounts* counts);
  ~StoreTrace() { Resume(); }  // the store ends when its writes have
  StoreTrace(const StoreTrace&) = delete;
  StoreTrace& operator=(const StoreTrace&) = delete;
  // Makes moves until one fails an expectation of GoogleTest, which then names the seed and the moves.
  void Run(int moves);

 private:
  struct Writing {
    std::unique_ptr<ObjectWriter> writer;  // nullptr: there is none
    int key = 0;
    uint8_t build = 0;
    uint32_t written = 0;
    std::optional<uint64_t> committed_at;  // where what Commit returned lies in the arena
  };
  struct Reading {
    std::shared_ptr<const KvObject> object;  // or
    std::shared_ptr<const void> hold;
    std::vector<uint64_t> offsets;  // of layers in the arena
    int arena_fd = -1;              // valid while the hold is there
    int key = 0;
    uint8_t build = 0;  // 0: idle
  };
  struct Copying {
    int key = 0;
    uint64_t generation = 0;
    std::vector<uint64_t> offsets;
    std::vector<std::string> layers;
  };

  void Open();
  void Move();
  void Create(int key);
  void Delete(int key);
  void Drop(int key);
  void Reserve(int writer, int key);
  void Write(int writer);
  void Commit(int writer);
  void CommitAgain(int writer);
  void Discard(int writer);
  void Acquire(int reader, int key);
  void Hold(int reader, int key);
  void Release(int reader);
  void Copy(int key);
  void Restart(bool crash);
  SlabStoreMaker MakeSlabs() const;
  void Stall();
  void Resume();
  // False: the disk stands still, and goes on doing so. What may wait for the disk asks first.
  bool MayWait();
  void CheckUse();
  void CheckAtRest();

  void Say(const std::string& move) { said_ += move + "\n"; }
  void Expect(bool possible, const std::string& answer);
  bool IsLive(int key) const { return (live_ >> key & 1) != 0; }
  ObjectKey KeyOf(int key) const;
  uint64_t ContentOf(uint8_t build) const { return seed_ * 100 + build; }
  // The build of the key whose layers these are; 0: none.
  uint8_t BuildOf(int key, const std::vector<std::string>& layers) const;
  static std::vector<std::string> LayersOf(const KvObject& object);
  static std::string LayerAt(int arena_fd, uint64_t offset);
  static std::vector<std::string> LayersAt(int arena_fd, const std::vector<uint64_t>& offsets);
  static uint64_t PlaceOf(const KvObject& object);
  void ExpectKept(const Reading& reading) const;
  int RegionsInUse() const;
  bool Idle(int reader) const { return readers_[reader].build == 0; }

  const uint64_t seed_;
  TraceCounts* const counts_;
  Rng rng_;
  ManualClock clock_;
  ObjectsTracker tracker_;
  std::string said_;
  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  std::shared_ptr<Faults> faults_;
  const std::shared_ptr<FaultyFileSystem> files_;  // nullptr: slabs are rows
  bool stalled_ = false;
  std::unique_ptr<StoreCore> store_;
  std::unique_ptr<StoreLeases> leases_;
  std::vector<int> key_of_;  // of each build, from 1 on
  uint8_t builds_before_restart_ = 0;
  unsigned live_ = 3;
  std::array<Writing, ObjectsModel::kWriters> writers_;
  std::array<Reading, ObjectsModel::kReaders> readers_;
  std::vector<Reading> outlived_;  // readers of stores of before
  std::optional<Copying> copying_;
};

// Walks a trace for each seed, or for the one that --gtest_random_seed names; stops at the first that fails.
void RunTraces(uint64_t first, uint64_t count);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TESTING_STORE_TRACE_H_
