#include "services/kv_store/faults/testing/whole_store.h"

#include <limits>
#include <set>
#include <utility>

#include "common/status/status_macros.h"
#include "services/kv_store/core/rows.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kFileBytes = uint64_t{1} << 20;
constexpr uint64_t kGrowBytes = uint64_t{64} << 10;
constexpr uint64_t kPieceBytes = uint64_t{16} << 10;
const char* const kFolder = "/slabs";

// Tables that break a rule.
class CarelessTables final : public TableStore {
 public:
  CarelessTables(std::unique_ptr<TableStore> inner, BrokenRule broken)
      : inner_(std::move(inner)), broken_(broken) {}

  absl::Status Write(const WriteBatch& batch, Sync sync) override {
    if (broken_ == BrokenRule::kNoSyncOfRecords) sync = Sync::kNo;
    if (broken_ != BrokenRule::kNoRemovalOfSlabs) return inner_->Write(batch, sync);
    WriteBatch kept;
    for (const WriteBatch::Change& change : batch.changes()) {
      if (change.table == Table::kSlabs && !change.value.has_value()) continue;
      if (change.value.has_value()) {
        kept.Put(change.table, change.key, *change.value);
      } else if (change.end.has_value()) {
        kept.DeleteRange(change.table, change.key, *change.end);
      } else {
        kept.Delete(change.table, change.key);
      }
    }
    return inner_->Write(kept, sync);
  }
  absl::Status PutUnlogged(Table table, std::string_view key, ByteSpan value) override {
    return inner_->PutUnlogged(table, key, value);
  }
  absl::Status Flush(Table table) override {
    return broken_ == BrokenRule::kNoFlushOfRows ? absl::OkStatus() : inner_->Flush(table);
  }
  absl::StatusOr<std::optional<std::string>> Get(Table table, std::string_view key) override {
    return inner_->Get(table, key);
  }
  absl::StatusOr<std::optional<uint64_t>> ReadInto(Table table, std::string_view key,
                                                   MutableByteSpan out) override {
    return inner_->ReadInto(table, key, out);
  }
  absl::Status Scan(Table table,
                    const std::function<bool(std::string_view, std::string_view)>& visit) override {
    return inner_->Scan(table, visit);
  }
  uint64_t PhysicalBytes() override { return inner_->PhysicalBytes(); }
  uint64_t FreeBytes() override { return inner_->FreeBytes(); }
  absl::Status Reclaim() override { return inner_->Reclaim(); }
  void SetErrorSink(std::function<void(const absl::Status&)> sink) override {
    inner_->SetErrorSink(std::move(sink));
  }

 private:
  const std::unique_ptr<TableStore> inner_;
  const BrokenRule broken_;
};

uint64_t NumberOfSlabRow(std::string_view row) {
  uint64_t number = 0;
  for (size_t at = 0; at < sizeof number; ++at) number = number << 8 | static_cast<unsigned char>(row[at]);
  return number;
}

}  // namespace

WholeStore::WholeStore(uint64_t seed, WholeStoreOptions options)
    : options_(std::move(options)),
      power_(std::make_shared<Power>()),
      rocks_(std::make_shared<FaultyRocksFileSystem>(seed, power_)),
      extents_(std::make_shared<FaultyFileSystem>(seed + 1, std::numeric_limits<uint64_t>::max(), power_)),
      env_(MakeSleeplessEnv(rocks_)) {
  extents_->SetLosesSyncs(options_.broken == BrokenRule::kNoSyncOfExtents);
}

WholeStore::~WholeStore() = default;

SlabStoreMaker WholeStore::MakeSlabs() {
  if (options_.slabs != SlabBackEnd::kExtents) return nullptr;
  return [this](std::function<absl::Status()> sync) -> absl::StatusOr<std::unique_ptr<SlabStore>> {
    if (options_.broken == BrokenRule::kNoSyncBeforeReuse) sync = [] { return absl::OkStatus(); };
    EPIC_ASSIGN_OR_RETURN(auto slabs,
                          ExtentSlabStore::Open(extents_,
                                                {.folder = kFolder,
                                                 .max_bytes = options_.store.disk_bytes_max / 10 * 9,
                                                 .file_bytes = kFileBytes,
                                                 .grow_bytes = kGrowBytes,
                                                 .piece_bytes = kPieceBytes},
                                                std::move(sync)));
    slabs_ = slabs.get();
    return slabs;
  };
}

absl::Status WholeStore::Open() {
  EPIC_ASSIGN_OR_RETURN(
      std::unique_ptr<TableStore> tables,
      OpenRocksDbTables({.dir = dir_.path() + "/data", .env = env_.get(), .clock = options_.store.clock}));
  tables = std::make_unique<CarelessTables>(std::move(tables), options_.broken);
  TableStore* const opened = tables.get();
  StoreOptions store = options_.store;
  store.make_slabs = MakeSlabs();
  EPIC_ASSIGN_OR_RETURN(core_, StoreCore::Open(std::move(tables), store));
  tables_ = opened;
  return absl::OkStatus();
}

void WholeStore::Close() {
  core_.reset();
  tables_ = nullptr;
  slabs_ = nullptr;
}

void WholeStore::Crash(Rng* rng) {
  power_->CutAfter(0);
  Close();
  rocks_->Crash(rng);
  extents_->Crash(rng);
  power_->Restore();
}

std::string WholeStore::Leaks() {
  core_->DrainWrites();
  core_->Housekeep();
  const StoreUsage usage = core_->Usage();
  if (usage.reservations != 0) return "a reservation of nobody";
  if (usage.leased_objects != 0) return "a lease of nobody";
  if (usage.objects_in_memory == 0 && usage.memory_bytes != 0) return "memory of nobody";
  uint64_t extent_pages = 0;
  std::string leak = LeaksOfTables(&extent_pages);
  return leak.empty() && slabs_ != nullptr ? LeaksOfExtents(extent_pages) : leak;
}

// Every slab and every token row has somebody who names it.
std::string WholeStore::LeaksOfTables(uint64_t* extent_pages) {
  std::set<std::string> records;
  std::set<uint64_t> numbers;
  std::string leak;
  const auto note = [&](absl::Status status) {
    if (!status.ok() && leak.empty()) leak = status.ToString();
  };
  note(tables_->Scan(Table::kRecords, [&](std::string_view row, std::string_view) {
    records.emplace(row);
    return true;
  }));
  note(tables_->Scan(Table::kTokens, [&](std::string_view row, std::string_view) {
    if (!records.contains(std::string(row))) leak = "token ids without a record";
    return true;
  }));
  note(tables_->Scan(Table::kObjects, [&](std::string_view, std::string_view value) {
    const auto entry = DecodeObjectEntry(AsBytes(value));
    if (!entry.ok()) {
      leak = "an entry that cannot be read";
      return true;
    }
    for (const SlabExtent& extent : entry->extents) *extent_pages += extent.pages;
    if (entry->extents.empty()) numbers.insert(entry->number);
    return true;
  }));
  note(tables_->Scan(Table::kSlabs, [&](std::string_view row, std::string_view) {
    if (!numbers.contains(NumberOfSlabRow(row))) {
      leak = "slabs in rows that no entry names, of number " + std::to_string(NumberOfSlabRow(row)) + " of " +
             std::to_string(numbers.empty() ? 0 : *numbers.rbegin());
    }
    return true;
  }));
  return leak;
}

// What is free and what entries name is all there is, and the disk holds nothing else.
std::string WholeStore::LeaksOfExtents(uint64_t extent_pages) {
  if (const absl::Status status = slabs_->Reclaim(); !status.ok()) return status.ToString();
  uint64_t pages = 0;
  uint64_t headers = 0;
  const auto names = extents_->List(kFolder);
  for (const std::string& name : *names) {
    const auto file = extents_->Open(std::string(kFolder) + "/" + name);
    pages += (*file)->Size().value_or(0) / kSlabPageBytes - 1;
    ++headers;
  }
  const uint64_t free = slabs_->fragmentation().free_bytes / kSlabPageBytes;
  if (free + extent_pages != pages) {
    return "of " + std::to_string(pages) + " pages " + std::to_string(free) + " are free and " +
           std::to_string(extent_pages) + " have an entry";
  }
  const uint64_t taken = slabs_->PhysicalBytes() / kSlabPageBytes;
  if (taken != extent_pages + headers) {
    return "the disk holds " + std::to_string(taken) + " pages for " + std::to_string(extent_pages) +
           " that have an entry and " + std::to_string(headers) + " headers";
  }
  return "";
}

}  // namespace epic::kv_store
