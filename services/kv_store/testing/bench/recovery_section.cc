// Seconds until a store is open whose directory has many records, each with an object, and whose files are
// not in the page cache. The rows are written as the store writes them, in large batches.
#include <memory>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/storage/object_codec.h"
#include "common/storage/record_codec.h"
#include "services/kv_store/core/record_table.h"
#include "services/kv_store/core/rows.h"
#include "services/kv_store/testing/bench/bench_store.h"
#include "services/kv_store/testing/bench/sections.h"

namespace epic::kv_store {
namespace {

constexpr uint32_t kTokens = 4;
constexpr uint64_t kBatch = 1000;

// The rows of a context and of a small object of it.
void AddRows(RecordTable* table, uint64_t seed, WriteBatch* batch) {
  const NewContext context = ContextOf(seed, kTokens);
  const ContextKey key{context.tenant, CacheId::Of(context.tenant, {}, context.tokens)};
  const auto plan = table->PlanCreate(key, context);
  EPIC_CHECK(plan.ok());
  batch->Put(Table::kRecords, RowKey(key), EncodeRecord(plan->record));
  batch->Put(Table::kTokens, RowKey(key), EncodeTokens(context.tokens));
  const KvLayout layout = LayoutOf(kTokens);
  ObjectHead head{.id = key.id,
                  .variant = ObjectVariant{}.ToDigest(),
                  .layout = layout,
                  .build = {},
                  .tokens = context.tokens,
                  .block_crcs = {}};
  for (uint32_t layer = 0; layer < layout.layers; ++layer) {
    const std::string slab(layout.LayerBytes(), 's');
    head.block_crcs.resize(head.block_crcs.size() + BlocksPerLayer(layout));
    ComputeBlockCrcs(layout, AsBytes(slab), std::span(head.block_crcs).last(BlocksPerLayer(layout)));
    batch->Put(Table::kSlabs, SlabRowKey(seed + 1, layer, 0), slab);
  }
  head.build = BuildDigest(head.block_crcs);
  batch->Put(Table::kObjects, RowKey(TenantObjectKey{key, {}}),
             EncodeObjectEntry({.number = seed + 1, .extents = {}, .variant = {}, .head = std::move(head)}));
}

void WriteRows(const std::string& dir, uint64_t records) {
  auto opened = OpenRocksDbTables({.dir = dir + "/rocksdb"});
  EPIC_CHECK(opened.ok());
  RecordTable table(SystemClock::Get());
  for (uint64_t seed = 0; seed < records;) {
    WriteBatch batch;
    for (const uint64_t end = std::min(seed + kBatch, records); seed < end; ++seed)
      AddRows(&table, seed, &batch);
    EPIC_CHECK((*opened)->Write(batch, seed == records ? Sync::kYes : Sync::kNo).ok());
  }
}

bool IsWhole(StoreCore* store, uint64_t records) {
  if (store->Usage().contexts != records) return false;
  for (uint64_t seed = 0; seed < records; seed += records / 100) {
    const CacheId id = CacheId::Of(kBenchTenant, {}, TokensOf(seed, kTokens));
    const auto tokens = store->GetTokens(kBenchTenant, id);
    if (!tokens.ok() || *tokens != TokensOf(seed, kTokens)) return false;
    const auto acquired = store->Acquire(kBenchTenant, {id, {}}, LayoutOf(kTokens));
    if (!acquired.ok() || acquired->object == nullptr) return false;
    if (AsText(acquired->object->Layer(1)) != std::string(LayoutOf(kTokens).LayerBytes(), 's')) return false;
  }
  return true;
}

}  // namespace

void BenchRecovery(const BenchOptions& options, BenchReport* report) {
  const uint64_t most = options.quick ? 100'000 : 1'000'000;
  for (const uint64_t records : {most / 10, most}) {
    const std::string dir = options.dir + "/store";
    WriteRows(dir, records);
    std::unique_ptr<BenchStore> store;
    EmptyPageCache(dir);
    const double seconds =
        Seconds([&] { store = std::make_unique<BenchStore>(BenchStore::Options{.dir = dir}); });
    const std::string name = std::to_string(records) + " records, each with an object: ";
    report->Check(name + "all are there again", IsWhole(store->get(), records));
    report->Add(name + "open after", seconds, "s");
  }
}

}  // namespace epic::kv_store
