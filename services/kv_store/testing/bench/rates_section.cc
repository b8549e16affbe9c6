// Calls that need no disk, through StoreCore over many records, in random order: by one thread, and by two.
// Beside them, lookups of the same keys in a hash map of strings.
#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/base/check.h"
#include "common/base/random.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/testing/bench/bench_store.h"
#include "services/kv_store/testing/bench/sections.h"

namespace epic::kv_store {
namespace {

constexpr uint32_t kTokens = 4;
constexpr uint64_t kMostObjects = 50'000;  // in memory, a page each
constexpr uint64_t kThreads = 2;
constexpr double kExistsBar = 1'000'000;
constexpr double kAcquireBar = 300'000;
constexpr int kRounds = 5;

// Calls `call` with every key in turn, from number `first` on; calls a second, the median of some rounds.
template <typename Call>
double Rate(const std::vector<CacheId>& keys, const Call& call, size_t first = 0) {
  std::vector<double> rates;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t begin_ns = SystemClock::Get()->SteadyNs();
    for (size_t i = first; i < keys.size(); ++i) call(keys[i]);
    for (size_t i = 0; i < first; ++i) call(keys[i]);
    rates.push_back(static_cast<double>(keys.size()) / SecondsSince(begin_ns));
  }
  return Median(std::move(rates));
}

// The same by several threads at once, each at another place; of all together.
template <typename Call>
double RateOfThreads(uint64_t threads, const std::vector<CacheId>& keys, const Call& call) {
  std::vector<double> rates(threads);
  std::vector<std::thread> workers;
  for (uint64_t thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] { rates[thread] = Rate(keys, call, thread * keys.size() / threads); });
  }
  for (std::thread& worker : workers) worker.join();
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

// In random order, and side by side in memory: a caller has its key at hand.
std::vector<CacheId> Shuffled(std::vector<CacheId> keys) {
  Rng rng(1);
  for (uint64_t left = keys.size(); left > 1; --left) std::swap(keys[left - 1], keys[rng.Below(left)]);
  std::vector<CacheId> fresh;
  for (const CacheId& key : keys) fresh.push_back(*CacheId::Parse(key.text()));
  return fresh;
}

struct Filled {
  std::unique_ptr<StoreCore> store;
  std::vector<CacheId> all, stored;  // every context, and those with an object
};

Filled FillAndReport(uint64_t records, const KvLayout& layout, BenchReport* report) {
  auto opened = StoreCore::Open(std::make_unique<MemoryTableStore>(std::make_shared<MemoryDisk>()),
                                {.memory_bytes = 2 * kMostObjects * 4096,
                                 .disk_bytes_max = 0,
                                 .make_slabs = nullptr,
                                 .watermarks = {},
                                 .quotas = {},
                                 .writer = {},
                                 .scrubber = {}});
  EPIC_CHECK(opened.ok());
  Filled filled{.store = *std::move(opened), .all = {}, .stored = {}};
  std::vector<NewContext> contexts;
  for (uint64_t seed = 0; seed < records; ++seed) contexts.push_back(ContextOf(seed, kTokens));
  const double create_s = Seconds([&] {
    for (const NewContext& context : contexts) {
      const auto created = filled.store->CreateContext(context);
      EPIC_CHECK(created.ok() && created->created);
      filled.all.push_back(created->record.id);
    }
  });
  filled.stored.assign(filled.all.begin(), filled.all.begin() + std::min(records, kMostObjects));
  const std::vector<std::string> slabs = {SlabOf(layout, 0, 1), SlabOf(layout, 1, 1)};
  const double commit_s = Seconds([&] {
    for (const CacheId& id : filled.stored) {
      auto writer = filled.store->Reserve(kBenchTenant, {id, {}}, layout);
      EPIC_CHECK(writer.ok());
      for (uint32_t layer = 0; layer < 2; ++layer) {
        EPIC_CHECK((*writer)->WriteLayer(layer, AsBytes(slabs[layer])).ok());
      }
      EPIC_CHECK((*writer)->Commit().ok());
    }
  });
  report->Add("create, one thread, no disk", static_cast<double>(records) / create_s, "calls/s");
  report->Add("reserve, write 512 bytes and commit, one thread, no disk",
              static_cast<double>(filled.stored.size()) / commit_s, "calls/s");
  return filled;
}

bool AnswersAreRight(const Filled& filled, const KvLayout& layout) {
  for (size_t i = 0; i < filled.all.size(); ++i) {
    const ObjectKey key{filled.all[i], {}};
    if (filled.store->Exists(kBenchTenant, key) != (i < filled.stored.size())) return false;
    if (i % 97 != 0) continue;
    const auto acquired = filled.store->Acquire(kBenchTenant, key, layout);
    if (!acquired.ok() || (acquired->object != nullptr) != (i < filled.stored.size())) return false;
    if (acquired->object != nullptr && !Holds(*acquired->object, 1)) return false;
  }
  return true;
}

double RateOfAMap(const std::vector<CacheId>& keys) {
  std::unordered_map<std::string, uint64_t> map;
  for (const CacheId& key : keys) map.emplace(std::string(kBenchTenant) + key.text(), map.size());
  return Rate(keys,
              [&](const CacheId& key) { EPIC_CHECK(map.contains(std::string(kBenchTenant) + key.text())); });
}

}  // namespace

void BenchRates(const BenchOptions& options, BenchReport* report) {
  const KvLayout layout = LayoutOf(kTokens);
  Filled filled = FillAndReport(options.quick ? 100'000 : 1'000'000, layout, report);
  report->Check("lookups answer right", AnswersAreRight(filled, layout));
  const std::vector<CacheId> all = Shuffled(std::move(filled.all));
  const std::vector<CacheId> stored = Shuffled(std::move(filled.stored));
  StoreCore* const store = filled.store.get();
  const auto exists = [&](const CacheId& id) { return store->Exists(kBenchTenant, {id, {}}); };
  const auto acquire = [&](const CacheId& id) {
    EPIC_CHECK(store->Acquire(kBenchTenant, {id, {}}, layout)->object != nullptr);
  };
  report->AtLeast("exists, one thread, any record", Rate(all, exists), "calls/s", kExistsBar);
  report->AtLeast("exists, one thread, records with an object", Rate(stored, exists), "calls/s", kExistsBar);
  report->AtLeast("acquire and release, one thread", Rate(stored, acquire), "calls/s", kAcquireBar);
  const std::string together = ", " + std::to_string(kThreads) + " threads";
  report->Add("exists" + together + ", any record", RateOfThreads(kThreads, all, exists), "calls/s");
  report->Add("exists" + together + ", records with an object", RateOfThreads(kThreads, stored, exists),
              "calls/s");
  report->Add("acquire and release" + together, RateOfThreads(kThreads, stored, acquire), "calls/s");
  report->Add("for comparison: a hash map of strings, one thread", RateOfAMap(all), "calls/s");
}

}  // namespace epic::kv_store
