// Memory for each record: how much more the process has after N records and N objects on disk than before,
// user strings (name, tags) aside; "plain" as a create without options leaves it, "full" with a name, two
// tags, a ttl and a pin that ends.
#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "services/kv_store/core/object_table.h"
#include "services/kv_store/core/record_table.h"
#include "services/kv_store/testing/bench/sections.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr uint32_t kTokens = 4;
constexpr double kBar = 400;

// Bytes of memory that the process has, after what nobody uses was given back.
double Resident() {
  malloc_trim(0);
  std::ifstream statm("/proc/self/statm");
  double size = 0, resident = 0;
  statm >> size >> resident;
  EPIC_CHECK(statm.good());
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

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

ContextKey KeyOf(const NewContext& context) {
  return {context.tenant, CacheId::Of(context.tenant, {}, context.tokens)};
}

bool HoldsWhatWasPut(const RecordTable& table, const ObjectTable& objects, uint64_t seed, bool full) {
  const NewContext context = ContextFor(seed, full);
  const auto record = table.Get(KeyOf(context));
  return record.ok() && record->name == context.name && record->tags == context.tags &&
         record->pin == context.pin && record->expires_at_ms.has_value() == full &&
         objects.DiskCopyOf({KeyOf(context), {}})->number == seed;
}

void Measure(uint64_t records, bool full, BenchReport* report) {
  const std::string kind = full ? "full record" : "plain record";
  const auto count = static_cast<double>(records);
  double texts = 0;
  const double before = Resident();
  RecordTable table(SystemClock::Get());
  ObjectTable objects(SystemClock::Get());
  for (uint64_t seed = 0; seed < records; ++seed) {
    const NewContext context = ContextFor(seed, full);
    const auto plan = table.PlanCreate(KeyOf(context), context);
    EPIC_CHECK(plan.ok() && plan->created);
    table.Apply(*plan);
    texts += static_cast<double>(context.name.size());
    for (const std::string& tag : context.tags) texts += static_cast<double>(tag.size());
  }
  const double with_records = Resident();
  for (uint64_t seed = 0; seed < records; ++seed) {
    const NewContext context = ContextFor(seed, full);
    const ContextKey key = KeyOf(context);
    objects.SetDisk({key, {}}, {.number = seed, .bytes = 4096, .layout = LayoutOf(kTokens)}, 0);
    objects.SetPin(key, {.pin = context.pin, .until_ms = context.pin_until_ms});
  }
  const double with_objects = Resident();
  bool good = true;
  for (uint64_t seed = 0; seed < records; seed += records / 1000) {
    good = good && HoldsWhatWasPut(table, objects, seed, full);
  }
  report->Check(kind + ": is what was put in", good);
  const double of_records = (with_records - before - texts) / count;
  const double of_objects = (with_objects - with_records) / count;
  report->Add(kind, of_records, "bytes");
  report->Add(kind + ": its object's entry", of_objects, "bytes");
  report->AtMost(kind + ": in all, user strings aside", of_records + of_objects, "bytes", kBar);
  report->Add(kind + ": its user strings", texts / count, "bytes");
}

}  // namespace

void BenchMemory(const BenchOptions& options, BenchReport* report) {
  for (const bool full : {false, true}) Measure(options.quick ? 100'000 : 1'000'000, full, report);
}

}  // namespace epic::kv_store
