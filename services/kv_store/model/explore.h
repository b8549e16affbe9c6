// Walks every state that a small machine can reach, breadth first, and checks each: the executable models of
// the store's protocols (records_model.h, objects_model.h) are run by it. Tests only; one thread.
//
// A machine is a type with
//   State                       a value without padding, compared by its bytes
//   State First() const
//   void Steps(const State&, const StepVisitor<State>&) const    calls the visitor for every step
//   std::string Fault(const State&) const                        empty: nothing is wrong
//   std::string Describe(const State&) const
// What is explored is all of it up to the machine's own bounds: a result without a fault is a proof for them.
#ifndef EPIC_SERVICES_KV_STORE_MODEL_EXPLORE_H_
#define EPIC_SERVICES_KV_STORE_MODEL_EXPLORE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <vector>

namespace epic::kv_store {

// What a step does, to whom, from whom.
struct StepName {
  const char* what;
  int who = -1;
  int whom = -1;
  std::string Text() const {
    return what + (who < 0 ? "" : " " + std::to_string(who)) +
           (whom < 0 ? "" : " <- " + std::to_string(whom));
  }
};

template <typename State>
using StepVisitor = std::function<void(const StepName& name, const State& next)>;

struct Exploration {
  uint64_t states = 0;
  uint64_t steps = 0;
  bool complete = false;  // false: it ended at a fault or at the limit
  std::string fault;      // empty: none found
  std::string trace;      // the shortest way to the fault, a step a line
};

// `most_states` bounds memory: State plus 24 bytes each.
template <typename Machine>
class Explorer {
 public:
  using State = typename Machine::State;
  static_assert(std::has_unique_object_representations_v<State>, "states are compared by their bytes");

  explicit Explorer(const Machine& machine, uint64_t most_states = 20'000'000)
      : machine_(machine), most_states_(most_states), seen_(1 << 16, Hash{this}, Equal{this}) {}

  Exploration Run() {
    Exploration result;
    Add(machine_.First(), 0);
    for (uint32_t at = 0; at < states_.size(); ++at) {
      const State state = states_[at];
      result.fault = machine_.Fault(state);
      if (!result.fault.empty()) {
        result.trace = TraceTo(at);
        break;
      }
      if (states_.size() > most_states_) break;
      machine_.Steps(state, [&](const StepName&, const State& next) {
        ++result.steps;
        Add(next, at);
      });
    }
    result.states = states_.size();
    result.complete = result.fault.empty() && states_.size() <= most_states_;
    return result;
  }

 private:
  struct Hash {
    const Explorer* explorer;
    size_t operator()(uint32_t index) const {
      const State& state = explorer->states_[index];
      return std::hash<std::string_view>()({reinterpret_cast<const char*>(&state), sizeof(State)});
    }
  };
  struct Equal {
    const Explorer* explorer;
    bool operator()(uint32_t a, uint32_t b) const {
      return std::memcmp(&explorer->states_[a], &explorer->states_[b], sizeof(State)) == 0;
    }
  };

  void Add(const State& state, uint32_t parent) {
    states_.push_back(state);
    parents_.push_back(parent);
    if (!seen_.insert(static_cast<uint32_t>(states_.size() - 1)).second) {
      states_.pop_back();
      parents_.pop_back();
    }
  }

  std::string TraceTo(uint32_t at) const {
    std::vector<uint32_t> way = {at};
    while (way.back() != 0) way.push_back(parents_[way.back()]);
    std::reverse(way.begin(), way.end());
    std::string trace = "      " + machine_.Describe(states_[0]) + "\n";
    for (size_t i = 1; i < way.size(); ++i) {
      std::string taken = "?";
      machine_.Steps(states_[way[i - 1]], [&](const StepName& name, const State& next) {
        if (std::memcmp(&next, &states_[way[i]], sizeof(State)) == 0) taken = name.Text();
      });
      trace += taken + "\n      " + machine_.Describe(states_[way[i]]) + "\n";
    }
    return trace;
  }

  const Machine& machine_;
  const uint64_t most_states_;
  std::vector<State> states_;
  std::vector<uint32_t> parents_;
  std::unordered_set<uint32_t, Hash, Equal> seen_;
};

// Explores, and prints how much that was.
template <typename Machine>
Exploration ExploreAndPrint(const Machine& machine, uint64_t most_states = 20'000'000) {
  const auto begin = std::chrono::steady_clock::now();
  const Exploration result = Explorer(machine, most_states).Run();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("%llu states, %llu steps, %.1f s\n", static_cast<unsigned long long>(result.states),
              static_cast<unsigned long long>(result.steps), took.count());
  return result;
}

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_MODEL_EXPLORE_H_
