// Lives and crashes of a whole store (whole_store.h), followed by an oracle of what has to be there after
// each: StoreModel for records, and for each object the contents that it may have and whether it must be
// there. A seed names the draws; the store's own threads may be elsewhere in another run. Tests only.
//
// A life: random creates, changes, deletions, puts, reads and jumps of the clock, until the power is cut at a
// random step of the disk, mostly within a call or a write behind. Now and then some steps of the disk fail:
// then calls may fail until it works again, and from the next change on that succeeds memory and disk agree
// on what was acknowledged, and only on that. After the cut what was not synced is lost, the
// store is opened again (sometimes the power goes within that too), and everything is compared: each record
// is what the last acknowledged call made of it, or the call that was cut off; what is deleted stays so; an
// object is exact, or a miss where it was not safe yet; nothing is kept for nobody.
#ifndef EPIC_SERVICES_KV_STORE_FAULTS_TESTING_CRASH_CYCLES_H_
#define EPIC_SERVICES_KV_STORE_FAULTS_TESTING_CRASH_CYCLES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "services/kv_store/faults/testing/whole_store.h"
#include "services/kv_store/testing/store_model.h"

namespace epic::kv_store {

// What happened, to see that it was worth it.
struct CrashCounts {
  uint64_t crashes = 0;
  uint64_t cut_calls = 0;     // that the power cut off
  uint64_t came_through = 0;  // of these, changes that were there after it all the same
  uint64_t cut_opens = 0;     // opens that the power cut off
  uint64_t acknowledged = 0;  // changes
  uint64_t deleted = 0;
  uint64_t hits_after = 0;  // objects that were there after a crash
  uint64_t safe_hits = 0;   // of these, that had to be
  uint64_t misses_after = 0;
  uint64_t disk_failures = 0;  // calls that failed because the disk did, and not the power
  uint64_t recoveries = 0;     // of the store from a disk that had failed
};

class CrashCycles {
 public:
  CrashCycles(uint64_t seed, BrokenRule broken, CrashCounts* counts);
  // Returns what was wrong, and with which moves; empty: nothing.
  std::string Run(int cycles);

 private:
  using Key = StoreModel::Key;
  using ObjectName = std::pair<Key, ObjectVariant>;
  // What is known of an object that has been committed.
  enum class Safety : uint8_t { kMayBeLost, kDrained, kSafe };

  static WholeStoreOptions OptionsOf(uint64_t seed, BrokenRule broken, const Clock* clock);
  void Live();
  void Step();
  void CrashAndCompare();
  void Reopen();
  void AdoptWhatCameThrough();
  void CompareAll(bool after_crash);

  void Create();
  void Update();
  void Delete(const Key& key);
  void SetState();
  void Put();
  void Drop();
  void Acquire(const Key& key, const ObjectVariant& variant, bool after_crash);
  void Drain();
  void FailDisk();
  void MendDisk();

  // A change of the context came back with `status`; `attempt` is the model with it.
  bool Changed(const Key& key, const absl::Status& status, const StoreModel& attempt);
  void Synced();
  void Unsafe(const Key& key);
  std::string Difference(const Key& key, const StoreModel& model, bool after_crash);
  void Say(const std::string& move, const Key& key);
  void Complain(const std::string& what);
  bool wrong() const { return !complaint_.empty(); }
  int64_t now() const { return clock_.UnixMs(); }
  static Key KeyOf(uint64_t context);
  Key AnyKey() { return KeyOf(rng_.Below(kContexts)); }
  ObjectVariant AnyVariant();
  static KvLayout LayoutFor(const ObjectVariant& variant);
  // The content of an object's bytes; 0: none of those that it may have.
  uint64_t ContentOf(const KvObject& object, const ObjectName& name);

  static constexpr uint64_t kContexts = 6;

  const uint64_t seed_;
  const bool roomy_;  // no object leaves the disk for want of room
  CrashCounts* const counts_;
  Rng rng_;
  ManualClock clock_;
  WholeStore whole_;
  StoreModel model_;
  // Models with a change that failed, by the context that it concerns.
  std::map<Key, std::vector<StoreModel>> cut_;
  std::map<ObjectName, Safety> safety_;
  // Put while the disk failed: who puts them again finds them in memory, and they are not written again.
  std::set<ObjectName> unwritten_;
  bool disk_failed_ = false;  // and has not been mended
  std::string moves_;
  std::string complaint_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_FAULTS_TESTING_CRASH_CYCLES_H_
