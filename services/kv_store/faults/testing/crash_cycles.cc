#include "services/kv_store/faults/testing/crash_cycles.h"

#include <algorithm>
#include <vector>

#include "common/status/error.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr uint32_t kTokens = 8;
constexpr uint64_t kLargeBytes = uint64_t{128} << 10;  // of the larger objects
constexpr int kStepsOfALife = 100;

std::string TenantOf(uint64_t context) { return context % 2 == 0 ? "a" : "b"; }

std::string PinAndTags(Pin pin, const std::vector<std::string>& tags) {
  std::string text = std::to_string(static_cast<int>(pin));
  for (const std::string& tag : tags) text += " " + tag;
  return text;
}

}  // namespace

WholeStoreOptions CrashCycles::OptionsOf(uint64_t seed, BrokenRule broken, const Clock* clock) {
  WholeStoreOptions options;
  options.slabs = seed % 2 == 0 ? SlabBackEnd::kExtents : SlabBackEnd::kBlobFiles;
  options.broken = broken;
  StoreOptions& store = options.store;
  store.memory_bytes = 4 * kLargeBytes;
  store.disk_bytes_max = seed / 2 % 2 == 0 ? uint64_t{64} << 20 : 6 * kLargeBytes;
  store.small_object_bytes = seed / 4 % 4 == 3 ? 0 : uint64_t{256} << 10;
  store.eviction = seed / 8 % 2 == 0 ? EvictionKind::kS3Fifo : EvictionKind::kLru;
  if (seed / 2 % 4 == 3)
    store.quotas = {{"b", {.memory_bytes = 2 * kLargeBytes, .disk_bytes = 2 * kLargeBytes}}};
  store.clock = clock;
  store.disk_wait_ms = seed % 3 == 0 ? 600'000 : 0;  // calls of the disk on threads of their own, or not
  return options;
}

CrashCycles::CrashCycles(uint64_t seed, BrokenRule broken, CrashCounts* counts)
    : seed_(seed),
      roomy_(seed / 2 % 2 == 0),
      counts_(counts),
      rng_(seed),
      whole_(seed, OptionsOf(seed, broken, &clock_)) {}

std::string CrashCycles::Run(int cycles) {
  if (const absl::Status status = whole_.Open(); !status.ok()) Complain("cannot open: " + status.ToString());
  for (int cycle = 0; cycle < cycles && !wrong(); ++cycle) {
    Live();
    if (!wrong()) CrashAndCompare();
  }
  if (!wrong()) return "";
  return "seed " + std::to_string(seed_) + ": " + complaint_ + "\nIts moves:\n" + moves_;
}

void CrashCycles::Complain(const std::string& what) {
  moves_ += "  " + what + "\n";
  if (complaint_.empty()) complaint_ = what;
}

void CrashCycles::Say(const std::string& move, const Key& key) {
  uint64_t number = 0;
  while (KeyOf(number) != key) ++number;
  moves_ += move + " " + std::to_string(number) + "\n";
}

// --- a life

void CrashCycles::Live() {
  moves_ += "a life\n";
  disk_failed_ = false;
  whole_.rocks()->SetLostOfFailedSyncs(50);
  if (rng_.Below(8) != 0) whole_.power()->CutAfter(1 + rng_.Below(rng_.Below(2) == 0 ? 40 : 400));
  for (int step = 0; step < kStepsOfALife && !whole_.power()->has_refused() && !wrong(); ++step) Step();
}

void CrashCycles::Step() {
  switch (rng_.Below(26)) {
    case 0:
    case 1:
    case 2:
      return Create();
    case 3:
    case 4:
      return Update();
    case 5:
      return Delete(AnyKey());
    case 6:
      return SetState();
    case 7:
    case 8:
    case 9:
    case 10:
      return Put();
    case 11:
      return rng_.Below(3) == 0 ? Drop() : Drain();
    case 12:
    case 13:
      return Drain();
    case 14:
      if (rng_.Below(2) == 0) return;
      return clock_.AdvanceMs(static_cast<int64_t>(rng_.Below(3) * rng_.Below(900'000)));
    case 15:
      return whole_.core()->Housekeep();
    case 16:
    case 17:
    case 18:
    case 19:
      return Acquire(AnyKey(), AnyVariant(), /*after_crash=*/false);
    case 20:
      return disk_failed_ ? MendDisk() : Drain();
    case 21:
      return rng_.Below(2) == 0 ? FailDisk() : Drain();
    default:
      return Put();
  }
}

CrashCycles::Key CrashCycles::KeyOf(uint64_t context) {
  const std::string tenant = TenantOf(context);
  return {tenant, CacheId::Of(tenant, {}, TokensOf(context, kTokens))};
}

ObjectVariant CrashCycles::AnyVariant() {
  return {.prefix = rng_.Below(3) == 0 ? CompilePrefixKind::kBos : CompilePrefixKind::kNone};
}

// Some objects are small and go through the log, others go to the slabs' back-end.
KvLayout CrashCycles::LayoutFor(const ObjectVariant& variant) {
  return LayoutOf(kTokens, 2, 2, variant.prefix == CompilePrefixKind::kBos ? 8 : 1024);
}

// What was written before has been synced, whatever it was.
void CrashCycles::Synced() {
  cut_.clear();  // who goes on after a failure has undone what failed
  for (auto& [key, context] : model_.contexts()) context.states = {context.state};
  for (auto& [name, safety] : safety_) {
    if (safety == Safety::kDrained) safety = Safety::kSafe;
  }
}

void CrashCycles::Unsafe(const Key& key) {
  std::erase_if(safety_, [&](const auto& object) { return object.first.first == key; });
  std::erase_if(unwritten_, [&](const ObjectName& name) { return name.first == key; });
}

bool CrashCycles::Changed(const Key& key, const absl::Status& status, const StoreModel& attempt) {
  if (status.ok()) {
    ++counts_->acknowledged;
    model_ = attempt;
    // A change that found all as it should be wrote nothing, and so undid nothing.
    if (!disk_failed_) cut_.erase(key);
    return true;
  }
  const bool cut = whole_.power()->is_cut();
  if (!cut && !disk_failed_) Complain("fails on a disk that works: " + status.ToString());
  ++(cut ? counts_->cut_calls : counts_->disk_failures);
  moves_ += "  failed: " + status.ToString() + "\n";
  cut_[key].push_back(attempt);
  return false;
}

void CrashCycles::Create() {
  const uint64_t number = rng_.Below(kContexts);
  NewContext context = ContextOf(number, kTokens, TenantOf(number));
  if (rng_.Below(3) == 0) context.ttl_seconds = 1 + static_cast<int64_t>(rng_.Below(1800));
  context.pin = static_cast<Pin>(rng_.Below(2));
  if (rng_.Below(2) == 0) context.tags = {"t" + std::to_string(rng_.Below(3))};
  if (number % 3 == 0) context.durability = Durability::kObject;
  const Key key = KeyOf(number);
  const bool live = model_.Live(key, now());
  Say("create with " + PinAndTags(context.pin, context.tags) + ", context", key);
  StoreModel attempt = model_;
  attempt.Create(key, context, now());
  const auto created = whole_.core()->CreateContext(context);
  if (!live) Unsafe(key);
  if (!Changed(key, created.status(), attempt)) return;
  if (created->created == live) Complain("created, or not, against what was there");
  if (created->created) Synced();
}

void CrashCycles::Update() {
  const Key key = AnyKey();
  ContextPatch patch;
  if (rng_.Below(2) == 0) patch.ttl_seconds = std::optional<int64_t>(1 + rng_.Below(1800));
  patch.pin = static_cast<Pin>(rng_.Below(2));
  patch.tags = std::vector<std::string>{"u" + std::to_string(rng_.Below(100))};
  Say("update to " + PinAndTags(*patch.pin, *patch.tags) + ", context", key);
  const auto record = whole_.core()->UpdateContext(key.first, key.second, patch);
  if (!model_.Live(key, now())) {
    if (record.ok()) Complain("changed what is gone");
    return;
  }
  StoreModel attempt = model_;
  ModelContext* const context = attempt.Find(key);
  if (patch.ttl_seconds.has_value()) {
    context->expires_at_ms = now() + **patch.ttl_seconds * 1000;
  }
  context->created.pin = *patch.pin;
  context->created.tags = *patch.tags;
  context->states = {context->state};
  if (Changed(key, record.status(), attempt)) Synced();
}

void CrashCycles::Delete(const Key& key) {
  Say("delete", key);
  const bool live = model_.Live(key, now());
  StoreModel attempt = model_;
  attempt.Delete(key, now());
  const auto deleted = whole_.core()->DeleteContext(key.first, key.second);
  if (!Changed(key, deleted.status(), attempt)) return;
  Unsafe(key);
  if (*deleted != live) Complain("deleted, or not, against what was there");
  if (live) Synced();
  if (live) ++counts_->deleted;
}

void CrashCycles::SetState() {
  const Key key = AnyKey();
  const auto state = static_cast<ContextState>(rng_.Below(3));
  Say("set the state of", key);
  const absl::Status status = whole_.core()->SetState(key.first, key.second, state, 5, "e");
  if (!model_.Live(key, now())) return;
  ModelContext* const context = model_.Find(key);
  context->states.insert(state);  // also where it failed
  for (StoreModel& attempt : cut_[key]) {
    if (attempt.Live(key, now())) attempt.Find(key)->states.insert(state);
  }
  if (status.ok()) context->state = state;
}

void CrashCycles::Put() {
  const Key key = AnyKey();
  const ObjectName name{key, AnyVariant()};
  const KvLayout layout = LayoutFor(name.second);
  const uint64_t content = 1 + rng_.Below(1'000'000);
  Say("put", key);
  StoreCore* const store = whole_.core();
  auto writer = store->Reserve(key.first, {key.second, name.second}, layout);
  if (!writer.ok()) return;
  for (uint32_t layer = 0; layer < layout.layers; ++layer) {
    if (rng_.Below(12) == 0) return;  // the writer is destroyed
    const std::string slab = SlabOf(layout, layer, content);
    if (!(*writer)->WriteLayer(layer, AsBytes(slab)).ok()) Complain("a layer is not taken");
  }
  if (rng_.Below(12) == 0) Delete(key);
  if (wrong()) return;
  if (model_.Live(key, now())) model_.Find(key)->committed[name.second].insert(content);
  for (auto& [other, attempts] : cut_) {
    for (StoreModel& attempt : attempts) {
      if (attempt.Live(key, now())) attempt.Find(key)->committed[name.second].insert(content);
    }
  }
  if (disk_failed_) {
    safety_.erase(name);
    unwritten_.insert(name);
  }
  const bool durable = model_.Live(key, now()) && model_.Find(key)->created.durability == Durability::kObject;
  const auto object = (*writer)->Commit();
  if (object.ok() && !model_.Live(key, now())) Complain("an object of a context that is gone");
  moves_ += object.ok() ? "  committed\n" : "  not committed\n";
  if (!object.ok()) return;
  if (ContentOf(**object, name) == 0) Complain("committed other bytes");
  if (rng_.Below(4) == 0 && !disk_failed_ && !(*writer)->Commit().ok() && !whole_.power()->is_cut()) {
    Complain("a commit that is said again fails");
  }
  // With quotas or little room it may have left the disk again.
  if (!roomy_) return;
  if (durable) {
    safety_[name] = Safety::kSafe;
  } else if (!unwritten_.contains(name)) {
    safety_.try_emplace(name, Safety::kMayBeLost);
  }
}

void CrashCycles::Drop() {
  const ObjectName name{AnyKey(), AnyVariant()};
  Say("drop", name.first);
  safety_.erase(name);
  unwritten_.erase(name);
  const absl::Status status = whole_.core()->DropObject(name.first.first, {name.first.second, name.second});
  if (!status.ok() && !disk_failed_ && !whole_.power()->is_cut()) Complain("a drop fails");
}

void CrashCycles::Drain() {
  moves_ += "drain\n";
  whole_.core()->DrainWrites();
  if (whole_.power()->is_cut() || disk_failed_) return;
  for (auto& [name, safety] : safety_) {
    if (safety == Safety::kMayBeLost) safety = Safety::kDrained;
  }
}

// Some of the next steps fail.
void CrashCycles::FailDisk() {
  if (disk_failed_) return;
  Drain();  // what was to be written before is
  if (whole_.power()->is_cut()) return;
  moves_ += "the disk fails\n";
  disk_failed_ = true;
  whole_.power()->FailAfter(rng_.Below(6), 1 + rng_.Below(rng_.Below(2) == 0 ? 2 : 12));
}

void CrashCycles::MendDisk() {
  whole_.core()->DrainWrites();
  if (whole_.power()->is_cut()) return;
  moves_ += "the disk works again\n";
  whole_.power()->Restore();
  clock_.AdvanceMs(10'000);
  if (const absl::Status status = whole_.core()->PutNodeRow("test", "mended"); !status.ok()) {
    return Complain("it does not go on: " + status.ToString());
  }
  ++counts_->recoveries;
  Synced();
  // Nobody tries again to write what could not be written.
  std::erase_if(safety_, [](const auto& object) { return object.second != Safety::kSafe; });
  disk_failed_ = false;
  CompareAll(/*after_crash=*/false);
  if (wrong()) return;
  // Extents whose file did not grow as it should have are found at the next open.
  const std::string leak = seed_ % 2 != 0 ? whole_.Leaks() : "";
  if (!leak.empty()) return Complain("a leak: " + leak);
  if (rng_.Below(4) != 0) whole_.power()->CutAfter(1 + rng_.Below(100));
}

uint64_t CrashCycles::ContentOf(const KvObject& object, const ObjectName& name) {
  for (const uint64_t content : model_.Find(name.first)->committed[name.second]) {
    const std::string first = SlabOf(object.layout(), 0, content);
    if (AsText(object.Layer(0)) == first && Holds(object, content)) return content;
  }
  return 0;
}

void CrashCycles::Acquire(const Key& key, const ObjectVariant& variant, bool after_crash) {
  const ObjectName name{key, variant};
  const auto result = whole_.core()->Acquire(key.first, {key.second, variant}, LayoutFor(variant));
  if (!result.ok()) return Complain("a lookup fails: " + result.status().ToString());
  const auto found = safety_.find(name);
  const bool safe = found != safety_.end() && found->second == Safety::kSafe;
  if (result->object == nullptr) {
    if (after_crash) ++counts_->misses_after;
    if (whole_.power()->is_cut() || !model_.Live(key, now())) return;
    if (disk_failed_ && result->cause == MissCause::kIoError)
      safety_.erase(name);
    else if (safe) {
      Say("acquire", key);
      Complain("an object is lost that was safe, cause " + std::to_string(static_cast<int>(result->cause)));
    }
    const bool damaged = result->cause == MissCause::kChecksum || result->cause == MissCause::kIoError;
    if (damaged && !disk_failed_) Complain("an entry names slabs that are not whole");
    return;
  }
  if (!model_.Live(key, now())) return Complain("an object of a context that is gone");
  if (ContentOf(*result->object, name) == 0) return Complain("wrong bytes");
  if (after_crash) ++counts_->hits_after;
  if (after_crash && safe) ++counts_->safe_hits;
}

// --- a crash

void CrashCycles::CrashAndCompare() {
  const bool orderly = !whole_.power()->is_cut() && !disk_failed_ && rng_.Below(3) == 0;
  moves_ += orderly ? "an orderly end\n" : "a crash\n";
  if (orderly) {
    whole_.power()->Restore();
    whole_.Close();
    for (auto& [name, safety] : safety_) safety = Safety::kSafe;
    for (auto& [key, context] : model_.contexts()) context.states = {context.state};
  } else {
    ++counts_->crashes;
    whole_.Crash(&rng_);
  }
  disk_failed_ = false;
  unwritten_.clear();
  std::erase_if(safety_, [](const auto& object) { return object.second != Safety::kSafe; });
  Reopen();
  if (wrong()) return;
  AdoptWhatCameThrough();
  CompareAll(/*after_crash=*/true);
  if (wrong()) return;
  if (const std::string leak = whole_.Leaks(); !leak.empty()) Complain("a leak: " + leak);
}

void CrashCycles::Reopen() {
  absl::Status status;
  for (int tries = 0; tries < 4; ++tries) {
    if (rng_.Below(3) == 0) whole_.power()->CutAfter(rng_.Below(80));
    status = whole_.Open();
    const bool cut = whole_.power()->is_cut();
    if (!cut) whole_.power()->Restore();
    if (status.ok() && !cut) return;
    if (!cut) break;
    ++counts_->cut_opens;
    whole_.Crash(&rng_);
  }
  if (status.ok() || whole_.core() == nullptr) status = whole_.Open();
  if (!status.ok()) Complain("cannot open: " + status.ToString());
}

// A call that was cut off, or that failed, may have reached the disk.
void CrashCycles::AdoptWhatCameThrough() {
  for (const auto& [key, attempts] : cut_) {
    if (Difference(key, model_, /*after_crash=*/true).empty()) continue;
    const auto fits =
        std::find_if(attempts.begin(), attempts.end(), [&, &key = key](const StoreModel& attempt) {
          return Difference(key, attempt, /*after_crash=*/true).empty();
        });
    if (fits == attempts.end()) continue;  // CompareAll says it
    model_.Adopt(key, *fits);
    ++counts_->came_through;
    if (!model_.Live(key, now())) Unsafe(key);
  }
  cut_.clear();
}

std::string CrashCycles::Difference(const Key& key, const StoreModel& model, bool after_crash) {
  StoreModel copy = model;
  const auto record = whole_.core()->GetContext(key.first, key.second);
  if (!copy.Live(key, now())) {
    if (record.ok()) return "a record is back that was gone, or never was";
    return CodeOf(record.status()) == copy.WhyNot(key) ? "" : "another reason why a record is gone";
  }
  if (!record.ok()) return "an acknowledged record is lost: " + record.status().ToString();
  const ModelContext& context = *copy.Find(key);
  if (record->created_at_ms != context.created_at_ms || record->expires_at_ms != context.expires_at_ms) {
    return "created at " + std::to_string(record->created_at_ms) + ", expires at " +
           std::to_string(record->expires_at_ms.value_or(0)) + " instead of " +
           std::to_string(context.created_at_ms) + ", " + std::to_string(context.expires_at_ms.value_or(0));
  }
  if (record->pin != context.created.pin || record->tags != context.created.tags) {
    return "pin and tags are " + PinAndTags(record->pin, record->tags) + " instead of " +
           PinAndTags(context.created.pin, context.created.tags);
  }
  const bool known = after_crash ? context.states.contains(record->state) : record->state == context.state;
  return known ? "" : "another state";
}

void CrashCycles::CompareAll(bool after_crash) {
  for (uint64_t number = 0; number < kContexts && !wrong(); ++number) {
    const Key key = KeyOf(number);
    if (const std::string difference = Difference(key, model_, after_crash); !difference.empty()) {
      return Complain("context " + std::to_string(number) + ": " + difference);
    }
    if (model_.Live(key, now())) {
      ModelContext* const context = model_.Find(key);
      context->state = whole_.core()->GetContext(key.first, key.second)->state;
      context->states = {context->state};
      const auto tokens = whole_.core()->GetTokens(key.first, key.second);
      if (!tokens.ok()) return Complain("token ids are lost: " + tokens.status().ToString());
      if (*tokens != TokensOf(number, kTokens)) return Complain("other token ids");
    }
    for (const CompilePrefixKind prefix : {CompilePrefixKind::kNone, CompilePrefixKind::kBos}) {
      Acquire(key, {.prefix = prefix}, after_crash);
    }
  }
}

}  // namespace epic::kv_store
