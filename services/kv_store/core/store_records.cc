// The half of StoreCore that deals with records; objects are in store_objects.cc.
#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/absl_std.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/storage/record_codec.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/store_core.h"

namespace epic::kv_store {
namespace {

constexpr size_t kExpiryBatch = 64;
constexpr int64_t kMaxMindMs = 250;
constexpr uint32_t kReadThreads = 32;
constexpr uint32_t kLateReadsMax = 8;
constexpr uint32_t kChangeThreads = 64;  // that may share one sync of the log
constexpr size_t kTombstoneBatch = 256;
constexpr size_t kQueuedLoadsMax = 64;
constexpr uint64_t kMaxTokens = uint64_t{1} << 24;
constexpr int64_t kReclaimPeriodNs = int64_t{6} * 3600 * 1'000'000'000;

absl::Status Unreadable(std::string_view what, const absl::Status& status) {
  return absl::Status(status.code(), ToAbsl("the store has a " + std::string(what) +
                                            " that cannot be read: " + MessageOf(status) +
                                            "; restore the data directory from a copy"));
}

}  // namespace

StoreCore::StoreCore(std::unique_ptr<TableStore> tables, std::shared_ptr<Arena> arena,
                     const StoreOptions& options)
    : watch_(options.clock),
      tables_(std::make_unique<WatchedTables>(std::move(tables), &watch_)),
      rows_(tables_.get()),
      options_(options),
      disk_limit_(options.disk_bytes_max / 10 * 9),
      arena_(std::move(arena)),
      records_(options.clock),
      objects_(options.clock, {.eviction = options.eviction, .quotas = options.quotas}),
      reads_({.wait_ms = options.disk_wait_ms, .threads_max = kReadThreads, .late_max = kLateReadsMax}),
      changes_({.wait_ms = options.disk_wait_ms, .threads_max = kChangeThreads, .late_max = 1}) {}

StoreCore::~StoreCore() { Stop(); }

absl::StatusOr<std::unique_ptr<StoreCore>> StoreCore::Open(std::unique_ptr<TableStore> tables,
                                                           const StoreOptions& options) {
  EPIC_ASSIGN_OR_RETURN(auto arena, Arena::Create({.capacity_bytes = options.memory_bytes}));
  std::unique_ptr<StoreCore> store(new StoreCore(std::move(tables), std::move(arena), options));
  StoreCore* const core = store.get();
  if (options.make_slabs != nullptr) {
    EPIC_ASSIGN_OR_RETURN(auto slabs,
                          options.make_slabs([core] { return core->tables_->Write({}, Sync::kYes); }));
    store->slabs_ = std::make_unique<WatchedSlabs>(std::move(slabs), &store->watch_);
  }
  store->eraser_ = std::make_unique<Eraser>(
      options.clock, [core](const std::vector<std::string>& rows) { return core->EraseDue(rows); });
  EPIC_RETURN_IF_ERROR(store->Load());
  store->loader_ = std::make_unique<ThreadExecutor>(options.load_threads, kQueuedLoadsMax);
  WriteBehind::Options writer = options.writer;
  writer.wait_ms = options.disk_wait_ms;
  store->writer_ = std::make_unique<WriteBehind>(
      writer, [core](const WriteBehind::Item& item) { return core->WriteObject(item); },
      [core] { core->Housekeep(); });
  store->scrubber_ =
      std::make_unique<Scrubber>(options.scrubber, [core](const ScrubPace& pace) { core->ScrubPass(pace); });
  store->warmer_ = std::make_unique<Scrubber>(
      Scrubber::Options{
          .bytes_per_s = options.warm_up.bytes_per_s, .period_ms = options.warm_up.delay_ms, .once = true},
      [core](const ScrubPace& pace) { core->WarmUpPass(pace); });
  if (options.disk_wait_ms > 0) {
    store->minder_ = std::make_unique<Scrubber>(
        Scrubber::Options{.bytes_per_s = 1,
                          .period_ms = std::clamp<int64_t>(options.disk_wait_ms / 4, 1, kMaxMindMs)},
        [core](const ScrubPace&) { core->FailLateLoads(); });
  }
  store->prober_ =
      std::make_unique<Scrubber>(Scrubber::Options{.bytes_per_s = options.disk_probe_ms > 0 ? 1u : 0u,
                                                   .period_ms = options.disk_probe_ms},
                                 [core](const ScrubPace&) { core->ProbeDisk(); });
  store->eraser_->RetryDue();
  return store;
}

absl::Status StoreCore::Load() {
  // A deletion of the life before may have left bytes behind.
  deleted_since_ns_ = options_.clock->SteadyNs();
  EPIC_RETURN_IF_ERROR(LoadErasures());
  EPIC_RETURN_IF_ERROR(LoadRecords());
  return LoadObjects();
}

absl::Status StoreCore::ScanAll(Table table,
                                const std::function<bool(std::string_view, std::string_view)>& visit) {
  const absl::Status status = tables_->Scan(table, visit);
  return absl::IsDataLoss(status) ? Unreadable("table", status) : status;
}

absl::Status StoreCore::LoadRecords() {
  absl::Status bad;
  const auto load_record = [&](std::string_view, std::string_view value) {
    const auto record = DecodeRecord(AsBytes(value));
    if (!record.ok()) {
      bad = Unreadable("context record", record.status());
      return false;
    }
    records_.Load(*record);
    return true;
  };
  EPIC_RETURN_IF_ERROR(ScanAll(Table::kRecords, load_record));
  EPIC_RETURN_IF_ERROR(bad);
  const auto load_tombstone = [&](std::string_view row, std::string_view value) {
    const auto key = ParseContextKey(row);
    const auto tombstone = DecodeTombstone(AsBytes(value));
    if (!key.ok() || !tombstone.ok()) {
      bad = Unreadable("tombstone", key.ok() ? tombstone.status() : key.status());
      return false;
    }
    records_.Load(*key, *tombstone);
    return true;
  };
  EPIC_RETURN_IF_ERROR(ScanAll(Table::kTombstones, load_tombstone));
  return bad;
}

// Errors: DataLoss when they are lost or damaged, or those of the TableStore.
absl::StatusOr<std::vector<TokenId>> StoreCore::ReadTokens(const ContextKey& key) {
  EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> row, tables_->Get(Table::kTokens, RowKey(key)));
  if (!row.has_value()) return absl::DataLossError("no token ids");
  auto tokens = DecodeTokens(AsBytes(*row));
  if (!tokens.ok()) return absl::DataLossError(tokens.status().message());
  return *std::move(tokens);
}

absl::Status StoreCore::CheckStoredTokens(const ContextKey& key, const NewContext& context, bool* rewrite) {
  const auto stored = ReadTokens(key);
  if (!stored.ok() && !absl::IsDataLoss(stored.status())) return stored.status();
  if (stored.ok() && *stored != context.tokens) {
    return absl::InternalError("two texts have the same Cache ID; refusing to mix them");
  }
  // Lost or damaged token ids: the caller has brought the right ones.
  *rewrite = !stored.ok();
  return absl::OkStatus();
}

// Adds the removal of all entries of the context's objects, known or left by a write whose end was not seen,
// and of the slabs of the known, whose numbers it returns: to be freed once the batch was written.
std::vector<uint64_t> StoreCore::AddObjectRemovals(const ContextKey& key, WriteBatch* batch) {
  std::vector<uint64_t> numbers;
  for (const auto& [object, copy] : objects_.DiskCopiesOf(key)) {
    HomeOf(copy.number)->AddRemoval(copy.number, batch);
    numbers.push_back(copy.number);
  }
  // The variant's digest of 32 bytes follows the context's key, whose length is fixed by its first bytes.
  batch->DeleteRange(Table::kObjects, RowKey(key), RowKey(key) + std::string(33, '\xff'));
  return numbers;
}

void StoreCore::FreeSlabs(const std::vector<uint64_t>& numbers) {
  for (const uint64_t number : numbers) HomeOf(number)->Free(number);
}

absl::Status StoreCore::WritePlan(const ContextKey& key, const RecordPlan& plan,
                                  const std::vector<TokenId>* tokens, Sync sync) {
  WriteBatch batch;
  batch.Put(Table::kRecords, RowKey(key), EncodeRecord(plan.record));
  if (tokens != nullptr) batch.Put(Table::kTokens, RowKey(key), EncodeTokens(*tokens));
  if (plan.created && records_.HasTombstone(key)) batch.Delete(Table::kTombstones, RowKey(key));
  // A created context starts without objects, also over an expired one whose removal the disk refused.
  std::vector<uint64_t> removed;
  if (plan.replaces) removed = AddObjectRemovals(key, &batch);
  if (absl::Status status = tables_->Write(batch, sync); !status.ok()) {
    records_.Abandon(plan);
    return status;
  }
  FreeSlabs(removed);
  records_.Apply(plan);
  if (plan.created) objects_.RemoveContext(key);
  objects_.SetPin(key, PinStateOf(plan.record));
  return absl::OkStatus();
}

absl::StatusOr<CreateResult> StoreCore::CreateNow(const NewContext& context) {
  if (context.tokens.empty()) {
    return Error(ErrorCode::kInvalidRequest, "a context needs at least one token", "text");
  }
  if (context.tokens.size() > kMaxTokens) {
    return Error(ErrorCode::kInvalidRequest, "a context has at most 16,777,216 tokens; split the text",
                 "text");
  }
  ExpireDue();
  const ContextKey key{context.tenant, CacheId::Of(context.tenant, context.model_identity, context.tokens)};
  const KeyLock lock(&locks_, key);
  EPIC_ASSIGN_OR_RETURN(const RecordPlan plan, records_.PlanCreate(key, context));
  bool write_tokens = plan.created;
  if (!plan.created) {
    if (absl::Status status = CheckStoredTokens(key, context, &write_tokens); !status.ok()) {
      records_.Abandon(plan);
      return status;
    }
  }
  if (plan.changed || write_tokens) {
    EPIC_RETURN_IF_ERROR(WritePlan(key, plan, write_tokens ? &context.tokens : nullptr, Sync::kYes));
  }
  CreateResult result{.record = plan.record, .created = plan.created};
  objects_.Describe(&result.record);
  return result;
}

absl::StatusOr<ContextRecord> StoreCore::GetContext(std::string_view tenant, const CacheId& id) {
  EPIC_ASSIGN_OR_RETURN(ContextRecord record, records_.Get({std::string(tenant), id}));
  objects_.Describe(&record);
  return record;
}

absl::StatusOr<ContextRecord> StoreCore::FindByName(std::string_view tenant, const Digest& model_identity,
                                                    std::string_view name) {
  EPIC_ASSIGN_OR_RETURN(ContextRecord record, records_.FindByName(tenant, model_identity, name));
  objects_.Describe(&record);
  return record;
}

absl::StatusOr<std::vector<TokenId>> StoreCore::GetTokensNow(std::string_view tenant, const CacheId& id) {
  const ContextKey key{std::string(tenant), id};
  EPIC_ASSIGN_OR_RETURN(const ContextRecord record, records_.Get(key));
  auto tokens = ReadTokens(key);
  if (tokens.ok() && CacheId::Of(tenant, record.model_identity, *tokens) == id) return tokens;
  if (!tokens.ok() && !absl::IsDataLoss(tokens.status())) return tokens.status();
  // A removal between the steps above is the ordinary reason.
  EPIC_RETURN_IF_ERROR(records_.Get(key).status());
  return Error(ErrorCode::kContextObjectMissing,
               "the stored token ids of this context are damaged; create it again with the same text", "id");
}

absl::StatusOr<ContextPage> StoreCore::ListContexts(std::string_view tenant, const ContextQuery& query) {
  EPIC_ASSIGN_OR_RETURN(ContextPage page, records_.List(tenant, query));
  for (ContextRecord& record : page.records) objects_.Describe(&record);
  return page;
}

absl::StatusOr<ContextRecord> StoreCore::UpdateNow(const ContextKey& key, const ContextPatch& patch) {
  ExpireDue();
  const KeyLock lock(&locks_, key);
  EPIC_ASSIGN_OR_RETURN(RecordPlan plan, records_.PlanUpdate(key, patch));
  EPIC_RETURN_IF_ERROR(WritePlan(key, plan, nullptr, Sync::kYes));
  objects_.Describe(&plan.record);
  return std::move(plan.record);
}

// Adds the removal of the context's rows. Returns the objects whose slabs are to be freed once it is written.
std::vector<uint64_t> StoreCore::AddRemoval(const ContextKey& key, WriteBatch* batch) {
  batch->Delete(Table::kRecords, RowKey(key));
  batch->Delete(Table::kTokens, RowKey(key));
  return AddObjectRemovals(key, batch);
}

void StoreCore::ForgetObjects(const ContextKey& key, const std::vector<uint64_t>& removed) {
  FreeSlabs(removed);
  objects_.RemoveContext(key);
  int64_t none = 0;
  deleted_since_ns_.compare_exchange_strong(none, options_.clock->SteadyNs());
}

// `erase_row`: goes to the disk with the removal, or alone where there is nothing to remove; empty: none.
absl::StatusOr<bool> StoreCore::RemoveContext(const ContextKey& key, RemovalCause cause,
                                              std::string_view erase_row) {
  const KeyLock lock(&locks_, key);
  const std::optional<Tombstone> tombstone = records_.PlanRemoval(key, cause);
  WriteBatch batch;
  if (!erase_row.empty()) batch.Put(Table::kNode, std::string(erase_row), "");
  if (!tombstone.has_value()) {
    if (!batch.empty()) EPIC_RETURN_IF_ERROR(tables_->Write(batch, Sync::kYes));
    return false;
  }
  const std::vector<uint64_t> removed = AddRemoval(key, &batch);
  batch.Put(Table::kTombstones, RowKey(key), EncodeTombstone(*tombstone));
  // Nobody waits for an expiry, and one that a crash undoes is due again.
  EPIC_RETURN_IF_ERROR(tables_->Write(batch, cause == RemovalCause::kExpired ? Sync::kNo : Sync::kYes));
  records_.ApplyRemoval(key, *tombstone);
  ForgetObjects(key, removed);
  return tombstone->cause == RemovalCause::kDeleted;
}

absl::Status StoreCore::JoinContext(const ContextKey& key, const ReplicaState& state,
                                    const std::vector<TokenId>* tokens) {
  if (state.record.has_value() && (state.record->tenant != key.tenant || state.record->id != key.id)) {
    return absl::InvalidArgumentError("the record is another context's");
  }
  const KeyLock lock(&locks_, key);
  const bool had_record = records_.StateOf(key).value_or(ReplicaState{}).record.has_value();
  const std::optional<ReplicaState> joined = records_.PlanJoin(key, state);
  if (!joined.has_value()) return absl::OkStatus();
  WriteBatch batch;
  std::vector<uint64_t> removed;
  if (joined->record.has_value()) {
    const ContextRecord& record = *joined->record;
    EPIC_RETURN_IF_ERROR(ValidateRecord(record));
    if (!had_record && tokens == nullptr) {
      return absl::FailedPreconditionError("a context that is new to this node comes with its token ids");
    }
    if (!had_record && CacheId::Of(key.tenant, record.model_identity, *tokens) != key.id) {
      return absl::InvalidArgumentError("the token ids are not those of the Cache ID");
    }
    batch.Put(Table::kRecords, RowKey(key), EncodeRecord(record));
    if (!had_record) batch.Put(Table::kTokens, RowKey(key), EncodeTokens(*tokens));
  } else if (had_record) {
    removed = AddRemoval(key, &batch);
  }
  if (joined->tombstone.has_value()) {
    batch.Put(Table::kTombstones, RowKey(key), EncodeTombstone(*joined->tombstone));
  }
  EPIC_RETURN_IF_ERROR(tables_->Write(batch, Sync::kYes));
  records_.ApplyJoin(key, *joined);
  if (joined->record.has_value()) {
    objects_.SetPin(key, PinStateOf(*joined->record));
  } else if (had_record) {
    ForgetObjects(key, removed);
  }
  return absl::OkStatus();
}

absl::Status StoreCore::SetStateNow(const ContextKey& key, ContextState state, int64_t compile_ms,
                                    std::string_view error) {
  const KeyLock lock(&locks_, key);
  EPIC_ASSIGN_OR_RETURN(const RecordPlan plan, records_.PlanState(key, state, compile_ms, error));
  return WritePlan(key, plan, nullptr, Sync::kNo);
}

void StoreCore::Touch(std::string_view tenant, const CacheId& id) {
  records_.Touch({std::string(tenant), id});
}

// A context past its expiry reads as expired whether its tombstone is on disk already or not; so a disk that
// fails here only delays the clean-up until the next call.
void StoreCore::ExpireDue() {
  for (const ContextKey& key : records_.Expired(kExpiryBatch)) {
    if (!RemoveContext(key, RemovalCause::kExpired, {}).ok()) return;
  }
}

absl::Status StoreCore::ForgetTombstone(const ContextKey& key) {
  const KeyLock lock(&locks_, key);
  if (!records_.HasTombstone(key)) return absl::OkStatus();
  WriteBatch batch;
  batch.Delete(Table::kTombstones, RowKey(key));
  EPIC_RETURN_IF_ERROR(tables_->Write(batch, Sync::kNo));
  records_.ForgetTombstone(key);
  return absl::OkStatus();
}

absl::Status StoreCore::ForgetTombstonesBefore(const HybridTime& time) {
  for (const ContextKey& key : records_.TombstonesBefore(time, kTombstoneBatch)) {
    EPIC_RETURN_IF_ERROR(ForgetTombstone(key));
  }
  return absl::OkStatus();
}

void StoreCore::PersistUses() {
  for (const ContextKey& key : records_.TakeTouched()) {
    const KeyLock lock(&locks_, key);
    const auto record = records_.Get(key);
    if (!record.ok()) continue;
    WriteBatch batch;
    batch.Put(Table::kRecords, RowKey(key), EncodeRecord(*record));
    // Uses are local and lazy: a failure loses a count, nothing else.
    if (!tables_->Write(batch, Sync::kNo).ok()) return;
  }
}

void StoreCore::ReclaimIfDue() {
  const int64_t since_ns = deleted_since_ns_.load();
  if (since_ns == 0 || options_.clock->SteadyNs() - since_ns < kReclaimPeriodNs) return;
  // Not Erase(), which waits for the writer whose thread this is.
  deleted_since_ns_ = 0;
  if (!Reclaim().ok()) deleted_since_ns_ = options_.clock->SteadyNs();
}

void StoreCore::SetObserver(TableObserver* observer) {
  records_.SetObserver(observer);
  objects_.SetObserver(observer);
}

void StoreCore::Housekeep() {
  objects_.EvictOverQuota();    // what was being written until now may go
  DropOrphans().IgnoreError();  // tried again each time
  ExpireDue();
  if (options_.forgets_tombstones) {
    ForgetTombstonesBefore({options_.clock->UnixMs() - kTombstoneLifeMs + 1, 0}).IgnoreError();
  }
  PersistUses();
  ReclaimIfDue();
  eraser_->RetryDue();
}

void StoreCore::Stop() {
  if (prober_ != nullptr) prober_->Stop();
  if (warmer_ != nullptr) warmer_->Stop();
  if (scrubber_ != nullptr) scrubber_->Stop();
  stopping_ = true;
  if (loader_ != nullptr) loader_->Stop();
  if (writer_ == nullptr) return;
  eraser_->Refuse();
  writer_->Stop();  // first: a run that goes on waits for what is queued
  eraser_->Stop();
  reads_.Stop();
  changes_.Stop();
  if (minder_ != nullptr) minder_->Stop();  // while others wait
  PersistUses();
  tables_->Write({}, Sync::kYes).IgnoreError();  // a disk that fails here loses what was not safe yet
}

std::unique_ptr<KvStore> MakeMemoryKvStore(uint64_t memory_bytes, const Clock* clock) {
  auto tables = std::make_unique<MemoryTableStore>(std::make_shared<MemoryDisk>());
  auto store = StoreCore::Open(
      std::move(tables), {.memory_bytes = memory_bytes, .disk_bytes_max = 0, .clock = clock, .writer = {}});
  EPIC_CHECK(store.ok());  // an empty disk in memory always opens, where there is memory
  return *std::move(store);
}

}  // namespace epic::kv_store
