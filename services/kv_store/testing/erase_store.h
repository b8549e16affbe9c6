// A store on a real directory whose contexts and objects have bytes that can be looked for in its files.
// Tests only; one thread, but for what a test says.
#ifndef EPIC_SERVICES_KV_STORE_TESTING_ERASE_STORE_H_
#define EPIC_SERVICES_KV_STORE_TESTING_ERASE_STORE_H_

#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/extents/extent_slab_store.h"
#include "services/kv_store/extents/posix_file_system.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"
#include "services/kv_store/testing/gated_tables.h"
#include "services/kv_store/testing/store_directory.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {

class EraseStore {
 public:
  static constexpr std::string_view kTenant = "default";
  static constexpr uint32_t kTokens = 300;
  using Names = std::vector<std::string>;

  EraseStore(std::string dir, bool extents) : dir_(std::move(dir)), extents_(extents) {}

  void Open() {
    store_.reset();
    StoreOptions options{
        .memory_bytes = 16 << 20, .disk_bytes_max = 256 << 20, .clock = &clock_, .writer = {}};
    if (extents_) {
      options.make_slabs =
          [this](std::function<absl::Status()> sync_index) -> absl::StatusOr<std::unique_ptr<SlabStore>> {
        return ExtentSlabStore::Open(MakePosixFileSystem(),
                                     {.folder = dir_ + "/slabs",
                                      .max_bytes = 128 << 20,
                                      .file_bytes = 32 << 20,
                                      .grow_bytes = 1 << 20},
                                     std::move(sync_index));
      };
    }
    auto tables = OpenRocksDbTables({.dir = dir_});
    ASSERT_OK(tables);
    auto store = StoreCore::Open(std::make_unique<GatedTables>(*std::move(tables), &gate_), options);
    ASSERT_OK(store);
    store_ = *std::move(store);
  }

  static CacheId IdOf(uint64_t seed) { return CacheId::Of(kTenant, {}, TokensOf(seed, kTokens)); }
  static ObjectVariant Other() {
    return {.prefix = CompilePrefixKind::kSystem, .prefix_tokens = Sha256Of(AsBytes("head"))};
  }
  // A context with an object whose slabs go to the back-end and one whose slabs go through the log; on disk.
  void Put(uint64_t seed) {
    ASSERT_OK(store_->CreateContext(ContextOf(seed, kTokens)));
    ASSERT_OK(PutObject(store_.get(), kTenant, {IdOf(seed), {}}, large_, seed));
    ASSERT_OK(PutObject(store_.get(), kTenant, {IdOf(seed), Other()}, small_, seed));
    store_->DrainWrites();
  }
  // Bytes of the token ids, and of each object's slabs.
  std::vector<std::string> SecretsOf(uint64_t seed) const {
    std::string tokens(64, '\0');
    std::memcpy(tokens.data(), TokensOf(seed, kTokens).data() + 120, tokens.size());
    return {tokens, SlabOf(large_, 1, seed).substr(5000, 64), SlabOf(large_, 2, seed).substr(70'000, 64),
            SlabOf(small_, 1, seed).substr(70, 64)};
  }
  void ExpectOnDisk(uint64_t seed, bool expected) const {
    for (const std::string& secret : SecretsOf(seed)) {
      const auto files = FilesWith(dir_, secret);
      EXPECT_EQ(!files.empty(), expected) << "seed " << seed << (files.empty() ? "" : " in " + files.front());
    }
  }
  // Waits for the answer.
  Names Erase(uint64_t seed, bool existed = true) {
    std::promise<Names> pending;
    const auto erased =
        store_->EraseContext(kTenant, IdOf(seed), [&](Names names) { pending.set_value(std::move(names)); });
    EXPECT_OK(erased);
    if (!erased.ok()) return {};
    EXPECT_EQ(*erased, existed);
    return pending.get_future().get();
  }

  const KvLayout large_ = LayoutOf(kTokens, 3, 2, 64);
  const KvLayout small_ = LayoutOf(kTokens, 2, 1, 8);
  ManualClock clock_;
  ReclaimGate gate_;
  std::unique_ptr<StoreCore> store_;

 protected:
  const std::string dir_;
  const bool extents_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TESTING_ERASE_STORE_H_
