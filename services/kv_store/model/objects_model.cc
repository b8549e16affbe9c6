#include "services/kv_store/model/objects_model.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace epic::kv_store {
namespace {

using Model = ObjectsModel;

constexpr uint8_t kAllLayers = (1u << Model::kLayers) - 1;

constexpr uint8_t Bit(int index) { return static_cast<uint8_t>(1u << index); }
bool Has(uint8_t set, int index) { return (set & Bit(index)) != 0; }
// In `to` as in `from`.
void CopyBit(uint8_t from, int index, uint8_t* to) {
  *to = static_cast<uint8_t>((*to & ~Bit(index)) | (from & Bit(index)));
}

// All layers are those of one build.
bool IsExactly(const Model::Bytes& bytes, uint8_t build) {
  return std::all_of(bytes.begin(), bytes.end(), [build](uint8_t layer) { return layer == build; });
}

}  // namespace

Model::State ObjectsModel::First() const {
  State state{};
  state.live = state.safe_live = static_cast<uint8_t>(Bit(bounds_.keys) - 1);
  return state;
}

// --- regions, places, tokens

int ObjectsModel::FreeRegion(const State& state) const {
  for (int r = 0; r < kRegions; ++r) {
    if (state.regions[r].generation == 0) return r;
  }
  return -1;
}

int ObjectsModel::FreePlace(const State& state) const {
  for (uint8_t p = 0; p < bounds_.places; ++p) {
    const auto names = [p](const Entry& entry) { return entry.build != 0 && entry.place == p; };
    const bool named = std::any_of(state.entries.begin(), state.entries.end(), names);
    const bool may_return = rules_.place_waits_for_removal &&
                            std::any_of(state.safe_entries.begin(), state.safe_entries.end(), names);
    const bool written = state.job.build != 0 && state.job.step > 0 && state.job.place == p;
    if (!named && !may_return && !written) return p;
  }
  return -1;
}

// The outcome of a commit is remembered while its writer may ask for it again.
int ObjectsModel::FreeSlot(const State& state, int writer) const {
  for (int s = 0; s < kWriters; ++s) {
    const Reservation& reservation = state.reservations[s];
    if (reservation.phase == Phase::kOpen) continue;
    bool remembered = false;
    for (int w = 0; w < kWriters; ++w) {
      const Writer& other = state.writers[w];
      remembered |= w != writer && reservation.phase == Phase::kCommitted && other.token == reservation.token;
    }
    if (!remembered) return s;
  }
  return -1;
}

// One that no region has and no reader knows, as if it counted on for ever.
uint8_t ObjectsModel::NewGeneration(const State& state) const {
  for (uint8_t generation = 1;; ++generation) {
    const bool taken = std::any_of(state.regions.begin(), state.regions.end(),
                                   [&](const Region& region) { return region.generation == generation; });
    const bool known = std::any_of(state.readers.begin(), state.readers.end(), [&](const Reader& reader) {
      const bool forgotten = reader.old != 0 && !rules_.generation_has_incarnation;
      return reader.build != 0 && reader.generation == generation && !forgotten;
    });
    if (!taken && !known) return generation;
  }
}

uint8_t ObjectsModel::NewToken(const State& state, int writer) const {
  const int slot = FreeSlot(state, writer);
  if (!rules_.tokens_used_once) return static_cast<uint8_t>(slot + 1);
  for (uint8_t token = 1;; ++token) {
    bool known = false;
    for (int w = 0; w < kWriters; ++w) {
      const bool forgotten = state.writers[w].old != 0 && !rules_.token_has_incarnation;
      known |= w != writer && state.writers[w].token == token && !forgotten;
      known |= w != slot && state.reservations[w].token == token;
    }
    if (!known) return token;
  }
}

int ObjectsModel::SlotOf(const State& state, uint8_t token) const {
  for (int s = 0; s < kWriters; ++s) {
    if (state.reservations[s].phase != Phase::kNone && state.reservations[s].token == token) return s;
  }
  return -1;
}

int ObjectsModel::HeldRegions(const State& state) const {
  uint8_t held = 0;
  for (int r = bounds_.copiers; r < Readers(); ++r) {
    if (state.readers[r].lease != 0) held |= Bit(state.readers[r].region);
  }
  return std::popcount(held);
}

// Whether somebody reads or writes there whom taking the region away would hurt.
bool ObjectsModel::IsUsed(const State& state, int region, Users users) const {
  for (int r = 0; r < Readers(); ++r) {
    const Reader& reader = state.readers[r];
    if (reader.lease == 0 || reader.region != region) continue;
    if (IsHolder(r) ? rules_.quarantine_held : users == Users::kAll) return true;
  }
  const bool moving = std::any_of(state.writers.begin(), state.writers.end(), [&](const Writer& writer) {
    return writer.moving != 0 && writer.moving_region == region;
  });
  const bool written = state.job.build != 0 && state.job.region == region;
  return (moving && rules_.region_waits_for_writes) || written;
}

// By an object, a reservation or a load, or by somebody alive who uses it.
bool ObjectsModel::IsOwned(const State& state, int region) const {
  if (state.load.build != 0 && state.load.region == region) return true;
  for (const Object& object : state.objects) {
    if (object.build != 0 && object.region == region) return true;
  }
  for (const Reservation& reservation : state.reservations) {
    if (reservation.phase == Phase::kOpen && reservation.region == region) return true;
  }
  for (const Writer& writer : state.writers) {
    if (writer.moving != 0 && writer.moving_region == region) return true;
  }
  for (const Reader& reader : state.readers) {
    if (reader.build != 0 && reader.lease != 0 && reader.region == region) return true;
  }
  return state.job.build != 0 && state.job.region == region;
}

void ObjectsModel::Drop(int region, State* state) const { state->regions[region].lingers = 1; }

void ObjectsModel::DropObject(int key, State* state) const {
  if (state->objects[key].build == 0) return;
  Drop(state->objects[key].region, state);
  state->objects[key] = {};
}

void ObjectsModel::DropEntry(int key, State* state) const {
  state->entries[key] = {};
  state->durable &= static_cast<uint8_t>(~Bit(key));
}

// All that was written is safe, and those who wait for it are told.
void ObjectsModel::Sync(State* state) const {
  state->safe_entries = state->entries;
  state->safe_live = state->live;
  for (int k = 0; k < bounds_.keys; ++k) {
    if (state->entries[k].build != 0) state->durable |= Bit(k);
  }
}

void ObjectsModel::Emit(const StepName& name, State next, const StepVisitor<State>& visit) const {
  for (int r = 0; r < kRegions; ++r) {
    if (next.regions[r].lingers == 0 || IsUsed(next, r, Users::kAll)) continue;
    next.regions[r].lingers = 0;
    Free(r, &next);
  }
  visit(name, next);
}

// --- contexts

void ObjectsModel::ContextSteps(const State& state, const StepVisitor<State>& visit) const {
  for (int k = 0; k < bounds_.keys; ++k) {
    if (bounds_.drops && (state.objects[k].build != 0 || state.entries[k].build != 0)) {
      State next = state;
      DropObject(k, &next);
      DropEntry(k, &next);
      Emit({"drop", k}, next, visit);
    }
    State next = state;
    if (!Has(state.live, k)) {
      if (state.creates == bounds_.creates) continue;
      ++next.creates;
      next.live |= Bit(k);
      Sync(&next);
      Emit({"create", k}, next, visit);
      continue;
    }
    if (state.deletes == bounds_.deletes) continue;
    ++next.deletes;
    next.live &= static_cast<uint8_t>(~Bit(k));
    for (uint8_t build = 1; build <= state.puts; ++build) {
      if (KeyOf(state, build) == k && Has(state.committed, build - 1)) next.gone |= Bit(build - 1);
    }
    DropObject(k, &next);
    if (rules_.deletion_takes_entries_too) DropEntry(k, &next);
    if (rules_.deletion_synced_before_answer) Sync(&next);
    Emit({"delete", k}, next, visit);
  }
}

// --- writers

void ObjectsModel::Reserve(const State& state, int writer, int key, const StepVisitor<State>& visit) const {
  const int region = FreeRegion(state);
  const int slot = FreeSlot(state, writer);
  if (region < 0 || slot < 0 || !Has(state.live, key)) return;
  State next = state;
  const uint8_t build = ++next.puts;
  const uint8_t token = NewToken(state, writer);
  if (key != 0) next.keys |= Bit(build - 1);
  next.regions[region].generation = NewGeneration(state);
  next.writers[writer] = {.token = token, .build = build};
  next.reservations[slot] = {
      .phase = Phase::kOpen, .token = token, .build = build, .region = static_cast<uint8_t>(region)};
  if (!rules_.invisible_until_commit) Publish(next.reservations[slot], &next);
  Emit({"reserve", writer, key}, next, visit);
}

// The store moves the bytes: what is under way arrives whatever becomes of the reservation.
void ObjectsModel::Announce(const State& state, int writer, const StepVisitor<State>& visit) const {
  const Writer& sender = state.writers[writer];
  const int layer = sender.announced;
  const int slot = SlotOf(state, sender.token);
  if (sender.token == 0 || layer == kLayers || sender.moving != 0 || slot < 0) return;
  const Reservation& reservation = state.reservations[slot];
  if (reservation.phase != Phase::kOpen || Has(reservation.written, layer)) return;
  State next = state;
  Writer& moved = next.writers[writer];
  ++moved.announced;
  moved.moving = static_cast<uint8_t>(layer + 1);
  moved.moving_token = sender.token;
  moved.moving_region = reservation.region;
  if (!bounds_.slow_writes) Arrive(writer, &next);
  Emit({"announce", writer, layer}, next, visit);
}

void ObjectsModel::Arrive(int writer, State* state) const {
  Writer& sender = state->writers[writer];
  const int layer = sender.moving - 1;
  state->regions[sender.moving_region].bytes[layer] = sender.build;
  const int slot = SlotOf(*state, sender.moving_token);
  if (slot >= 0 && state->reservations[slot].phase == Phase::kOpen) {
    state->reservations[slot].written |= Bit(layer);
  }
  sender.moving = sender.moving_token = sender.moving_region = 0;
}

// The first of several builds stays: readers of it are many, and the others are as good.
void ObjectsModel::Publish(const Reservation& reservation, State* state) const {
  Object& object = state->objects[KeyOf(*state, reservation.build)];
  if (object.build != 0) {
    if (object.region != reservation.region) Drop(reservation.region, state);
    return;
  }
  object = {.build = reservation.build, .region = reservation.region};
}

void ObjectsModel::Commit(const State& state, int writer, const StepVisitor<State>& visit) const {
  const Writer& sender = state.writers[writer];
  const int slot = SlotOf(state, sender.token);
  if (sender.token == 0 || slot < 0) return;
  const Reservation& reservation = state.reservations[slot];
  const int key = KeyOf(state, reservation.build);
  if (reservation.phase == Phase::kPreempted && rules_.preempted_commit_fails) return;
  const bool lives = !rules_.commit_checks_context || Has(state.live, key);
  State next = state;
  if (reservation.phase == Phase::kCommitted) {
    if (!rules_.commit_once && lives) Publish(reservation, &next);
    if (reservation.build != sender.build) next.broken = Broken::kForeignCommit;
    Emit({"commit again", writer}, next, visit);
    return;
  }
  if (!lives) return;
  if (rules_.all_layers_before_commit && reservation.written != kAllLayers) return;
  Publish(reservation, &next);
  if (next.objects[key].build == reservation.build) next.committed |= Bit(reservation.build - 1);
  next.reservations[slot].phase = Phase::kCommitted;
  if (reservation.build != sender.build || sender.over != 0) next.broken = Broken::kForeignCommit;
  Emit({"commit", writer}, next, visit);
}

void ObjectsModel::WriterSteps(const State& state, const StepVisitor<State>& visit) const {
  for (int w = 0; w < bounds_.writers; ++w) {
    const Writer& writer = state.writers[w];
    const int slot = SlotOf(state, writer.token);
    const bool open = slot >= 0 && state.reservations[slot].phase == Phase::kOpen &&
                      state.reservations[slot].build == writer.build;
    const bool in_order = w == 0 || state.writers[0].build != 0;  // writers are alike
    if (!open && writer.moving == 0 && in_order && state.puts < bounds_.puts) {
      for (int k = 0; k < bounds_.keys; ++k) Reserve(state, w, k, visit);
    }
    Announce(state, w, visit);
    Commit(state, w, visit);
    if (!open) continue;
    // Its heartbeats are lost, or it gave up.
    State next = state;
    next.reservations[slot].phase = Phase::kPreempted;
    next.writers[w].over = 1;
    Drop(state.reservations[slot].region, &next);
    Emit({"preempt", w}, next, visit);
  }
}

// --- readers

void ObjectsModel::Acquire(const State& state, int reader, int key, const StepVisitor<State>& visit) const {
  const Object& object = state.objects[key];
  if (object.build == 0) return;
  State next = state;
  next.readers[reader] = {.key = static_cast<uint8_t>(key),
                          .build = object.build,
                          .region = object.region,
                          .generation = state.regions[object.region].generation,
                          .lease = 1};
  if (IsHolder(reader) && rules_.bounded_holds && HeldRegions(next) > bounds_.held_regions) return;
  Emit({"acquire", reader, key}, next, visit);
}

void ObjectsModel::Confirm(int reader, State* state) const {
  const Reader& copy = state->readers[reader];
  const bool confirmed =
      !rules_.confirm_after_copy || state->regions[copy.region].generation == copy.generation;
  if (confirmed && !IsExactly(copy.got, copy.build)) state->broken = Broken::kWrongBytes;
  state->readers[reader] = {};
}

void ObjectsModel::CopierSteps(const State& state, int reader, const StepVisitor<State>& visit) const {
  const Reader& copier = state.readers[reader];
  State next = state;
  if (copier.copied < kLayers) {
    Reader& copy = next.readers[reader];
    copy.got[copy.copied] = state.regions[copier.region].bytes[copier.copied];
    ++copy.copied;
    Emit({"copy", reader}, next, visit);
  } else {
    Confirm(reader, &next);
    Emit({"confirm", reader}, next, visit);
  }
  if (copier.lease != 0) return;
  // Asks for another lease in the middle, of whatever there is now under its key.
  const Object& object = state.objects[copier.key];
  if (object.build == 0) return;
  next = state;
  Reader& renewed = next.readers[reader];
  const uint8_t generation = state.regions[object.region].generation;
  if (generation != copier.generation && rules_.restart_on_new_lease) {
    renewed.copied = 0;
    renewed.got = {};
  }
  renewed.build = object.build;
  renewed.region = object.region;
  renewed.generation = generation;
  renewed.lease = 1;
  renewed.old = 0;
  Emit({"renew", reader}, next, visit);
}

void ObjectsModel::HolderSteps(const State& state, int reader, const StepVisitor<State>& visit) const {
  State next = state;
  next.readers[reader] = {};
  Emit({"release", reader}, next, visit);
  if (rules_.closing_releases) return;
  next = state;
  next.readers[reader] = {.region = state.readers[reader].region, .lease = 1};
  Emit({"close", reader}, next, visit);
}

void ObjectsModel::ClientSteps(const State& state, const StepVisitor<State>& visit) const {
  ContextSteps(state, visit);
  WriterSteps(state, visit);
  for (int r = 0; r < Readers(); ++r) {
    const Reader& reader = state.readers[r];
    if (reader.build == 0) {
      if (reader.lease != 0) continue;
      for (int k = 0; k < bounds_.keys; ++k) Acquire(state, r, k, visit);
    } else if (IsHolder(r)) {
      HolderSteps(state, r, visit);
    } else {
      CopierSteps(state, r, visit);
    }
  }
}

// --- the node by itself

void ObjectsModel::EvictionSteps(const State& state, const StepVisitor<State>& visit) const {
  for (int k = 0; k < bounds_.keys; ++k) {
    const Object& object = state.objects[k];
    if (object.build == 0) continue;
    const bool leased = std::any_of(state.readers.begin(), state.readers.end(), [&](const Reader& reader) {
      return reader.lease != 0 && reader.region == object.region;
    });
    if (leased && rules_.leases_stop_eviction) continue;
    if (state.job.build == object.build) continue;
    State next = state;
    DropObject(k, &next);
    if (!IsUsed(state, object.region, Users::kAllButCopiers)) {
      next.regions[object.region].lingers = 0;
      Free(object.region, &next);
    }
    Emit({"evict", k}, next, visit);
  }
}

void ObjectsModel::WriteEntry(State* state) const {
  const Job job = state->job;
  const int key = KeyOf(*state, job.build);
  const bool current = state->objects[key].build == job.build && Has(state->live, key);
  if (current || !rules_.entry_checks_object) {
    state->entries[key] = {.build = job.build, .place = job.place};
  }
  state->job = {};
}

void ObjectsModel::JobSteps(const State& state, const StepVisitor<State>& visit) const {
  const Job& job = state.job;
  if (job.build == 0) {
    const int place = FreePlace(state);
    for (int k = 0; k < bounds_.keys && place >= 0; ++k) {
      const Object& object = state.objects[k];
      if (object.build == 0 || state.entries[k].build == object.build) continue;
      State next = state;
      next.job = {
          .build = object.build, .region = object.region, .place = static_cast<uint8_t>(place), .step = 1};
      if (!bounds_.slow_disk) {
        next.places[place] = {.now = state.regions[object.region].bytes,
                              .safe = state.regions[object.region].bytes};
        WriteEntry(&next);
      }
      Emit({"begin to write", k}, next, visit);
    }
    return;
  }
  State next = state;
  Place& place = next.places[job.place];
  switch (job.step) {
    case 1:
      place.now = state.regions[job.region].bytes;
      next.job.step = rules_.data_synced_before_entry ? 2 : 3;
      Emit({"write slabs"}, next, visit);
      break;
    case 2:
      place.safe = place.now;
      next.job.step = 3;
      Emit({"sync slabs"}, next, visit);
      break;
    default:
      WriteEntry(&next);
      Emit({"write entry"}, next, visit);
  }
}

void ObjectsModel::ReadLayer(State* state) const {
  Load& load = state->load;
  const uint8_t bytes = state->places[load.place].now[load.read];
  if ((bytes != 0 && bytes != kDamaged) || !rules_.reads_check_bytes) {
    state->regions[load.region].bytes[load.read++] = bytes;
    return;
  }
  const int key = KeyOf(*state, load.build);
  if (state->entries[key] == Entry{.build = load.build, .place = load.place}) {
    if (Has(state->durable, key) && bytes != kDamaged) state->broken = Broken::kDurableLost;
    DropEntry(key, state);
  }
  Drop(load.region, state);
  load = {};
}

void ObjectsModel::EndLoad(State* state) const {
  const Load load = state->load;
  const int key = KeyOf(*state, load.build);
  const bool current = state->entries[key] == Entry{.build = load.build, .place = load.place};
  Object& object = state->objects[key];
  if (object.build == 0 && (current || !rules_.load_checks_entry)) {
    object = {.build = load.build, .region = load.region};
  } else {
    Drop(load.region, state);
  }
  state->load = {};
}

void ObjectsModel::LoadSteps(const State& state, const StepVisitor<State>& visit) const {
  State next = state;
  if (state.load.build != 0) {
    if (state.load.read < kLayers) {
      ReadLayer(&next);
      Emit({"read layer"}, next, visit);
    } else {
      EndLoad(&next);
      Emit({"end load"}, next, visit);
    }
    return;
  }
  const int region = FreeRegion(state);
  for (int k = 0; k < bounds_.keys && region >= 0; ++k) {
    const Entry& entry = state.entries[k];
    if (entry.build == 0 || state.objects[k].build != 0) continue;
    next = state;
    next.regions[region].generation = NewGeneration(state);
    next.load = {.build = entry.build, .region = static_cast<uint8_t>(region), .place = entry.place};
    while (!bounds_.slow_disk && next.load.build != 0 && next.load.read < kLayers) ReadLayer(&next);
    if (!bounds_.slow_disk && next.load.build != 0) EndLoad(&next);
    Emit({"begin to load", k}, next, visit);
  }
}

void ObjectsModel::DiskSteps(const State& state, const StepVisitor<State>& visit) const {
  JobSteps(state, visit);
  LoadSteps(state, visit);
  if (state.entries != state.safe_entries || state.live != state.safe_live) {
    State next = state;
    Sync(&next);
    Emit({"sync log"}, next, visit);
  }
  for (int k = 0; k < bounds_.keys; ++k) {
    if (state.entries[k].build == 0) continue;
    if (bounds_.disk_evicts) {
      State next = state;
      DropEntry(k, &next);
      Emit({"evict from disk", k}, next, visit);
    }
    if (state.damages == bounds_.damages) continue;
    for (int l = 0; l < kLayers; ++l) {
      State next = state;
      ++next.damages;
      Place& place = next.places[state.entries[k].place];
      place.now[l] = place.safe[l] = kDamaged;
      Emit({"damage", k, l}, next, visit);
    }
  }
}

void ObjectsModel::NodeSteps(const State& state, const StepVisitor<State>& visit) const {
  for (int w = 0; w < bounds_.writers; ++w) {
    if (state.writers[w].moving == 0) continue;
    State next = state;
    Arrive(w, &next);
    Emit({"arrive", w}, next, visit);
  }
  for (int r = 0; r < bounds_.copiers; ++r) {
    if (state.readers[r].lease == 0) continue;
    State next = state;
    next.readers[r].lease = 0;
    Emit({"lease ends", r}, next, visit);
  }
  EvictionSteps(state, visit);
  if (bounds_.places > 0) DiskSteps(state, visit);
}

// --- crashes

// `survivors`, by bit: of what was written and not synced, in the order entries, records, layers.
Model::State ObjectsModel::Restarted(const State& state, uint32_t survivors) const {
  State next = state;
  ++next.crashes;
  int item = 0;
  const auto survives = [&] { return ((survivors >> item++) & 1) != 0; };
  for (int k = 0; k < kKeys; ++k) {
    if (state.entries[k] != state.safe_entries[k] && !survives()) next.entries[k] = state.safe_entries[k];
  }
  for (int k = 0; k < kKeys; ++k) {
    if (Has(state.live ^ state.safe_live, k) && !survives()) CopyBit(state.safe_live, k, &next.live);
  }
  for (Place& place : next.places) {
    for (int l = 0; l < kLayers; ++l) {
      if (place.now[l] != place.safe[l] && !survives()) place.now[l] = place.safe[l];
    }
    place.safe = place.now;
  }
  next.safe_entries = next.entries;
  next.safe_live = next.live;
  next.regions = {};
  next.reservations = {};
  next.objects = {};
  next.job = {};
  next.load = {};
  for (int w = 0; w < kWriters; ++w) {
    Writer& writer = next.writers[w];
    if (writer.build == 0) continue;
    const int slot = SlotOf(state, writer.token);
    const bool done = slot >= 0 && state.reservations[slot].phase == Phase::kCommitted;
    writer.moving = writer.moving_token = writer.moving_region = 0;
    writer.old = 1;
    if (!done) writer.over = 1;
  }
  for (int r = 0; r < kReaders; ++r) {
    Reader& reader = next.readers[r];
    reader.lease = 0;
    if (reader.build != 0) reader.old = 1;
    if (IsHolder(r)) reader = {};
  }
  return next;
}

void ObjectsModel::CrashSteps(const State& state, const StepVisitor<State>& visit) const {
  if (state.crashes == bounds_.crashes) return;
  int items = std::popcount(static_cast<uint8_t>(state.live ^ state.safe_live));
  for (int k = 0; k < kKeys; ++k) items += state.entries[k] != state.safe_entries[k] ? 1 : 0;
  for (const Place& place : state.places) {
    for (int l = 0; l < kLayers; ++l) items += place.now[l] != place.safe[l] ? 1 : 0;
  }
  const uint32_t all = (1u << items) - 1;
  for (uint32_t survivors = 0; survivors <= all; ++survivors) {
    Emit({"crash", static_cast<int>(survivors), survivors == all ? 1 : 0}, Restarted(state, survivors),
         visit);
  }
}

void ObjectsModel::Steps(const State& state, const StepVisitor<State>& visit) const {
  ClientSteps(state, visit);
  NodeSteps(state, visit);
  CrashSteps(state, visit);
}

// --- promises

std::string ObjectsModel::ObjectFault(const State& state, int key) const {
  const Object& object = state.objects[key];
  if (object.build == 0) return "";
  const std::string named = "key " + std::to_string(key);
  if (!Has(state.live, key)) return named + " is found after its deletion";
  if (Has(state.gone, object.build - 1)) return named + " is found as it was before its deletion";
  if (!Has(state.committed, object.build - 1)) return named + " is found before it was committed";
  if (!IsExactly(state.regions[object.region].bytes, object.build)) {
    return named + " is found with wrong bytes";
  }
  return "";
}

std::string ObjectsModel::ReaderFault(const State& state, int r) const {
  const Reader& reader = state.readers[r];
  if (reader.build == 0) return "";
  const Region& region = state.regions[reader.region];
  for (const Region& other : state.regions) {
    if (reader.old != 0 && other.generation == reader.generation) return "a generation is given twice";
  }
  if (IsHolder(r) && !IsExactly(region.bytes, reader.build)) return "bytes change under a zero-copy reader";
  const bool kept = region.generation == reader.generation && IsExactly(region.bytes, reader.build);
  return !IsHolder(r) && reader.lease != 0 && !kept ? "a leased object is lost" : "";
}

std::string ObjectsModel::Fault(const State& state) const {
  switch (state.broken) {
    case Broken::kNothing:
      break;
    case Broken::kWrongBytes:
      return "a reader accepts wrong bytes";
    case Broken::kForeignCommit:
      return "a commit succeeds for a reservation that is not its own, or no more";
    case Broken::kDurableLost:
      return "a durable object is lost";
  }
  for (int k = 0; k < kKeys; ++k) {
    if (std::string fault = ObjectFault(state, k); !fault.empty()) return fault;
  }
  for (int r = 0; r < kReaders; ++r) {
    if (std::string fault = ReaderFault(state, r); !fault.empty()) return fault;
  }
  if (HeldRegions(state) > bounds_.held_regions) return "readers hold all of the memory";
  for (int r = 0; r < kRegions; ++r) {
    if (state.regions[r].generation != 0 && !IsOwned(state, r)) return "a region is kept for nobody";
  }
  return "";
}

std::string ObjectsModel::Describe(const State& state) const {
  const auto number = [](int value) { return std::to_string(value); };
  const auto bytes = [&](const Bytes& layers) { return number(layers[0]) + "," + number(layers[1]); };
  const char* const phases[] = {"-", "open", "committed", "preempted"};
  std::string text;
  for (const Region& region : state.regions) {
    text +=
        "g" + number(region.generation) + (region.lingers != 0 ? "!" : "") + "[" + bytes(region.bytes) + "] ";
  }
  for (const Reservation& reservation : state.reservations) {
    if (reservation.phase == Phase::kNone) continue;
    text += std::string("| ") + phases[static_cast<int>(reservation.phase)] + " t" +
            number(reservation.token) + " b" + number(reservation.build) + " r" + number(reservation.region) +
            " w" + number(reservation.written) + " ";
  }
  for (const Writer& writer : state.writers) {
    if (writer.build == 0) continue;
    text += "| writer t" + number(writer.token) + " b" + number(writer.build) +
            (writer.over != 0 ? " over " : " ");
  }
  for (const Reader& reader : state.readers) {
    if (reader.build == 0) continue;
    text += "| reader b" + number(reader.build) + " g" + number(reader.generation) + " r" +
            number(reader.region) + (reader.lease != 0 ? " leased" : " ended") + " got " + bytes(reader.got) +
            " ";
  }
  for (int k = 0; k < bounds_.keys; ++k) {
    text += "| key " + number(k) + (Has(state.live, k) ? "" : " deleted") + ": memory b" +
            number(state.objects[k].build) + " r" + number(state.objects[k].region) + ", disk b" +
            number(state.entries[k].build) + " p" + number(state.entries[k].place) + " (safe b" +
            number(state.safe_entries[k].build) + ") ";
  }
  for (int p = 0; p < bounds_.places; ++p) {
    text += "| place " + bytes(state.places[p].now) + " (safe " + bytes(state.places[p].safe) + ") ";
  }
  return text;
}

}  // namespace epic::kv_store
