// The objects of one store node: reservations, commits, leases, eviction, deletion, write-behind, crashes and
// reading back, as a machine for explore.h. Two regions of memory, so that they are used again soon; objects
// of two layers under one or two keys (contexts); up to two writers and two readers. It is the proof of the
// rules below and says what each is for: without any one of them a promise breaks, within a few steps.
//
// Promises:
//   what a reader accepts, and what a new reader would be given, is exactly one committed build of its key;
//   a commit succeeds once for the reservation that its writer made, and never after that was preempted; said
//   again it changes nothing; a lease keeps its bytes, a zero-copy reader's until it lets go; what a deletion
//   that was answered removed is found no more; an object that was acknowledged as durable outlives crashes;
//   no region is kept for nobody; readers never hold all of the memory.
//
// Builds stand for the bytes of their layers: each reservation brings a build of its own. A checksum tells
// damage, but is not trusted to tell one build from another: which bytes these are has to follow from the
// protocol. Generations, tokens and builds that nobody remembers any more are as good as new ones. A copying
// reader sees the memory of the node that is up (it fetches through it); a zero-copy reader's mapping
// outlives a crash untouched, so that it leaves the machine then.
#ifndef EPIC_SERVICES_KV_STORE_MODEL_OBJECTS_MODEL_H_
#define EPIC_SERVICES_KV_STORE_MODEL_OBJECTS_MODEL_H_

#include <array>
#include <cstdint>
#include <string>

#include "services/kv_store/model/explore.h"

namespace epic::kv_store {

// Each can be broken, to see that the machine notices.
struct ObjectRules {
  // Writers
  bool invisible_until_commit = true;
  bool all_layers_before_commit = true;
  bool preempted_commit_fails = true;
  bool commit_once = true;              // a repeated commit is answered from memory of the first
  bool commit_checks_context = true;    // ... of which there may be none any more
  bool tokens_used_once = true;         // not the number of a place in a table
  bool token_has_incarnation = true;    // nor one that is counted from the start again after a crash
  bool region_waits_for_writes = true;  // of layers that are under way when their reservation ends
  // Readers
  bool confirm_after_copy = true;
  bool generation_has_incarnation = true;
  bool restart_on_new_lease = true;  // a renewed lease of another generation: the copy begins again
  bool leases_stop_eviction = true;
  bool quarantine_held = true;   // a region that a zero-copy reader holds is not used again
  bool closing_releases = true;  // its connection gone, it holds nothing
  bool bounded_holds = true;     // beyond a share of the memory readers copy
  // Disk
  bool data_synced_before_entry = true;    // the entry in the index makes slabs an object
  bool entry_checks_object = true;         // and is written if the object is still what readers get
  bool place_waits_for_removal = true;     // used again once the removal of its entry is synced
  bool reads_check_bytes = true;           // against the checksums in the entry
  bool load_checks_entry = true;           // after it was read, that the entry is still the object's
  bool deletion_takes_entries_too = true;  // in the batch that removes the record
  bool deletion_synced_before_answer = true;
};

struct ObjectBounds {
  uint8_t keys = 1;
  uint8_t writers = 1;
  uint8_t puts = 2;     // reservations, 8 at most
  uint8_t copiers = 0;  // copying and zero-copy readers, two in all
  uint8_t holders = 0;
  uint8_t held_regions = 1;  // that zero-copy readers may hold
  uint8_t deletes = 0;
  uint8_t creates = 0;
  uint8_t crashes = 0;
  uint8_t damages = 0;  // of a layer on disk
  bool drops = false;   // of an object, by a client
  uint8_t places = 0;   // on disk, for one object each
  bool disk_evicts = true;
  bool slow_writes = true;  // a layer's bytes arrive in a step of their own
  bool slow_disk = true;    // steps of the write-behind and of a load are steps of the machine
};

class ObjectsModel {
 public:
  static constexpr int kRegions = 2;
  static constexpr int kLayers = 2;
  static constexpr int kKeys = 2;
  static constexpr int kWriters = 2;
  static constexpr int kReaders = 2;
  static constexpr int kPlaces = 4;
  static constexpr uint8_t kDamaged = 255;  // as bytes of a layer

  // Bytes of the layers, by build; 0: nothing ever written there.
  using Bytes = std::array<uint8_t, kLayers>;
  enum class Phase : uint8_t { kNone, kOpen, kCommitted, kPreempted };
  enum class Broken : uint8_t { kNothing, kWrongBytes, kForeignCommit, kDurableLost };

  struct Region {
    uint8_t generation;  // 0: free
    uint8_t lingers;     // nothing in the store's tables any more; free once nobody uses it
    Bytes bytes;
  };
  struct Reservation {
    Phase phase;
    uint8_t token, build, region, written;  // layers, by bit
  };
  struct Writer {
    uint8_t token, build, announced;
    uint8_t over;                                 // preempted, or the node crashed; it does not know
    uint8_t old;                                  // of before a crash
    uint8_t moving, moving_token, moving_region;  // bytes of layer moving - 1, on their way
  };
  struct Object {  // in memory, what readers get; build 0: none
    uint8_t build, region;
  };
  struct Entry {  // on disk; build 0: none
    uint8_t build, place;
    bool operator==(const Entry&) const = default;
  };
  struct Place {
    Bytes now, safe;
  };
  struct Reader {
    uint8_t key, build, region, generation;  // build 0: idle
    uint8_t lease;                           // the store's side of it
    uint8_t old;                             // of before a crash
    uint8_t copied;
    Bytes got;
  };
  struct Job {  // the object that is written behind
    uint8_t build, region, place, step;
  };
  struct Load {  // the object that is read back
    uint8_t build, region, place, read;
  };
  struct State {
    std::array<Region, kRegions> regions;
    std::array<Reservation, kWriters> reservations;
    std::array<Writer, kWriters> writers;
    std::array<Reader, kReaders> readers;
    std::array<Object, kKeys> objects;
    std::array<Entry, kKeys> entries, safe_entries;
    std::array<Place, kPlaces> places;
    Job job;
    Load load;
    uint8_t live, safe_live;  // contexts, by bit
    uint8_t keys;             // of each build, by bit
    uint8_t committed, gone;  // builds: ever found; of these, deleted
    uint8_t durable;          // keys with an object that was acknowledged as safe
    uint8_t puts, deletes, creates, crashes, damages;
    Broken broken;
  };

  ObjectsModel(const ObjectRules& rules, const ObjectBounds& bounds) : rules_(rules), bounds_(bounds) {}

  State First() const;
  void Steps(const State& state, const StepVisitor<State>& visit) const;
  std::string Fault(const State& state) const;
  std::string Describe(const State& state) const;

  // Steps of clients, and those that the node takes by itself. Names of the former: "create", "delete",
  // "drop" and a key; "reserve" by a writer under a key; "announce" by a writer a layer; "commit", "commit
  // again", "preempt" of a writer; "acquire" by a reader under a key, "copy", "confirm",
  // "renew", "release".
  void ClientSteps(const State& state, const StepVisitor<State>& visit) const;
  void NodeSteps(const State& state, const StepVisitor<State>& visit) const;
  // A crash and the start after it; `whom` is 1 where all survives that was written.
  void CrashSteps(const State& state, const StepVisitor<State>& visit) const;

  static int KeyOf(const State& state, uint8_t build) { return (state.keys >> (build - 1)) & 1; }

 private:
  enum class Users { kAll, kAllButCopiers };

  bool IsHolder(int reader) const { return reader >= bounds_.copiers; }
  int Readers() const { return bounds_.copiers + bounds_.holders; }
  int FreeRegion(const State& state) const;
  int FreePlace(const State& state) const;
  int FreeSlot(const State& state, int writer) const;
  uint8_t NewGeneration(const State& state) const;
  uint8_t NewToken(const State& state, int writer) const;
  int HeldRegions(const State& state) const;
  bool IsUsed(const State& state, int region, Users users) const;
  bool IsOwned(const State& state, int region) const;
  void Free(int region, State* state) const { state->regions[region].generation = 0; }
  void Drop(int region, State* state) const;
  void DropObject(int key, State* state) const;
  void DropEntry(int key, State* state) const;
  void Sync(State* state) const;
  int SlotOf(const State& state, uint8_t token) const;
  void Emit(const StepName& name, State next, const StepVisitor<State>& visit) const;

  void ContextSteps(const State& state, const StepVisitor<State>& visit) const;
  void Reserve(const State& state, int writer, int key, const StepVisitor<State>& visit) const;
  void Announce(const State& state, int writer, const StepVisitor<State>& visit) const;
  void Arrive(int writer, State* state) const;
  void Commit(const State& state, int writer, const StepVisitor<State>& visit) const;
  void Publish(const Reservation& reservation, State* state) const;
  void WriterSteps(const State& state, const StepVisitor<State>& visit) const;
  void Acquire(const State& state, int reader, int key, const StepVisitor<State>& visit) const;
  void CopierSteps(const State& state, int reader, const StepVisitor<State>& visit) const;
  void HolderSteps(const State& state, int reader, const StepVisitor<State>& visit) const;
  void Confirm(int reader, State* state) const;
  void EvictionSteps(const State& state, const StepVisitor<State>& visit) const;
  void JobSteps(const State& state, const StepVisitor<State>& visit) const;
  void WriteEntry(State* state) const;
  void LoadSteps(const State& state, const StepVisitor<State>& visit) const;
  void ReadLayer(State* state) const;
  void EndLoad(State* state) const;
  void DiskSteps(const State& state, const StepVisitor<State>& visit) const;
  State Restarted(const State& state, uint32_t survivors) const;

  std::string ObjectFault(const State& state, int key) const;
  std::string ReaderFault(const State& state, int reader) const;

  const ObjectRules rules_;
  const ObjectBounds bounds_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_MODEL_OBJECTS_MODEL_H_
