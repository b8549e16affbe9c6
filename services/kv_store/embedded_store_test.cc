// The store on a real directory, with slabs in extents and in blob files: restart, lock, damage, deletion,
// and a change from one to the other.
#include "services/kv_store/embedded_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <span>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

namespace fs = std::filesystem;
using epic::testing::StatusIs;
using ::testing::HasSubstr;

constexpr std::string_view kTenant = "default";

class EmbeddedStoreTest : public ::testing::TestWithParam<SlabBackEnd> {
 protected:
  EmbeddedStoreOptions Options() const {
    return {.dir = dir_.path() + "/data",
            .store = {.memory_bytes = 8 << 20, .disk_bytes_max = 64 << 20, .clock = &clock_, .writer = {}},
            .slabs = GetParam()};
  }
  std::unique_ptr<KvStore> Open() const {
    auto store = EmbeddedStore::Open(Options());
    EXPECT_OK(store);
    return store.ok() ? *std::move(store) : nullptr;
  }

  ManualClock clock_;
  epic::testing::TempDir dir_;
};

TEST_P(EmbeddedStoreTest, RecordsTokensAndObjectsSurviveARestart) {
  const KvLayout layout = LayoutOf(100, 4, 2, 64);  // slabs of 51,200 bytes: blob files
  NewContext context = ContextOf(1, 100);
  context.name = "one";
  context.tags = {"b", "a", "b"};
  context.ttl_seconds = 3600;
  CacheId id;
  {
    const auto store = Open();
    ASSERT_OK_AND_ASSIGN(const CreateResult created, store->CreateContext(context));
    id = created.record.id;
    ASSERT_OK(PutObject(store.get(), kTenant, {id, {}}, layout, 7));
    ASSERT_OK(store->SetState(kTenant, id, ContextState::kReady, 12, ""));
  }
  const auto store = Open();
  ASSERT_OK_AND_ASSIGN(const ContextRecord record, store->GetContext(kTenant, id));
  EXPECT_EQ(record.name, "one");
  EXPECT_EQ(record.tags, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(record.state, ContextState::kReady);
  EXPECT_EQ(record.compile_ms, 12);
  EXPECT_EQ(record.expires_at_ms, clock_.UnixMs() + 3'600'000);
  ASSERT_OK_AND_ASSIGN(const auto tokens, store->GetTokens(kTenant, id));
  EXPECT_EQ(tokens, context.tokens);
  ASSERT_OK_AND_ASSIGN(const AcquireResult hit, store->Acquire(kTenant, {id, {}}, layout));
  ASSERT_NE(hit.object, nullptr) << static_cast<int>(hit.cause);
  EXPECT_TRUE(Holds(*hit.object, 7));
  ASSERT_OK_AND_ASSIGN(const CreateResult again, store->CreateContext(context));
  EXPECT_FALSE(again.created);
}

TEST_P(EmbeddedStoreTest, SmallObjectsAndSlabsOverOnePieceSurviveToo) {
  const KvLayout tiny = LayoutOf(1, 3, 1, 8);
  const KvLayout large = {.layers = 1, .kv_heads = 8, .head_dim = 4096, .tokens = 600};  // 75 MiB in one slab
  const CacheId tiny_id = CacheId::Of(kTenant, {}, TokensOf(1, 1));
  const CacheId large_id = CacheId::Of(kTenant, {}, TokensOf(2, 600));
  EmbeddedStoreOptions options = Options();
  options.store.memory_bytes = 96 << 20;
  options.store.disk_bytes_max = 512 << 20;
  {
    ASSERT_OK_AND_ASSIGN(const auto store, EmbeddedStore::Open(options));
    ASSERT_OK(store->CreateContext(ContextOf(1, 1)));
    ASSERT_OK(store->CreateContext(ContextOf(2, 600)));
    ASSERT_OK(PutObject(store.get(), kTenant, {tiny_id, {}}, tiny, 1));
    ASSERT_OK(PutObject(store.get(), kTenant, {large_id, {}}, large, 2));
  }
  ASSERT_OK_AND_ASSIGN(const auto store, EmbeddedStore::Open(options));
  ASSERT_OK_AND_ASSIGN(const AcquireResult small_hit, store->Acquire(kTenant, {tiny_id, {}}, tiny));
  ASSERT_NE(small_hit.object, nullptr);
  EXPECT_TRUE(Holds(*small_hit.object, 1));
  ASSERT_OK_AND_ASSIGN(const AcquireResult large_hit, store->Acquire(kTenant, {large_id, {}}, large));
  ASSERT_NE(large_hit.object, nullptr);
  EXPECT_TRUE(Holds(*large_hit.object, 2));
}

TEST_P(EmbeddedStoreTest, DeletionSurvivesARestartAndFreesTheDisk) {
  const KvLayout layout = LayoutOf(100, 8, 2, 64);
  std::vector<CacheId> ids;
  {
    const auto store = Open();
    for (uint64_t seed = 0; seed < 8; ++seed) {
      ASSERT_OK_AND_ASSIGN(const CreateResult created, store->CreateContext(ContextOf(seed, 100)));
      ids.push_back(created.record.id);
      ASSERT_OK(PutObject(store.get(), kTenant, {ids.back(), {}}, layout, seed));
    }
  }
  ASSERT_OK_AND_ASSIGN(const auto store, EmbeddedStore::Open(Options()));
  const uint64_t before = store->Usage().disk_bytes;
  EXPECT_GE(before, 8 * layout.TotalBytes());
  for (const CacheId& id : ids) ASSERT_OK(store->DeleteContext(kTenant, id));
  clock_.AdvanceMs(int64_t{7} * 3600 * 1000);
  static_cast<StoreCore*>(store.get())->Housekeep();
  EXPECT_LT(store->Usage().disk_bytes, before / 8);
  EXPECT_EQ(CodeOf(store->GetContext(kTenant, ids[0]).status()), ErrorCode::kContextDeleted);
}

// How many files of the folder hold these bytes.
int FilesWith(const std::string& dir, std::string_view bytes) {
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (!entry.is_regular_file()) continue;
    const std::string content = epic::testing::ReadFileOrDie(entry.path().string());
    if (content.find(bytes) != std::string::npos) ++files;
  }
  return files;
}

TEST_P(EmbeddedStoreTest, WhatIsDeletedIsGoneFromEveryFileWithinADay) {
  const KvLayout small = LayoutOf(100, 2, 1, 16);  // through the log
  const KvLayout large = LayoutOf(100, 2, 2, 64);  // not
  for (const KvLayout& layout : {small, large}) {
    const std::string files = Options().dir;
    const std::vector<TokenId> tokens = TokensOf(1, 100);
    const auto token_bytes = AsText(AsBytes(std::span<const TokenId>(tokens)));
    const std::string slab = SlabOf(layout, 1, 7);
    const CacheId id = CacheId::Of(kTenant, {}, tokens);
    auto store = Open();
    ASSERT_OK(store->CreateContext(ContextOf(1, 100)));
    ASSERT_OK(store->CreateContext(ContextOf(2, 100)));  // stays
    ASSERT_OK(PutObject(store.get(), kTenant, {id, {}}, layout, 7));
    static_cast<StoreCore*>(store.get())->DrainWrites();
    EXPECT_GT(FilesWith(files, token_bytes), 0);
    EXPECT_GT(FilesWith(files, slab.substr(0, 64)), 0);
    ASSERT_OK(store->DeleteContext(kTenant, id));
    clock_.AdvanceMs(int64_t{24} * 3600 * 1000);
    static_cast<StoreCore*>(store.get())->Housekeep();
    store.reset();  // RocksDB removes files in the background
    EXPECT_EQ(FilesWith(files, token_bytes), 0) << layout.head_dim;
    EXPECT_EQ(FilesWith(files, slab.substr(0, 64)), 0) << layout.head_dim;
  }
}

TEST_P(EmbeddedStoreTest, AFewRecordsTakeLittleOfTheDisk) {
  { ASSERT_OK(Open()->CreateContext(ContextOf(1, 100))); }
  const auto store = Open();
  ASSERT_OK(store->CreateContext(ContextOf(2, 100)));
  uint64_t allocated = 0;
  for (const auto& entry : fs::directory_iterator(Options().dir + "/rocksdb")) {
    struct stat info = {};
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    allocated += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  EXPECT_LT(allocated, 4u << 20);
}

TEST_P(EmbeddedStoreTest, ASecondStoreOnTheDirectoryIsRefused) {
  const auto store = Open();
  EXPECT_THAT(EmbeddedStore::Open(Options()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another process")));
}

TEST_P(EmbeddedStoreTest, ADirectoryThatCannotBeMadeIsAClearError) {
  std::ofstream(dir_.path() + "/data") << "a file, not a directory";
  EXPECT_THAT(EmbeddedStore::Open(Options()),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr(dir_.path())));
}

TEST_P(EmbeddedStoreTest, ADirectoryWithoutRightsIsAClearError) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  fs::create_directory(dir_.path() + "/data");
  ASSERT_EQ(chmod((dir_.path() + "/data").c_str(), 0500), 0);
  EXPECT_THAT(EmbeddedStore::Open(Options()),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("mend its rights")));
}

// Damages the first file whose name starts or ends with `part`.
void Damage(const std::string& dir, std::string_view part) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(part) && !name.ends_with(part)) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    const auto size = static_cast<std::streamoff>(fs::file_size(entry.path()));
    for (std::streamoff at = 0; at < size; at += 64) {
      file.seekp(at);
      file.put('\x5a');
    }
    return;
  }
  FAIL() << "no file like " << part;
}

TEST_P(EmbeddedStoreTest, DamagedDatabaseIsAClearStartUpError) {
  for (const char* part : {"MANIFEST", "CURRENT", ".sst"}) {
    fs::remove_all(Options().dir);
    {
      const auto store = Open();
      ASSERT_OK(store->CreateContext(ContextOf(1)));
      static_cast<StoreCore*>(store.get())->Housekeep();
    }
    {
      const auto store = Open();  // a second open turns the log into table files
      ASSERT_OK(store->CreateContext(ContextOf(2)));
    }
    Damage(Options().dir + "/rocksdb", part);
    const auto opened = EmbeddedStore::Open(Options());
    ASSERT_FALSE(opened.ok()) << part;
    EXPECT_THAT(opened, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("restore"))) << part;
  }
}

TEST_P(EmbeddedStoreTest, DamagedSlabsAreAMissAndThenGone) {
  const KvLayout layout = LayoutOf(100, 4, 2, 64);
  CacheId id;
  {
    const auto store = Open();
    ASSERT_OK_AND_ASSIGN(const CreateResult created, store->CreateContext(ContextOf(1, 100)));
    id = created.record.id;
    ASSERT_OK(PutObject(store.get(), kTenant, {id, {}}, layout, 7));
  }
  if (GetParam() == SlabBackEnd::kExtents) {
    Damage(Options().dir + "/slabs", "extents");
  } else {
    Damage(Options().dir + "/rocksdb", ".blob");
  }
  const auto store = Open();
  ASSERT_NE(store, nullptr);
  ASSERT_OK_AND_ASSIGN(const AcquireResult miss, store->Acquire(kTenant, {id, {}}, layout));
  EXPECT_EQ(miss.object, nullptr);
  ASSERT_OK_AND_ASSIGN(const ContextRecord record, store->GetContext(kTenant, id));
  EXPECT_TRUE(record.variants.empty());
  ASSERT_OK(PutObject(store.get(), kTenant, {id, {}}, layout, 7));
  ASSERT_OK_AND_ASSIGN(const AcquireResult hit, store->Acquire(kTenant, {id, {}}, layout));
  ASSERT_NE(hit.object, nullptr);
}

TEST_P(EmbeddedStoreTest, ObjectsAreReadDeletedAndErasedByAStoreWithTheOtherBackEnd) {
  const KvLayout layout = LayoutOf(100, 4, 2, 64);
  const CacheId kept = CacheId::Of(kTenant, {}, TokensOf(1, 100));
  const CacheId deleted = CacheId::Of(kTenant, {}, TokensOf(2, 100));
  EmbeddedStoreOptions other = Options();
  other.slabs = GetParam() == SlabBackEnd::kExtents ? SlabBackEnd::kBlobFiles : SlabBackEnd::kExtents;
  {
    ASSERT_OK_AND_ASSIGN(const auto store, EmbeddedStore::Open(other));
    for (const uint64_t seed : {1, 2}) ASSERT_OK(store->CreateContext(ContextOf(seed, 100)));
    ASSERT_OK(PutObject(store.get(), kTenant, {kept, {}}, layout, 1));
    ASSERT_OK(PutObject(store.get(), kTenant, {deleted, {}}, layout, 2));
  }
  const std::string trace = SlabOf(layout, 2, 2).substr(0, 64);
  EXPECT_GT(FilesWith(Options().dir, trace), 0);
  {
    const auto store = Open();
    ASSERT_OK_AND_ASSIGN(const AcquireResult hit, store->Acquire(kTenant, {kept, {}}, layout));
    ASSERT_NE(hit.object, nullptr);
    EXPECT_TRUE(Holds(*hit.object, 1));
    ASSERT_OK(store->DeleteContext(kTenant, deleted));
    clock_.AdvanceMs(int64_t{24} * 3600 * 1000);
    static_cast<StoreCore*>(store.get())->Housekeep();
  }
  EXPECT_EQ(FilesWith(Options().dir, trace), 0);
  ASSERT_OK_AND_ASSIGN(const auto again, EmbeddedStore::Open(other));
  ASSERT_OK_AND_ASSIGN(const AcquireResult hit, again->Acquire(kTenant, {kept, {}}, layout));
  EXPECT_NE(hit.object, nullptr);
}

TEST_P(EmbeddedStoreTest, AStoreWithoutADiskForObjectsKeepsThoseOfBefore) {
  const KvLayout layout = LayoutOf(100, 4, 2, 64);
  const CacheId id = CacheId::Of(kTenant, {}, TokensOf(1, 100));
  {
    const auto store = Open();
    ASSERT_OK(store->CreateContext(ContextOf(1, 100)));
    ASSERT_OK(PutObject(store.get(), kTenant, {id, {}}, layout, 1));
  }
  EmbeddedStoreOptions memory_only = Options();
  memory_only.store.disk_bytes_max = 0;
  for (int life = 0; life < 2; ++life) {
    ASSERT_OK_AND_ASSIGN(const auto store, EmbeddedStore::Open(memory_only));
    ASSERT_OK_AND_ASSIGN(const AcquireResult hit, store->Acquire(kTenant, {id, {}}, layout));
    EXPECT_NE(hit.object, nullptr);
  }
}

INSTANTIATE_TEST_SUITE_P(BackEnds, EmbeddedStoreTest,
                         ::testing::Values(SlabBackEnd::kExtents, SlabBackEnd::kBlobFiles),
                         [](const auto& instance) {
                           return instance.param == SlabBackEnd::kExtents ? "Extents" : "BlobFiles";
                         });

}  // namespace
}  // namespace epic::kv_store
