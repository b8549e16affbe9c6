// Every state of objects_model.h that a real store may be in, given how it answered its clients so far. When
// none is left, it gave an answer that no node gives that keeps the rules. Tests only; one thread.
//
// Between two calls of clients the store may have taken any steps of its own: the tracker knows of none of
// them. Two zero-copy readers, whole writes of layers and objects; nothing fails.
#ifndef EPIC_SERVICES_KV_STORE_MODEL_OBJECTS_TRACKER_H_
#define EPIC_SERVICES_KV_STORE_MODEL_OBJECTS_TRACKER_H_

#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "services/kv_store/model/objects_model.h"

namespace epic::kv_store {

class ObjectsTracker {
 public:
  using State = ObjectsModel::State;
  using Fits = std::function<bool(const State& after)>;

  // `disk_evicts`: the disk is short, so that objects may leave it at any time.
  explicit ObjectsTracker(bool disk_evicts);

  // Each returns false when no state is left.
  // The store did what a client's step of this name does, with an outcome that fits.
  bool Took(const StepName& name, const Fits& fits = {});
  // A client dropped the object, if there was one.
  bool Dropped(int key);
  // A reader of the key found nothing; `no_memory`: for lack of a region to read it into.
  bool Missed(int key, bool no_memory);
  // The store was closed, or crashed, and opened again.
  bool Restarted(bool crashed);

  size_t states() const { return states_.size(); }
  // Of the states before the last call, a few.
  const std::string& before() const { return before_; }

 private:
  struct Hash {
    size_t operator()(const State& state) const {
      return std::hash<std::string_view>()({reinterpret_cast<const char*>(&state), sizeof(State)});
    }
  };
  struct Equal {
    bool operator()(const State& a, const State& b) const { return std::memcmp(&a, &b, sizeof(State)) == 0; }
  };
  using States = std::unordered_set<State, Hash, Equal>;

  bool Keep(States states);
  void TakeOwnSteps();

  const ObjectsModel model_;
  States states_;
  std::string before_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_MODEL_OBJECTS_TRACKER_H_
