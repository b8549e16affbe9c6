// A put and everything that may come between its steps: at every step of the disk a crash, and between every
// two calls a call said twice, a writer that goes, a context or an object that is deleted, an orderly
// restart. What is found after it is the whole object or nothing, what was promised is there, nothing leaks,
// and a new put works.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/faults/testing/whole_store.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr std::string_view kTenant = "default";
constexpr uint32_t kTokens = 64;
constexpr uint64_t kContent = 5;
constexpr uint64_t kMiB = uint64_t{1} << 20;

struct Kind {
  const char* name;
  SlabBackEnd slabs;
  bool durable;
  uint32_t head_dim;  // 8: a small object, through the log
};

class TwoPhasePutTest : public ::testing::TestWithParam<Kind> {
 protected:
  KvLayout Layout() const { return LayoutOf(kTokens, 2, 2, GetParam().head_dim); }
  static ObjectKey Key() { return {CacheId::Of(kTenant, {}, TokensOf(1, kTokens)), {}}; }
  void Begin() {
    whole_ = std::make_unique<WholeStore>(
        1, WholeStoreOptions{.slabs = GetParam().slabs,
                             .store = {.memory_bytes = kMiB, .disk_bytes_max = 64 * kMiB, .clock = &clock_}});
    ASSERT_OK(whole_->Open());
    CreateContext();
  }
  void CreateContext() {
    NewContext context = ContextOf(1, kTokens);
    if (GetParam().durable) context.durability = Durability::kObject;
    ASSERT_OK(store()->CreateContext(context));
  }
  StoreCore* store() { return whole_->core(); }
  absl::Status WriteLayer(ObjectWriter* writer, uint32_t layer) const {
    const std::string slab = SlabOf(Layout(), layer, kContent);
    return writer->WriteLayer(layer, AsBytes(slab));
  }
  bool Hits(uint64_t content) {
    const auto result = store()->Acquire(kTenant, Key(), Layout());
    EXPECT_OK(result);
    if (!result.ok() || result->object == nullptr) return false;
    EXPECT_TRUE(Holds(*result->object, content)) << "wrong bytes";
    return true;
  }
  // Nothing leaks, and the key can be put anew.
  void ExpectGoesOn() {
    EXPECT_EQ(whole_->Leaks(), "");
    CreateContext();
    ASSERT_OK(store()->DropObject(kTenant, Key()));
    ASSERT_OK(PutObject(store(), kTenant, Key(), Layout(), 9));
    EXPECT_TRUE(Hits(9));
    whole_->Close();
    ASSERT_OK(whole_->Open());
    EXPECT_TRUE(Hits(9));
    EXPECT_EQ(whole_->Leaks(), "");
  }

  ManualClock clock_;
  std::unique_ptr<WholeStore> whole_;
};

TEST_P(TwoPhasePutTest, ACrashAtAnyStepOfTheDiskLeavesTheWholeObjectOrNothing) {
  Rng rng(3);
  bool cut = true;
  uint64_t steps = 0;
  for (; cut; ++steps) {
    SCOPED_TRACE("power cut after " + std::to_string(steps) + " steps");
    Begin();
    whole_->power()->CutAfter(steps);
    const auto object = PutObject(store(), kTenant, Key(), Layout(), kContent);
    store()->DrainWrites();
    cut = whole_->power()->has_refused();
    const bool promised = object.ok() && GetParam().durable;
    whole_->Crash(&rng);
    ASSERT_OK(whole_->Open());
    const bool hit = Hits(kContent);
    EXPECT_TRUE(hit || !promised) << "a durable object is lost";
    ASSERT_NO_FATAL_FAILURE(ExpectGoesOn());
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
  EXPECT_GT(steps, 1u);
}

enum class Between : uint8_t { kNothing, kSayTwice, kWriterGoes, kContextGoes, kObjectGoes };

// Calls: reserve, write layer 0, write layer 1, commit; `between` comes after `after` of them.
TEST_P(TwoPhasePutTest, AnythingMayComeBetweenItsCalls) {
  for (const Between between : {Between::kNothing, Between::kSayTwice, Between::kWriterGoes,
                                Between::kContextGoes, Between::kObjectGoes}) {
    for (int after = 1; after <= 4; ++after) {
      SCOPED_TRACE("between " + std::to_string(static_cast<int>(between)) + " after call " +
                   std::to_string(after));
      Begin();
      std::unique_ptr<ObjectWriter> writer;
      bool context_gone = false;
      absl::Status committed = absl::UnknownError("not reached");
      for (int call = 1; call <= 4; ++call) {
        if (call == 1) {
          auto reserved = store()->Reserve(kTenant, Key(), Layout());
          ASSERT_OK(reserved);
          writer = *std::move(reserved);
          EXPECT_EQ(store()->Usage().reservations, 1u);
        } else if (writer != nullptr && call < 4) {
          EXPECT_OK(WriteLayer(writer.get(), static_cast<uint32_t>(call - 2)));
          EXPECT_FALSE(Hits(kContent)) << "seen before its commit";
        } else if (writer != nullptr) {
          committed = writer->Commit().status();
        }
        if (call != after) continue;
        if (between == Between::kWriterGoes) writer.reset();
        if (between == Between::kObjectGoes) {
          ASSERT_OK(store()->DropObject(kTenant, Key()));
        }
        if (between == Between::kContextGoes) {
          ASSERT_OK(store()->DeleteContext(kTenant, Key().id));
          context_gone = true;
        }
        if (between != Between::kSayTwice) continue;
        if (call == 1) {
          EXPECT_EQ(writer->Commit().status().code(), absl::StatusCode::kFailedPrecondition);
        } else if (call < 4) {
          EXPECT_FALSE(WriteLayer(writer.get(), static_cast<uint32_t>(call - 2)).ok());
        } else {
          EXPECT_OK(writer->Commit());
        }
      }
      const bool committed_late = between == Between::kContextGoes && after < 4;
      const bool never = between == Between::kWriterGoes && after < 4;
      EXPECT_EQ(committed.ok(), !committed_late && !never) << committed;
      const bool there = committed.ok() && !context_gone && !(between == Between::kObjectGoes && after == 4);
      EXPECT_EQ(Hits(kContent), there);
      writer.reset();
      EXPECT_EQ(store()->Usage().reservations, 0u);
      ASSERT_NO_FATAL_FAILURE(ExpectGoesOn());
      ASSERT_FALSE(::testing::Test::HasFailure());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TwoPhasePutTest,
                         ::testing::Values(Kind{"Extents", SlabBackEnd::kExtents, false, 128},
                                           Kind{"DurableExtents", SlabBackEnd::kExtents, true, 128},
                                           Kind{"Rows", SlabBackEnd::kBlobFiles, false, 128},
                                           Kind{"DurableRows", SlabBackEnd::kBlobFiles, true, 128},
                                           Kind{"Small", SlabBackEnd::kExtents, false, 8},
                                           Kind{"DurableSmall", SlabBackEnd::kExtents, true, 8}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace epic::kv_store
