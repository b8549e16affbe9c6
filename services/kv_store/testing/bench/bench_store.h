// A store in a folder of its own, with the waits for the disk that `epic serve` has by default, but neither
// scrubbed nor warmed up, whose syncs of RocksDB are counted; and objects whose bytes say whose they are.
// Benches only.
#ifndef EPIC_SERVICES_KV_STORE_TESTING_BENCH_BENCH_STORE_H_
#define EPIC_SERVICES_KV_STORE_TESTING_BENCH_BENCH_STORE_H_

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/config/config.h"
#include "rocksdb/env.h"
#include "services/kv_store/config/store_config.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/extents/extent_slab_store.h"
#include "services/kv_store/extents/posix_file_system.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"
#include "services/kv_store/testing/counting_file_system.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {

inline constexpr std::string_view kBenchTenant = "default";

class BenchStore {
 public:
  struct Options {
    std::string dir;  // removed at the end
    uint64_t memory_bytes = uint64_t{1} << 30;
    uint64_t disk_bytes_max = uint64_t{16} << 30;
    bool extents = true;  // false: slabs are blob files
  };

  explicit BenchStore(Options options)
      : options_(std::move(options)),
        env_(rocksdb::NewCompositeEnv(std::make_shared<CountingFileSystem>(&syncs_))) {
    Open();
  }
  ~BenchStore() {
    store_.reset();
    std::filesystem::remove_all(options_.dir);
  }

  // Again, after everything that is queued was written.
  void Open() {
    Close();
    auto tables = OpenRocksDbTables({.dir = options_.dir + "/rocksdb", .env = env_.get()});
    EPIC_CHECK(tables.ok());
    const StoreOptions process = StoreOptionsOf(DefaultConfig().store, SystemClock::Get()).store;
    StoreOptions store{.memory_bytes = options_.memory_bytes,
                       .disk_bytes_max = options_.disk_bytes_max,
                       .make_slabs = nullptr,
                       .watermarks = {},
                       .quotas = {},
                       .disk_wait_ms = process.disk_wait_ms,
                       .disk_probe_ms = process.disk_probe_ms,
                       .writer = {},
                       .scrubber = {}};
    if (options_.extents) {
      const ExtentOptions extents{.folder = options_.dir + "/slabs",
                                  .max_bytes = options_.disk_bytes_max / 10 * 9};
      store.make_slabs =
          [extents](std::function<absl::Status()> sync) -> absl::StatusOr<std::unique_ptr<SlabStore>> {
        return ExtentSlabStore::Open(MakePosixFileSystem(), extents, std::move(sync));
      };
    }
    auto opened = StoreCore::Open(*std::move(tables), store);
    EPIC_CHECK(opened.ok());
    store_ = *std::move(opened);
  }
  void Close() { store_.reset(); }
  StoreCore* get() { return store_.get(); }
  const SyncCounter& syncs() const { return syncs_; }
  const std::string& dir() const { return options_.dir; }

 private:
  const Options options_;
  SyncCounter syncs_;
  const std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<StoreCore> store_;
};

// --- objects

// Of about the shape that a model would give an object of `bytes`: 1 KiB for each token of a layer.
inline KvLayout LayoutOfBytes(uint64_t bytes) {
  const uint32_t layers = bytes < (uint64_t{1} << 20) ? 8 : bytes < (uint64_t{8} << 20) ? 16 : 32;
  const auto tokens = static_cast<uint32_t>(bytes / layers >> 10);
  const KvLayout layout = LayoutOf(tokens, layers, /*kv_heads=*/4, /*head_dim=*/64);
  EPIC_CHECK(layout.TotalBytes() == bytes);
  return layout;
}
inline std::string NameOfBytes(uint64_t bytes) {
  return bytes < (uint64_t{1} << 20) ? std::to_string(bytes >> 10) + " KiB"
                                     : std::to_string(bytes >> 20) + " MiB";
}

inline uint64_t WordOf(uint64_t object, uint32_t layer, uint64_t at) {
  return (object << 40 ^ uint64_t{layer} << 32 ^ at) * 0x9E3779B97F4A7C15ull;
}
inline void FillSlab(uint64_t object, uint32_t layer, MutableByteSpan slab) {
  for (uint64_t at = 0; at < slab.size(); at += sizeof(uint64_t)) {
    const uint64_t word = WordOf(object, layer, at);
    std::memcpy(slab.data() + at, &word, sizeof word);
  }
}
// Whether a slab is that of the object: every word, or one in each `step` bytes.
inline bool IsSlabOf(uint64_t object, uint32_t layer, ByteSpan slab, uint64_t step = sizeof(uint64_t)) {
  for (uint64_t at = 0; at < slab.size(); at += step) {
    const uint64_t word = WordOf(object, layer, at);
    if (std::memcmp(slab.data() + at, &word, sizeof word) != 0) return false;
  }
  return true;
}
inline bool IsObject(const KvObject& object, uint64_t number, uint64_t step = sizeof(uint64_t)) {
  for (uint32_t layer = 0; layer < object.layout().layers; ++layer) {
    if (!IsSlabOf(number, layer, object.Layer(layer), step)) return false;
  }
  return true;
}

inline ObjectKey KeyOfObject(uint64_t number, const KvLayout& layout) {
  return {CacheId::Of(kBenchTenant, {}, TokensOf(number, layout.tokens)), {}};
}

// Reserves, writes and commits object `number` of a context that there is. Returns false when the store has
// no room for it. `slab` is memory for one layer.
inline bool PutNumbered(KvStore* store, uint64_t number, const KvLayout& layout, std::string* slab) {
  slab->resize(layout.LayerBytes());
  auto writer = store->Reserve(kBenchTenant, KeyOfObject(number, layout), layout);
  if (!writer.ok()) return false;
  for (uint32_t layer = 0; layer < layout.layers; ++layer) {
    FillSlab(number, layer, std::as_writable_bytes(std::span(*slab)));
    EPIC_CHECK((*writer)->WriteLayer(layer, AsBytes(*slab)).ok());
  }
  return (*writer)->Commit().ok();
}

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TESTING_BENCH_BENCH_STORE_H_
