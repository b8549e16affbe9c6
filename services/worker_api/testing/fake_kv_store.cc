#include "services/worker_api/testing/fake_kv_store.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "common/status/error.h"
#include "services/engine/testing/plain_object.h"

namespace epic::testing {

class FakeKvStore::Writer final : public ObjectWriter {
 public:
  Writer(FakeKvStore* store, FullKey key, const KvLayout& layout)
      : store_(store), key_(std::move(key)), object_(std::make_shared<PlainObject>(layout)) {}
  ~Writer() override {
    MutexLock lock(&store_->mu_);
    if (!committed_) --store_->reservations_;
  }
  absl::Status WriteLayer(uint32_t layer, ByteSpan slab) override {
    if (slab.size() != object_->layout().LayerBytes() || !written_.insert(layer).second) {
      return absl::InvalidArgumentError("a slab of the wrong size, or a layer twice");
    }
    std::memcpy(object_->MutableLayer(layer).data(), slab.data(), slab.size());
    return absl::OkStatus();
  }
  absl::StatusOr<std::shared_ptr<const KvObject>> Commit() override {
    MutexLock lock(&store_->mu_);
    if (written_.size() != object_->layout().layers)
      return absl::FailedPreconditionError("a layer is missing");
    if (!store_->entries_.contains({key_.first, key_.second.id})) {
      return Error(ErrorCode::kContextDeleted, "the context was deleted");
    }
    if (!committed_) --store_->reservations_;
    committed_ = true;
    store_->objects_[key_] = object_;
    return std::shared_ptr<const KvObject>(object_);
  }

 private:
  FakeKvStore* const store_;
  const FullKey key_;
  const std::shared_ptr<PlainObject> object_;
  std::set<uint32_t> written_;
  bool committed_ = false;
};

absl::StatusOr<FakeKvStore::Entry*> FakeKvStore::Find(std::string_view tenant, const CacheId& id) {
  const Key key(tenant, id);
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    if (deleted_.contains(key)) return Error(ErrorCode::kContextDeleted, "the context was deleted");
    return Error(ErrorCode::kContextNotFound, "no such context");
  }
  const std::optional<int64_t> expires = found->second.record.expires_at_ms;
  if (expires.has_value() && *expires <= clock_->UnixMs()) {
    return Error(ErrorCode::kContextExpired, "the context has expired");
  }
  return &found->second;
}

ContextRecord FakeKvStore::Filled(const Entry& entry) {
  ContextRecord record = entry.record;
  for (const auto& [key, object] : objects_) {
    if (key.first != record.tenant || key.second.id != record.id) continue;
    record.variants.push_back(key.second.variant);
    record.bytes += object->layout().TotalBytes();
  }
  return record;
}

bool FakeKvStore::NameTaken(const NewContext& context, const CacheId& own) {
  if (context.name.empty()) return false;
  return std::any_of(entries_.begin(), entries_.end(), [&](const auto& entry) {
    const ContextRecord& record = entry.second.record;
    return record.tenant == context.tenant && record.model_identity == context.model_identity &&
           record.name == context.name && record.id != own;
  });
}

absl::StatusOr<CreateResult> FakeKvStore::CreateContext(const NewContext& context) {
  MutexLock lock(&mu_);
  const CacheId id = CacheId::Of(context.tenant, context.model_identity, context.tokens);
  if (NameTaken(context, id)) return Error(ErrorCode::kNameInUse, "the name is taken", "name");
  const int64_t now_ms = clock_->UnixMs();
  const Key key(context.tenant, id);
  deleted_.erase(key);
  if (const auto old = Find(context.tenant, id); !old.ok()) Erase(key);
  const bool created = !entries_.contains(key);
  Entry& entry = entries_[key];
  ContextRecord& record = entry.record;
  std::optional<int64_t> expires;
  if (context.ttl_seconds.has_value()) expires = now_ms + *context.ttl_seconds * 1000;
  if (created) {
    entry.tokens = context.tokens;
    record.tenant = context.tenant;
    record.id = id;
    record.model_identity = context.model_identity;
    record.model = context.model;
    record.token_count = static_cast<uint32_t>(context.tokens.size());
    record.created_at_ms = now_ms;
    record.hidden = context.hidden;
    record.compile_prefix = context.compile_prefix;
    record.durability = context.durability;
    record.ttl_seconds = context.ttl_seconds;
    record.expires_at_ms = expires;
  } else if (!expires.has_value() || !record.expires_at_ms.has_value()) {
    record.expires_at_ms.reset();
  } else {
    record.expires_at_ms = std::max(*record.expires_at_ms, *expires);
  }
  record.hidden = record.hidden && context.hidden;
  record.pin = std::max(record.pin, context.pin);
  record.pin_until_ms = context.pin_until_ms;
  record.tags.insert(record.tags.end(), context.tags.begin(), context.tags.end());
  std::sort(record.tags.begin(), record.tags.end());
  record.tags.erase(std::unique(record.tags.begin(), record.tags.end()), record.tags.end());
  if (record.name.empty()) record.name = context.name;
  return CreateResult{Filled(entry), created};
}

absl::StatusOr<ContextRecord> FakeKvStore::GetContext(std::string_view tenant, const CacheId& id) {
  MutexLock lock(&mu_);
  const auto entry = Find(tenant, id);
  if (!entry.ok()) return entry.status();
  return Filled(**entry);
}

absl::StatusOr<ContextRecord> FakeKvStore::FindByName(std::string_view tenant, const Digest& model_identity,
                                                      std::string_view name) {
  MutexLock lock(&mu_);
  for (const auto& [key, entry] : entries_) {
    const ContextRecord& record = entry.record;
    if (record.tenant != tenant || record.model_identity != model_identity || record.name != name) continue;
    if (record.hidden || name.empty()) continue;
    const auto live = Find(tenant, record.id);
    if (!live.ok()) return live.status();
    return Filled(entry);
  }
  return Error(ErrorCode::kContextNotFound, "no context of that name");
}

absl::StatusOr<std::vector<TokenId>> FakeKvStore::GetTokens(std::string_view tenant, const CacheId& id) {
  MutexLock lock(&mu_);
  const auto entry = Find(tenant, id);
  if (!entry.ok()) return entry.status();
  return (*entry)->tokens;
}

absl::StatusOr<ContextPage> FakeKvStore::ListContexts(std::string_view tenant, const ContextQuery& query) {
  MutexLock lock(&mu_);
  std::vector<ContextRecord> all;
  for (const auto& [key, entry] : entries_) {
    const ContextRecord& r = entry.record;
    const bool wanted = r.tenant == tenant && !r.hidden && (!query.state || r.state == *query.state) &&
                        (!query.model || r.model == *query.model) && (!query.name || r.name == *query.name) &&
                        (!query.tag || std::count(r.tags.begin(), r.tags.end(), *query.tag) > 0);
    if (wanted && Find(tenant, r.id).ok()) all.push_back(Filled(entry));
  }
  std::sort(all.begin(), all.end(), [&](const ContextRecord& a, const ContextRecord& b) {
    const auto x = std::pair(a.created_at_ms, a.id), y = std::pair(b.created_at_ms, b.id);
    return query.descending ? y < x : x < y;
  });
  ContextPage page;
  bool past = query.after.empty();
  for (ContextRecord& record : all) {
    if (!past) {
      past = record.id == query.after;
      continue;
    }
    page.has_more = page.records.size() == query.limit;
    if (page.has_more) break;
    page.records.push_back(std::move(record));
  }
  return page;
}

absl::StatusOr<ContextRecord> FakeKvStore::UpdateContext(std::string_view tenant, const CacheId& id,
                                                         const ContextPatch& patch) {
  MutexLock lock(&mu_);
  const auto found = Find(tenant, id);
  if (!found.ok()) return found.status();
  ContextRecord& record = (*found)->record;
  if (patch.name.has_value()) {
    const NewContext named{.tenant = std::string(tenant),
                           .model_identity = record.model_identity,
                           .model = {},
                           .tokens = {},
                           .ttl_seconds = {},
                           .pin_until_ms = {},
                           .tags = {},
                           .name = *patch.name,
                           .compile_prefix = {}};
    if (NameTaken(named, id)) return Error(ErrorCode::kNameInUse, "the name is taken", "name");
    record.name = *patch.name;
  }
  if (patch.ttl_seconds.has_value()) {
    record.ttl_seconds = *patch.ttl_seconds;
    record.expires_at_ms.reset();
    if (record.ttl_seconds.has_value()) record.expires_at_ms = clock_->UnixMs() + *record.ttl_seconds * 1000;
  }
  if (patch.pin.has_value()) record.pin = *patch.pin;
  if (patch.pin_until_ms.has_value()) record.pin_until_ms = *patch.pin_until_ms;
  if (patch.tags.has_value()) record.tags = *patch.tags;
  return Filled(**found);
}

void FakeKvStore::Erase(const Key& key) {
  entries_.erase(key);
  std::erase_if(objects_, [&](const auto& object) {
    return object.first.first == key.first && object.first.second.id == key.second;
  });
}

absl::StatusOr<bool> FakeKvStore::DeleteContext(std::string_view tenant, const CacheId& id) {
  MutexLock lock(&mu_);
  const Key key(tenant, id);
  if (!entries_.contains(key)) return false;
  Erase(key);
  deleted_[key] = true;
  return true;
}

absl::Status FakeKvStore::SetState(std::string_view tenant, const CacheId& id, ContextState state,
                                   int64_t compile_ms, std::string_view error) {
  MutexLock lock(&mu_);
  const auto entry = Find(tenant, id);
  if (!entry.ok()) return entry.status();
  (*entry)->record.state = state;
  (*entry)->record.compile_ms = compile_ms;
  (*entry)->record.error = std::string(error);
  return absl::OkStatus();
}

void FakeKvStore::Touch(std::string_view tenant, const CacheId& id) {
  MutexLock lock(&mu_);
  const auto entry = Find(tenant, id);
  if (!entry.ok()) return;
  ++(*entry)->record.hits;
  (*entry)->record.last_used_at_ms = clock_->UnixMs();
}

absl::StatusOr<std::unique_ptr<ObjectWriter>> FakeKvStore::Reserve(std::string_view tenant,
                                                                   const ObjectKey& key,
                                                                   const KvLayout& layout) {
  MutexLock lock(&mu_);
  if (!reserve_status_.ok()) return reserve_status_;
  const auto entry = Find(tenant, key.id);
  if (!entry.ok()) return entry.status();
  ++reservations_;
  return std::make_unique<Writer>(this, FullKey(tenant, key), layout);
}

absl::StatusOr<AcquireResult> FakeKvStore::Acquire(std::string_view tenant, const ObjectKey& key,
                                                   const KvLayout& layout) {
  MutexLock lock(&mu_);
  const auto found = objects_.find(FullKey(tenant, key));
  if (found == objects_.end()) return AcquireResult{nullptr, MissCause::kNeverStored};
  if (found->second->layout() != layout) return AcquireResult{nullptr, MissCause::kLayoutMismatch};
  return AcquireResult{found->second, MissCause::kNeverStored};
}

absl::Status FakeKvStore::DropObject(std::string_view tenant, const ObjectKey& key) {
  MutexLock lock(&mu_);
  objects_.erase(FullKey(tenant, key));
  return absl::OkStatus();
}

StoreUsage FakeKvStore::Usage() {
  MutexLock lock(&mu_);
  StoreUsage usage;
  usage.contexts = entries_.size();
  usage.objects_in_memory = objects_.size();
  usage.reservations = reservations_;
  for (const auto& [key, object] : objects_) usage.leased_objects += object.use_count() > 1;
  return usage;
}

StoreDisk FakeKvStore::Disk() {
  MutexLock lock(&mu_);
  return disk_;
}

void FakeKvStore::set_disk(const StoreDisk& disk) {
  MutexLock lock(&mu_);
  disk_ = disk;
}

void FakeKvStore::DropAllObjects() {
  MutexLock lock(&mu_);
  objects_.clear();
}

void FakeKvStore::set_reserve_status(absl::Status status) {
  MutexLock lock(&mu_);
  reserve_status_ = std::move(status);
}

size_t FakeKvStore::hidden_contexts() {
  MutexLock lock(&mu_);
  return std::count_if(entries_.begin(), entries_.end(),
                       [](const auto& e) { return e.second.record.hidden; });
}

}  // namespace epic::testing
