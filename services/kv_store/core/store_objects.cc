// The half of StoreCore that deals with objects; records are in store_records.cc.
#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/absl_std.h"
#include "common/base/check.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/kv_store/core/object_io.h"
#include "services/kv_store/core/store_core.h"

namespace epic::kv_store {
namespace {

// Of the disk, for records, deletions, RocksDB's log and its compactions.
constexpr uint64_t kDiskReserveBytes = uint64_t{64} << 20;

bool IsStorageFull(const absl::Status& status) {
  return status.code() == absl::StatusCode::kResourceExhausted;
}

absl::Status NoRoom(uint64_t bytes, uint64_t capacity_bytes) {
  return Error(ErrorCode::kStorageFull, "no room for " + std::to_string(bytes) + " bytes of KV in the " +
                                            std::to_string(capacity_bytes) +
                                            " bytes of host memory; raise the store's memory, or use shorter "
                                            "contexts or fewer at once");
}

absl::Status CheckObjectKey(const ObjectKey& key, const KvLayout& layout) {
  EPIC_RETURN_IF_ERROR(ValidateLayout(layout));
  if (key.variant.dtype != layout.dtype)
    return absl::InvalidArgumentError("dtype of variant and layout differ");
  return absl::OkStatus();
}

}  // namespace

// --- writing an object ---

class StoreCore::Writer final : public ObjectWriter {
 public:
  Writer(StoreCore* core, TenantObjectKey key, const KvLayout& layout, std::vector<TokenId> tokens,
         std::unique_ptr<ArenaRegion> region)
      : core_(core), key_(std::move(key)), written_(layout.layers), region_(std::move(region)) {
    head_.id = key_.context.id;
    head_.variant = key_.variant.ToDigest();
    head_.layout = layout;
    head_.tokens = std::move(tokens);
    head_.block_crcs.resize(BlockCount(layout));
    ++core_->reservations_;
  }
  ~Writer() override {
    if (object_ == nullptr) --core_->reservations_;
  }

  absl::Status WriteLayer(uint32_t layer, ByteSpan slab) override {
    const KvLayout& layout = head_.layout;
    if (layer >= layout.layers || slab.size() != layout.LayerBytes()) {
      return absl::InvalidArgumentError("a layer out of range, or a slab of a wrong size");
    }
    if (object_ != nullptr || written_[layer])
      return absl::FailedPreconditionError("layer is written already");
    const uint64_t blocks = BlocksPerLayer(layout);
    const auto crcs = std::span(head_.block_crcs).subspan(layer * blocks, blocks);
    CopyWithBlockCrcs(layout, slab, SlabIn(region_.get(), layout, layer), crcs);
    written_[layer] = true;
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const KvObject>> Commit() override {
    if (object_ == nullptr) {
      if (std::find(written_.begin(), written_.end(), false) != written_.end()) {
        return absl::FailedPreconditionError("a layer is missing");
      }
      head_.build = BuildDigest(head_.block_crcs);
      object_ = std::make_shared<const HostObject>(std::move(head_), std::move(region_));
      --core_->reservations_;
    }
    EPIC_ASSIGN_OR_RETURN(ObjectPtr visible, core_->CommitObject(key_, object_));
    object_ = visible;
    return visible;
  }

 private:
  StoreCore* const core_;
  const TenantObjectKey key_;
  std::vector<bool> written_;
  ObjectHead head_;                      // moved into object_ by the first Commit
  std::unique_ptr<ArenaRegion> region_;  // the same
  ObjectPtr object_;                     // set: committed, or tried to
};

std::unique_ptr<ArenaRegion> StoreCore::AllocateRegion(const KvLayout& layout) {
  const uint64_t bytes = SlabFootprint(layout);
  if (bytes > arena_->capacity_bytes()) return nullptr;
  while (true) {
    if (auto region = AllocateSlabs(arena_.get(), layout)) return region;
    const uint64_t batch =
        BytesToEvict(options_.watermarks, arena_->numbers().used_bytes, bytes, arena_->capacity_bytes());
    if (!objects_.EvictFromMemory(std::max(bytes, batch)).empty()) continue;
    // What is left is leased, or on its way to disk and free to go after that.
    if (!writer_->WaitForProgress()) return AllocateSlabs(arena_.get(), layout);
  }
}

absl::StatusOr<std::unique_ptr<ObjectWriter>> StoreCore::Reserve(std::string_view tenant,
                                                                 const ObjectKey& key,
                                                                 const KvLayout& layout) {
  EPIC_RETURN_IF_ERROR(CheckObjectKey(key, layout));
  EPIC_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, GetTokens(tenant, key.id));
  if (tokens.size() != layout.tokens) {
    return absl::InvalidArgumentError("an object has one row for each token of its context");
  }
  auto region = AllocateRegion(layout);
  if (region == nullptr) return NoRoom(SlabFootprint(layout), arena_->capacity_bytes());
  const TenantObjectKey object{{std::string(tenant), key.id}, key.variant};
  return std::make_unique<Writer>(this, object, layout, std::move(tokens), std::move(region));
}

absl::StatusOr<ObjectPtr> StoreCore::CommitObject(const TenantObjectKey& key, ObjectPtr object) {
  ObjectTable::Published published;
  bool wait = false;
  {
    const KeyLock lock(&locks_, key.context);
    EPIC_ASSIGN_OR_RETURN(const ContextRecord record, records_.Get(key.context));
    wait = record.durability == Durability::kObject;
    published = objects_.Publish(key, std::move(object));
    objects_.SetPin(key.context, PinStateOf(record));
  }
  objects_.EvictOverQuota();
  if (options_.disk_bytes_max == 0 || published.on_disk) return published.object;
  WriteBehind::Item item{.key = key, .object = published.object, .ticket = published.ticket, .durable = wait};
  if (wait) {
    EPIC_RETURN_IF_ERROR(writer_->EnqueueAndWait(std::move(item)));
  } else if (published.first) {
    writer_->Enqueue(std::move(item));
  }
  return published.object;
}

// --- reading an object ---

absl::StatusOr<AcquireResult> StoreCore::Acquire(std::string_view tenant, const ObjectKey& key,
                                                 const KvLayout& layout) {
  EPIC_RETURN_IF_ERROR(CheckObjectKey(key, layout));
  const TenantObjectKey object{{std::string(tenant), key.id}, key.variant};
  const RecordTable::Sight record = records_.Look(object.context);
  if (record.life != RecordTable::Life::kLive) {
    const bool never = record.life == RecordTable::Life::kNever;
    return AcquireResult{.object = nullptr, .cause = never ? MissCause::kNeverStored : MissCause::kDeleted};
  }
  ObjectTable::Found found = objects_.Find(object, layout);
  if (found.disk.has_value()) return LoadFromDisk(object, record.model_identity, *found.disk);
  return AcquireResult{.object = std::move(found.object), .cause = found.cause};
}

uint64_t StoreCore::GenerationInMemory(std::string_view tenant, const ObjectKey& key) {
  const ObjectPtr object = objects_.InMemory({{std::string(tenant), key.id}, key.variant});
  return object == nullptr ? 0 : object->region().generation();
}

AcquireResult StoreCore::LoadFromDisk(const TenantObjectKey& key, const Digest& model_identity,
                                      const DiskCopy& copy) {
  auto region = AllocateRegion(copy.layout);
  if (region == nullptr) {
    return {.object = objects_.FinishLoad(key, copy.number, nullptr), .cause = MissCause::kNoMemory};
  }
  auto object = ReadObject(tables_.get(), &rows_, key, model_identity, copy, std::move(region));
  if (object.ok()) {
    ObjectPtr loaded = objects_.FinishLoad(key, copy.number, *object);
    objects_.EvictOverQuota();
    return {.object = std::move(loaded), .cause = MissCause::kEvicted};
  }
  const MissCause cause = CauseOf(object.status());
  Quarantine(key, copy.number, cause);
  return {.object = objects_.FinishLoad(key, copy.number, nullptr), .cause = cause};
}

void StoreCore::Quarantine(const TenantObjectKey& key, uint64_t number, MissCause cause) {
  // Where the disk does not take the deletion either, the copy is out of the table all the same: it is not
  // read again before a restart, and not believed then.
  DropDiskCopy(key, number, cause).IgnoreError();
}

absl::Status StoreCore::DropDiskCopy(const TenantObjectKey& key, uint64_t number, MissCause cause) {
  const KeyLock lock(&locks_, key.context);
  const auto copy = objects_.DiskCopyOf(key);
  if (!copy.has_value() || copy->number != number) return absl::OkStatus();
  WriteBatch batch;
  batch.Delete(Table::kObjects, RowKey(key));
  rows_.AddRemoval(number, &batch);
  absl::Status status = tables_->Write(batch, Sync::kNo);
  if (!status.ok()) {
    MutexLock orphans(&orphans_mu_);
    orphans_.insert(number);
  }
  objects_.DropDisk(key, cause);
  return status;
}

bool StoreCore::Exists(std::string_view tenant, const ObjectKey& key) const {
  const TenantObjectKey object{{std::string(tenant), key.id}, key.variant};
  return records_.Look(object.context).life == RecordTable::Life::kLive && objects_.Contains(object);
}

ObjectStanding StoreCore::Explain(std::string_view tenant, const ObjectKey& key) const {
  return objects_.Explain({{std::string(tenant), key.id}, key.variant});
}

absl::Status StoreCore::DropObject(std::string_view tenant, const ObjectKey& key) {
  const TenantObjectKey object{{std::string(tenant), key.id}, key.variant};
  const auto copy = objects_.DiskCopyOf(object);
  absl::Status status;
  if (copy.has_value()) status = DropDiskCopy(object, copy->number, MissCause::kDeleted);
  const KeyLock lock(&locks_, object.context);
  objects_.Remove(object, MissCause::kDeleted);
  return status;
}

// --- the disk, on the writer's thread ---

absl::Status StoreCore::WriteObject(const WriteBehind::Item& item) {
  absl::Status status = TryWriteObject(item);
  if (IsStorageFull(status)) {
    // The disk is full before our own limit: make room and try once more. The object is served from memory
    // whatever comes of it.
    FreeDisk(std::max(ObjectBytes(item.object->layout()), objects_.disk_bytes() / 8));
    tables_->Reclaim().IgnoreError();
    status = TryWriteObject(item);
  }
  if (status.ok()) KeepDiskInBounds();
  return status;
}

// Writing its bytes twice, to the log and to a table, costs less than a flush of its own.
bool StoreCore::IsSmall(const KvLayout& layout) const {
  return layout.LayerBytes() < kInlineValueBytes && ObjectBytes(layout) <= options_.small_object_bytes;
}

absl::Status StoreCore::TryWriteObject(const WriteBehind::Item& item) {
  if (!objects_.NeedsWrite(item.key, item.ticket)) return absl::OkStatus();
  const uint64_t bytes = ObjectBytes(item.object->layout());
  // What nothing waits for is written only if it deserves the place of what would have to go for it.
  const bool fits = objects_.disk_bytes() + bytes <= DiskRoom();
  if (!fits && !item.durable && !objects_.IsWorthDisk(item.key)) return absl::OkStatus();
  if (!MakeDiskRoom(bytes)) {
    return Error(ErrorCode::kStorageFull,
                 "no room for " + std::to_string(bytes) +
                     " bytes of KV on disk; free space there or raise the store's disk limit");
  }
  const uint64_t number = next_number_++;
  absl::Status status;
  if (const KvLayout& layout = item.object->layout(); !IsSmall(layout)) {
    status = rows_.Write(number, SlabShapeOf(layout), SlabsOf(*item.object)).status();
  }
  if (status.ok()) status = WriteEntry(item, number);
  if (!status.ok()) DiscardSlabs(number);
  return status;
}

absl::Status StoreCore::WriteEntry(const WriteBehind::Item& item, uint64_t number) {
  const KeyLock lock(&locks_, item.key.context);
  if (!objects_.NeedsWrite(item.key, item.ticket)) {
    DiscardSlabs(number);
    return absl::OkStatus();
  }
  std::set<uint64_t> leftovers;
  {
    MutexLock orphans(&orphans_mu_);
    leftovers = orphans_;
  }
  WriteBatch batch;
  if (const auto old = objects_.DiskCopyOf(item.key)) rows_.AddRemoval(old->number, &batch);
  for (const uint64_t orphan : leftovers) rows_.AddRemoval(orphan, &batch);
  const KvLayout& layout = item.object->layout();
  if (IsSmall(layout)) rows_.AddSlabs(number, SlabShapeOf(layout), SlabsOf(*item.object), &batch);
  batch.Put(Table::kObjects, RowKey(item.key),
            EncodeObjectEntry({.number = number, .variant = item.key.variant, .head = item.object->head()}));
  EPIC_RETURN_IF_ERROR(tables_->Write(batch, item.durable ? Sync::kYes : Sync::kNo));
  objects_.SetDisk(item.key, {.number = number, .bytes = ObjectBytes(layout), .layout = layout}, item.ticket);
  MutexLock orphans(&orphans_mu_);
  for (const uint64_t orphan : leftovers) orphans_.erase(orphan);
  return absl::OkStatus();
}

void StoreCore::DiscardSlabs(uint64_t number) {
  WriteBatch batch;
  rows_.AddRemoval(number, &batch);
  if (tables_->Write(batch, Sync::kNo).ok()) return;
  MutexLock orphans(&orphans_mu_);
  orphans_.insert(number);
}

// Bytes of objects that the disk may hold now: our limit, or less where others fill the disk. The reserve is
// never given to objects: without it a full disk would take no deletion either.
uint64_t StoreCore::DiskRoom() {
  const uint64_t free = tables_->FreeBytes();
  const uint64_t used = objects_.disk_bytes();
  if (free < kDiskReserveBytes) {
    const uint64_t missing = kDiskReserveBytes - free;
    return used > missing ? std::min(disk_limit_, used - missing) : 0;
  }
  const uint64_t growth = free - kDiskReserveBytes;
  return used >= disk_limit_ || growth >= disk_limit_ - used ? disk_limit_ : used + growth;
}

bool StoreCore::MakeDiskRoom(uint64_t bytes) {
  const auto missing = [&]() -> uint64_t {
    const uint64_t wanted = objects_.disk_bytes() + bytes;
    return wanted - std::min(wanted, DiskRoom());
  };
  if (missing() == 0) return true;
  if (bytes > disk_limit_) return false;
  if (DiskRoom() == disk_limit_) {
    FreeDisk(missing());
    return missing() == 0;
  }
  // The disk itself is short: bytes are free again only once they are reclaimed, which takes long, so that
  // more is given up than this object needs.
  tables_->Reclaim().IgnoreError();
  if (missing() == 0) return true;
  FreeDisk(missing() + objects_.disk_bytes() / 8);
  tables_->Reclaim().IgnoreError();
  return missing() == 0;
}

void StoreCore::FreeDisk(uint64_t bytes) {
  for (uint64_t freed = 0; freed < bytes;) {
    const auto victim = objects_.PickDiskVictim();
    if (!victim.has_value()) return;
    const auto& [key, copy] = *victim;
    if (!DropDiskCopy(key, copy.number, MissCause::kEvicted).ok()) return;
    freed += copy.bytes;
  }
}

void StoreCore::KeepDiskInBounds() {
  for (auto victim = objects_.PickDiskVictimOverQuota(); victim.has_value();
       victim = objects_.PickDiskVictimOverQuota()) {
    if (!DropDiskCopy(victim->first, victim->second.number, MissCause::kEvicted).ok()) break;
  }
  if (tables_->PhysicalBytes() <= options_.disk_bytes_max) return;
  tables_->Reclaim().IgnoreError();
  const uint64_t physical = tables_->PhysicalBytes();
  if (physical <= options_.disk_bytes_max) return;
  FreeDisk(physical - disk_limit_);
  tables_->Reclaim().IgnoreError();
}

// --- start ---

absl::Status StoreCore::LoadObjects() {
  std::vector<std::pair<uint64_t, std::pair<TenantObjectKey, DiskCopy>>> copies;
  WriteBatch damaged;
  const auto load = [&](std::string_view row, std::string_view value) {
    const auto context = ParseObjectContextKey(row);
    const auto entry = DecodeObjectEntry(AsBytes(value));
    const bool known = context.ok() && entry.ok() &&
                       RowKey(TenantObjectKey{*context, entry->variant}) == row &&
                       records_.Get(*context).ok();
    if (!known) {
      damaged.Delete(Table::kObjects, std::string(row));
      return true;
    }
    const KvLayout& layout = entry->head.layout;
    const DiskCopy copy{.number = entry->number, .bytes = ObjectBytes(layout), .layout = layout};
    copies.push_back({entry->number, {{*context, entry->variant}, copy}});
    return true;
  };
  EPIC_RETURN_IF_ERROR(ScanAll(Table::kObjects, load));
  // By number, the order in which they were written: the best guess at their order of use.
  std::sort(copies.begin(), copies.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<LiveSlabs> live;
  for (const auto& [number, object] : copies) {
    const auto& [key, copy] = object;
    objects_.SetDisk(key, copy, 0);
    if (const auto record = records_.Get(key.context); record.ok()) {
      objects_.SetPin(key.context, PinStateOf(*record));
    }
    live.push_back({.number = number, .extents = {}});
  }
  next_number_ = live.empty() ? 1 : live.back().number + 1;
  if (!damaged.empty()) EPIC_RETURN_IF_ERROR(tables_->Write(damaged, Sync::kYes));
  return rows_.Load(live, !damaged.empty()).status();
}

StoreUsage StoreCore::Usage() {
  const uint64_t pending = writer_->pending();
  const ObjectTable::MemoryCounts counts = objects_.Count(pending);
  const uint64_t reservations = reservations_.load();
  // Regions of objects that are no longer findable and still held: deleted or replaced while leased.
  const Arena::Numbers arena = arena_->numbers();
  const uint64_t accounted = counts.objects + reservations;
  const uint64_t regions = arena.regions + arena.quarantined_regions;
  StoreUsage usage;
  usage.contexts = records_.VisibleCount();
  usage.objects_in_memory = counts.objects;
  usage.memory_bytes = arena.used_bytes;
  usage.memory_capacity_bytes = arena_->capacity_bytes();
  usage.leased_objects = counts.leased + (regions > accounted ? regions - accounted : 0);
  usage.disk_bytes = tables_->PhysicalBytes();
  usage.reservations = reservations;
  return usage;
}

}  // namespace epic::kv_store
