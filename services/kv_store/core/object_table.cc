#include "services/kv_store/core/object_table.h"

#include <algorithm>

namespace epic::kv_store {
namespace {

constexpr size_t kRememberedCauses = 4096;

// By somebody outside the table, in this process or in another one.
bool IsHeld(const ObjectPtr& object) { return object.use_count() != 1 || object->region().IsHeld(); }

}  // namespace

void ObjectTable::SetPin(const ContextKey& key, const PinState& pin) {
  MutexLock lock(&mu_);
  if (pin.pin == Pin::kNone) {
    pins_.erase(key);
  } else {
    pins_[key] = pin;
  }
}

Pin ObjectTable::PinOf(const ContextKey& key) const {
  const auto pin = pins_.find(key);
  if (pin == pins_.end()) return Pin::kNone;
  const auto& until_ms = pin->second.until_ms;
  return until_ms.has_value() && *until_ms <= clock_->UnixMs() ? Pin::kNone : pin->second.pin;
}

ObjectTable::Entry& ObjectTable::Touch(const TenantObjectKey& key) {
  const auto [entry, inserted] = entries_.try_emplace(key);
  if (!inserted) uses_.erase(entry->second.use);
  entry->second.use = uses_.insert(uses_.end(), key);
  return entry->second;
}

void ObjectTable::ClearDisk(Entry* entry) {
  if (entry->disk.has_value()) disk_bytes_ -= entry->disk->bytes;
  entry->disk.reset();
}

void ObjectTable::Erase(Entries::iterator entry, MissCause cause) {
  ClearDisk(&entry->second);
  Remember(entry->first, cause);
  uses_.erase(entry->second.use);
  entries_.erase(entry);
  loaded_.SignalAll();
}

void ObjectTable::Remember(const TenantObjectKey& key, MissCause cause) {
  const auto [known, inserted] = causes_.insert_or_assign(key, cause);
  if (!inserted) return;
  cause_order_.push_back(key);
  if (cause_order_.size() > kRememberedCauses) {
    causes_.erase(cause_order_.front());
    cause_order_.pop_front();
  }
}

ObjectTable::Found ObjectTable::Find(const TenantObjectKey& key, const KvLayout& layout) {
  MutexLock lock(&mu_);
  auto entry = entries_.find(key);
  while (entry != entries_.end() && entry->second.memory == nullptr && entry->second.loading) {
    loaded_.Wait(&mu_);
    entry = entries_.find(key);
  }
  Found found;
  if (entry == entries_.end()) {
    const auto cause = causes_.find(key);
    found.cause = cause == causes_.end() ? MissCause::kNeverStored : cause->second;
    return found;
  }
  Entry& used = Touch(key);
  const KvLayout& stored = used.memory != nullptr ? used.memory->layout() : used.disk->layout;
  if (stored != layout) {
    found.cause = MissCause::kLayoutMismatch;
  } else if (used.memory != nullptr) {
    found.object = used.memory;
  } else {
    found.disk = used.disk;
    used.loading = true;
  }
  return found;
}

ObjectPtr ObjectTable::FinishLoad(const TenantObjectKey& key, uint64_t number, const ObjectPtr& object) {
  MutexLock lock(&mu_);
  loaded_.SignalAll();
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  Entry& entry = found->second;
  if (entry.memory == nullptr && entry.disk.has_value() && entry.disk->number == number) {
    entry.loading = false;
    entry.memory = object;
    entry.ticket = entry.disk_ticket = next_ticket_++;
  }
  return entry.memory;
}

ObjectTable::Published ObjectTable::Publish(const TenantObjectKey& key, ObjectPtr object) {
  ObjectPtr replaced;  // destroyed after the lock is released
  MutexLock lock(&mu_);
  Entry& entry = Touch(key);
  const bool first = entry.memory == nullptr || entry.memory->layout() != object->layout();
  if (first) {
    // A copy on disk belongs to another compile: it is replaced, never mixed with this one.
    replaced = std::exchange(entry.memory, std::move(object));
    entry.ticket = next_ticket_++;
    entry.loading = false;
    loaded_.SignalAll();
  }
  const bool on_disk = entry.disk.has_value() && entry.disk_ticket == entry.ticket;
  return {.object = entry.memory, .ticket = entry.ticket, .first = first, .on_disk = on_disk};
}

bool ObjectTable::NeedsWrite(const TenantObjectKey& key, uint64_t ticket) const {
  MutexLock lock(&mu_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return false;
  const Entry& entry = found->second;
  const bool written = entry.disk.has_value() && entry.disk_ticket == ticket;
  return entry.memory != nullptr && entry.ticket == ticket && !written;
}

std::optional<DiskCopy> ObjectTable::DiskCopyOf(const TenantObjectKey& key) const {
  MutexLock lock(&mu_);
  const auto entry = entries_.find(key);
  return entry == entries_.end() ? std::nullopt : entry->second.disk;
}

std::vector<std::pair<TenantObjectKey, DiskCopy>> ObjectTable::DiskCopiesOf(const ContextKey& key) const {
  MutexLock lock(&mu_);
  std::vector<std::pair<TenantObjectKey, DiskCopy>> copies;
  for (auto entry = entries_.lower_bound(key); entry != entries_.end(); ++entry) {
    if (entry->first.context != key) break;
    if (entry->second.disk.has_value()) copies.emplace_back(entry->first, *entry->second.disk);
  }
  return copies;
}

void ObjectTable::SetDisk(const TenantObjectKey& key, const DiskCopy& copy, uint64_t ticket) {
  MutexLock lock(&mu_);
  const auto known = entries_.find(key);
  Entry& entry = known == entries_.end() ? Touch(key) : known->second;
  ClearDisk(&entry);
  entry.disk = copy;
  entry.disk_ticket = ticket;
  disk_bytes_ += copy.bytes;
}

void ObjectTable::DropDisk(const TenantObjectKey& key, MissCause cause) {
  MutexLock lock(&mu_);
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return;
  ClearDisk(&entry->second);
  entry->second.loading = false;
  loaded_.SignalAll();
  if (entry->second.memory == nullptr) Erase(entry, cause);
}

void ObjectTable::Remove(const TenantObjectKey& key, MissCause cause) {
  ObjectPtr removed;
  MutexLock lock(&mu_);
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return;
  removed = std::move(entry->second.memory);
  Erase(entry, cause);
}

void ObjectTable::RemoveContext(const ContextKey& key) {
  std::vector<ObjectPtr> removed;
  MutexLock lock(&mu_);
  pins_.erase(key);
  auto entry = entries_.lower_bound(key);
  while (entry != entries_.end() && entry->first.context == key) {
    removed.push_back(std::move(entry->second.memory));
    Erase(entry++, MissCause::kDeleted);
  }
}

std::vector<ObjectPtr> ObjectTable::EvictFromMemory(uint64_t bytes) {
  std::vector<ObjectPtr> evicted;
  uint64_t freed = 0;
  MutexLock lock(&mu_);
  for (const Pin pass : {Pin::kNone, Pin::kSoft, Pin::kHard}) {
    for (auto use = uses_.begin(); use != uses_.end() && freed < bytes;) {
      const auto entry = entries_.find(*use++);
      Entry& candidate = entry->second;
      const bool held = candidate.memory == nullptr || IsHeld(candidate.memory);
      if (held || PinOf(entry->first.context) != pass) continue;
      if (pass == Pin::kHard && !candidate.disk.has_value()) continue;
      freed += candidate.memory->region().footprint_bytes();
      evicted.push_back(std::exchange(candidate.memory, nullptr));
      if (!candidate.disk.has_value()) Erase(entry, MissCause::kEvicted);
    }
  }
  return evicted;
}

std::vector<TenantObjectKey> ObjectTable::PickDiskVictims(uint64_t bytes) const {
  std::vector<TenantObjectKey> victims;
  uint64_t picked = 0;
  MutexLock lock(&mu_);
  for (const Pin pass : {Pin::kNone, Pin::kSoft}) {
    for (const TenantObjectKey& key : uses_) {
      if (picked >= bytes) return victims;
      const Entry& entry = entries_.at(key);
      if (!entry.disk.has_value() || entry.loading || PinOf(key.context) != pass) continue;
      picked += entry.disk->bytes;
      victims.push_back(key);
    }
  }
  return victims;
}

void ObjectTable::Describe(ContextRecord* record) const {
  MutexLock lock(&mu_);
  const ContextKey key{record->tenant, record->id};
  record->variants.clear();
  record->bytes = 0;
  for (auto entry = entries_.lower_bound(key); entry != entries_.end(); ++entry) {
    if (entry->first.context != key) break;
    const Entry& copies = entry->second;
    record->variants.push_back(entry->first.variant);
    record->bytes +=
        copies.memory != nullptr ? copies.memory->layout().TotalBytes() : copies.disk->layout.TotalBytes();
  }
}

uint64_t ObjectTable::disk_bytes() const {
  MutexLock lock(&mu_);
  return disk_bytes_;
}

ObjectTable::MemoryCounts ObjectTable::Count(uint64_t pending_writes) const {
  MutexLock lock(&mu_);
  MemoryCounts counts;
  uint64_t held = 0;
  for (const auto& [key, entry] : entries_) {
    if (entry.memory == nullptr) continue;
    ++counts.objects;
    if (IsHeld(entry.memory)) ++held;
  }
  counts.leased = held > pending_writes ? held - pending_writes : 0;
  return counts;
}

}  // namespace epic::kv_store
