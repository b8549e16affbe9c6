#include "services/kv_store/model/records_model.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace epic::kv_store {
namespace {

using Model = RecordsModel;

constexpr uint8_t Bit(int node) { return static_cast<uint8_t>(1u << node); }

int Serving(const Model::State& state) {
  return static_cast<int>(std::count_if(state.nodes.begin(), state.nodes.end(), [](const Model::Node& node) {
    return node.up == Model::Up::kServing;
  }));
}

bool KnowsOf(const Model::Held& held) { return held.created + held.deleted + held.expired > 0; }

}  // namespace

Model::State RecordsModel::First() const {
  State state{};
  for (Node& node : state.nodes) node.up = Up::kServing;
  return state;
}

// --- the rules

bool RecordsModel::Counts(const Held& held) const {
  const uint8_t last = std::max(held.created, held.expiry_stamp);
  if (held.created == 0 || (rules_.creation_decides ? held.created : last) <= held.deleted) return false;
  return std::pair(held.created, held.expiry_stamp) > std::pair(held.expired_life, held.expired);
}

void RecordsModel::Merge(const Held& from, Held* to) const {
  if (std::pair(from.created, from.expiry_stamp) > std::pair(to->created, to->expiry_stamp)) {
    to->created = from.created;
    to->expiry = from.expiry;
    to->expiry_stamp = from.expiry_stamp;
  }
  const bool later = std::pair(from.expired_life, from.expired) > std::pair(to->expired_life, to->expired);
  if (later || from.deleted > to->deleted) to->gone_at = std::max(to->gone_at, from.gone_at);
  to->deleted = std::max(to->deleted, from.deleted);
  if (later) {
    to->expired_life = from.expired_life;
    to->expired = from.expired;
  }
  if (!Counts(*to)) to->created = to->expiry = to->expiry_stamp = 0;
}

void RecordsModel::Write(const Held& held, Node* node) const {
  node->memory = held;
  if (rules_.sync_before_ack) node->disk = held;
}

// It may hold what was deleted meanwhile and forgotten since.
bool RecordsModel::IsOverdue(const State& state, const Node& node) const {
  return rules_.long_away_is_removed && node.up != Up::kServing && node.empty == 0 &&
         state.beat - node.served_at >= kAwayTicks;
}

bool RecordsModel::IsSource(const State& state, const Node& node) const {
  if (node.up == Up::kServing) return true;
  if (node.up == Up::kDown || IsOverdue(state, node)) return false;
  return node.empty == 0 || !rules_.empty_is_no_source;
}

bool RecordsModel::MayServe(const State& state, const Node& node) const {
  if (!rules_.joins_before_serving) return true;
  const bool all = node.empty != 0 && rules_.empty_node_asks_all;
  return !IsOverdue(state, node) && std::popcount(node.fetched) >= (all ? kNodes - 1 : kNodes - kReplicas);
}

// --- changes

void RecordsModel::Begin(Kind kind, uint8_t expiry, int slot, State* state) const {
  Change& change = state->changes[slot];
  change = {.kind = kind, .stamp = ++state->begun, .expiry = expiry, .since = state->beat};
  for (int n = 0; n < kNodes; ++n) {
    const Node& node = state->nodes[n];
    if (node.up != Up::kDown) change.targets |= Bit(n);
    if (kind == Kind::kExpiry && node.up == Up::kServing && Answers(node.memory, state->clock)) {
      change.created = std::max(change.created, node.memory.created);
    }
  }
  const bool contradicts = (kind == Kind::kCreate && state->promise == Promise::kDead) ||
                           (kind == Kind::kDelete && state->promise == Promise::kLive);
  if (contradicts) state->promise = Promise::kAny;
  if (kind != Kind::kDelete && state->promise == Promise::kLive) {
    state->exact = 0;
    // Until it is acknowledged either expiry may be seen; the earlier one is what still holds.
    state->until = std::min(state->until, expiry);
  }
}

// False: there is nothing that it could do.
bool RecordsModel::ApplyTo(Change* change, const State& state, Node* node) const {
  Held held = node->memory;
  switch (change->kind) {
    case Kind::kNone:
      return false;
    case Kind::kCreate:
      Merge({.created = change->stamp, .expiry = change->expiry, .expiry_stamp = change->stamp}, &held);
      break;
    case Kind::kExpiry:
      if ((!Answers(held, state.clock) && KnowsOf(held)) || held.created > change->created)
        change->refused = 1;
      if (change->refused != 0 || (!rules_.carries_the_record && !KnowsOf(held))) return true;
      Merge({.created = change->created, .expiry = change->expiry, .expiry_stamp = change->stamp}, &held);
      break;
    case Kind::kDelete:
      Merge({.deleted = change->stamp, .gone_at = state.beat}, &held);
      break;
  }
  Write(held, node);
  return true;
}

bool RecordsModel::CanAcknowledge(const State& state, const Change& change) const {
  if (change.kind == Kind::kNone || change.refused != 0) return false;
  int disks = 0;
  for (int n = 0; n < kNodes; ++n) {
    const bool has = (change.applied & Bit(n)) != 0;
    const bool asked = rules_.ack_needs_all_up || (change.targets & Bit(n)) != 0;
    if (state.nodes[n].up != Up::kDown && asked && !has) return false;
    disks += has && state.nodes[n].empty == 0 ? 1 : 0;
  }
  return disks >= kReplicas;
}

// It will not be acknowledged, or what overlapped with it may come before or behind it.
void RecordsModel::Unsettle(const Change& change, State* state) const {
  state->unsettled = std::max(state->unsettled, change.stamp);
  if (change.kind == Kind::kCreate) {
    state->unsettled_create = std::max(state->unsettled_create, change.stamp);
  }
}

void RecordsModel::Acknowledge(int slot, State* state) const {
  const Change change = state->changes[slot];
  const Change& other = state->changes[1 - slot];
  state->changes[slot] = {};
  if (change.kind == Kind::kDelete) {
    // Only a create could bring it back.
    const bool settled = other.kind != Kind::kCreate && state->unsettled_create < change.stamp;
    state->promise = settled ? Promise::kDead : Promise::kAny;
    if (other.kind != Kind::kNone) Unsettle(change, state);
    return;
  }
  if (other.kind != Kind::kNone || state->unsettled > change.stamp) {
    if (state->promise == Promise::kLive || change.kind == Kind::kCreate) state->promise = Promise::kAny;
    Unsettle(change, state);
    return;
  }
  if (change.kind == Kind::kExpiry && state->promise != Promise::kLive) return;
  state->promise = Promise::kLive;
  state->until = change.expiry;
  state->exact = 1;
}

void RecordsModel::ChangeSteps(const State& state, const StepVisitor<State>& visit) const {
  for (int slot = 0; slot < 2; ++slot) {
    const Change& change = state.changes[slot];
    if (change.kind == Kind::kNone) {
      if (slot == 1 && state.changes[0].kind == Kind::kNone) continue;  // the first one goes to slot 0
      if (state.begun == bounds_.changes || Serving(state) < kReplicas) continue;
      const auto begin = [&](const char* what, Kind kind, uint8_t expiry) {
        State next = state;
        Begin(kind, expiry, slot, &next);
        visit({what, slot}, next);
      };
      begin("begin delete", Kind::kDelete, 0);
      const bool found = std::any_of(state.nodes.begin(), state.nodes.end(), [&](const Node& node) {
        return node.up == Up::kServing && Answers(node.memory, state.clock);
      });
      if (!found) {
        begin("begin create", Kind::kCreate, kNever);
        if (bounds_.expires) begin("begin create, one tick", Kind::kCreate, state.clock + 1);
      }
      // A create of what is there is one too.
      if (!found || !bounds_.expires) continue;
      begin("begin expiry, one tick", Kind::kExpiry, state.clock + 1);
      begin("begin expiry, never", Kind::kExpiry, kNever);
      continue;
    }
    for (int n = 0; n < kNodes; ++n) {
      if (state.nodes[n].up == Up::kDown || (change.applied & Bit(n)) != 0) continue;
      State next = state;
      next.changes[slot].applied |= Bit(n);
      if (ApplyTo(&next.changes[slot], state, &next.nodes[n])) visit({"apply", slot, n}, next);
    }
    if (CanAcknowledge(state, change)) {
      State next = state;
      Acknowledge(slot, &next);
      visit({"acknowledge", slot}, next);
    }
    State next = state;
    next.changes[slot] = {};
    Unsettle(change, &next);
    if (change.applied != 0) visit({"abandon", slot}, next);
  }
}

// --- what goes wrong

void RecordsModel::FaultSteps(const State& state, const StepVisitor<State>& visit) const {
  for (int n = 0; n < kNodes; ++n) {
    const Node& node = state.nodes[n];
    if (node.up != Up::kDown && state.crashes < bounds_.crashes) {
      State next = state;
      Node& down = next.nodes[n];
      ++next.crashes;
      down.up = Up::kDown;
      down.fetched = 0;
      if (node.up == Up::kServing) down.served_at = state.beat;
      if (rules_.empty_begins_anew && node.empty != 0) {
        down.disk = {};
        for (Change& change : next.changes) change.applied &= static_cast<uint8_t>(~Bit(n));
      }
      down.memory = down.disk;
      if (state.copy.to == n) next.copy = {};
      visit({"crash", n}, next);
    }
    if (node.up == Up::kDown && node.empty == 0 && state.losses < bounds_.losses) {
      State next = state;
      ++next.losses;
      next.nodes[n].memory = next.nodes[n].disk = {};
      next.nodes[n].empty = 1;
      for (Change& change : next.changes) change.applied &= static_cast<uint8_t>(~Bit(n));
      visit({"lose disk", n}, next);
    }
  }
}

// --- nodes by themselves

void RecordsModel::TickSteps(const State& state, const StepVisitor<State>& visit) const {
  if (state.clock < bounds_.ticks) {
    State next = state;
    ++next.clock;
    const bool beats = Serving(state) >= kReplicas || !rules_.beat_needs_quorum;
    next.beat += beats ? 1 : 0;
    for (Change& change : next.changes) {
      const bool late = change.kind != Kind::kNone && next.beat - change.since >= kChangeTicks;
      if (!late || !rules_.changes_in_time) continue;
      Unsettle(change, &next);
      change = {};
    }
    if (rules_.repair_in_time && beats) next.copy = {};
    visit({"tick"}, next);
  }
}

void RecordsModel::NodeSteps(const State& state, const StepVisitor<State>& visit) const {
  for (int n = 0; n < kNodes; ++n) {
    const Node& node = state.nodes[n];
    if (IsOverdue(state, node) && Serving(state) >= kReplicas) {
      State next = state;
      Node& removed = next.nodes[n];
      removed.memory = removed.disk = {};
      removed.empty = 1;
      removed.fetched = 0;
      removed.up = Up::kDown;
      if (state.copy.to == n) next.copy = {};
      // What it answered before does not count any more.
      for (Change& change : next.changes) change.applied &= static_cast<uint8_t>(~Bit(n));
      visit({"remove", n}, next);
    }
    if (node.up == Up::kDown) {
      if (IsOverdue(state, node)) continue;
      State next = state;
      next.nodes[n].up = Up::kJoining;
      visit({"return", n}, next);
      continue;
    }
    if (node.up == Up::kJoining) {
      if (MayServe(state, node)) {
        State next = state;
        next.nodes[n].up = Up::kServing;
        next.nodes[n].empty = 0;
        next.nodes[n].fetched = 0;
        visit({"serve", n}, next);
      }
      for (int from = 0; from < kNodes; ++from) {
        if (from == n || (node.fetched & Bit(from)) != 0) continue;
        const bool source = IsSource(state, state.nodes[from]);
        // Of two that lost what they had neither waits for the other.
        const bool both_empty =
            node.empty != 0 && state.nodes[from].empty != 0 && state.nodes[from].up == Up::kJoining;
        if (!source && !both_empty) continue;
        State next = state;
        if (source) {
          Held held = node.memory;
          Merge(state.nodes[from].memory, &held);
          Write(held, &next.nodes[n]);
        }
        next.nodes[n].fetched |= Bit(from);
        visit({source ? "fetch" : "pass over", n, from}, next);
      }
      continue;
    }
    const Held& held = node.memory;
    if (Counts(held) && state.clock >= held.expiry) {
      State next = state;
      Held gone = held;
      if (rules_.expiry_names_its_stamp) {
        Merge({.expired_life = held.created, .expired = held.expiry_stamp, .gone_at = state.beat}, &gone);
      } else {
        Merge({.deleted = state.begun, .gone_at = state.beat}, &gone);
      }
      Write(gone, &next.nodes[n]);
      visit({"expire", n}, next);
    }
    if (held.deleted + held.expired > 0 && state.beat - held.gone_at >= kTombstoneTicks) {
      State next = state;
      Held fresh = held;
      fresh.deleted = fresh.expired_life = fresh.expired = fresh.gone_at = 0;
      Write(fresh, &next.nodes[n]);
      visit({"forget", n}, next);
    }
  }
}

void RecordsModel::RepairSteps(const State& state, const StepVisitor<State>& visit) const {
  if (state.copy.on_its_way != 0) {
    Node node = state.nodes[state.copy.to];
    if (node.up == Up::kDown) return;
    State next = state;
    Held held = node.memory;
    Merge(state.copy.held, &held);
    Write(held, &next.nodes[state.copy.to]);
    next.copy = {};
    visit({"copy arrives", state.copy.to}, next);
    return;
  }
  for (int from = 0; from < kNodes; ++from) {
    const Node& source = state.nodes[from];
    const bool has = bounds_.spreads ? IsSource(state, source) && KnowsOf(source.memory)
                                     : source.up == Up::kServing && Counts(source.memory);
    for (int to = 0; has && to < kNodes; ++to) {
      const Node& target = state.nodes[to];
      const bool lacks =
          bounds_.spreads ? target.up != Up::kDown : target.up == Up::kServing && target.memory.created == 0;
      if (to == from || !lacks) continue;
      State next = state;
      next.copy = {.on_its_way = 1, .to = static_cast<uint8_t>(to), .held = state.nodes[from].memory};
      visit({"copy leaves", to, from}, next);
    }
  }
}

void RecordsModel::Steps(const State& state, const StepVisitor<State>& visit) const {
  ChangeSteps(state, visit);
  FaultSteps(state, visit);
  TickSteps(state, visit);
  NodeSteps(state, visit);
  RepairSteps(state, visit);
}

// --- promises

std::string RecordsModel::Fault(const State& state) const {
  const bool promised = state.promise == Promise::kLive && state.clock < state.until;
  const bool over = state.promise == Promise::kDead ||
                    (state.promise == Promise::kLive && state.exact != 0 && state.clock >= state.until);
  int serving = 0, found = 0, disks = 0;
  for (int n = 0; n < kNodes; ++n) {
    const Node& node = state.nodes[n];
    const bool answers = Answers(node.memory, state.clock);
    disks += Answers(node.disk, state.clock) ? 1 : 0;
    if (node.up != Up::kServing) continue;
    ++serving;
    found += answers ? 1 : 0;
    if (over && answers) return "node " + std::to_string(n) + " serves what is gone";
    if (promised && !answers && KnowsOf(node.memory)) {
      return "node " + std::to_string(n) + " denies what is live";
    }
  }
  const bool stuck = std::all_of(state.nodes.begin(), state.nodes.end(),
                                 [&](const Node& node) { return IsOverdue(state, node); });
  if (stuck) return "no node may ever serve again";
  if (promised && disks == 0) return "a live context is on no disk";
  if (promised && serving >= kReplicas && found == 0) return "no serving node has a live context";
  return "";
}

std::string RecordsModel::Describe(const State& state) const {
  const char* const up[] = {"down", "joins", "serves"};
  const char* const promises[] = {"any", "live", "dead"};
  std::string text = "clock " + std::to_string(state.clock);
  for (const Node& node : state.nodes) {
    const Held& held = node.memory;
    text += " | " + std::string(up[static_cast<int>(node.up)]) + (node.empty != 0 ? " empty" : "") + " c" +
            std::to_string(held.created) + " e" + std::to_string(held.expiry) + "/" +
            std::to_string(held.expiry_stamp) + " d" + std::to_string(held.deleted) + " x" +
            std::to_string(held.expired);
  }
  return text + " | promised " + promises[static_cast<int>(state.promise)] + " until " +
         std::to_string(state.until);
}

}  // namespace epic::kv_store
