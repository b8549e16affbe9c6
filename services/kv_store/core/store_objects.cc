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
// A disk that does not take that many deletions gets no more objects until it does.
constexpr size_t kMaxOrphans = 1024;
constexpr int64_t kRetryMs = 1000;

bool IsStorageFull(const absl::Status& status) {
  return status.code() == absl::StatusCode::kResourceExhausted;
}

absl::Status NoRoom(uint64_t bytes, uint64_t capacity_bytes) {
  return Error(ErrorCode::kStorageFull, "no room for " + std::to_string(bytes) + " bytes of KV in the " +
                                            std::to_string(capacity_bytes) +
                                            " bytes of host memory; raise the store's memory, or use shorter "
                                            "contexts or fewer at once");
}

// An object as its entry tells of it.
struct LoadedObject {
  TenantObjectKey key;
  DiskCopy copy;
  SlabExtents extents;
};

absl::Status CheckObjectKey(const ObjectKey& key, const KvLayout& layout) {
  EPIC_RETURN_IF_ERROR(ValidateLayout(layout));
  if (key.variant.dtype != layout.dtype)
    return absl::InvalidArgumentError("dtype of variant and layout differ");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckObjectSize(const KvLayout& layout) {
  const uint64_t bytes = ObjectBytes(layout);
  if (bytes <= kMaxObjectBytes) return absl::OkStatus();
  return Error(ErrorCode::kBodyTooLarge, "an object of " + std::to_string(bytes) +
                                             " bytes; the store takes up to 4 GiB, so split the context");
}

// --- writing an object ---

class StoreCore::Writer final : public ArenaWriter {
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
    CopyWithBlockCrcs(layout, slab, SlabIn(region_.get(), layout, layer), CrcsOf(layer));
    written_[layer] = 1;
    return absl::OkStatus();
  }

  MutableByteSpan Buffer(uint32_t layer) override {
    EPIC_CHECK(object_ == nullptr && layer < head_.layout.layers && !written_[layer]);
    return SlabIn(region_.get(), head_.layout, layer);
  }

  absl::Status FinishLayer(uint32_t layer, std::span<const uint32_t> crcs) override {
    const KvLayout& layout = head_.layout;
    if (layer >= layout.layers || crcs.size() != BlocksPerLayer(layout)) {
      return absl::InvalidArgumentError("a layer out of range, or a wrong number of checksums");
    }
    if (object_ != nullptr || written_[layer])
      return absl::FailedPreconditionError("layer is written already");
    ComputeBlockCrcs(layout, SlabIn(region_.get(), layout, layer), CrcsOf(layer));
    if (!std::equal(crcs.begin(), crcs.end(), CrcsOf(layer).begin())) {
      return Error(ErrorCode::kLayerDamaged,
                   "layer " + std::to_string(layer) + " does not have its checksums; send it again");
    }
    written_[layer] = 1;
    return absl::OkStatus();
  }

  Digest Build() const override {
    EPIC_CHECK(object_ == nullptr && IsWhole());
    return BuildDigest(head_.block_crcs);
  }

  absl::StatusOr<std::shared_ptr<const KvObject>> Commit() override {
    if (object_ == nullptr) {
      if (!IsWhole()) return absl::FailedPreconditionError("a layer is missing");
      head_.build = BuildDigest(head_.block_crcs);
      object_ = std::make_shared<const HostObject>(std::move(head_), std::move(region_));
      --core_->reservations_;
    }
    EPIC_RETURN_IF_ERROR(core_->CommitObject(key_, object_, &published_));
    object_ = published_->object;
    return object_;
  }

 private:
  bool IsWhole() const { return std::find(written_.begin(), written_.end(), 0) == written_.end(); }
  std::span<uint32_t> CrcsOf(uint32_t layer) {
    const uint64_t blocks = BlocksPerLayer(head_.layout);
    return std::span(head_.block_crcs).subspan(layer * blocks, blocks);
  }

  StoreCore* const core_;
  const TenantObjectKey key_;
  std::vector<uint8_t> written_;         // by layer; bytes, since layers may be finished side by side
  ObjectHead head_;                      // moved into object_ by the first Commit
  std::unique_ptr<ArenaRegion> region_;  // the same
  ObjectPtr object_;                     // set: committed, or tried to
  std::optional<ObjectTable::Published> published_;
};

std::unique_ptr<ArenaRegion> StoreCore::AllocateRegion(const KvLayout& layout) {
  const uint64_t bytes = SlabFootprint(layout);
  if (bytes > arena_->capacity_bytes()) return nullptr;
  while (true) {
    if (auto region = AllocateSlabs(arena_.get(), layout)) return region;
    const uint64_t batch =
        BytesToEvict(options_.watermarks, arena_->numbers().used_bytes, bytes, arena_->capacity_bytes());
    if (!objects_.EvictFromMemory(std::max(bytes, batch)).empty()) continue;
    // What is left is leased, or on its way to disk and free to go after that; if nothing is on its way, the
    // last of it may have arrived just now. A disk that is too slow is not to keep memory full.
    if (!IsWritingSlow() && writer_->WaitForProgress()) continue;
    if (options_.disk_wait_ms > 0 && writer_->GiveUp(std::max(bytes, batch))) continue;
    if (objects_.EvictFromMemory(std::max(bytes, batch)).empty()) return AllocateSlabs(arena_.get(), layout);
  }
}

absl::StatusOr<std::unique_ptr<ObjectWriter>> StoreCore::Reserve(std::string_view tenant,
                                                                 const ObjectKey& key,
                                                                 const KvLayout& layout) {
  return ReserveInArena(tenant, key, layout);
}

absl::StatusOr<std::unique_ptr<ArenaWriter>> StoreCore::ReserveInArena(std::string_view tenant,
                                                                       const ObjectKey& key,
                                                                       const KvLayout& layout) {
  EPIC_RETURN_IF_ERROR(CheckObjectKey(key, layout));
  EPIC_RETURN_IF_ERROR(CheckObjectSize(layout));
  EPIC_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, GetTokens(tenant, key.id));
  if (tokens.size() != layout.tokens) {
    return absl::InvalidArgumentError("an object has one row for each token of its context");
  }
  auto region = AllocateRegion(layout);
  if (region == nullptr) return NoRoom(SlabFootprint(layout), arena_->capacity_bytes());
  const TenantObjectKey object{{std::string(tenant), key.id}, key.variant};
  return std::make_unique<Writer>(this, object, layout, std::move(tokens), std::move(region));
}

absl::Status StoreCore::CommitObject(const TenantObjectKey& key, const ObjectPtr& object,
                                     std::optional<ObjectTable::Published>* published) {
  const bool again = published->has_value();
  bool wait = false;
  {
    const KeyLock lock(&locks_, key.context, options_.disk_wait_ms);
    if (!lock.held()) {
      return RetryLater(ErrorCode::kDeadline, "another change of this context waits for the disk", kRetryMs);
    }
    EPIC_ASSIGN_OR_RETURN(const ContextRecord record, records_.Get(key.context));
    wait = record.durability == Durability::kObject;
    if (!again) {
      *published = objects_.Publish(key, object);
      objects_.SetPin(key.context, PinStateOf(record));
    }
  }
  const ObjectTable::Published& visible = **published;
  if (!again) objects_.EvictOverQuota();
  if (options_.disk_bytes_max == 0 || visible.on_disk) return absl::OkStatus();
  WriteBehind::Item item{.key = key, .object = visible.object, .ticket = visible.ticket, .durable = wait};
  if (wait) return writer_->EnqueueAndWait(std::move(item));
  if (visible.first && !again) writer_->Enqueue(std::move(item), /*may_wait=*/!IsWritingSlow());
  return absl::OkStatus();
}

// --- reading an object ---

absl::StatusOr<AcquireResult> StoreCore::Acquire(std::string_view tenant, const ObjectKey& key,
                                                 const KvLayout& layout) {
  return Get(tenant, key, layout, ObjectTable::Want::kWhole);
}

absl::StatusOr<AcquireResult> StoreCore::AcquireStreaming(std::string_view tenant, const ObjectKey& key,
                                                          const KvLayout& layout) {
  return Get(tenant, key, layout, ObjectTable::Want::kStreaming);
}

absl::StatusOr<AcquireResult> StoreCore::Get(std::string_view tenant, const ObjectKey& key,
                                             const KvLayout& layout, ObjectTable::Want want) {
  EPIC_RETURN_IF_ERROR(CheckObjectKey(key, layout));
  const ContextRef context{tenant, Pack(key.id)};
  const RecordTable::Sight record = records_.Look(context);
  if (record.life != RecordTable::Life::kLive) {
    const bool never = record.life == RecordTable::Life::kNever;
    return AcquireResult{.object = nullptr, .cause = never ? MissCause::kNeverStored : MissCause::kDeleted};
  }
  ObjectTable::Found found = objects_.Find(context, key.variant, layout, want);
  if (!found.disk.has_value()) return AcquireResult{.object = std::move(found.object), .cause = found.cause};
  return LoadInTime({{std::string(tenant), key.id}, key.variant}, record.model_identity, *found.disk, want);
}

uint64_t StoreCore::GenerationInMemory(std::string_view tenant, const ObjectKey& key) {
  const ObjectPtr object = objects_.InMemory({{std::string(tenant), key.id}, key.variant});
  return object == nullptr ? 0 : object->region().generation();
}

AcquireResult StoreCore::LoadFromDisk(const TenantObjectKey& key, const Digest& model_identity,
                                      const DiskCopy& copy, ObjectTable::Want want) {
  ++disk_loads_;
  auto region = AllocateRegion(copy.layout);
  if (region == nullptr) {
    return {.object = objects_.FinishLoad(key, copy.number, nullptr), .cause = MissCause::kNoMemory};
  }
  const auto opened = OpenObject(tables_.get(), key, model_identity, copy, std::move(region));
  if (!opened.ok()) return EndLoad(key, copy.number, nullptr, opened.status());
  const Fill fill = [this, key, copy, opened = *opened](const std::function<bool()>& go_on) {
    const absl::Status status = FillObject(HomeOf(copy.number), copy, opened, go_on);
    AcquireResult result = EndLoad(key, copy.number, opened.object, status);
    // Last: whoever hears of it and asks again is told the cause.
    if (!status.ok()) opened.progress->Fail(status);
    return result;
  };
  // A load that is shared ends when it is late; one that is not comes late, and is not lost.
  if (want == ObjectTable::Want::kStreaming || !reads_.bounded()) {
    WatchLoad(key, copy, opened->progress);
    objects_.ShareLoad(key, copy.number, opened->object);
  }
  if (want == ObjectTable::Want::kStreaming && !IsSmall(copy.layout) && LoadInBackground(fill)) {
    return {.object = opened->object, .cause = MissCause::kEvicted};
  }
  return fill([] { return true; });
}

// False: too many wait already, or the store stops.
bool StoreCore::LoadInBackground(Fill fill) {
  auto load = [this, fill = std::move(fill)]() mutable {
    fill([this] { return !stopping_.load(); });
    fill = nullptr;  // lets go of the object before anybody is told
    MutexLock lock(&loads_mu_);
    --background_loads_;
    load_ended_.SignalAll();
  };
  {
    MutexLock lock(&loads_mu_);
    ++background_loads_;
  }
  if (loader_->TrySubmit(std::move(load))) return true;
  MutexLock lock(&loads_mu_);
  --background_loads_;
  load_ended_.SignalAll();
  return false;
}

void StoreCore::DrainLoads() {
  MutexLock lock(&loads_mu_);
  while (background_loads_ > 0) load_ended_.Wait(&loads_mu_);
}

// What readers get that want it whole.
AcquireResult StoreCore::EndLoad(const TenantObjectKey& key, uint64_t number, const ObjectPtr& object,
                                 const absl::Status& status) {
  if (status.ok()) {
    ObjectPtr loaded = objects_.FinishLoad(key, number, object);
    objects_.EvictOverQuota();
    return {.object = std::move(loaded), .cause = MissCause::kEvicted};
  }
  const MissCause cause = CauseOf(status);
  if (!absl::IsCancelled(status)) Quarantine(key, number, cause);
  return {.object = objects_.FinishLoad(key, number, nullptr), .cause = cause};
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
  return RemoveDiskCopy(key, number, cause);
}

// REQUIRES: the context's KeyLock is held, and the number is that of the object's copy.
absl::Status StoreCore::RemoveDiskCopy(const TenantObjectKey& key, uint64_t number, MissCause cause) {
  WriteBatch batch;
  batch.Delete(Table::kObjects, RowKey(key));
  HomeOf(number)->AddRemoval(number, &batch);
  absl::Status status = tables_->Write(batch, Sync::kNo);
  if (status.ok()) {
    HomeOf(number)->Free(number);
  } else {
    AddOrphan(key, number);
  }
  objects_.DropDisk(key, cause);
  return status;
}

ObjectTiers StoreCore::Where(std::string_view tenant, const ObjectKey& key) const {
  const ContextRef context{tenant, Pack(key.id)};
  if (records_.Look(context).life != RecordTable::Life::kLive) return {};
  return objects_.Tiers(context, key.variant);
}

bool StoreCore::Exists(std::string_view tenant, const ObjectKey& key) const {
  const ContextRef context{tenant, Pack(key.id)};
  return records_.Look(context).life == RecordTable::Life::kLive && objects_.Contains(context, key.variant);
}

ObjectStanding StoreCore::Explain(std::string_view tenant, const ObjectKey& key) {
  return objects_.Explain({{std::string(tenant), key.id}, key.variant});
}

bool StoreCore::MayFit(const KvLayout& layout) {
  const uint64_t needed = SlabFootprint(layout);
  uint64_t free = arena_->numbers().free_bytes;
  if (needed > arena_->capacity_bytes() || free >= needed) return free >= needed;
  for (const auto& [key, standing] : objects_.PreviewEviction(needed - free)) free += standing.bytes;
  return free >= needed;
}

absl::Status StoreCore::DropNow(const TenantObjectKey& object) {
  const KeyLock lock(&locks_, object.context);
  const auto copy = objects_.DiskCopyOf(object);
  absl::Status status;
  if (copy.has_value()) status = RemoveDiskCopy(object, copy->number, MissCause::kDeleted);
  objects_.Remove(object, MissCause::kDeleted);
  return status;
}

// --- the disk, on the writer's thread ---

absl::Status StoreCore::WriteObject(const WriteBehind::Item& item) {
  absl::Status status = TryWriteObject(item);
  if (IsStorageFull(status)) {
    // The disk is full before our own limit: make room and try once more. The object is served from memory
    // whatever comes of it.
    const uint64_t bytes = ObjectBytes(item.object->layout());
    FreeDisk(std::max(bytes, objects_.disk_bytes() / 8));
    if (slabs_ == nullptr || slabs_->ReusableBytes() < bytes) Reclaim().IgnoreError();
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
  if (TooManyOrphans()) return absl::UnavailableError("the disk does not take deletions");
  const uint64_t number = next_number_++;
  const KvLayout& layout = item.object->layout();
  SlabStore* home = &rows_;
  if (slabs_ != nullptr && options_.write_to_slabs) home = slabs_.get();
  SlabExtents extents;
  if (!IsSmall(layout)) {
    auto written = home->Write(number, SlabShapeOf(layout), SlabsOf(*item.object));
    if (!written.ok()) {
      WriteBatch remains;
      home->AddRemoval(number, &remains);
      if (!remains.empty() && !tables_->Write(remains, Sync::kNo).ok()) AddOrphan(item.key, number);
      return written.status();
    }
    extents = *std::move(written);
  }
  const absl::StatusOr<bool> entered = WriteEntry(item, number, std::move(extents));
  const bool is_object = entered.ok() && *entered;
  if (!is_object && !DropOrphan(item.key, number).ok()) AddOrphan(item.key, number);
  return entered.status();
}

// False: the object was deleted or replaced meanwhile, and has no entry.
absl::StatusOr<bool> StoreCore::WriteEntry(const WriteBehind::Item& item, uint64_t number,
                                           SlabExtents extents) {
  const KeyLock lock(&locks_, item.key.context);
  if (!objects_.NeedsWrite(item.key, item.ticket)) return false;
  WriteBatch batch;
  const auto old = objects_.DiskCopyOf(item.key);
  if (old.has_value()) HomeOf(old->number)->AddRemoval(old->number, &batch);
  const KvLayout& layout = item.object->layout();
  if (IsSmall(layout)) rows_.AddSlabs(number, SlabShapeOf(layout), SlabsOf(*item.object), &batch);
  batch.Put(Table::kObjects, RowKey(item.key),
            EncodeObjectEntry({.number = number,
                               .extents = std::move(extents),
                               .variant = item.key.variant,
                               .head = item.object->head()}));
  EPIC_RETURN_IF_ERROR(tables_->Write(batch, item.durable ? Sync::kYes : Sync::kNo));
  if (old.has_value()) HomeOf(old->number)->Free(old->number);
  objects_.SetDisk(item.key, {.number = number, .bytes = ObjectBytes(layout), .layout = layout}, item.ticket);
  return true;
}

// Where the slabs of an object are: what is not in extents is in rows.
SlabStore* StoreCore::HomeOf(uint64_t number) {
  if (slabs_ != nullptr && slabs_->Holds(number)) return slabs_.get();
  return &rows_;
}

// Bytes of objects that the disk may hold now: our limit, or less where others fill the disk. The reserve is
// never given to objects: without it a full disk would take no deletion either.
uint64_t StoreCore::DiskRoom() {
  const uint64_t free = tables_->FreeBytes();
  const uint64_t reusable = slabs_ == nullptr ? 0 : slabs_->ReusableBytes();
  const uint64_t used = objects_.disk_bytes();
  if (free < kDiskReserveBytes) {
    const uint64_t missing = kDiskReserveBytes - free;
    return used > missing ? std::min(disk_limit_, used - missing) : 0;
  }
  const uint64_t growth = std::min(free - kDiskReserveBytes, disk_limit_) + reusable;
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
  Reclaim().IgnoreError();
  if (missing() == 0) return true;
  FreeDisk(missing() + objects_.disk_bytes() / 8);
  Reclaim().IgnoreError();
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

absl::Status StoreCore::Reclaim() {
  absl::Status status = tables_->Reclaim();
  if (slabs_ == nullptr) return status;
  absl::Status slabs = slabs_->Reclaim();
  return status.ok() ? slabs : status;
}

uint64_t StoreCore::DiskPhysicalBytes() {
  return tables_->PhysicalBytes() + (slabs_ == nullptr ? 0 : slabs_->PhysicalBytes());
}

void StoreCore::KeepDiskInBounds() {
  for (auto victim = objects_.PickDiskVictimOverQuota(); victim.has_value();
       victim = objects_.PickDiskVictimOverQuota()) {
    if (!DropDiskCopy(victim->first, victim->second.number, MissCause::kEvicted).ok()) break;
  }
  GiveBackToAShortDisk();
  if (DiskPhysicalBytes() <= options_.disk_bytes_max) return;
  Reclaim().IgnoreError();
  const uint64_t physical = DiskPhysicalBytes();
  if (physical <= options_.disk_bytes_max) return;
  FreeDisk(physical - disk_limit_);
  Reclaim().IgnoreError();
}

// Space that is kept for objects to come goes back when records could want for it.
void StoreCore::GiveBackToAShortDisk() {
  if (slabs_ == nullptr || slabs_->ReusableBytes() == 0) return;
  if (tables_->FreeBytes() < kDiskReserveBytes) slabs_->Reclaim().IgnoreError();
}

// --- slabs that the disk did not let go ---

bool StoreCore::TooManyOrphans() {
  MutexLock lock(&orphans_mu_);
  return orphans_.size() >= kMaxOrphans;
}

void StoreCore::AddOrphan(const TenantObjectKey& key, uint64_t number) {
  MutexLock lock(&orphans_mu_);
  orphans_.emplace(number, key);
}

absl::Status StoreCore::DropOrphans() {
  std::map<uint64_t, TenantObjectKey> orphans;
  {
    MutexLock lock(&orphans_mu_);
    orphans = orphans_;
  }
  for (const auto& [number, key] : orphans) {
    EPIC_RETURN_IF_ERROR(DropOrphan(key, number));
    MutexLock lock(&orphans_mu_);
    orphans_.erase(number);
  }
  return absl::OkStatus();
}

// The entry under the key may name the number, whatever the write of that entry returned: it goes too, and
// with it an older copy, which it may have replaced. An entry that was written later stays.
absl::Status StoreCore::DropOrphan(const TenantObjectKey& key, uint64_t number) {
  const KeyLock lock(&locks_, key.context);
  const auto copy = objects_.DiskCopyOf(key);
  const bool is_older = copy.has_value() && copy->number < number;
  WriteBatch batch;
  if (!copy.has_value() || is_older) batch.Delete(Table::kObjects, RowKey(key));
  if (is_older) HomeOf(copy->number)->AddRemoval(copy->number, &batch);
  HomeOf(number)->AddRemoval(number, &batch);
  EPIC_RETURN_IF_ERROR(tables_->Write(batch, Sync::kNo));
  if (is_older) {
    HomeOf(copy->number)->Free(copy->number);
    objects_.DropDisk(key, MissCause::kEvicted);
  }
  HomeOf(number)->Free(number);
  return absl::OkStatus();
}

// --- start ---

absl::Status StoreCore::LoadObjects() {
  std::map<uint64_t, LoadedObject> objects;  // by number, the order in which they were written
  WriteBatch damaged;
  uint64_t last_number = 0;
  const auto load = [&](std::string_view row, std::string_view value) {
    const auto context = ParseObjectContextKey(row);
    auto entry = DecodeObjectEntry(AsBytes(value));
    const bool known = context.ok() && entry.ok() &&
                       RowKey(TenantObjectKey{*context, entry->variant}) == row &&
                       records_.Get(*context).ok() && (entry->extents.empty() || slabs_ != nullptr);
    if (entry.ok()) last_number = std::max(last_number, entry->number);
    if (!known || objects.contains(entry->number)) {
      damaged.Delete(Table::kObjects, std::string(row));
      return true;
    }
    const KvLayout& layout = entry->head.layout;
    objects[entry->number] = {
        .key = {*context, entry->variant},
        .copy = {.number = entry->number, .bytes = ObjectBytes(layout), .layout = layout},
        .extents = std::move(entry->extents)};
    return true;
  };
  EPIC_RETURN_IF_ERROR(ScanAll(Table::kObjects, load));
  std::vector<LiveSlabs> in_rows;
  std::vector<LiveSlabs> in_slabs;
  for (auto& [number, object] : objects) {
    (object.extents.empty() ? in_rows : in_slabs).push_back({number, std::move(object.extents)});
  }
  if (slabs_ != nullptr) {
    EPIC_ASSIGN_OR_RETURN(const std::vector<uint64_t> wrong, slabs_->Load(in_slabs, !damaged.empty()));
    for (const uint64_t number : wrong) {
      damaged.Delete(Table::kObjects, RowKey(objects.at(number).key));
      objects.erase(number);
    }
  }
  // The order of writing is the best guess at the order of use.
  for (const auto& [number, object] : objects) {
    objects_.SetDisk(object.key, object.copy, 0);
    if (const auto record = records_.Get(object.key.context); record.ok()) {
      objects_.SetPin(object.key.context, PinStateOf(*record));
    }
  }
  next_number_ = last_number + 1;
  // Slabs first: an entry that a crash leaves here is found again at the next open, its slabs would not be.
  EPIC_RETURN_IF_ERROR(rows_.Load(in_rows, !damaged.empty()).status());
  return damaged.empty() ? absl::OkStatus() : tables_->Write(damaged, Sync::kYes);
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
  usage.memory_largest_hole_bytes = arena.largest_hole_bytes;
  usage.memory_held_bytes = arena.held_bytes;
  usage.memory_quarantined_bytes = arena.quarantined_bytes;
  usage.leased_objects = counts.leased + (regions > accounted ? regions - accounted : 0);
  usage.disk_bytes = DiskPhysicalBytes();
  usage.reservations = reservations;
  return usage;
}

}  // namespace epic::kv_store
