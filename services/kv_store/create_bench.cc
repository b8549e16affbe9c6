// Contexts created per second on a real disk, and how often the disk is synced for each: the record alone,
// with a small KV object, and with one of the size that the default model makes of a text of 1 KiB (256
// tokens).
//
//   epic_kv_store_create_bench [--dir DIR] [--quick] [--json]
//
// A create is what a server does for one: record, object, state. "acknowledged" is what clients see,
// "written" goes on until the store has written every object too. Before it times, it checks that what was
// created is there after a restart. Exits non-zero when a check fails.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/testing/paths.h"
#include "rocksdb/env.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"
#include "services/kv_store/testing/counting_file_system.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr std::string_view kTenant = "default";
constexpr uint32_t kTokens = 256;

struct Flags {
  std::string dir;  // empty: a temporary one
  double seconds = 5;
  bool json = false;
};

struct Load {
  const char* name;
  KvLayout layout;  // layers == 0: no object
};

const Load kLoads[] = {{"record", {}},
                       {"small object", LayoutOf(kTokens, 4, 1, 16)},     // 64 KiB
                       {"default model", LayoutOf(kTokens, 30, 3, 64)}};  // 5.6 MiB

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--dir" && i + 1 < argc) {
      flags.dir = argv[++i];
    } else if (flag == "--quick") {
      flags.seconds = 0.5;
    } else if (flag == "--json") {
      flags.json = true;
    } else {
      std::fprintf(stderr, "usage: %s [--dir DIR] [--quick] [--json]\n", argv[0]);
      std::exit(2);
    }
  }
  return flags;
}

// One store in a directory of its own that is removed at the end.
class BenchStore {
 public:
  explicit BenchStore(std::string dir)
      : dir_(std::move(dir)), env_(rocksdb::NewCompositeEnv(std::make_shared<CountingFileSystem>(&syncs_))) {
    Open();
  }
  ~BenchStore() {
    store_.reset();
    std::filesystem::remove_all(dir_);
  }
  void Open() {
    store_.reset();
    auto tables = OpenRocksDbTables({.dir = dir_, .env = env_.get()});
    EPIC_CHECK(tables.ok());
    auto store = StoreCore::Open(*std::move(tables), {.writer = {}});
    EPIC_CHECK(store.ok());
    store_ = *std::move(store);
  }
  StoreCore* get() { return store_.get(); }
  const SyncCounter& syncs() const { return syncs_; }

 private:
  const std::string dir_;
  SyncCounter syncs_;
  const std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<StoreCore> store_;
};

void Create(KvStore* store, const KvLayout& layout, const std::string& slab, uint64_t seed) {
  const auto created = store->CreateContext(ContextOf(seed, kTokens));
  EPIC_CHECK(created.ok() && created->created);
  const CacheId& id = created->record.id;
  if (layout.layers > 0) {
    auto writer = store->Reserve(kTenant, {id, {}}, layout);
    EPIC_CHECK(writer.ok());
    for (uint32_t layer = 0; layer < layout.layers; ++layer) {
      EPIC_CHECK((*writer)->WriteLayer(layer, AsBytes(slab)).ok());
    }
    EPIC_CHECK((*writer)->Commit().ok());
  }
  EPIC_CHECK(store->SetState(kTenant, id, ContextState::kReady, 1, "").ok());
}

std::string SlabFor(const KvLayout& layout) { return layout.layers > 0 ? SlabOf(layout, 0, 1) : ""; }

bool SurvivesARestart(const std::string& dir, const Load& load) {
  BenchStore store(dir);
  const std::string slab = SlabFor(load.layout);
  Create(store.get(), load.layout, slab, 1);
  store.Open();
  const CacheId id = CacheId::Of(kTenant, {}, TokensOf(1, kTokens));
  const auto tokens = store.get()->GetTokens(kTenant, id);
  if (!tokens.ok() || *tokens != TokensOf(1, kTokens)) return false;
  if (load.layout.layers == 0) return true;
  const auto hit = store.get()->Acquire(kTenant, {id, {}}, load.layout);
  return hit.ok() && hit->object != nullptr && AsText(hit->object->Layer(1)) == slab;
}

struct Result {
  double acknowledged_per_s = 0;
  double written_per_s = 0;
  double syncs_per_create = 0;
};

Result Time(const std::string& dir, const Load& load, uint64_t threads, const Flags& flags) {
  BenchStore store(dir);
  const std::string slab = SlabFor(load.layout);
  Create(store.get(), load.layout, slab, 0);
  store.get()->DrainWrites();
  const auto before = store.syncs().counts();
  std::atomic<uint64_t> creates{0};
  const int64_t begin_ns = SystemClock::Get()->SteadyNs();
  const int64_t end_ns = begin_ns + static_cast<int64_t>(flags.seconds * 1e9);
  std::vector<std::thread> clients;
  for (uint64_t thread = 0; thread < threads; ++thread) {
    clients.emplace_back([&, thread] {
      for (uint64_t seed = 1 + (thread << 32); SystemClock::Get()->SteadyNs() < end_ns; ++seed) {
        Create(store.get(), load.layout, slab, seed);
        ++creates;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const auto seconds = [begin_ns] {
    return static_cast<double>(SystemClock::Get()->SteadyNs() - begin_ns) * 1e-9;
  };
  const double acknowledged_s = seconds();
  store.get()->DrainWrites();
  const double written_s = seconds();
  const auto count = static_cast<double>(creates.load());
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
  if (!flags.json) {
    std::printf("%-14s %llu threads: %.0f acknowledged/s, %.0f written/s, %.3g syncs per create:%s\n",
                load.name, static_cast<unsigned long long>(threads), count / acknowledged_s,
                count / written_s, syncs, kinds.c_str());
    std::fflush(stdout);
  }
  return {.acknowledged_per_s = count / acknowledged_s,
          .written_per_s = count / written_s,
          .syncs_per_create = syncs};
}

int Run(const Flags& flags) {
  const testing::TempDir temporary;
  const std::string dir = (flags.dir.empty() ? temporary.path() : flags.dir) + "/epic_create_bench";
  bool good = true;
  std::string checks;
  const auto report = [&checks](const std::string& name, double value, double target, bool pass) {
    char line[256];
    std::snprintf(line, sizeof line, "%s{\"name\":\"%s\",\"value\":%.6g,\"target\":%.6g,\"pass\":%s}",
                  checks.empty() ? "" : ",", name.c_str(), value, target, pass ? "true" : "false");
    checks += line;
  };
  for (const Load& load : kLoads) {
    const std::string name = load.name;
    const bool survives = SurvivesARestart(dir, load);
    good = good && survives;
    report(name + ": survives a restart", survives, 1, survives);
    if (!survives) std::fprintf(stderr, "%s: what was created is not there after a restart\n", load.name);
    for (const uint64_t threads : {1, 8}) {
      const Result result = Time(dir, load, threads, flags);
      const std::string at = name + ", " + std::to_string(threads) + " threads: ";
      report(at + "acknowledged/s", result.acknowledged_per_s, 0, true);
      report(at + "written/s", result.written_per_s, 0, true);
      report(at + "syncs per create", result.syncs_per_create, 0, true);
    }
  }
  if (flags.json) std::printf("{\"checks\":[%s]}\n", checks.c_str());
  return good ? 0 : 1;
}

}  // namespace
}  // namespace epic::kv_store

int main(int argc, char** argv) { return epic::kv_store::Run(epic::kv_store::ParseFlags(argc, argv)); }
