// RocksDB on a file system that is full for a while: records fail cleanly, objects are served from memory,
// nothing acknowledged is lost, and all goes on when there is space again.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr std::string_view kTenant = "default";
constexpr uint32_t kTokens = 64;

class FullFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  FullFile(std::unique_ptr<rocksdb::FSWritableFile> file, const std::atomic<bool>* full)
      : FSWritableFileOwnerWrapper(std::move(file)), full_(full) {}
  using FSWritableFileOwnerWrapper::Append;
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* debug) override {
    if (full_->load()) return rocksdb::IOStatus::NoSpace("injected");
    return FSWritableFileOwnerWrapper::Append(data, options, debug);
  }

 private:
  const std::atomic<bool>* const full_;
};

class FullFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  FullFileSystem() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "FullFileSystem"; }
  void SetFull(bool full) { full_ = full; }
  // A disk of `bytes` that the files under `dir` share with nobody.
  void SetCapacity(std::string dir, uint64_t bytes) {
    dir_ = std::move(dir);
    capacity_ = bytes;
  }
  rocksdb::IOStatus GetFreeSpace(const std::string& path, const rocksdb::IOOptions& options, uint64_t* bytes,
                                 rocksdb::IODebugContext* debug) override {
    if (dir_.empty()) return FileSystemWrapper::GetFreeSpace(path, options, bytes, debug);
    const uint64_t used = FileBytes();
    *bytes = capacity_ - std::min(used, capacity_);
    return rocksdb::IOStatus::OK();
  }
  uint64_t FileBytes() const {
    uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(dir_)) {
      std::error_code gone;  // compactions delete files
      if (const auto size = entry.file_size(gone); !gone) bytes += size;
    }
    return bytes;
  }
  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override {
    rocksdb::IOStatus status = FileSystemWrapper::NewWritableFile(name, options, file, debug);
    if (status.ok()) *file = std::make_unique<FullFile>(std::move(*file), &full_);
    return status;
  }

 private:
  std::atomic<bool> full_{false};
  std::string dir_;  // set before its first use
  uint64_t capacity_ = 0;
};

TEST(FullDiskTest, RecordsFailCleanlyObjectsStayInMemoryAndAllGoesOnAfterwards) {
  const epic::testing::TempDir dir;
  const auto files = std::make_shared<FullFileSystem>();
  const std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(files);
  const StoreOptions options = {.memory_bytes = 8 << 20, .disk_bytes_max = 64 << 20, .writer = {}};
  const KvLayout layout = LayoutOf(kTokens, 4, 2, 64);
  const auto open = [&] {
    auto tables = OpenRocksDbTables({.dir = dir.path() + "/data", .env = env.get()});
    EXPECT_OK(tables);
    auto store = StoreCore::Open(*std::move(tables), options);
    EXPECT_OK(store);
    return *std::move(store);
  };
  const CacheId first = CacheId::Of(kTenant, {}, TokensOf(1, kTokens));
  const CacheId second = CacheId::Of(kTenant, {}, TokensOf(2, kTokens));
  auto store = open();
  ASSERT_OK(store->CreateContext(ContextOf(1, kTokens)));
  ASSERT_OK(store->CreateContext(ContextOf(2, kTokens)));
  ASSERT_OK(PutObject(store.get(), kTenant, {first, {}}, layout, 1));
  store->DrainWrites();

  files->SetFull(true);
  EXPECT_EQ(CodeOf(store->CreateContext(ContextOf(3, kTokens)).status()), ErrorCode::kStorageFull);
  EXPECT_EQ(CodeOf(store->UpdateContext(kTenant, first, {.name = "n"}).status()), ErrorCode::kStorageFull);
  EXPECT_FALSE(store->DeleteContext(kTenant, first).ok());
  ASSERT_OK(PutObject(store.get(), kTenant, {second, {}}, layout, 2));
  store->DrainWrites();
  for (const auto& [id, content] : {std::pair(first, 1), std::pair(second, 2)}) {
    ASSERT_OK_AND_ASSIGN(const AcquireResult hit, store->Acquire(kTenant, {id, {}}, layout));
    ASSERT_NE(hit.object, nullptr);
    EXPECT_TRUE(Holds(*hit.object, content));
    EXPECT_OK(store->GetTokens(kTenant, id));
  }
  EXPECT_TRUE(store->GetContext(kTenant, first)->name.empty());

  files->SetFull(false);
  ASSERT_OK(store->CreateContext(ContextOf(4, kTokens)));
  ASSERT_OK(store->UpdateContext(kTenant, first, {.name = "m"}));
  store.reset();
  store = open();
  for (const uint64_t seed : {1, 2, 4}) {
    ASSERT_OK_AND_ASSIGN(const auto tokens,
                         store->GetTokens(kTenant, CacheId::Of(kTenant, {}, TokensOf(seed, kTokens))));
    EXPECT_EQ(tokens, TokensOf(seed, kTokens));
  }
  EXPECT_EQ(store->GetContext(kTenant, first)->name, "m");
}

TEST(FullDiskTest, ObjectsLeaveRoomForRecordsAndDeletionsOnASmallDisk) {
  constexpr uint64_t kReserve = 64 << 20;  // of the store
  constexpr uint64_t kRoom = 2 << 20;
  const epic::testing::TempDir dir;
  const std::string data = dir.path() + "/data";
  const auto files = std::make_shared<FullFileSystem>();
  const std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(files);
  const KvLayout layout = LayoutOf(kTokens, 4, 2, 64);
  auto tables = OpenRocksDbTables({.dir = data, .env = env.get()});
  ASSERT_OK(tables);
  files->SetCapacity(data + "/rocksdb", kReserve + kRoom);
  ASSERT_OK_AND_ASSIGN(
      const auto store,
      StoreCore::Open(*std::move(tables),
                      {.memory_bytes = 1 << 20, .disk_bytes_max = uint64_t{1} << 30, .writer = {}}));
  CacheId last;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    ASSERT_OK_AND_ASSIGN(const CreateResult created, store->CreateContext(ContextOf(seed, kTokens)));
    last = created.record.id;
    ASSERT_OK(PutObject(store.get(), kTenant, {last, {}}, layout, seed));
    store->DrainWrites();
    ASSERT_LE(files->FileBytes(), kRoom + (1 << 20)) << "after object " << seed;
  }
  EXPECT_GT(files->FileBytes(), kRoom / 2) << "the room that is there is used";
  ASSERT_OK(store->DropObject(kTenant, {last, {}}));
  ASSERT_OK(PutObject(store.get(), kTenant, {last, {}}, layout, 40));
  EXPECT_OK(store->DeleteContext(kTenant, last));
}

}  // namespace
}  // namespace epic::kv_store
