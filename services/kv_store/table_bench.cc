// What the tables of the store take and how fast they answer in process: bytes of memory per record, and
// lookups per second on one core.
//
//   epic_kv_store_table_bench [--records N] [--quick] [--json]
//
// Memory: how much more the process has after N records and N objects on disk than before, user strings
// (name, tags) aside; "plain" as a create without options leaves it, "full" with a name, two tags, a ttl and
// a pin that ends. The bar is 400 bytes for either. Lookups go through StoreCore over N records in random
// order: exists (bar: 1,000,000 a second), acquire and release of objects in memory (bar: 300,000). Before it
// times, it checks the answers. Exits non-zero when a check fails or a bar is missed.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/object_table.h"
#include "services/kv_store/core/record_table.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr std::string_view kTenant = "default";
constexpr uint32_t kTokens = 4;
constexpr uint64_t kObjects = 50'000;  // in memory, a page each
constexpr double kMemoryBar = 400;
constexpr double kExistsBar = 1'000'000;
constexpr double kAcquireBar = 300'000;
constexpr int kRounds = 5;

struct Flags {
  uint64_t records = 1'000'000;
  bool json = false;
};

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--records" && i + 1 < argc) {
      flags.records = std::max<uint64_t>(std::strtoull(argv[++i], nullptr, 10), 1000);
    } else if (flag == "--quick") {
      flags.records = 100'000;
    } else if (flag == "--json") {
      flags.json = true;
    } else {
      std::fprintf(stderr, "usage: %s [--records N] [--quick] [--json]\n", argv[0]);
      std::exit(2);
    }
  }
  return flags;
}

// Bytes of memory that the process has, after what nobody uses was given back.
double Resident() {
  malloc_trim(0);
  std::ifstream statm("/proc/self/statm");
  double size = 0, resident = 0;
  statm >> size >> resident;
  EPIC_CHECK(statm.good());
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

class Report {
 public:
  explicit Report(bool json) : json_(json) {}
  // `target` 0: no bar.
  void Add(const std::string& name, double value, const char* unit, double target, bool pass) {
    good_ = good_ && pass;
    char line[256];
    if (json_) {
      std::snprintf(line, sizeof line, "%s{\"name\":\"%s\",\"value\":%.6g,\"target\":%.6g,\"pass\":%s}",
                    checks_.empty() ? "" : ",", name.c_str(), value, target, pass ? "true" : "false");
      checks_ += line;
      return;
    }
    std::printf("%-44s %12.6g %-10s", name.c_str(), value, unit);
    if (target != 0) std::printf(" bar %.6g: %s", target, pass ? "kept" : "MISSED");
    std::printf("\n");
    std::fflush(stdout);
  }
  bool Finish() const {
    if (json_) std::printf("{\"checks\":[%s]}\n", checks_.c_str());
    return good_;
  }

 private:
  const bool json_;
  bool good_ = true;
  std::string checks_;
};

NewContext ContextFor(uint64_t seed, bool full) {
  NewContext context = ContextOf(seed, kTokens);
  if (!full) return context;
  context.name = "context number " + std::to_string(seed);
  context.tags = {"production", "team " + std::to_string(seed % 50)};
  context.ttl_seconds = 86'400 + static_cast<int64_t>(seed % 1000);
  context.pin = Pin::kSoft;
  context.pin_until_ms = int64_t{1} << 50;
  return context;
}

void MeasureMemory(uint64_t records, bool full, Report* report) {
  const std::string kind = full ? "full record" : "plain record";
  const auto count = static_cast<double>(records);
  double texts = 0;
  const double before = Resident();
  auto table = std::make_unique<RecordTable>(SystemClock::Get());
  auto objects = std::make_unique<ObjectTable>(SystemClock::Get());
  for (uint64_t seed = 0; seed < records; ++seed) {
    const NewContext context = ContextFor(seed, full);
    const ContextKey key{context.tenant, CacheId::Of(context.tenant, {}, context.tokens)};
    const auto plan = table->PlanCreate(key, context);
    EPIC_CHECK(plan.ok() && plan->created);
    table->Apply(*plan);
    texts += static_cast<double>(context.name.size());
    for (const std::string& tag : context.tags) texts += static_cast<double>(tag.size());
  }
  const double with_records = Resident();
  for (uint64_t seed = 0; seed < records; ++seed) {
    const NewContext context = ContextFor(seed, full);
    const ContextKey key{context.tenant, CacheId::Of(context.tenant, {}, context.tokens)};
    objects->SetDisk({key, {}}, {.number = seed, .bytes = 4096, .layout = LayoutOf(kTokens)}, 0);
    objects->SetPin(key, {.pin = context.pin, .until_ms = context.pin_until_ms});
  }
  const double with_objects = Resident();
  for (uint64_t seed = 0; seed < records; seed += records / 1000) {
    const NewContext context = ContextFor(seed, full);
    const ContextKey key{context.tenant, CacheId::Of(context.tenant, {}, context.tokens)};
    const auto record = table->Get(key);
    EPIC_CHECK(record.ok() && record->name == context.name && record->tags == context.tags);
    EPIC_CHECK(record->pin == context.pin && record->expires_at_ms.has_value() == full);
    EPIC_CHECK(objects->DiskCopyOf({key, {}})->number == seed);
  }
  const double of_records = (with_records - before - texts) / count;
  const double of_objects = (with_objects - with_records) / count;
  report->Add(kind, of_records, "bytes", 0, true);
  report->Add(kind + ": its object's entry", of_objects, "bytes", 0, true);
  report->Add(kind + ": in all, user strings aside", of_records + of_objects, "bytes", kMemoryBar,
              of_records + of_objects <= kMemoryBar);
  report->Add(kind + ": its user strings", texts / count, "bytes", 0, true);
}

// Calls `call` with every key in turn; calls a second, the median of some rounds.
template <typename Call>
double Time(const std::vector<CacheId>& keys, const Call& call) {
  std::vector<double> rates;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t begin_ns = SystemClock::Get()->SteadyNs();
    for (const CacheId& key : keys) call(key);
    const auto ns = static_cast<double>(SystemClock::Get()->SteadyNs() - begin_ns);
    rates.push_back(static_cast<double>(keys.size()) * 1e9 / ns);
  }
  std::sort(rates.begin(), rates.end());
  return rates[kRounds / 2];
}

template <typename Call>
double TimeThreads(uint64_t threads, const std::vector<CacheId>& keys, const Call& call) {
  std::vector<double> rates(threads);
  std::vector<std::thread> workers;
  for (double& rate : rates) workers.emplace_back([&] { rate = Time(keys, call); });
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

void MeasureLookups(uint64_t records, Report* report) {
  auto opened = StoreCore::Open(std::make_unique<MemoryTableStore>(std::make_shared<MemoryDisk>()),
                                {.memory_bytes = 2 * kObjects * 4096, .disk_bytes_max = 0, .writer = {}});
  EPIC_CHECK(opened.ok());
  const std::unique_ptr<StoreCore> store = *std::move(opened);
  const KvLayout layout = LayoutOf(kTokens);
  const uint64_t with_object = std::min(records, kObjects);
  std::vector<CacheId> all, stored;
  for (uint64_t seed = 0; seed < records; ++seed) {
    const auto created = store->CreateContext(ContextFor(seed, false));
    EPIC_CHECK(created.ok() && created->created);
    all.push_back(created->record.id);
    if (seed >= with_object) continue;
    stored.push_back(all.back());
    EPIC_CHECK(PutObject(store.get(), kTenant, {all.back(), {}}, layout, seed).ok());
  }
  for (uint64_t seed = 0; seed < records; ++seed) {
    EPIC_CHECK(store->Exists(kTenant, {all[seed], {}}) == (seed < with_object));
    if (seed % 97 != 0 || seed >= with_object) continue;
    EPIC_CHECK(Holds(*store->Acquire(kTenant, {all[seed], {}}, layout)->object, seed));
  }
  all = Shuffled(std::move(all));
  stored = Shuffled(std::move(stored));
  const auto exists = [&](const CacheId& id) { return store->Exists(kTenant, {id, {}}); };
  const auto acquire = [&](const CacheId& id) {
    EPIC_CHECK(store->Acquire(kTenant, {id, {}}, layout)->object != nullptr);
  };
  const double exists_rate = Time(all, exists), stored_rate = Time(stored, exists);
  const double acquire_rate = Time(stored, acquire);
  report->Add("exists, one core, any record", exists_rate, "calls/s", kExistsBar, exists_rate >= kExistsBar);
  report->Add("exists, one core, records with an object", stored_rate, "calls/s", kExistsBar,
              stored_rate >= kExistsBar);
  report->Add("acquire and release, one core", acquire_rate, "calls/s", kAcquireBar,
              acquire_rate >= kAcquireBar);
  report->Add("exists, 2 threads", TimeThreads(2, all, exists), "calls/s", 0, true);
  report->Add("acquire and release, 2 threads", TimeThreads(2, stored, acquire), "calls/s", 0, true);
}

int Run(const Flags& flags) {
  Report report(flags.json);
  for (const bool full : {false, true}) MeasureMemory(flags.records, full, &report);
  MeasureLookups(flags.records, &report);
  return report.Finish() ? 0 : 1;
}

}  // namespace
}  // namespace epic::kv_store

int main(int argc, char** argv) { return epic::kv_store::Run(epic::kv_store::ParseFlags(argc, argv)); }
