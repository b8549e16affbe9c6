// Faults that users of other caches met, each as a small scenario on this store. README.md has the list, with
// those that other tests cover.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/embedded_store.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTenant = "default";
constexpr uint32_t kTokens = 40;
constexpr uint64_t kMiB = uint64_t{1} << 20;

class FaultsOfOthersTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(); }
  void Open() {
    store_.reset();
    auto store = EmbeddedStore::Open(
        {.dir = data_, .store = {.memory_bytes = 2 * kMiB, .disk_bytes_max = 64 * kMiB, .writer = {}}});
    ASSERT_OK(store);
    store_ = *std::move(store);
  }
  static CacheId IdOf(uint64_t seed) { return CacheId::Of(kTenant, {}, TokensOf(seed, kTokens)); }
  void Put(uint64_t seed, uint64_t content) {
    ASSERT_OK(store_->CreateContext(ContextOf(seed, kTokens)));
    ASSERT_OK(PutObject(store_.get(), kTenant, {IdOf(seed), {}}, layout_, content));
  }
  std::shared_ptr<const KvObject> Get(uint64_t seed) {
    const auto result = store_->Acquire(kTenant, {IdOf(seed), {}}, layout_);
    EXPECT_OK(result);
    return result.ok() ? result->object : nullptr;
  }
  StoreCore* core() { return static_cast<StoreCore*>(store_.get()); }

  const KvLayout layout_ = LayoutOf(kTokens, 4, 2, 128);  // 4 slabs of 40 KiB
  const epic::testing::TempDir dir_;
  const std::string data_ = dir_.path() + "/data";
  std::unique_ptr<KvStore> store_;
};

TEST_F(FaultsOfOthersTest, AfterADeletionAndANewPutNobodyReadsTheOldValue) {
  Put(1, 10);
  ASSERT_NE(Get(1), nullptr);
  ASSERT_OK(store_->DeleteContext(kTenant, IdOf(1)));
  EXPECT_EQ(Get(1), nullptr);
  Put(1, 11);
  const auto object = Get(1);
  ASSERT_NE(object, nullptr);
  EXPECT_TRUE(Holds(*object, 11));
}

TEST_F(FaultsOfOthersTest, AFileThatIsDeletedBehindTheIndexIsAMissAndDeletionsStayIdempotent) {
  for (uint64_t seed = 1; seed <= 8; ++seed) Put(seed, seed);
  store_.reset();
  for (const auto& file : fs::directory_iterator(data_ + "/slabs")) fs::remove(file);
  Open();
  EXPECT_OK(store_->DropObject(kTenant, {IdOf(1), {}}));
  EXPECT_OK(store_->DropObject(kTenant, {IdOf(1), {}}));
  for (uint64_t seed = 1; seed <= 8; ++seed) EXPECT_EQ(Get(seed), nullptr);
  EXPECT_OK(store_->DeleteContext(kTenant, IdOf(2)));
  EXPECT_OK(store_->GetTokens(kTenant, IdOf(3)));
  Put(3, 33);
  EXPECT_TRUE(Holds(*Get(3), 33));
}

TEST_F(FaultsOfOthersTest, AThousandLookupsWithoutAReadKeepNothing) {
  Put(1, 1);
  for (int lookup = 0; lookup < 1000; ++lookup) {
    EXPECT_TRUE(core()->Exists(kTenant, {IdOf(1), {}}));
    EXPECT_NE(Get(1), nullptr);  // the lease ends with it
  }
  for (uint64_t seed = 2; seed <= 60; ++seed) {  // 9 MiB, memory for 2
    ASSERT_NO_FATAL_FAILURE(Put(seed, seed));
    EXPECT_LE(store_->Usage().memory_bytes, 2 * kMiB);
  }
  EXPECT_EQ(store_->Usage().leased_objects, 0u);
}

TEST_F(FaultsOfOthersTest, NamesOfAnyKindComeBackAndEscapeNowhere) {
  const std::vector<std::string> names = {"../../../etc/passwd",
                                          "/abs/olute",
                                          "..",
                                          "\xD0\xBA\xD0\xBB\xD1\x8E\xD1\x87/../x",
                                          "\xF0\x9F\x99\x82\xF0\x9F\x99\x82",
                                          "a b\tc%2F..%00",
                                          "CON",
                                          "-rf"};
  std::vector<CacheId> ids;
  for (size_t i = 0; i < names.size(); ++i) {
    NewContext context = ContextOf(100 + i, kTokens, names[i]);  // as a tenant too
    context.name = names[i];
    context.tags = {names[i]};
    const auto created = store_->CreateContext(context);
    ASSERT_OK(created) << names[i];
    ids.push_back(created->record.id);
    ASSERT_OK(PutObject(store_.get(), names[i], {ids[i], {}}, layout_, i));
  }
  Open();
  for (size_t i = 0; i < names.size(); ++i) {
    const auto found = store_->FindByName(names[i], {}, names[i]);
    ASSERT_OK(found) << names[i];
    EXPECT_EQ(found->id, ids[i]);
    EXPECT_EQ(found->tags, std::vector<std::string>{names[i]});
    const auto hit = store_->Acquire(names[i], {ids[i], {}}, layout_);
    ASSERT_OK(hit);
    ASSERT_NE(hit->object, nullptr);
    EXPECT_TRUE(Holds(*hit->object, i));
  }
  std::vector<std::string> beside;
  for (const auto& entry : fs::directory_iterator(dir_.path())) beside.push_back(entry.path().filename());
  EXPECT_EQ(beside, std::vector<std::string>{"data"}) << "something was written outside";
  std::vector<std::string> inside;
  for (const auto& entry : fs::directory_iterator(data_)) inside.push_back(entry.path().filename());
  std::sort(inside.begin(), inside.end());
  EXPECT_EQ(inside, (std::vector<std::string>{"epic.lock", "rocksdb", "slabs"}));
}

TEST_F(FaultsOfOthersTest, NoTokensNoNameAndNamesThatAreTooLongHaveClearAnswers) {
  NewContext empty;
  empty.tenant = kTenant;
  EXPECT_EQ(CodeOf(store_->CreateContext(empty).status()), ErrorCode::kInvalidRequest);
  NewContext unnamed = ContextOf(1, kTokens);
  unnamed.name = "";
  EXPECT_OK(store_->CreateContext(unnamed));
  EXPECT_FALSE(store_->FindByName(kTenant, {}, "").ok());
  NewContext longest = ContextOf(2, kTokens);
  longest.name = std::string(64 << 10, 'x');
  const auto refused = store_->CreateContext(longest);
  EXPECT_EQ(CodeOf(refused.status()), ErrorCode::kInvalidRequest) << refused.status();
  EXPECT_EQ(CodeOf(store_->GetContext(kTenant, IdOf(2)).status()), ErrorCode::kContextNotFound);
}

TEST_F(FaultsOfOthersTest, ObjectsAroundAndOverFourGiBAreRefusedWithATypedError) {
  ASSERT_OK(store_->CreateContext(ContextOf(1, kTokens)));
  // Bytes: layers * 2 * heads * head_dim * tokens * 2.
  for (const uint32_t heads : {3356u, 6711u, 6712u, 13422u, 13423u, 53687u, 4'000'000u}) {
    const KvLayout layout = LayoutOf(kTokens, 1, heads, 4000);
    const auto writer = store_->Reserve(kTenant, {IdOf(1), {}}, layout);
    ASSERT_FALSE(writer.ok()) << heads;
    const ErrorCode code = CodeOf(writer.status());
    const bool typed = code == ErrorCode::kStorageFull || code == ErrorCode::kBodyTooLarge ||
                       writer.status().code() == absl::StatusCode::kInvalidArgument;
    EXPECT_TRUE(typed) << writer.status();
    const auto miss = store_->Acquire(kTenant, {IdOf(1), {}}, layout);
    EXPECT_TRUE(!miss.ok() || miss->object == nullptr);
  }
  EXPECT_EQ(store_->Usage().memory_bytes, 0u);
  Put(1, 1);
}

TEST_F(FaultsOfOthersTest, TwoWritersOfOneKeyLeaveOneWholeValue) {
  ASSERT_OK(store_->CreateContext(ContextOf(1, kTokens)));
  std::vector<std::thread> writers;
  for (uint64_t content = 1; content <= 4; ++content) {
    writers.emplace_back([this, content] {
      for (int again = 0; again < 20; ++again) {
        const auto object = PutObject(store_.get(), kTenant, {IdOf(1), {}}, layout_, content);
        ASSERT_OK(object);
        EXPECT_TRUE(Holds(**object, 1) || Holds(**object, 2) || Holds(**object, 3) || Holds(**object, 4));
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const auto before = Get(1);
  ASSERT_NE(before, nullptr);
  uint64_t content = 1;
  while (content < 4 && !Holds(*before, content)) ++content;
  EXPECT_TRUE(Holds(*before, content));
  Open();
  const auto after = Get(1);
  ASSERT_NE(after, nullptr);
  EXPECT_TRUE(Holds(*after, content)) << "another value than before the restart";
  EXPECT_EQ(store_->Usage().reservations, 0u);
}

}  // namespace
}  // namespace epic::kv_store
