#include "services/kv_store/model/objects_tracker.h"

#include <utility>
#include <vector>

namespace epic::kv_store {
namespace {

using State = ObjectsModel::State;

constexpr size_t kDescribedStates = 6;

ObjectRules RulesOfStore() {
  ObjectRules rules;
  rules.bounded_holds = false;  // what calls of this process return is not counted as held by a reader
  return rules;
}

ObjectBounds BoundsOfStore(bool disk_evicts) {
  return {.keys = ObjectsModel::kKeys,
          .writers = ObjectsModel::kWriters,
          .puts = 8,
          .holders = ObjectsModel::kReaders,
          .held_regions = ObjectsModel::kRegions,
          .deletes = 255,
          .creates = 255,
          .crashes = 255,
          .drops = true,
          .places = ObjectsModel::kPlaces,
          .disk_evicts = disk_evicts,
          .slow_writes = false,
          .slow_disk = false};
}

// One of all states that nobody can tell from each other: what lies in free space, the order of places on
// disk and the numbers of generations do not matter where nobody copies.
State Canonical(State state) {
  for (size_t r = 0; r < state.regions.size(); ++r) {
    ObjectsModel::Region& region = state.regions[r];
    if (region.generation == 0) {
      region.bytes = {};
    } else {
      region.generation = static_cast<uint8_t>(r + 1);
    }
  }
  for (ObjectsModel::Reader& reader : state.readers) reader.generation = 0;
  const auto places = std::exchange(state.places, {});
  std::array<int, ObjectsModel::kPlaces> moved;
  moved.fill(-1);
  uint8_t used = 0;
  for (auto* entries : {&state.entries, &state.safe_entries}) {
    for (ObjectsModel::Entry& entry : *entries) {
      if (entry.build == 0) continue;
      if (moved[entry.place] < 0) {
        state.places[used] = places[entry.place];
        moved[entry.place] = used++;
      }
      entry.place = static_cast<uint8_t>(moved[entry.place]);
    }
  }
  return state;
}

bool Same(const StepName& a, const StepName& b) {
  return std::string_view(a.what) == b.what && a.who == b.who && a.whom == b.whom;
}

}  // namespace

ObjectsTracker::ObjectsTracker(bool disk_evicts) : model_(RulesOfStore(), BoundsOfStore(disk_evicts)) {
  states_.insert(Canonical(model_.First()));
}

bool ObjectsTracker::Keep(States states) {
  before_.clear();
  size_t described = 0;
  for (const State& state : states_) {
    if (described++ == kDescribedStates) break;
    before_ += model_.Describe(state) + "\n";
  }
  states_ = std::move(states);
  return !states_.empty();
}

void ObjectsTracker::TakeOwnSteps() {
  std::vector<State> todo(states_.begin(), states_.end());
  while (!todo.empty()) {
    const State state = todo.back();
    todo.pop_back();
    model_.NodeSteps(state, [&](const StepName&, const State& after) {
      const State next = Canonical(after);
      if (states_.insert(next).second) todo.push_back(next);
    });
  }
}

bool ObjectsTracker::Took(const StepName& name, const Fits& fits) {
  TakeOwnSteps();
  States next;
  for (const State& state : states_) {
    model_.ClientSteps(state, [&](const StepName& step, const State& after) {
      if (Same(step, name) && (!fits || fits(after))) next.insert(Canonical(after));
    });
  }
  return Keep(std::move(next));
}

bool ObjectsTracker::Dropped(int key) {
  TakeOwnSteps();
  States next;
  for (const State& state : states_) {
    bool found = false;
    model_.ClientSteps(state, [&](const StepName& step, const State& after) {
      if (!Same(step, {"drop", key})) return;
      found = true;
      next.insert(Canonical(after));
    });
    if (!found) next.insert(state);
  }
  return Keep(std::move(next));
}

bool ObjectsTracker::Missed(int key, bool no_memory) {
  TakeOwnSteps();
  States next;
  for (const State& state : states_) {
    const bool on_disk = state.entries[key].build != 0 && !no_memory;
    if (state.objects[key].build == 0 && !on_disk) next.insert(state);
  }
  return Keep(std::move(next));
}

bool ObjectsTracker::Restarted(bool crashed) {
  TakeOwnSteps();
  States next;
  for (const State& state : states_) {
    model_.CrashSteps(state, [&](const StepName& step, const State& after) {
      if (crashed || step.whom == 1) next.insert(Canonical(after));
    });
  }
  return Keep(std::move(next));
}

}  // namespace epic::kv_store
