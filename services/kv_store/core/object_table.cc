#include "services/kv_store/core/object_table.h"

#include <algorithm>
#include <span>

#include "common/base/bytes.h"
#include "common/base/random.h"

namespace epic::kv_store {
namespace {

constexpr size_t kRememberedCauses = 4096;
constexpr uint64_t kCountedKeys = uint64_t{1} << 16;

// By somebody outside the table, in this process or in another one.
bool IsHeld(const ObjectPtr& object) {
  return object != nullptr && (object.use_count() != 1 || object->region().IsHeld());
}

}  // namespace

ObjectTable::ObjectTable(const Clock* clock, const ObjectTableOptions& options)
    : clock_(clock),
      uses_commute_(options.eviction == EvictionKind::kS3Fifo),
      uses_(mu_.slots()),
      contexts_(0, ContextHash{&entries_}, ContextEqual{&entries_}),
      memory_(options.eviction, clock),
      disk_(options.eviction, clock),
      frequencies_(kCountedKeys) {
  for (const auto& [tenant, quota] : options.quotas) {
    const uint32_t number = tenants_.Take(tenant);
    if (quota.memory_bytes > 0) memory_.SetQuota(number, quota.memory_bytes);
    if (quota.disk_bytes > 0) disk_.SetQuota(number, quota.disk_bytes);
  }
}

// --- keys ---

uint32_t ObjectTable::FirstOf(const ContextRef& context) const {
  const uint32_t tenant = tenants_.Find(context.tenant);
  if (tenant == kNone) return kNone;
  const auto first = contexts_.find(PackedContext{tenant, context.id});
  return first == contexts_.end() ? kNone : *first;
}

uint32_t ObjectTable::FindEntry(const ContextRef& context, const ObjectVariant& variant) const {
  uint32_t index = FirstOf(context);
  while (index != kNone && variants_[entries_[index].variant] != variant) index = entries_[index].next;
  return index;
}

uint32_t ObjectTable::Obtain(const TenantObjectKey& key) {
  if (const uint32_t known = FindEntry(key); known != kNone) return known;
  const uint32_t index = entries_.Add({});
  Entry& entry = entries_[index];
  entry.context = {tenants_.Take(key.context.tenant), Pack(key.context.id)};
  entry.variant = variants_.Take(key.variant);
  const auto [first, inserted] = contexts_.insert(index);
  if (!inserted) entry.next = std::exchange(entries_[*first].next, index);
  return index;
}

TenantObjectKey ObjectTable::KeyOf(const Entry& entry) const {
  return {{tenants_[entry.context.tenant], Unpack(entry.context.id)}, variants_[entry.variant]};
}

uint64_t ObjectTable::FingerprintOf(const PackedId& id, const ObjectVariant& variant) {
  const uint64_t kinds = static_cast<uint64_t>(variant.prefix) << 16 |
                         static_cast<uint64_t>(variant.dtype) << 8 | static_cast<uint64_t>(variant.compute);
  const auto prefix = LoadLittle<uint64_t>(AsBytes(variant.prefix_tokens.view()));
  return Rng(id.first_bytes() ^ Rng(prefix ^ kinds).Next()).Next();
}

uint64_t ObjectTable::FingerprintOf(const Entry& entry) const {
  return FingerprintOf(entry.context.id, variants_[entry.variant]);
}

DiskCopy ObjectTable::CopyOf(const Entry& entry) const {
  return {.number = entry.disk_number,
          .bytes = disk_.BytesOf(entry.disk_slot),
          .layout = layouts_[entry.disk_layout]};
}

// --- who is told ---

void ObjectTable::SetObserver(TableObserver* observer) {
  const ChangeLock lock(this);
  observer_ = observer;
}

ObjectTiers ObjectTable::TiersOf(uint32_t index) const {
  if (index == kNone) return {};
  const Entry& entry = entries_[index];
  ObjectTiers tiers{.in_memory = entry.memory != nullptr, .on_disk = entry.on_disk()};
  if (tiers.in_memory) tiers.generation = entry.memory->region().generation();
  if (tiers.any()) tiers.layout = tiers.in_memory ? entry.memory->layout() : layouts_[entry.disk_layout];
  return tiers;
}

void ObjectTable::Tell(uint32_t index) {
  if (observer_ != nullptr) observer_->ObjectChanged(KeyOf(entries_[index]), TiersOf(index));
}

ObjectTiers ObjectTable::Tiers(const ContextRef& context, const ObjectVariant& variant) const {
  const SharedLock lock(&mu_);
  return TiersOf(FindEntry(context, variant));
}

std::vector<std::pair<TenantObjectKey, ObjectTiers>> ObjectTable::ListTiers(uint32_t* place,
                                                                            size_t max) const {
  const SharedLock lock(&mu_);
  std::vector<std::pair<TenantObjectKey, ObjectTiers>> list;
  for (; *place < entries_.end() && list.size() < max; ++*place) {
    ObjectTiers tiers = TiersOf(*place);
    if (tiers.any()) list.emplace_back(KeyOf(entries_[*place]), tiers);
  }
  return list;
}

// --- pins ---

PinState ObjectTable::PinOf(const Entry& entry) const {
  if (entry.memory_slot != kNoEntry) return memory_.PinOf(entry.memory_slot);
  return entry.disk_slot != kNoEntry ? disk_.PinOf(entry.disk_slot) : PinState{};
}

void ObjectTable::SetPin(const ContextKey& key, const PinState& pin) {
  const ChangeLock lock(this);
  for (uint32_t index = FirstOf(RefOf(key)); index != kNone; index = entries_[index].next) {
    const Entry& entry = entries_[index];
    if (entry.memory_slot != kNoEntry) memory_.SetPin(entry.memory_slot, pin);
    if (entry.disk_slot != kNoEntry) disk_.SetPin(entry.disk_slot, pin);
  }
}

// --- copies ---

ObjectTable::UseNote ObjectTable::UseOf(uint32_t index, uint64_t fingerprint) const {
  UseNote use{.fingerprint = fingerprint, .at_ms = clock_->SteadyNs() / 1'000'000};
  if (index == kNone) return use;
  use.memory_slot = entries_[index].memory_slot;
  use.disk_slot = entries_[index].disk_slot;
  return use;
}

void ObjectTable::Use(const UseNote& use) {
  frequencies_.Add(use.fingerprint);
  if (use.memory_slot != kNoEntry) memory_.Use(use.memory_slot, use.at_ms);
  if (use.disk_slot != kNoEntry) disk_.Use(use.disk_slot, use.at_ms);
}

void ObjectTable::Note(size_t slot, const UseNote& use) {
  UseNotes& notes = uses_[slot];
  notes.notes[notes.count++] = use;
  if (notes.count < UseNotes::kMost) return;
  const MutexLock lock(&uses_mu_);
  TellUses(&notes);
}

void ObjectTable::TellUses(UseNotes* notes) {
  const std::span told(notes->notes.data(), notes->count);
  for (const UseNote& use : told) {
    if (use.memory_slot != kNoEntry) memory_.Prefetch(use.memory_slot);
    if (use.disk_slot != kNoEntry) disk_.Prefetch(use.disk_slot);
  }
  for (const UseNote& use : told) Use(use);
  notes->count = 0;
}

void ObjectTable::TellAllUses() {
  for (UseNotes& notes : uses_) TellUses(&notes);
}

void ObjectTable::SetMemory(uint32_t index, ObjectPtr object) {
  Entry& entry = entries_[index];
  entry.memory_slot = memory_.Add(index, FingerprintOf(entry), object->region().footprint_bytes(),
                                  entry.context.tenant, PinOf(entry));
  entry.memory = std::move(object);
}

ObjectPtr ObjectTable::ClearMemory(Entry* entry, Leaving leaving) {
  if (entry->memory == nullptr) return nullptr;
  if (leaving == Leaving::kEvicted) {
    memory_.Evict(entry->memory_slot);
  } else {
    memory_.Remove(entry->memory_slot);
  }
  entry->memory_slot = kNoEntry;
  return std::exchange(entry->memory, nullptr);
}

void ObjectTable::ClearDisk(Entry* entry, Leaving leaving) {
  if (!entry->on_disk()) return;
  if (leaving == Leaving::kEvicted) {
    disk_.Evict(entry->disk_slot);
  } else {
    disk_.Remove(entry->disk_slot);
  }
  entry->disk_slot = kNoEntry;
  layouts_.Release(std::exchange(entry->disk_layout, kNone));
}

void ObjectTable::EndLoading(uint32_t index) {
  entries_[index].loading = entries_[index].late = false;
  shared_loads_.erase(index);
  loaded_.SignalAll();
}

void ObjectTable::Erase(uint32_t index, MissCause cause) {
  EndLoading(index);
  Entry& entry = entries_[index];
  ClearDisk(&entry, Leaving::kOtherwise);
  Tell(index);
  Remember(FingerprintOf(entry), cause);
  const uint32_t first = *contexts_.find(entry.context);
  if (first == index) {
    contexts_.erase(first);
    if (entry.next != kNone) contexts_.insert(entry.next);
  } else {
    uint32_t before = first;
    while (entries_[before].next != index) before = entries_[before].next;
    entries_[before].next = entry.next;
  }
  tenants_.Release(entry.context.tenant);
  variants_.Release(entry.variant);
  entries_.Erase(index);
}

void ObjectTable::Remember(uint64_t fingerprint, MissCause cause) {
  const auto [known, inserted] = causes_.insert_or_assign(fingerprint, Departure{cause, clock_->UnixMs()});
  if (!inserted) return;
  cause_order_.push_back(fingerprint);
  if (cause_order_.size() > kRememberedCauses) {
    causes_.erase(cause_order_.front());
    cause_order_.pop_front();
  }
}

// --- readers and writers ---

ObjectTable::Found ObjectTable::Answer(uint32_t index, uint64_t fingerprint, const KvLayout& layout) const {
  Found found;
  if (index == kNone) {
    const auto cause = causes_.find(fingerprint);
    if (cause != causes_.end()) found.cause = cause->second.cause;
    return found;
  }
  const Entry& entry = entries_[index];
  const KvLayout& stored = entry.memory != nullptr ? entry.memory->layout() : layouts_[entry.disk_layout];
  if (stored != layout) {
    found.cause = MissCause::kLayoutMismatch;
  } else {
    found.object = entry.memory;
  }
  return found;
}

ObjectTable::Found ObjectTable::Find(const ContextRef& context, const ObjectVariant& variant,
                                     const KvLayout& layout, Want want) {
  const uint64_t fingerprint = FingerprintOf(context.id, variant);
  if (uses_commute_) {
    const SharedLock lock(&mu_);
    const uint32_t index = FindEntry(context, variant);
    if (index == kNone || entries_[index].memory != nullptr) {
      Note(lock.slot(), UseOf(index, fingerprint));
      return Answer(index, fingerprint, layout);
    }
  }
  const ChangeLock lock(this);
  uint32_t index = FindEntry(context, variant);
  ObjectPtr shared;
  while (index != kNone && entries_[index].memory == nullptr && entries_[index].loading &&
         !entries_[index].late) {
    const auto load = want == Want::kStreaming ? shared_loads_.find(index) : shared_loads_.end();
    if (load != shared_loads_.end()) {
      shared = load->second;
      break;
    }
    loaded_.Wait(&mu_);
    index = FindEntry(context, variant);
  }
  Use(UseOf(index, fingerprint));
  Found found = Answer(index, fingerprint, layout);
  if (found.cause != MissCause::kLayoutMismatch && shared != nullptr) found.object = std::move(shared);
  if (index == kNone || found.object != nullptr || found.cause == MissCause::kLayoutMismatch) return found;
  if (entries_[index].loading) {
    found.cause = MissCause::kDiskSlow;
    return found;
  }
  found.disk = CopyOf(entries_[index]);
  entries_[index].loading = true;
  return found;
}

ObjectPtr ObjectTable::InMemory(const TenantObjectKey& key) const {
  const SharedLock lock(&mu_);
  const uint32_t index = FindEntry(key);
  return index == kNone ? nullptr : entries_[index].memory;
}

std::optional<DiskCopy> ObjectTable::BeginLoad(const TenantObjectKey& key) {
  const ChangeLock lock(this);
  const uint32_t index = FindEntry(key);
  if (index == kNone) return std::nullopt;
  Entry& entry = entries_[index];
  if (entry.memory != nullptr || !entry.on_disk() || entry.loading) return std::nullopt;
  entry.loading = true;
  return CopyOf(entry);
}

void ObjectTable::ShareLoad(const TenantObjectKey& key, uint64_t number, const ObjectPtr& object) {
  const ChangeLock lock(this);
  const uint32_t index = FindEntry(key);
  if (index == kNone) return;
  const Entry& entry = entries_[index];
  if (!entry.loading || !entry.on_disk() || entry.disk_number != number) return;
  shared_loads_[index] = object;
  loaded_.SignalAll();
}

void ObjectTable::LoadIsLate(const TenantObjectKey& key, uint64_t number) {
  const ChangeLock lock(this);
  const uint32_t index = FindEntry(key);
  if (index == kNone) return;
  Entry& entry = entries_[index];
  if (!entry.loading || entry.disk_number != number) return;
  entry.late = true;
  shared_loads_.erase(index);
  loaded_.SignalAll();
}

ObjectPtr ObjectTable::FinishLoad(const TenantObjectKey& key, uint64_t number, const ObjectPtr& object) {
  const ChangeLock lock(this);
  const uint32_t index = FindEntry(key);
  if (index == kNone) return nullptr;
  Entry& entry = entries_[index];
  if (entry.memory == nullptr && entry.on_disk() && entry.disk_number == number) {
    EndLoading(index);
    if (object != nullptr) {
      SetMemory(index, object);
      Tell(index);
    }
    entry.ticket = next_ticket_++;
    entry.disk_is_memory = true;
  }
  return entry.memory;
}

ObjectTable::Published ObjectTable::Publish(const TenantObjectKey& key, ObjectPtr object) {
  ObjectPtr replaced;  // destroyed after the lock is released
  const ChangeLock lock(this);
  const uint32_t index = Obtain(key);
  Entry& entry = entries_[index];
  Use(UseOf(index, FingerprintOf(entry)));
  const bool first = entry.memory == nullptr || entry.memory->layout() != object->layout();
  if (first) {
    // A copy on disk belongs to another compile: it is replaced, never mixed with this one.
    const PinState pin = PinOf(entry);
    replaced = ClearMemory(&entry, Leaving::kOtherwise);
    SetMemory(index, std::move(object));
    memory_.SetPin(entry.memory_slot, pin);
    entry.ticket = next_ticket_++;
    entry.disk_is_memory = false;
    EndLoading(index);
    Tell(index);
  }
  const bool on_disk = entry.on_disk() && entry.disk_is_memory;
  return {.object = entry.memory, .ticket = entry.ticket, .first = first, .on_disk = on_disk};
}

bool ObjectTable::NeedsWrite(const TenantObjectKey& key, uint64_t ticket) const {
  const SharedLock lock(&mu_);
  const uint32_t index = FindEntry(key);
  if (index == kNone) return false;
  const Entry& entry = entries_[index];
  const bool written = entry.on_disk() && entry.disk_is_memory;
  return entry.memory != nullptr && entry.ticket == ticket && !written;
}

std::optional<DiskCopy> ObjectTable::DiskCopyOf(const TenantObjectKey& key) const {
  const SharedLock lock(&mu_);
  const uint32_t index = FindEntry(key);
  if (index == kNone || !entries_[index].on_disk()) return std::nullopt;
  return CopyOf(entries_[index]);
}

std::vector<std::pair<TenantObjectKey, DiskCopy>> ObjectTable::DiskCopiesOf(const ContextKey& key) const {
  const SharedLock lock(&mu_);
  std::vector<std::pair<TenantObjectKey, DiskCopy>> copies;
  for (uint32_t index = FirstOf(RefOf(key)); index != kNone; index = entries_[index].next) {
    const Entry& entry = entries_[index];
    if (entry.on_disk()) copies.emplace_back(KeyOf(entry), CopyOf(entry));
  }
  return copies;
}

std::optional<std::pair<TenantObjectKey, DiskCopy>> ObjectTable::NextOnDisk(uint32_t* place) const {
  const SharedLock lock(&mu_);
  while (*place < entries_.end()) {
    const Entry& entry = entries_[(*place)++];
    if (entry.on_disk()) return std::make_pair(KeyOf(entry), CopyOf(entry));
  }
  return std::nullopt;
}

void ObjectTable::SetDisk(const TenantObjectKey& key, const DiskCopy& copy, uint64_t ticket) {
  const ChangeLock lock(this);
  const uint32_t index = Obtain(key);
  Entry& entry = entries_[index];
  const PinState pin = PinOf(entry);
  ClearDisk(&entry, Leaving::kOtherwise);
  entry.disk_slot = disk_.Add(index, FingerprintOf(entry), copy.bytes, entry.context.tenant, pin);
  entry.disk_layout = layouts_.Take(copy.layout);
  entry.disk_number = copy.number;
  entry.disk_is_memory = ticket == entry.ticket;
  Tell(index);
}

void ObjectTable::DropDisk(const TenantObjectKey& key, MissCause cause) {
  const ChangeLock lock(this);
  const uint32_t index = FindEntry(key);
  if (index == kNone) return;
  Entry& entry = entries_[index];
  ClearDisk(&entry, cause == MissCause::kEvicted ? Leaving::kEvicted : Leaving::kOtherwise);
  EndLoading(index);
  if (entry.memory == nullptr) {
    Erase(index, cause);
  } else {
    Tell(index);
  }
}

void ObjectTable::Remove(const TenantObjectKey& key, MissCause cause) {
  ObjectPtr removed;
  const ChangeLock lock(this);
  const uint32_t index = FindEntry(key);
  if (index == kNone) return;
  removed = ClearMemory(&entries_[index], Leaving::kOtherwise);
  Erase(index, cause);
}

void ObjectTable::RemoveContext(const ContextKey& key) {
  std::vector<ObjectPtr> removed;
  const ChangeLock lock(this);
  for (uint32_t index = FirstOf(RefOf(key)); index != kNone; index = FirstOf(RefOf(key))) {
    removed.push_back(ClearMemory(&entries_[index], Leaving::kOtherwise));
    Erase(index, MissCause::kDeleted);
  }
}

// --- eviction ---

bool ObjectTable::MayLeaveMemory(const EvictionEntry& place) const {
  const Entry& entry = entries_[static_cast<uint32_t>(place.owner)];
  return !IsHeld(entry.memory) && (place.pin != Pin::kHard || entry.on_disk());
}

bool ObjectTable::MayLeaveDisk(const EvictionEntry& place) const {
  return place.pin != Pin::kHard && !entries_[static_cast<uint32_t>(place.owner)].loading;
}

std::vector<ObjectPtr> ObjectTable::Evict(uint64_t bytes, bool only_over_quota) {
  std::vector<ObjectPtr> evicted;
  const MayGo may_go = [this](const EvictionEntry& place)
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return MayLeaveMemory(place); };
  for (uint64_t freed = 0; freed < bytes;) {
    const EntrySlot slot = only_over_quota ? memory_.NextOverQuota(may_go) : memory_.Next(may_go);
    if (slot == kNoEntry) break;
    const EvictionStanding standing = memory_.Explain(slot);
    const auto index = static_cast<uint32_t>(standing.owner);
    freed += standing.bytes;
    evicted.push_back(ClearMemory(&entries_[index], Leaving::kEvicted));
    if (entries_[index].on_disk()) {
      Tell(index);
    } else {
      Erase(index, MissCause::kEvicted);
    }
  }
  return evicted;
}

std::vector<ObjectPtr> ObjectTable::EvictFromMemory(uint64_t bytes) {
  const ChangeLock lock(this);
  return Evict(bytes, /*only_over_quota=*/false);
}

std::vector<ObjectPtr> ObjectTable::EvictOverQuota() {
  const ChangeLock lock(this);
  return Evict(std::numeric_limits<uint64_t>::max(), /*only_over_quota=*/true);
}

std::optional<std::pair<TenantObjectKey, DiskCopy>> ObjectTable::PickOnDisk(bool only_over_quota) {
  // For a quota nothing goes that is in use: least of all what was written just now.
  const MayGo may_go = [this, only_over_quota](const EvictionEntry& place)
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                             const Entry& entry = entries_[static_cast<uint32_t>(place.owner)];
                             return MayLeaveDisk(place) && !(only_over_quota && IsHeld(entry.memory));
                           };
  const EntrySlot slot = only_over_quota ? disk_.NextOverQuota(may_go) : disk_.Next(may_go);
  if (slot == kNoEntry) return std::nullopt;
  const Entry& entry = entries_[static_cast<uint32_t>(disk_.Explain(slot).owner)];
  return std::pair(KeyOf(entry), CopyOf(entry));
}

std::optional<std::pair<TenantObjectKey, DiskCopy>> ObjectTable::PickDiskVictim() {
  const ChangeLock lock(this);
  return PickOnDisk(/*only_over_quota=*/false);
}

std::optional<std::pair<TenantObjectKey, DiskCopy>> ObjectTable::PickDiskVictimOverQuota() {
  const ChangeLock lock(this);
  return PickOnDisk(/*only_over_quota=*/true);
}

bool ObjectTable::IsWorthDisk(const TenantObjectKey& key) {
  const ChangeLock lock(this);
  const uint32_t index = FindEntry(key);
  if (index == kNone) return false;
  if (PinOf(entries_[index]).pin != Pin::kNone) return true;
  const auto victim = PickOnDisk(/*only_over_quota=*/false);
  if (!victim.has_value()) return true;
  const uint64_t theirs = FingerprintOf(Pack(victim->first.context.id), victim->first.variant);
  return frequencies_.Estimate(FingerprintOf(entries_[index])) >= frequencies_.Estimate(theirs);
}

ObjectStanding ObjectTable::Explain(const TenantObjectKey& key) {
  const ChangeLock lock(this);
  ObjectStanding standing;
  const uint32_t index = FindEntry(key);
  if (index == kNone) {
    const auto cause = causes_.find(FingerprintOf(Pack(key.context.id), key.variant));
    if (cause != causes_.end()) {
      standing.cause = cause->second.cause;
      standing.gone_at_ms = cause->second.at_ms;
    }
    return standing;
  }
  const Entry& entry = entries_[index];
  standing.held = IsHeld(entry.memory);
  if (entry.memory_slot != kNoEntry) standing.memory = memory_.Explain(entry.memory_slot);
  if (entry.disk_slot != kNoEntry) standing.disk = disk_.Explain(entry.disk_slot);
  return standing;
}

std::vector<std::pair<TenantObjectKey, EvictionStanding>> ObjectTable::PreviewEviction(uint64_t bytes) {
  const ChangeLock lock(this);
  const MayGo may_go = [this](const EvictionEntry& place)
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return MayLeaveMemory(place); };
  std::vector<std::pair<TenantObjectKey, EvictionStanding>> victims;
  for (const EvictionStanding& standing : memory_.Preview(bytes, may_go)) {
    victims.emplace_back(KeyOf(entries_[static_cast<uint32_t>(standing.owner)]), standing);
  }
  return victims;
}

// --- what there is ---

bool ObjectTable::Contains(const ContextRef& context, const ObjectVariant& variant) const {
  const SharedLock lock(&mu_);
  return FindEntry(context, variant) != kNone;
}

void ObjectTable::Describe(ContextRecord* record) const {
  const SharedLock lock(&mu_);
  record->variants.clear();
  record->bytes = 0;
  for (uint32_t index = FirstOf({record->tenant, Pack(record->id)}); index != kNone;
       index = entries_[index].next) {
    const Entry& entry = entries_[index];
    record->variants.push_back(variants_[entry.variant]);
    const KvLayout& layout = entry.memory != nullptr ? entry.memory->layout() : layouts_[entry.disk_layout];
    record->bytes += layout.TotalBytes();
  }
  std::sort(record->variants.begin(), record->variants.end());
}

uint64_t ObjectTable::disk_bytes() const {
  const SharedLock lock(&mu_);
  return disk_.bytes();
}

ObjectTable::MemoryCounts ObjectTable::Count(uint64_t pending_writes) const {
  const SharedLock lock(&mu_);
  MemoryCounts counts{.objects = memory_.entries()};
  uint64_t held = 0;
  memory_.ForEach([&](const EvictionEntry& place) ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    if (IsHeld(entries_[static_cast<uint32_t>(place.owner)].memory)) ++held;
  });
  counts.leased = held > pending_writes ? held - pending_writes : 0;
  return counts;
}

uint64_t ObjectTable::memory_bytes() const {
  const SharedLock lock(&mu_);
  return sizeof(*this) + uses_.size() * sizeof(UseNotes) + entries_.memory_bytes() +
         contexts_.capacity() * (sizeof(uint32_t) + 1) + causes_.capacity() * (sizeof(*causes_.begin()) + 1) +
         cause_order_.size() * sizeof(uint64_t) + memory_.memory_bytes() + disk_.memory_bytes() +
         frequencies_.memory_bytes();
}

}  // namespace epic::kv_store
