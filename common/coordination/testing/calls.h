// Answers and updates of a coordinator, gathered for a test that waits for them. Thread-safe.
#ifndef EPIC_COMMON_COORDINATION_TESTING_CALLS_H_
#define EPIC_COMMON_COORDINATION_TESTING_CALLS_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/coordination/coordinator.h"

namespace epic::testing {

// Things that callbacks bring, in their order. Copies share them, so a callback may outlive the test's frame.
template <typename T>
class Gathered {
 public:
  void Add(T thing) const {
    MutexLock lock(&state_->mu);
    state_->things.push_back(std::move(thing));
  }
  std::vector<T> all() const {
    MutexLock lock(&state_->mu);
    return state_->things;
  }
  size_t size() const { return all().size(); }
  std::function<void(T)> adder() const {
    return [gathered = *this](T thing) { gathered.Add(std::move(thing)); };
  }

 private:
  struct State {
    Mutex mu;
    std::vector<T> things ABSL_GUARDED_BY(mu);
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// The changes of all updates of one watch, and how it ended.
class Watched {
 public:
  Coordinator::WatchListener listener() const {
    return [updates = updates_](const WatchUpdate& update) { updates.Add(update); };
  }
  std::vector<KeyChange> changes() const {
    std::vector<KeyChange> all;
    for (const WatchUpdate& update : updates_.all()) {
      all.insert(all.end(), update.changes.begin(), update.changes.end());
    }
    return all;
  }
  std::optional<WatchUpdate::Kind> end() const {
    for (const WatchUpdate& update : updates_.all()) {
      if (update.list_again()) return update.kind;
    }
    return std::nullopt;
  }

 private:
  Gathered<WatchUpdate> updates_;
};

}  // namespace epic::testing

#endif  // EPIC_COMMON_COORDINATION_TESTING_CALLS_H_
