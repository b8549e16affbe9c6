#include "services/kv_store/core/record_table.h"

#include <algorithm>
#include <limits>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/storage/record_codec.h"

namespace epic::kv_store {
namespace {

constexpr uint32_t kMaxPage = 1000;

ContextKey KeyOfRecord(const ContextRecord& record) { return {record.tenant, record.id}; }

// now + ttl without overflow; nullopt: never.
std::optional<int64_t> ExpiryOf(int64_t now_ms, std::optional<int64_t> ttl_seconds) {
  if (!ttl_seconds.has_value()) return std::nullopt;
  const int64_t room = (std::numeric_limits<int64_t>::max() - now_ms) / 1000;
  return now_ms + std::clamp<int64_t>(*ttl_seconds, 0, room) * 1000;
}

// Whether a is later than b where nullopt is never, respectively for ever.
bool Later(const std::optional<int64_t>& a, const std::optional<int64_t>& b) {
  if (!b.has_value()) return false;
  return !a.has_value() || *a > *b;
}

void SortUnique(std::vector<std::string>* tags) {
  std::sort(tags->begin(), tags->end());
  tags->erase(std::unique(tags->begin(), tags->end()), tags->end());
}

Pin EffectivePin(Pin pin, const std::optional<int64_t>& until_ms, int64_t now_ms) {
  return until_ms.has_value() && *until_ms <= now_ms ? Pin::kNone : pin;
}

}  // namespace

RecordTable::RecordTable(const Clock* clock)
    : clock_(clock),
      keys_(0, KeyHash{&records_}, KeyEqual{&records_}),
      names_(0, NameHash{&records_}, NameEqual{&records_}),
      order_(PlaceLess{&records_}),
      expiries_(ExpiryLess{&records_}) {}

bool RecordTable::IsExpired(const PackedRecord& record) const {
  return record.expires() && record.expires_at_ms <= clock_->UnixMs();
}

HybridTime RecordTable::NextTime() {
  const int64_t now_ms = clock_->UnixMs();
  if (now_ms > last_time_.unix_ms) {
    last_time_ = {now_ms, 0};
  } else if (last_time_.counter < std::numeric_limits<uint32_t>::max()) {
    ++last_time_.counter;
  } else {
    last_time_ = {last_time_.unix_ms + 1, 0};
  }
  return last_time_;
}

void RecordTable::Observe(const HybridTime& time) { last_time_ = std::max(last_time_, time); }

std::optional<PackedContext> RecordTable::PackedOf(const ContextRef& context) const {
  const uint32_t tenant = packer_.TenantOf(context.tenant);
  if (tenant == kNone) return std::nullopt;
  return PackedContext{tenant, context.id};
}

ContextKey RecordTable::KeyOf(const PackedContext& key) const {
  return {packer_.TenantAt(key.tenant), Unpack(key.id)};
}

uint32_t RecordTable::IndexOf(const ContextRef& context) const {
  const auto packed = PackedOf(context);
  if (!packed.has_value()) return kNone;
  const auto record = keys_.find(*packed);
  return record == keys_.end() ? kNone : *record;
}

const Tombstone* RecordTable::TombstoneOf(const ContextRef& context) const {
  const auto packed = PackedOf(context);
  if (!packed.has_value()) return nullptr;
  const auto tombstone = tombstones_.find(*packed);
  return tombstone == tombstones_.end() ? nullptr : &tombstone->second;
}

uint32_t RecordTable::Insert(const ContextRecord& record) {
  const uint32_t old = IndexOf(KeyOfRecord(record));
  const bool touched = old != kNone && records_[old].touched;
  const uint32_t index = records_.Add(packer_.Pack(record));
  if (old != kNone) Erase(old);
  PackedRecord& packed = records_[index];
  keys_.insert(index);
  if (!packed.name().empty()) {
    // Two records may claim a name when one had expired before its tombstone was written: the later claim
    // wins.
    const auto [holder, inserted] = names_.insert(index);
    if (!inserted && records_[*holder].name_changed() < packed.name_changed()) {
      names_.erase(holder);
      names_.insert(index);
    }
  }
  order_.insert(index);
  if (packed.expires()) expiries_.insert(index);
  if (!packed.hidden) ++visible_;
  if (touched) {
    packed.touched = true;
    touched_.push_back(index);
  }
  return index;
}

void RecordTable::Erase(uint32_t index) {
  const PackedRecord& record = records_[index];
  keys_.erase(keys_.find(record.key));
  if (!record.name().empty()) {
    const auto holder = names_.find(RecordPacker::NameOf(record));
    if (holder != names_.end() && *holder == index) names_.erase(holder);
  }
  order_.erase(index);
  if (record.expires()) expiries_.erase(index);
  if (!record.hidden) --visible_;
  packer_.Release(record);
  records_.Erase(index);
}

void RecordTable::InsertTombstone(const ContextKey& key, const Tombstone& tombstone) {
  EraseTombstone(key);
  const PackedContext packed{packer_.TakeTenant(key.tenant), Pack(key.id)};
  tombstones_.emplace(packed, tombstone);
  tombstone_ages_.insert({tombstone.at, packed});
}

void RecordTable::EraseTombstone(const ContextKey& key) {
  const auto packed = PackedOf(RefOf(key));
  if (!packed.has_value()) return;
  const auto tombstone = tombstones_.find(*packed);
  if (tombstone == tombstones_.end()) return;
  tombstone_ages_.erase({tombstone->second.at, *packed});
  tombstones_.erase(tombstone);
  packer_.ReleaseTenant(packed->tenant);
}

uint32_t RecordTable::HolderOf(std::string_view tenant, const Digest& model_identity,
                               std::string_view name) const {
  const uint32_t owner = packer_.TenantOf(tenant);
  const uint32_t identity = packer_.IdentityOf(model_identity);
  if (owner == kNone || identity == kNone) return kNone;
  const auto holder = names_.find(PackedName{owner, identity, name});
  return holder == names_.end() ? kNone : *holder;
}

absl::Status RecordTable::CheckName(const ContextRecord& record, const std::string& name) const {
  if (name.empty()) return absl::OkStatus();
  const auto reserved = reserved_names_.find({record.tenant, record.model_identity, name});
  const uint32_t holder = HolderOf(record.tenant, record.model_identity, name);
  const bool is_reserved = reserved != reserved_names_.end() && reserved->second != record.id;
  const bool is_held =
      holder != kNone && records_[holder].key.id != Pack(record.id) && !IsExpired(records_[holder]);
  if (!is_reserved && !is_held) return absl::OkStatus();
  return Error(ErrorCode::kNameInUse,
               "the name belongs to another context; choose another or rename that one", "name");
}

absl::Status RecordTable::ReserveName(const ContextRecord& record) {
  EPIC_RETURN_IF_ERROR(CheckName(record, record.name));
  if (!record.name.empty()) reserved_names_[{record.tenant, record.model_identity, record.name}] = record.id;
  return absl::OkStatus();
}

void RecordTable::ReleaseReservation(const ContextRecord& record) {
  const auto reserved = reserved_names_.find({record.tenant, record.model_identity, record.name});
  if (reserved != reserved_names_.end() && reserved->second == record.id) reserved_names_.erase(reserved);
}

void RecordTable::Load(const ContextRecord& record) {
  const ExclusiveLock lock(&mu_);
  Observe(LatestTime({.record = record, .tombstone = std::nullopt}));
  const Tombstone* tombstone = TombstoneOf(KeyOfRecord(record));
  if (tombstone != nullptr && !Counts(record, *tombstone)) return;
  Insert(record);
}

void RecordTable::Load(const ContextKey& key, const Tombstone& tombstone) {
  const ExclusiveLock lock(&mu_);
  Observe(LatestTime({.record = std::nullopt, .tombstone = tombstone}));
  InsertTombstone(key, tombstone);
  const uint32_t index = IndexOf(key);
  if (index != kNone && !Counts(packer_.Unpack(records_[index]), tombstone)) Erase(index);
}

absl::StatusOr<uint32_t> RecordTable::Find(const ContextKey& key) const {
  const uint32_t index = IndexOf(key);
  if (index != kNone && !IsExpired(records_[index])) return index;
  const Tombstone* tombstone = TombstoneOf(key);
  if (index == kNone && tombstone == nullptr) {
    return Error(ErrorCode::kContextNotFound, "no such context; create it with POST /v1/contexts", "id");
  }
  if (index == kNone && tombstone->cause == RemovalCause::kDeleted) {
    return Error(ErrorCode::kContextDeleted, "the context was deleted; create it again to use it", "id");
  }
  return Error(ErrorCode::kContextExpired, "the context has expired; create it again with a longer ttl",
               "id");
}

RecordTable::Sight RecordTable::Look(const ContextRef& context) const {
  const SharedLock lock(&mu_);
  const uint32_t index = IndexOf(context);
  if (index != kNone && !IsExpired(records_[index])) {
    return {.life = Life::kLive, .model_identity = packer_.IdentityAt(records_[index].identity)};
  }
  const bool known = index != kNone || TombstoneOf(context) != nullptr;
  return {.life = known ? Life::kGone : Life::kNever, .model_identity = {}};
}

absl::StatusOr<ContextRecord> RecordTable::Get(const ContextKey& key) const {
  const SharedLock lock(&mu_);
  EPIC_ASSIGN_OR_RETURN(const uint32_t index, Find(key));
  return packer_.Unpack(records_[index]);
}

absl::StatusOr<ContextRecord> RecordTable::FindByName(std::string_view tenant, const Digest& model_identity,
                                                      std::string_view name) const {
  const SharedLock lock(&mu_);
  const uint32_t holder = HolderOf(tenant, model_identity, name);
  if (holder != kNone && !IsExpired(records_[holder])) return packer_.Unpack(records_[holder]);
  return Error(ErrorCode::kContextNotFound, "no context has this name under this model", "name");
}

absl::StatusOr<RecordTable::Place> RecordTable::PlaceOf(const ContextKey& key) const {
  const auto packed = PackedOf(RefOf(key));
  if (const uint32_t index = IndexOf(key); index != kNone) return PlaceOf(records_[index]);
  const Tombstone* tombstone = TombstoneOf(key);
  if (tombstone == nullptr || !tombstone->created_at_ms.has_value()) {
    return Error(ErrorCode::kContextNotFound,
                 "the list has no such place, now or in the last days: start again without after", "after");
  }
  return Place{packed->tenant, *tombstone->created_at_ms, packed->id};
}

bool RecordTable::Matches(const PackedRecord& record, const ContextQuery& query) const {
  if (record.hidden || IsExpired(record)) return false;
  if (query.model.has_value() && packer_.ModelAt(record.model) != *query.model) return false;
  if (query.state.has_value() && record.state != *query.state) return false;
  if (query.name.has_value() && record.name() != *query.name) return false;
  return !query.tag.has_value() || record.HasTag(*query.tag);
}

absl::StatusOr<ContextPage> RecordTable::List(std::string_view tenant, const ContextQuery& query) const {
  if (query.limit < 1 || query.limit > kMaxPage) {
    return Error(ErrorCode::kInvalidRequest, "limit must be 1..1000", "limit");
  }
  const SharedLock lock(&mu_);
  const uint32_t owner = packer_.TenantOf(tenant);
  constexpr int64_t kFirst = std::numeric_limits<int64_t>::min();
  auto begin = owner == kNone ? order_.end() : order_.lower_bound(Place{owner, kFirst, {}});
  auto end = owner == kNone ? order_.end() : order_.lower_bound(Place{owner + 1, kFirst, {}});
  if (!query.after.empty()) {
    EPIC_ASSIGN_OR_RETURN(const Place cursor, PlaceOf({std::string(tenant), query.after}));
    (query.descending ? end : begin) =
        query.descending ? order_.lower_bound(cursor) : order_.upper_bound(cursor);
  }
  ContextPage page;
  // Adds a record; false when the page is full.
  const auto visit = [&](uint32_t index) ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    if (!Matches(records_[index], query)) return true;
    page.has_more = page.records.size() == query.limit;
    if (!page.has_more) page.records.push_back(packer_.Unpack(records_[index]));
    return !page.has_more;
  };
  if (query.descending) {
    while (begin != end && visit(*--end)) {
    }
  } else {
    while (begin != end && visit(*begin)) ++begin;
  }
  return page;
}

RecordPlan RecordTable::NewRecord(const ContextKey& key, const NewContext& context) {
  ContextRecord record;
  record.tenant = key.tenant;
  record.id = key.id;
  record.model_identity = context.model_identity;
  record.model = context.model;
  record.token_count = static_cast<uint32_t>(context.tokens.size());
  record.created_at_ms = clock_->UnixMs();
  record.hidden = context.hidden;
  record.compile_prefix = context.compile_prefix;
  record.durability = context.durability;
  record.ttl_seconds = context.ttl_seconds;
  record.expires_at_ms = ExpiryOf(record.created_at_ms, context.ttl_seconds);
  record.pin = context.pin;
  if (context.pin != Pin::kNone) record.pin_until_ms = context.pin_until_ms;
  record.tags = context.tags;
  SortUnique(&record.tags);
  record.name = context.name;
  const HybridTime now = NextTime();
  record.created = now;
  record.expiry_changed = record.pin_changed = record.tags_changed = record.name_changed = now;
  record.last_used_at_ms = record.created_at_ms;
  return {.record = std::move(record), .created = true, .changed = true};
}

RecordPlan RecordTable::Merge(const ContextRecord& old, const NewContext& context) {
  RecordPlan plan{.record = old};
  ContextRecord& record = plan.record;
  const int64_t now_ms = clock_->UnixMs();
  const HybridTime now = NextTime();
  const auto expires_at_ms = ExpiryOf(now_ms, context.ttl_seconds);
  if (Later(expires_at_ms, old.expires_at_ms)) {
    record.ttl_seconds = context.ttl_seconds;
    record.expires_at_ms = expires_at_ms;
    record.expiry_changed = now;
    plan.changed = true;
  }
  const Pin old_pin = EffectivePin(old.pin, old.pin_until_ms, now_ms);
  const bool longer =
      context.pin != Pin::kNone && context.pin == old_pin && Later(context.pin_until_ms, old.pin_until_ms);
  if (context.pin > old_pin || longer) {
    record.pin = context.pin;
    record.pin_until_ms = context.pin_until_ms;
    record.pin_changed = now;
    plan.changed = true;
  }
  record.tags.insert(record.tags.end(), context.tags.begin(), context.tags.end());
  SortUnique(&record.tags);
  if (record.tags != old.tags) {
    record.tags_changed = now;
    plan.changed = true;
  }
  if (old.name.empty() && !context.name.empty()) {
    record.name = context.name;
    record.name_changed = now;
    plan.changed = true;
  }
  if (old.hidden && !context.hidden) {
    record.hidden = false;
    plan.changed = true;
  }
  return plan;
}

absl::StatusOr<RecordPlan> RecordTable::PlanCreate(const ContextKey& key, const NewContext& context) {
  const ExclusiveLock lock(&mu_);
  const auto old = Find(key);
  RecordPlan plan = old.ok() ? Merge(packer_.Unpack(records_[*old]), context) : NewRecord(key, context);
  plan.replaces = plan.created && IndexOf(key) != kNone;
  EPIC_RETURN_IF_ERROR(ValidateRecord(plan.record));
  // A name given on a hit must be free or this context's own, even where it is not taken over.
  EPIC_RETURN_IF_ERROR(CheckName(plan.record, context.name));
  // A plan that changes nothing is neither applied nor abandoned.
  if (plan.changed) EPIC_RETURN_IF_ERROR(ReserveName(plan.record));
  return plan;
}

absl::StatusOr<RecordPlan> RecordTable::PlanUpdate(const ContextKey& key, const ContextPatch& patch) {
  const ExclusiveLock lock(&mu_);
  EPIC_ASSIGN_OR_RETURN(const uint32_t old, Find(key));
  RecordPlan plan{.record = packer_.Unpack(records_[old]), .changed = true};
  ContextRecord& record = plan.record;
  const HybridTime now = NextTime();
  if (patch.ttl_seconds.has_value()) {
    record.ttl_seconds = *patch.ttl_seconds;
    record.expires_at_ms = ExpiryOf(clock_->UnixMs(), record.ttl_seconds);
    record.expiry_changed = now;
  }
  if (patch.pin.has_value() || patch.pin_until_ms.has_value()) {
    record.pin = patch.pin.value_or(record.pin);
    record.pin_until_ms = patch.pin_until_ms.value_or(record.pin_until_ms);
    if (record.pin == Pin::kNone) record.pin_until_ms = std::nullopt;
    record.pin_changed = now;
  }
  if (patch.tags.has_value()) {
    record.tags = *patch.tags;
    SortUnique(&record.tags);
    record.tags_changed = now;
  }
  if (patch.name.has_value()) {
    record.name = *patch.name;
    record.name_changed = now;
  }
  EPIC_RETURN_IF_ERROR(ValidateRecord(record));
  EPIC_RETURN_IF_ERROR(ReserveName(record));
  return plan;
}

absl::StatusOr<RecordPlan> RecordTable::PlanState(const ContextKey& key, ContextState state,
                                                  int64_t compile_ms, std::string_view error) const {
  const SharedLock lock(&mu_);
  EPIC_ASSIGN_OR_RETURN(const uint32_t old, Find(key));
  RecordPlan plan{.record = packer_.Unpack(records_[old]), .changed = true};
  plan.record.state = state;
  plan.record.compile_ms = compile_ms;
  plan.record.error =
      std::string(state == ContextState::kFailed ? error.substr(0, kMaxRecordErrorBytes) : "");
  return plan;
}

void RecordTable::Apply(const RecordPlan& plan) {
  const ExclusiveLock lock(&mu_);
  const ContextKey key = KeyOfRecord(plan.record);
  const uint32_t old = IndexOf(key);
  const uint32_t hits = old != kNone && !plan.created ? records_[old].hits : 0;
  const int64_t last_used_at_ms =
      old != kNone && !plan.created ? records_[old].last_used_at_ms : plan.record.last_used_at_ms;
  EraseTombstone(key);
  PackedRecord& record = records_[Insert(plan.record)];
  record.hits = std::max(record.hits, hits);
  record.last_used_at_ms = std::max(record.last_used_at_ms, last_used_at_ms);
  ReleaseReservation(plan.record);
  Tell(key);
}

void RecordTable::Abandon(const RecordPlan& plan) {
  const ExclusiveLock lock(&mu_);
  ReleaseReservation(plan.record);
}

std::optional<Tombstone> RecordTable::PlanRemoval(const ContextKey& key, RemovalCause cause) {
  const ExclusiveLock lock(&mu_);
  const uint32_t index = IndexOf(key);
  if (index == kNone) return std::nullopt;
  const bool expired = IsExpired(records_[index]);
  if (cause == RemovalCause::kExpired && !expired) return std::nullopt;
  const ContextRecord record = packer_.Unpack(records_[index]);
  Tombstone tombstone{.at = NextTime(), .created_at_ms = record.created_at_ms};
  if (expired) {
    tombstone.cause = RemovalCause::kExpired;
    tombstone.expired_life = record.created;
    tombstone.expired = record.expiry_changed;
  } else {
    tombstone.deleted = tombstone.at;
  }
  return tombstone;
}

void RecordTable::ApplyRemoval(const ContextKey& key, const Tombstone& tombstone) {
  const ExclusiveLock lock(&mu_);
  InsertTombstone(key, tombstone);
  if (const uint32_t index = IndexOf(key); index != kNone) Erase(index);
  Tell(key);
}

ReplicaState RecordTable::StateUnder(const ContextKey& key) const {
  ReplicaState state;
  if (const uint32_t index = IndexOf(key); index != kNone) state.record = packer_.Unpack(records_[index]);
  if (const Tombstone* tombstone = TombstoneOf(key); tombstone != nullptr) state.tombstone = *tombstone;
  return state;
}

std::optional<ReplicaState> RecordTable::StateOf(const ContextKey& key) const {
  const SharedLock lock(&mu_);
  const ReplicaState state = StateUnder(key);
  return state == ReplicaState{} ? std::nullopt : std::optional<ReplicaState>(state);
}

std::optional<ReplicaState> RecordTable::PlanJoin(const ContextKey& key, const ReplicaState& state) {
  const ExclusiveLock lock(&mu_);
  Observe(LatestTime(state));
  const ReplicaState before = StateUnder(key);
  ReplicaState joined = Join(before, state);
  if (joined == before) return std::nullopt;
  return joined;
}

void RecordTable::ApplyJoin(const ContextKey& key, const ReplicaState& joined) {
  const ExclusiveLock lock(&mu_);
  EraseTombstone(key);
  if (joined.tombstone.has_value()) InsertTombstone(key, *joined.tombstone);
  if (joined.record.has_value()) {
    Insert(*joined.record);
  } else if (const uint32_t index = IndexOf(key); index != kNone) {
    Erase(index);
  }
  Tell(key);
}

HybridTime RecordTable::Tick(const HybridTime& seen) {
  const ExclusiveLock lock(&mu_);
  Observe(seen);
  return NextTime();
}

std::vector<ContextKey> RecordTable::Expired(size_t limit) const {
  const SharedLock lock(&mu_);
  const int64_t now_ms = clock_->UnixMs();
  std::vector<ContextKey> keys;
  for (const uint32_t index : expiries_) {
    if (records_[index].expires_at_ms > now_ms || keys.size() == limit) break;
    keys.push_back(KeyOf(records_[index].key));
  }
  return keys;
}

std::vector<ContextKey> RecordTable::TombstonesBefore(const HybridTime& time, size_t limit) const {
  const SharedLock lock(&mu_);
  std::vector<ContextKey> keys;
  for (const auto& [at, key] : tombstone_ages_) {
    if (at >= time || keys.size() == limit) break;
    keys.push_back(KeyOf(key));
  }
  return keys;
}

void RecordTable::ForgetTombstone(const ContextKey& key) {
  const ExclusiveLock lock(&mu_);
  EraseTombstone(key);
  Tell(key);
}

// --- who is told ---

void RecordTable::SetObserver(TableObserver* observer) {
  const ExclusiveLock lock(&mu_);
  observer_ = observer;
}

ContextSummary RecordTable::SummaryAt(uint32_t index) const {
  const PackedRecord& record = records_[index];
  ContextSummary summary{.life = ContextLife::kLive,
                         .state = record.state,
                         .model_identity = packer_.IdentityAt(record.identity),
                         .hidden = record.hidden,
                         .token_count = record.token_count};
  if (record.expires()) summary.expires_at_ms = record.expires_at_ms;
  return summary;
}

ContextSummary RecordTable::SummaryUnder(const ContextKey& key) const {
  if (const uint32_t index = IndexOf(key); index != kNone) return SummaryAt(index);
  const Tombstone* const tombstone = TombstoneOf(key);
  if (tombstone == nullptr) return {};
  const bool deleted = tombstone->cause == RemovalCause::kDeleted;
  return {.life = deleted ? ContextLife::kDeleted : ContextLife::kExpired};
}

void RecordTable::Tell(const ContextKey& key) {
  if (observer_ != nullptr) observer_->ContextChanged(key, SummaryUnder(key));
}

ContextSummary RecordTable::SummaryOf(const ContextKey& key) const {
  const SharedLock lock(&mu_);
  ContextSummary summary = SummaryUnder(key);
  if (summary.expires_at_ms.has_value() && *summary.expires_at_ms <= clock_->UnixMs()) {
    return {.life = ContextLife::kExpired};
  }
  return summary;
}

std::vector<std::pair<ContextKey, ContextSummary>> RecordTable::ListSummaries(uint32_t* place,
                                                                              size_t max) const {
  const SharedLock lock(&mu_);
  std::vector<std::pair<ContextKey, ContextSummary>> list;
  for (; *place < records_.end() && list.size() < max; ++*place) {
    const bool is_erased = records_[*place].token_count == 0;  // a record has tokens
    if (!is_erased) list.emplace_back(KeyOf(records_[*place].key), SummaryAt(*place));
  }
  return list;
}

bool RecordTable::HasTombstone(const ContextKey& key) const {
  const SharedLock lock(&mu_);
  return TombstoneOf(key) != nullptr;
}

void RecordTable::Touch(const ContextKey& key) {
  const ExclusiveLock lock(&mu_);
  const uint32_t index = IndexOf(key);
  if (index == kNone) return;
  PackedRecord& record = records_[index];
  if (record.hits < std::numeric_limits<uint32_t>::max()) ++record.hits;
  record.last_used_at_ms = clock_->UnixMs();
  if (!record.touched) touched_.push_back(index);
  record.touched = true;
}

std::vector<ContextKey> RecordTable::TakeTouched() {
  const ExclusiveLock lock(&mu_);
  std::vector<ContextKey> keys;
  for (const uint32_t index : touched_) {
    PackedRecord& record = records_[index];
    if (!record.touched) continue;
    record.touched = false;
    keys.push_back(KeyOf(record.key));
  }
  touched_.clear();
  return keys;
}

uint64_t RecordTable::VisibleCount() const {
  const SharedLock lock(&mu_);
  return visible_;
}

}  // namespace epic::kv_store
