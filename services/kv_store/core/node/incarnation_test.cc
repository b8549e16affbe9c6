// The boot counter on disk, its format, and the incarnations that follow from it.
#include "services/kv_store/core/node/incarnation.h"

#include <memory>
#include <set>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/base/system_random.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/testing/faulty_table_store.h"

namespace epic::kv_store {
namespace {

using ::epic::testing::StatusIs;

std::string Golden() {
  return epic::testing::ReadFileOrDie(epic::testing::SourceDir() +
                                      "/services/kv_store/core/node/golden/boot_counter.v1.bin");
}

class IncarnationTest : public ::testing::Test {
 protected:
  absl::StatusOr<uint64_t> Boot() {
    store_.reset();
    auto store = StoreCore::Open(
        std::make_unique<FaultyTableStore>(std::make_unique<MemoryTableStore>(disk_), faults_),
        {.memory_bytes = 1 << 16, .clock = &clock_, .writer = {}});
    EXPECT_OK(store);
    store_ = *std::move(store);
    return CountBoot(store_.get());
  }

  const ManualClock clock_;
  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>(1);
  std::unique_ptr<StoreCore> store_;
};

TEST_F(IncarnationTest, EveryStartIsCountedAlsoAfterACrash) {
  Rng rng(3);
  for (uint64_t start = 1; start <= 20; ++start) {
    ASSERT_OK_AND_ASSIGN(const uint64_t boots, Boot());
    EXPECT_EQ(boots, start);
    store_.reset();
    disk_->Crash(&rng);
  }
}

TEST_F(IncarnationTest, ADamagedRowCountsAsNoneAndOneOfANewerVersionIsRefused) {
  ASSERT_OK(Boot());
  std::string row = EncodeBootCounter(41);
  ASSERT_OK(store_->PutNodeRow("boot_counter", row));
  EXPECT_THAT(Boot(), ::testing::ResultOf([](const auto& boots) { return *boots; }, 42u));
  row[9] ^= 1;
  ASSERT_OK(store_->PutNodeRow("boot_counter", row));
  EXPECT_THAT(Boot(), ::testing::ResultOf([](const auto& boots) { return *boots; }, 1u));
  row[4] = 2;
  ASSERT_OK(store_->PutNodeRow("boot_counter", row));
  EXPECT_THAT(Boot(), StatusIs(absl::StatusCode::kUnimplemented));
}

TEST_F(IncarnationTest, ANodeDoesNotOpenWhereItsStartCannotBeWrittenDown) {
  ASSERT_OK(Boot());
  faults_->Set({.write_error = 100});
  EXPECT_FALSE(CountBoot(store_.get()).ok());
  faults_->Set({});
}

TEST_F(IncarnationTest, IncarnationsDifferByStartOrByChance) {
  std::set<uint64_t> seen;
  for (uint64_t boots = 1; boots < 100; ++boots) {
    EXPECT_TRUE(seen.insert(MakeIncarnation(boots, 7)).second);
    EXPECT_TRUE(seen.insert(MakeIncarnation(boots, uint64_t{1} << 63)).second);
  }
  EXPECT_NE(MakeIncarnation(uint64_t{1} << 24, 0), 0u);
  EXPECT_NE(SystemRandom(), SystemRandom());
}

TEST_F(IncarnationTest, TheRowIsThatOfTheGoldenFile) {
  ASSERT_OK_AND_ASSIGN(const uint64_t boots, DecodeBootCounter(AsBytes(Golden())));
  EXPECT_EQ(boots, 0x0102030405060708u);
  EXPECT_EQ(EncodeBootCounter(boots), Golden());
}

TEST_F(IncarnationTest, TheDecoderSurvivesHostileBytes) {
  Rng rng(11);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = Golden();
    for (uint64_t changes = 1 + rng.Below(3); changes > 0; --changes) {
      if (rng.Below(4) == 0) bytes.resize(rng.Below(30));
      if (!bytes.empty()) bytes[rng.Below(bytes.size())] = static_cast<char>(rng.Next());
    }
    if (rng.Below(2) == 0 && bytes.size() > 4) {
      const uint32_t crc = Crc32c(0, AsBytes(bytes).first(bytes.size() - 4));
      std::memcpy(bytes.data() + bytes.size() - 4, &crc, 4);
    }
    const auto boots = DecodeBootCounter(AsBytes(bytes));
    if (!boots.ok()) continue;
    EXPECT_EQ(EncodeBootCounter(*boots), bytes);
  }
}

}  // namespace
}  // namespace epic::kv_store
