// Contexts created per second on a real disk, and how often RocksDB syncs for each: the record alone by 1 to
// 64 creators, whose syncs are shared; with a small KV object; with one of the size that the default model
// makes of 256 tokens. A create is what a server does for one: record, object, state. "acknowledged" is what
// clients see, "written" goes on until the store has written every object too. Beside it, appends to a plain
// file, each with an fdatasync.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "services/kv_store/testing/bench/bench_store.h"
#include "services/kv_store/testing/bench/sections.h"

namespace epic::kv_store {
namespace {

constexpr uint32_t kTokens = 256;

struct Load {
  const char* name;
  KvLayout layout;  // layers == 0: no object
  std::vector<uint64_t> creators;
};

void Create(KvStore* store, const KvLayout& layout, const std::string& slab, uint64_t seed) {
  const auto created = store->CreateContext(ContextOf(seed, kTokens));
  EPIC_CHECK(created.ok() && created->created);
  const CacheId& id = created->record.id;
  if (layout.layers > 0) {
    auto writer = store->Reserve(kBenchTenant, {id, {}}, layout);
    EPIC_CHECK(writer.ok());
    for (uint32_t layer = 0; layer < layout.layers; ++layer) {
      EPIC_CHECK((*writer)->WriteLayer(layer, AsBytes(slab)).ok());
    }
    EPIC_CHECK((*writer)->Commit().ok());
  }
  EPIC_CHECK(store->SetState(kBenchTenant, id, ContextState::kReady, 1, "").ok());
}

std::string SlabFor(const KvLayout& layout) { return layout.layers > 0 ? SlabOf(layout, 0, 1) : ""; }

bool SurvivesARestart(const std::string& dir, const Load& load) {
  BenchStore store({.dir = dir});
  const std::string slab = SlabFor(load.layout);
  Create(store.get(), load.layout, slab, 1);
  store.Open();
  const CacheId id = CacheId::Of(kBenchTenant, {}, TokensOf(1, kTokens));
  const auto tokens = store.get()->GetTokens(kBenchTenant, id);
  if (!tokens.ok() || *tokens != TokensOf(1, kTokens)) return false;
  if (load.layout.layers == 0) return true;
  const auto hit = store.get()->Acquire(kBenchTenant, {id, {}}, load.layout);
  return hit.ok() && hit->object != nullptr && AsText(hit->object->Layer(1)) == slab;
}

void Time(const std::string& dir, const Load& load, uint64_t creators, double seconds, BenchReport* report) {
  BenchStore store({.dir = dir});
  const std::string slab = SlabFor(load.layout);
  Create(store.get(), load.layout, slab, 0);
  store.get()->DrainWrites();
  const auto before = store.syncs().counts();
  std::atomic<uint64_t> creates{0};
  const int64_t begin_ns = SystemClock::Get()->SteadyNs();
  const int64_t end_ns = begin_ns + static_cast<int64_t>(seconds * 1e9);
  std::vector<std::thread> clients;
  for (uint64_t client = 0; client < creators; ++client) {
    clients.emplace_back([&, client] {
      for (uint64_t seed = 1 + (client << 32); SystemClock::Get()->SteadyNs() < end_ns; ++seed) {
        Create(store.get(), load.layout, slab, seed);
        ++creates;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const auto count = static_cast<double>(creates.load());
  const std::string at = std::string(load.name) + ", " + std::to_string(creators) + " creators: ";
  report->Add(at + "acknowledged", count / SecondsSince(begin_ns), "/s");
  if (load.layout.layers > 0) {
    store.get()->DrainWrites();
    report->Add(at + "written", count / SecondsSince(begin_ns), "/s");
  }
  double syncs = 0;
  std::string kinds;
  for (const auto& [kind, total] : store.syncs().counts()) {
    const auto known = before.find(kind);
    const double more = static_cast<double>(total - (known == before.end() ? 0 : known->second)) / count;
    syncs += more;
    char text[64];
    std::snprintf(text, sizeof text, " %s %.3g", kind.c_str(), more);
    if (more > 0) kinds += text;
  }
  report->Add(at + "syncs of each", syncs, kinds);
}

// Appends of about a record's size to a plain file, each synced.
void TimePlainFile(const std::string& dir, double seconds, BenchReport* report) {
  const std::string path = dir + "/plain";
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  EPIC_CHECK(fd >= 0);
  const std::string record(1500, 'r');
  double appends = 0;
  const int64_t begin_ns = SystemClock::Get()->SteadyNs();
  while (SecondsSince(begin_ns) < seconds) {
    EPIC_CHECK(write(fd, record.data(), record.size()) == static_cast<ssize_t>(record.size()));
    EPIC_CHECK(fdatasync(fd) == 0);
    ++appends;
  }
  report->Add("for comparison: appends to a plain file, each with an fdatasync",
              appends / SecondsSince(begin_ns), "/s");
  close(fd);
}

}  // namespace

void BenchCreates(const BenchOptions& options, BenchReport* report) {
  const double seconds = options.quick ? 0.3 : 4;
  TimePlainFile(options.dir, seconds, report);
  const Load loads[] = {{"record", {}, {1, 4, 16, 64}},
                        {"record and 64 KiB", LayoutOf(kTokens, 4, 1, 16), {1, 8}},
                        {"record and 5.6 MiB", LayoutOf(kTokens, 30, 3, 64), {1, 8}}};
  for (const Load& load : loads) {
    report->Check(std::string(load.name) + ": survives a restart",
                  SurvivesARestart(options.dir + "/store", load));
    for (const uint64_t creators : load.creators) {
      Time(options.dir + "/store", load, creators, seconds, report);
    }
  }
}

}  // namespace epic::kv_store
