// How fast objects come out of the host tier: by a copying get in this process, beside memcpy of the same
// bytes; and by the hand-over from a store in another process, beside Redis GET over a unix socket. Objects
// of 8 MiB, one after the other over 1 GiB, so that no cache holds them; checksums on.
//
//   epic_kv_store_arena_bench [--quick] [--json]
//
// It checks first that what is read is what was stored. Then it times both sides of a comparison by turns,
// and compares medians. Redis is measured where redis-server is installed, else that is said. Exits non-zero
// when a check fails; a rate below its bar is reported, not failed.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/storage/object_codec.h"
#include "common/storage/shm/client.h"
#include "common/storage/shm/server.h"
#include "common/testing/paths.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/core/store_leases.h"
#include "services/kv_store/testing/bench/report.h"
#include "services/kv_store/testing/redis_server.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr std::string_view kTenant = "default";
constexpr uint32_t kTokens = 128;
constexpr double kCopyBar = 0.80;
constexpr double kRedisBar = 3;

struct Flags {
  uint64_t objects = 128;
  int rounds = 9;
  bool json = false;
};

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--quick") {
      flags.objects = 16;
      flags.rounds = 5;
    } else if (flag == "--json") {
      flags.json = true;
    } else {
      std::fprintf(stderr, "usage: %s [--quick] [--json]\n", argv[0]);
      std::exit(2);
    }
  }
  return flags;
}

KvLayout Layout() { return LayoutOf(kTokens, /*layers=*/32, /*kv_heads=*/8, /*head_dim=*/64); }  // 8 MiB
ObjectKey KeyOf(uint64_t object) { return {CacheId::Of(kTenant, {}, TokensOf(object, kTokens)), {}}; }

// Bytes that say which object and layer they are of, everywhere.
void FillSlab(uint64_t object, uint32_t layer, MutableByteSpan slab) {
  for (uint64_t at = 0; at < slab.size(); at += sizeof(uint64_t)) {
    const uint64_t word = (object << 40 | uint64_t{layer} << 32 | at) * 0x9E3779B97F4A7C15ull;
    std::memcpy(slab.data() + at, &word, sizeof(word));
  }
}

std::string ContentOf(uint64_t object) {
  const uint64_t layer_bytes = Layout().LayerBytes();
  std::string content(Layout().TotalBytes(), '\0');
  for (uint32_t layer = 0; layer < Layout().layers; ++layer) {
    FillSlab(object, layer,
             std::as_writable_bytes(std::span(content)).subspan(layer * layer_bytes, layer_bytes));
  }
  return content;
}

std::unique_ptr<StoreCore> FilledStore(uint64_t objects) {
  auto store = StoreCore::Open(
      std::make_unique<MemoryTableStore>(std::make_shared<MemoryDisk>()),
      {.memory_bytes = (objects + 2) * Layout().TotalBytes(), .disk_bytes_max = 0, .writer = {}});
  EPIC_CHECK(store.ok());
  std::string slab(Layout().LayerBytes(), '\0');
  for (uint64_t object = 0; object < objects; ++object) {
    EPIC_CHECK((*store)->CreateContext(ContextOf(object, kTokens)).ok());
    auto writer = (*store)->Reserve(kTenant, KeyOf(object), Layout());
    EPIC_CHECK(writer.ok());
    for (uint32_t layer = 0; layer < Layout().layers; ++layer) {
      FillSlab(object, layer, std::as_writable_bytes(std::span(slab)));
      EPIC_CHECK((*writer)->WriteLayer(layer, AsBytes(slab)).ok());
    }
    EPIC_CHECK((*writer)->Commit().ok());
  }
  return *std::move(store);
}

// A process with a store and its hand-over. Made before this process has threads; ends with this object.
class StoreProcess {
 public:
  StoreProcess(const std::string& path, uint64_t objects) {
    int ready[2];
    EPIC_CHECK(pipe(ready) == 0);
    pid_ = fork();
    EPIC_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const auto store = FilledStore(objects);
      StoreLeases leases(store.get());
      const auto server = shm::Server::Start({.path = path,
                                              .arena_fd = store->arena().read_only_fd(),
                                              .arena_bytes = store->arena().capacity_bytes()},
                                             &leases);
      EPIC_CHECK(server.ok() && write(ready[1], "r", 1) == 1);
      while (true) pause();
    }
    close(ready[1]);
    ready_ = ready[0];
  }
  ~StoreProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(ready_);
  }
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;

  void WaitUntilReady() const {
    char byte = 0;
    EPIC_CHECK(read(ready_, &byte, 1) == 1);
  }

 private:
  pid_t pid_ = -1;
  int ready_ = -1;
};

class Bench {
 public:
  explicit Bench(const Flags& flags)
      : flags_(flags),
        path_(dir_.path() + "/store.sock"),
        process_(path_, flags.objects),
        redis_(RedisServer::Start(dir_.path())),
        buffer_(Layout().TotalBytes(), '\0'),
        report_(flags.json) {}

  int Run() {
    HostTier();
    Handover();
    report_.Finish();
    return report_.correct() ? 0 : 1;
  }

 private:
  MutableByteSpan to() { return std::as_writable_bytes(std::span(buffer_)); }
  double GigabytesPerSecond(double seconds) const {
    return static_cast<double>(flags_.objects * Layout().TotalBytes()) / seconds * 1e-9;
  }

  bool CopyInProcess(StoreCore* store, uint64_t object) {
    const auto acquired = store->Acquire(kTenant, KeyOf(object), Layout());
    EPIC_CHECK(acquired.ok());
    if (acquired->object == nullptr) return false;
    const auto& stored = static_cast<const HostObject&>(*acquired->object);
    const std::span<const uint32_t> crcs = stored.head().block_crcs;
    const uint64_t layer_bytes = Layout().LayerBytes();
    const uint64_t blocks = BlocksPerLayer(Layout());
    bool good = true;
    for (uint32_t layer = 0; layer < Layout().layers && good; ++layer) {
      good = CopyIfMatches(Layout(), stored.Layer(layer), to().subspan(layer * layer_bytes, layer_bytes),
                           crcs.subspan(layer * blocks, blocks));
    }
    return good;
  }

  void HostTier() {
    const auto store = FilledStore(flags_.objects);
    std::vector<std::shared_ptr<const KvObject>> objects;
    bool exact = true;
    for (uint64_t object = 0; object < flags_.objects; ++object) {
      exact = exact && CopyInProcess(store.get(), object) && buffer_ == ContentOf(object);
      objects.push_back(store->Acquire(kTenant, KeyOf(object), Layout())->object);
    }
    report_.Check("host tier: copies are exact", exact);
    // The layers of an object lie one behind the other here, so that one memcpy takes them all.
    const auto plain = [&] {
      for (const auto& object : objects) {
        std::memcpy(buffer_.data(), object->Layer(0).data(), Layout().TotalBytes());
      }
    };
    const auto copy = [&] {
      for (uint64_t object = 0; object < flags_.objects; ++object) {
        EPIC_CHECK(CopyInProcess(store.get(), object));
      }
    };
    const std::vector<double> seconds = ByTurns(flags_.rounds, {plain, copy});
    report_.Add("host tier: memcpy", GigabytesPerSecond(seconds[0]), "GB/s");
    report_.Add("host tier: copying get, checksums on", GigabytesPerSecond(seconds[1]), "GB/s");
    report_.AtLeast("host tier: copying get / memcpy", seconds[0] / seconds[1], "", kCopyBar);
  }

  void Handover() {
    process_.WaitUntilReady();
    const auto client = shm::Client::Connect({.path = path_});
    EPIC_CHECK(client.ok());
    const auto copy = [&](uint64_t object) {
      const auto result = (*client)->Copy(kTenant, KeyOf(object), Layout(), to());
      return result.ok() && result->outcome == shm::Outcome::kHit;
    };
    bool exact = true;
    for (uint64_t object = 0; object < flags_.objects; ++object) {
      exact = exact && copy(object) && buffer_ == ContentOf(object);
    }
    report_.Check("hand-over: copies are exact", exact);
    std::vector<std::function<void()>> works = {
        [&] {
          for (uint64_t object = 0; object < flags_.objects; ++object) EPIC_CHECK(copy(object));
        },
        [&] {
          for (uint64_t object = 0; object < flags_.objects; ++object) {
            EPIC_CHECK((*client)->Hold(kTenant, KeyOf(object), Layout())->outcome == shm::Outcome::kHit);
          }
        }};
    if (redis_ != nullptr) {
      FillRedis();
      works.push_back([&] {
        for (uint64_t object = 0; object < flags_.objects; ++object) {
          EPIC_CHECK(redis_->Get(std::to_string(object), &buffer_));
        }
      });
    }
    const std::vector<double> seconds = ByTurns(flags_.rounds, works);
    report_.Add("hand-over: copying get of another process, checksums on", GigabytesPerSecond(seconds[0]),
                "GB/s");
    report_.Add("hand-over: zero-copy leases and releases", static_cast<double>(flags_.objects) / seconds[1],
                "per second");
    if (redis_ == nullptr) {
      report_.Say("Redis: not measured, redis-server is not installed");
      return;
    }
    report_.Add("Redis: GET over a unix socket", GigabytesPerSecond(seconds[2]), "GB/s");
    report_.AtLeast("hand-over: copying get / Redis GET", seconds[2] / seconds[0], "", kRedisBar);
  }

  void FillRedis() {
    bool exact = true;
    for (uint64_t object = 0; object < flags_.objects; ++object) {
      const std::string content = ContentOf(object);
      exact = exact && redis_->Set(std::to_string(object), content) &&
              redis_->Get(std::to_string(object), &buffer_) && buffer_ == content;
    }
    report_.Check("Redis: copies are exact", exact);
  }

  const Flags flags_;
  const testing::TempDir dir_;
  const std::string path_;
  StoreProcess process_;                      // first: it forks
  const std::unique_ptr<RedisServer> redis_;  // null: not installed
  std::string buffer_;                        // what was read last
  BenchReport report_;
};

}  // namespace
}  // namespace epic::kv_store

int main(int argc, char** argv) {
  return epic::kv_store::Bench(epic::kv_store::ParseFlags(argc, argv)).Run();
}
