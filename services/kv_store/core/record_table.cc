#include "services/kv_store/core/record_table.h"

#include <algorithm>
#include <limits>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/storage/record_codec.h"

namespace epic::kv_store {
namespace {

constexpr uint32_t kMaxPage = 1000;

ContextKey KeyOf(const ContextRecord& record) { return {record.tenant, record.id}; }

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

bool Matches(const ContextRecord& record, const ContextQuery& query) {
  if (record.hidden) return false;
  if (query.model.has_value() && record.model != *query.model) return false;
  if (query.state.has_value() && record.state != *query.state) return false;
  if (query.name.has_value() && record.name != *query.name) return false;
  return !query.tag.has_value() || std::binary_search(record.tags.begin(), record.tags.end(), *query.tag);
}

HybridTime LastChange(const ContextRecord& record) {
  return std::max({record.expiry_changed, record.pin_changed, record.tags_changed, record.name_changed});
}

}  // namespace

bool RecordTable::IsExpired(const ContextRecord& record) const {
  return record.expires_at_ms.has_value() && *record.expires_at_ms <= clock_->UnixMs();
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

void RecordTable::Insert(const ContextRecord& record) {
  const ContextKey key = KeyOf(record);
  Erase(key);
  if (!record.name.empty()) {
    // Two records may claim a name when one had expired before its tombstone was written: the later claim
    // wins.
    const auto [held, inserted] =
        names_.try_emplace({record.tenant, record.model_identity, record.name}, record.id);
    if (!inserted && held->second != record.id) {
      const auto holder = records_.find({record.tenant, held->second});
      if (holder == records_.end() || holder->second.name_changed < record.name_changed)
        held->second = record.id;
    }
  }
  order_.insert({record.tenant, record.created_at_ms, record.id});
  if (record.expires_at_ms.has_value()) expiries_.insert({*record.expires_at_ms, key});
  if (!record.hidden) ++visible_;
  records_[key] = record;
}

void RecordTable::Erase(const ContextKey& key) {
  const auto found = records_.find(key);
  if (found == records_.end()) return;
  const ContextRecord& record = found->second;
  ReleaseName(record);
  order_.erase({record.tenant, record.created_at_ms, record.id});
  if (record.expires_at_ms.has_value()) expiries_.erase({*record.expires_at_ms, key});
  if (!record.hidden) --visible_;
  records_.erase(found);
}

void RecordTable::ReleaseName(const ContextRecord& record) {
  if (record.name.empty()) return;
  const auto held = names_.find({record.tenant, record.model_identity, record.name});
  if (held != names_.end() && held->second == record.id) names_.erase(held);
}

absl::Status RecordTable::CheckName(const ContextRecord& record, const std::string& name) const {
  const auto held = names_.find({record.tenant, record.model_identity, name});
  if (name.empty() || held == names_.end() || held->second == record.id) return absl::OkStatus();
  const auto holder = records_.find({record.tenant, held->second});
  if (holder != records_.end() && IsExpired(holder->second)) return absl::OkStatus();
  return Error(ErrorCode::kNameInUse,
               "the name belongs to another context; choose another or rename that one", "name");
}

absl::Status RecordTable::ReserveName(const ContextRecord& record) {
  EPIC_RETURN_IF_ERROR(CheckName(record, record.name));
  if (!record.name.empty()) names_[{record.tenant, record.model_identity, record.name}] = record.id;
  return absl::OkStatus();
}

void RecordTable::Load(const ContextRecord& record) {
  MutexLock lock(&mu_);
  Observe(LastChange(record));
  const auto tombstone = tombstones_.find(KeyOf(record));
  if (tombstone != tombstones_.end() && tombstone->second.at > LastChange(record)) return;
  Insert(record);
}

void RecordTable::Load(const ContextKey& key, const Tombstone& tombstone) {
  MutexLock lock(&mu_);
  Observe(tombstone.at);
  tombstones_[key] = tombstone;
  tombstone_ages_.insert({tombstone.at, key});
  const auto record = records_.find(key);
  if (record != records_.end() && tombstone.at > LastChange(record->second)) Erase(key);
}

absl::StatusOr<const ContextRecord*> RecordTable::Find(const ContextKey& key) const {
  const auto record = records_.find(key);
  if (record != records_.end() && !IsExpired(record->second)) return &record->second;
  const auto tombstone = tombstones_.find(key);
  const bool gone = record == records_.end() && tombstone == tombstones_.end();
  if (gone) {
    return Error(ErrorCode::kContextNotFound, "no such context; create it with POST /v1/contexts", "id");
  }
  if (record == records_.end() && tombstone->second.cause == RemovalCause::kDeleted) {
    return Error(ErrorCode::kContextDeleted, "the context was deleted; create it again to use it", "id");
  }
  return Error(ErrorCode::kContextExpired, "the context has expired; create it again with a longer ttl",
               "id");
}

absl::StatusOr<ContextRecord> RecordTable::Get(const ContextKey& key) const {
  MutexLock lock(&mu_);
  EPIC_ASSIGN_OR_RETURN(const ContextRecord* record, Find(key));
  return *record;
}

absl::StatusOr<ContextRecord> RecordTable::FindByName(std::string_view tenant, const Digest& model_identity,
                                                      std::string_view name) const {
  MutexLock lock(&mu_);
  const auto held = names_.find({std::string(tenant), model_identity, std::string(name)});
  if (held != names_.end()) {
    const auto record = records_.find({std::string(tenant), held->second});
    const bool live = record != records_.end() && record->second.name == name && !IsExpired(record->second);
    if (live) return record->second;
  }
  return Error(ErrorCode::kContextNotFound, "no context has this name under this model", "name");
}

absl::StatusOr<RecordTable::OrderKey> RecordTable::PlaceOf(const ContextKey& key) const {
  std::optional<int64_t> created_at_ms;
  if (const auto record = records_.find(key); record != records_.end()) {
    created_at_ms = record->second.created_at_ms;
  } else if (const auto tombstone = tombstones_.find(key); tombstone != tombstones_.end()) {
    created_at_ms = tombstone->second.created_at_ms;
  }
  if (!created_at_ms.has_value()) {
    return Error(ErrorCode::kContextNotFound,
                 "the list has no such place, now or in the last days: start again without after", "after");
  }
  return OrderKey{key.tenant, *created_at_ms, key.id};
}

absl::StatusOr<ContextPage> RecordTable::List(std::string_view tenant, const ContextQuery& query) const {
  if (query.limit < 1 || query.limit > kMaxPage) {
    return Error(ErrorCode::kInvalidRequest, "limit must be 1..1000", "limit");
  }
  MutexLock lock(&mu_);
  const std::string owner(tenant);
  auto begin = order_.lower_bound({owner, std::numeric_limits<int64_t>::min(), CacheId()});
  auto end = order_.upper_bound({owner + '\0', std::numeric_limits<int64_t>::min(), CacheId()});
  if (!query.after.empty()) {
    EPIC_ASSIGN_OR_RETURN(const OrderKey cursor, PlaceOf({owner, query.after}));
    (query.descending ? end : begin) =
        query.descending ? order_.lower_bound(cursor) : order_.upper_bound(cursor);
  }
  ContextPage page;
  // Adds the record at `key`; false when the page is full.
  const auto visit = [&](const OrderKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const ContextRecord& record = records_.at({owner, std::get<CacheId>(key)});
    if (IsExpired(record) || !Matches(record, query)) return true;
    page.has_more = page.records.size() == query.limit;
    if (!page.has_more) page.records.push_back(record);
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
  MutexLock lock(&mu_);
  const auto old = Find(key);
  RecordPlan plan = old.ok() ? Merge(**old, context) : NewRecord(key, context);
  plan.replaces = plan.created && records_.contains(key);
  EPIC_RETURN_IF_ERROR(ValidateRecord(plan.record));
  // A name given on a hit must be free or this context's own, even where it is not taken over.
  EPIC_RETURN_IF_ERROR(CheckName(plan.record, context.name));
  EPIC_RETURN_IF_ERROR(ReserveName(plan.record));
  return plan;
}

absl::StatusOr<RecordPlan> RecordTable::PlanUpdate(const ContextKey& key, const ContextPatch& patch) {
  MutexLock lock(&mu_);
  EPIC_ASSIGN_OR_RETURN(const ContextRecord* old, Find(key));
  RecordPlan plan{.record = *old, .changed = true};
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
  MutexLock lock(&mu_);
  EPIC_ASSIGN_OR_RETURN(const ContextRecord* old, Find(key));
  RecordPlan plan{.record = *old, .changed = true};
  plan.record.state = state;
  plan.record.compile_ms = compile_ms;
  plan.record.error =
      std::string(state == ContextState::kFailed ? error.substr(0, kMaxRecordErrorBytes) : "");
  return plan;
}

void RecordTable::Apply(const RecordPlan& plan) {
  MutexLock lock(&mu_);
  const ContextKey key = KeyOf(plan.record);
  ContextRecord record = plan.record;
  if (const auto now = records_.find(key); now != records_.end() && !plan.created) {
    record.hits = std::max(record.hits, now->second.hits);
    record.last_used_at_ms = std::max(record.last_used_at_ms, now->second.last_used_at_ms);
  }
  if (const auto tombstone = tombstones_.find(key); tombstone != tombstones_.end()) {
    tombstone_ages_.erase({tombstone->second.at, key});
    tombstones_.erase(tombstone);
  }
  Insert(record);
}

void RecordTable::Abandon(const RecordPlan& plan) {
  MutexLock lock(&mu_);
  const auto now = records_.find(KeyOf(plan.record));
  if (now == records_.end() || now->second.name != plan.record.name) ReleaseName(plan.record);
}

std::optional<Tombstone> RecordTable::PlanRemoval(const ContextKey& key, RemovalCause cause) {
  MutexLock lock(&mu_);
  const auto record = records_.find(key);
  if (record == records_.end()) return std::nullopt;
  const bool expired = IsExpired(record->second);
  if (cause == RemovalCause::kExpired && !expired) return std::nullopt;
  return Tombstone{.at = NextTime(),
                   .cause = expired ? RemovalCause::kExpired : RemovalCause::kDeleted,
                   .created_at_ms = record->second.created_at_ms};
}

void RecordTable::ApplyRemoval(const ContextKey& key, const Tombstone& tombstone) {
  MutexLock lock(&mu_);
  Erase(key);
  touched_.erase(key);
  tombstones_[key] = tombstone;
  tombstone_ages_.insert({tombstone.at, key});
}

std::vector<ContextKey> RecordTable::Expired(size_t limit) const {
  MutexLock lock(&mu_);
  const int64_t now_ms = clock_->UnixMs();
  std::vector<ContextKey> keys;
  for (const auto& [at_ms, key] : expiries_) {
    if (at_ms > now_ms || keys.size() == limit) break;
    keys.push_back(key);
  }
  return keys;
}

std::vector<ContextKey> RecordTable::OldTombstones(size_t limit) const {
  MutexLock lock(&mu_);
  const int64_t now_ms = clock_->UnixMs();
  std::vector<ContextKey> keys;
  for (const auto& [at, key] : tombstone_ages_) {
    if (at.unix_ms > now_ms - kTombstoneLifeMs || keys.size() == limit) break;
    keys.push_back(key);
  }
  return keys;
}

void RecordTable::ForgetTombstone(const ContextKey& key) {
  MutexLock lock(&mu_);
  const auto tombstone = tombstones_.find(key);
  if (tombstone == tombstones_.end()) return;
  tombstone_ages_.erase({tombstone->second.at, key});
  tombstones_.erase(tombstone);
}

bool RecordTable::HasTombstone(const ContextKey& key) const {
  MutexLock lock(&mu_);
  return tombstones_.contains(key);
}

void RecordTable::Touch(const ContextKey& key) {
  MutexLock lock(&mu_);
  const auto record = records_.find(key);
  if (record == records_.end()) return;
  ++record->second.hits;
  record->second.last_used_at_ms = clock_->UnixMs();
  touched_.insert(key);
}

std::vector<ContextKey> RecordTable::TakeTouched() {
  MutexLock lock(&mu_);
  std::vector<ContextKey> keys(touched_.begin(), touched_.end());
  touched_.clear();
  return keys;
}

uint64_t RecordTable::VisibleCount() const {
  MutexLock lock(&mu_);
  return visible_;
}

}  // namespace epic::kv_store
