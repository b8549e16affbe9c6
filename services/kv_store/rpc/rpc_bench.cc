// epic_kv_store_rpc_bench: a store node over gRPC on this machine, client and server in one process: keys per
// second in batches of 64 (exists; acquire and release), GB/s of layers of 8 MiB objects both ways, beside a
// copy with checksums. Checks that all answers are right, then times. Usage: epic_kv_store_rpc_bench
// [seconds]
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/crc32c.h"
#include "common/rpc/kv_store/object_client.h"
#include "common/storage/object_codec.h"
#include "common/testing/paths.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/node/store_node.h"
#include "services/kv_store/rpc/store_door.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr char kTenant[] = "default";
constexpr uint64_t kContexts = 8192;
constexpr size_t kBatch = 64;
constexpr uint64_t kObjects = 16;
constexpr int64_t kLeaseMs = 60'000;
constexpr double kBar = 200'000;
const KvLayout kSmall = LayoutOf(8);
const KvLayout kLarge = LayoutOf(64, 32, 4, 256);  // 8 MiB in layers of 256 KiB

template <typename T>
T Must(absl::StatusOr<T> result) {
  if (!result.ok()) std::fprintf(stderr, "%s\n", std::string(result.status().ToString()).c_str());
  EPIC_CHECK(result.ok());
  return *std::move(result);
}

double Seconds(int64_t from_ns) {
  return static_cast<double>(SystemClock::Get()->SteadyNs() - from_ns) / 1e9;
}

class Bench {
 public:
  explicit Bench(double seconds) : seconds_(seconds) {
    store_ = Must(StoreCore::Open(std::make_unique<MemoryTableStore>(std::make_shared<MemoryDisk>()),
                                  {.memory_bytes = uint64_t{512} << 20, .disk_bytes_max = 0}));
    node_ = Must(StoreNode::Open(store_.get(), {}));
    for (uint64_t seed = 0; seed < kContexts; ++seed) {
      const auto created = Must(store_->CreateContext(ContextOf(seed)));
      keys_.push_back({created.record.id, {}});
      Must(PutObject(store_.get(), kTenant, keys_.back(), kSmall, seed));
    }
    for (uint64_t seed = 0; seed < kObjects; ++seed) {
      const auto created = Must(store_->CreateContext(ContextOf(kContexts + seed, kLarge.tokens)));
      large_.push_back({created.record.id, {}});
      Must(PutObject(store_.get(), kTenant, large_.back(), kLarge, seed));
    }
  }

  void Run(const char* name, const std::string& address) {
    door_ = Must(StoreDoor::Start({.address = address}, node_.get()));
    const std::string at = door_->port() > 1 ? "127.0.0.1:" + std::to_string(door_->port()) : address;
    Check(at);
    for (const uint32_t threads : {1u, 2u, 4u}) Keys(name, at, threads);
    Layers(name, at);
    door_.reset();
  }
  void Copy() {
    std::string from(kLarge.TotalBytes(), 'x'), to(kLarge.TotalBytes(), 'y');
    const int64_t begin = SystemClock::Get()->SteadyNs();
    uint64_t bytes = 0;
    for (; Seconds(begin) < seconds_; bytes += from.size()) {
      CopyWithCrc32c(0, AsBytes(from), std::as_writable_bytes(std::span(to)));
    }
    std::printf("%-8s %-26s %10.2f GB/s\n", "memory", "copy with CRC32C", bytes / Seconds(begin) / 1e9);
  }

 private:
  static std::unique_ptr<ObjectClient> Client(const std::string& address, uint64_t peer) {
    return std::make_unique<ObjectClient>(
        std::make_shared<StoreChannel>(StoreChannelOptions{.address = address}), peer);
  }
  std::vector<ObjectKey> BatchAt(uint64_t at) const {
    std::vector<ObjectKey> keys;
    for (size_t i = 0; i < kBatch; ++i) keys.push_back(keys_[(at + i * 127) % keys_.size()]);
    return keys;
  }
  void AcquireAndRelease(ObjectClient* client, const std::vector<ObjectKey>& keys) const {
    const std::vector<KvLayout> layouts(keys.size(), kSmall);
    std::vector<RemoteLease> leases;
    for (const auto& item : Must(client->Acquire(kTenant, keys, layouts, kLeaseMs))) {
      EPIC_CHECK(item.hit);
      leases.push_back(item.lease);
    }
    for (const bool held : Must(client->ConfirmAndRelease(leases))) EPIC_CHECK(held);
  }
  static void ExpectExist(ObjectClient* client, const std::vector<ObjectKey>& keys) {
    for (const auto& tiers : Must(client->Exists(kTenant, keys))) EPIC_CHECK(tiers.in_memory);
  }

  void Check(const std::string& address) {
    const auto client = Client(address, 1);
    for (uint64_t at = 0; at < kContexts; at += 997) {
      ExpectExist(client.get(), BatchAt(at));
      AcquireAndRelease(client.get(), BatchAt(at));
    }
    Slabs slabs;
    const auto leased = Must(client->Acquire(kTenant, {&large_[3], 1}, {&kLarge, 1}, kLeaseMs));
    EPIC_CHECK(Must(client->ReadLayers(leased[0].lease, kLarge, 0, slabs.spans)) == leased[0].build);
    for (uint32_t layer = 0; layer < kLarge.layers; ++layer) {
      EPIC_CHECK(slabs.bytes[layer] == SlabOf(kLarge, layer, 3));
    }
    Must(client->ConfirmAndRelease({&leased[0].lease, 1}));
  }

  // Batches per second of `threads` callers, each with a connection of its own, as keys per second.
  double Rate(const std::string& address, uint32_t threads,
              const std::function<void(ObjectClient*, const std::vector<ObjectKey>&)>& call) {
    std::atomic<uint64_t> keys{0};
    std::vector<std::thread> callers;
    const int64_t begin = SystemClock::Get()->SteadyNs();
    for (uint32_t i = 0; i < threads; ++i) {
      callers.emplace_back([&, i] {
        const auto client = Client(address, 100 + i);
        for (uint64_t at = i * 1000; Seconds(begin) < seconds_; at += kBatch) {
          call(client.get(), BatchAt(at));
          keys += kBatch;
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    return static_cast<double>(keys.load()) / Seconds(begin);
  }
  void Keys(const char* name, const std::string& address, uint32_t threads) {
    const double exists = Rate(address, threads, ExpectExist);
    const double leases = Rate(address, threads, [this](ObjectClient* client, const auto& keys) {
      AcquireAndRelease(client, keys);
    });
    std::printf("%-8s exists, %u callers          %10.0f keys/s (%.0f %% of the bar)\n", name, threads,
                exists, exists / kBar * 100);
    std::printf("%-8s acquire+release, %u callers %10.0f keys/s (%.0f %% of the bar)\n", name, threads,
                leases, leases / kBar * 100);
  }

  struct Slabs {
    Slabs() : bytes(kLarge.layers, std::string(kLarge.LayerBytes(), '\0')) {
      for (std::string& slab : bytes) spans.push_back(std::as_writable_bytes(std::span(slab)));
    }
    std::vector<std::string> bytes;
    std::vector<MutableByteSpan> spans;
  };
  void Layers(const char* name, const std::string& address) {
    const auto client = Client(address, 7);
    Slabs slabs;
    uint64_t bytes = 0;
    int64_t begin = SystemClock::Get()->SteadyNs();
    for (uint64_t at = 0; Seconds(begin) < seconds_; ++at, bytes += kLarge.TotalBytes()) {
      const ObjectKey& key = large_[at % kObjects];
      const auto leased = Must(client->Acquire(kTenant, {&key, 1}, {&kLarge, 1}, kLeaseMs));
      Must(client->ReadLayers(leased[0].lease, kLarge, 0, slabs.spans));
      EPIC_CHECK(Must(client->ConfirmAndRelease({&leased[0].lease, 1})).front());
    }
    std::printf("%-8s %-26s %10.2f GB/s\n", name, "read 8 MiB objects", bytes / Seconds(begin) / 1e9);

    std::vector<ObjectClient::LayerToSend> layers;
    std::vector<std::vector<uint32_t>> crcs(kLarge.layers);
    for (uint32_t layer = 0; layer < kLarge.layers; ++layer) {
      crcs[layer].resize(BlocksPerLayer(kLarge));
      ComputeBlockCrcs(kLarge, AsBytes(slabs.bytes[layer]), crcs[layer]);
      layers.push_back({layer, AsBytes(slabs.bytes[layer]), crcs[layer]});
    }
    EPIC_CHECK(store_->DropObject(kTenant, large_[0]).ok());
    bytes = 0;
    begin = SystemClock::Get()->SteadyNs();
    for (; Seconds(begin) < seconds_; bytes += kLarge.TotalBytes()) {
      const auto reserved = Must(client->Reserve(kTenant, large_[0], kLarge, "bench"));
      EPIC_CHECK(reserved.status.ok() && client->WriteLayers(reserved.token, layers).ok());
      EPIC_CHECK(client->Abort(reserved.token).ok());
    }
    std::printf("%-8s %-26s %10.2f GB/s\n", name, "write 8 MiB objects", bytes / Seconds(begin) / 1e9);
    Must(PutObject(store_.get(), kTenant, large_[0], kLarge, 0));
  }

  const double seconds_;
  std::unique_ptr<StoreCore> store_;
  std::unique_ptr<StoreNode> node_;
  std::unique_ptr<StoreDoor> door_;
  std::vector<ObjectKey> keys_;
  std::vector<ObjectKey> large_;
};

}  // namespace
}  // namespace epic::kv_store

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  epic::kv_store::Bench bench(seconds);
  const epic::testing::TempDir folder;
  bench.Copy();
  bench.Run("tcp", "127.0.0.1:0");
  bench.Run("unix", "unix:" + folder.path() + "/store.sock");
  return 0;
}
