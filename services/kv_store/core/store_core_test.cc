// StoreCore over a disk in memory: records, objects, leases, memory and restart, case by case.
#include "services/kv_store/core/store_core.h"

#include <gtest/gtest.h>

#include "common/base/bytes.h"
#include "common/base/crc32c.h"
#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/rows.h"
#include "services/kv_store/testing/faulty_table_store.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr std::string_view kTenant = "default";

class StoreCoreTest : public ::testing::Test {
 protected:
  void Open(uint64_t memory_bytes = 1 << 20, uint64_t disk_bytes = 16 << 20) {
    store_.reset();
    auto store = StoreCore::Open(
        std::make_unique<MemoryTableStore>(disk_),
        {.memory_bytes = memory_bytes, .disk_bytes_max = disk_bytes, .clock = &clock_, .writer = {}});
    ASSERT_OK(store);
    store_ = *std::move(store);
  }
  void SetUp() override { Open(); }

  ContextRecord Create(uint64_t seed, uint32_t tokens = 8) {
    const auto result = store_->CreateContext(ContextOf(seed, tokens));
    EXPECT_OK(result);
    return result->record;
  }
  AcquireResult Acquire(const CacheId& id, const KvLayout& layout) {
    const auto result = store_->Acquire(kTenant, {id, {}}, layout);
    EXPECT_OK(result);
    return *result;
  }

  ManualClock clock_;
  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  std::unique_ptr<StoreCore> store_;
};

TEST_F(StoreCoreTest, CreatesOnceAndFindsAgain) {
  const auto first = store_->CreateContext(ContextOf(1));
  ASSERT_OK(first);
  EXPECT_TRUE(first->created);
  EXPECT_EQ(first->record.token_count, 8u);
  EXPECT_EQ(first->record.state, ContextState::kCompiling);
  const auto second = store_->CreateContext(ContextOf(1));
  ASSERT_OK(second);
  EXPECT_FALSE(second->created);
  EXPECT_EQ(second->record.id, first->record.id);
  ASSERT_OK_AND_ASSIGN(const auto tokens, store_->GetTokens(kTenant, first->record.id));
  EXPECT_EQ(tokens, TokensOf(1, 8));
}

TEST_F(StoreCoreTest, TokenIdsThatTheTablesCannotReadAreWrittenAgainByTheNextCreate) {
  const auto faults = std::make_shared<Faults>(1);
  auto tables = std::make_unique<FaultyTableStore>(std::make_unique<MemoryTableStore>(disk_), faults);
  ASSERT_OK_AND_ASSIGN(const auto store,
                       StoreCore::Open(std::move(tables), {.clock = &clock_, .writer = {}}));
  ASSERT_OK_AND_ASSIGN(const CreateResult created, store->CreateContext(ContextOf(1)));
  faults->Set({.damaged_row = 100});
  EXPECT_EQ(CodeOf(store->GetTokens(kTenant, created.record.id).status()), ErrorCode::kContextObjectMissing);
  ASSERT_OK_AND_ASSIGN(const CreateResult again, store->CreateContext(ContextOf(1)));
  EXPECT_FALSE(again.created);
  faults->Set({.read_error = 100});
  EXPECT_FALSE(store->CreateContext(ContextOf(1)).ok()) << "a disk that is gone for a moment is no damage";
  faults->Set({});
  ASSERT_OK_AND_ASSIGN(const auto tokens, store->GetTokens(kTenant, created.record.id));
  EXPECT_EQ(tokens, TokensOf(1, 8));
}

TEST_F(StoreCoreTest, AnotherTenantSeesNothing) {
  const CacheId id = Create(1).id;
  const KvLayout layout = LayoutOf(8);
  ASSERT_OK(PutObject(store_.get(), kTenant, {id, {}}, layout, 1));
  EXPECT_EQ(CodeOf(store_->GetContext("other", id).status()), ErrorCode::kContextNotFound);
  EXPECT_EQ(CodeOf(store_->GetTokens("other", id).status()), ErrorCode::kContextNotFound);
  ASSERT_OK_AND_ASSIGN(const AcquireResult miss, store_->Acquire("other", {id, {}}, layout));
  EXPECT_EQ(miss.object, nullptr);
  ASSERT_OK_AND_ASSIGN(const bool deleted, store_->DeleteContext("other", id));
  EXPECT_FALSE(deleted);
  EXPECT_OK(store_->GetContext(kTenant, id));
}

TEST_F(StoreCoreTest, ObjectIsInvisibleUntilCommitAndExactAfter) {
  const CacheId id = Create(1).id;
  const KvLayout layout = LayoutOf(8);
  ASSERT_OK_AND_ASSIGN(const auto writer, store_->Reserve(kTenant, {id, {}}, layout));
  EXPECT_EQ(store_->Usage().reservations, 1u);
  ASSERT_OK(writer->WriteLayer(1, AsBytes(SlabOf(layout, 1, 7))));
  EXPECT_THAT(writer->Commit(), epic::testing::StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_FALSE(writer->WriteLayer(1, AsBytes(SlabOf(layout, 1, 7))).ok()) << "each layer once";
  EXPECT_EQ(Acquire(id, layout).object, nullptr);
  ASSERT_OK(writer->WriteLayer(0, AsBytes(SlabOf(layout, 0, 7))));
  ASSERT_OK_AND_ASSIGN(const auto object, writer->Commit());
  EXPECT_TRUE(Holds(*object, 7));
  EXPECT_EQ(Acquire(id, layout).object, object);
  ASSERT_OK_AND_ASSIGN(const auto again, writer->Commit());
  EXPECT_EQ(again, object);
  EXPECT_EQ(store_->Usage().reservations, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(object->Layer(1).data()) % 64, 0u);
}

TEST_F(StoreCoreTest, ACommitThatIsSaidAgainBringsNothingBack) {
  const CacheId id = Create(1).id;
  const KvLayout layout = LayoutOf(8);
  ASSERT_OK_AND_ASSIGN(const auto writer, store_->Reserve(kTenant, {id, {}}, layout));
  for (uint32_t layer = 0; layer < layout.layers; ++layer) {
    ASSERT_OK(writer->WriteLayer(layer, AsBytes(SlabOf(layout, layer, 7))));
  }
  ASSERT_OK(writer->Commit());
  ASSERT_OK(store_->DropObject(kTenant, {id, {}}));
  ASSERT_OK(writer->Commit());
  EXPECT_EQ(Acquire(id, layout).object, nullptr) << "dropped";
  ASSERT_OK(store_->DeleteContext(kTenant, id));
  Create(1);
  ASSERT_OK(writer->Commit());
  EXPECT_EQ(Acquire(id, layout).object, nullptr) << "an object of before the deletion";
}

TEST_F(StoreCoreTest, ObjectsSurviveARestart) {
  const CacheId id = Create(1).id;
  const KvLayout layout = LayoutOf(8);
  ASSERT_OK(PutObject(store_.get(), kTenant, {id, {}}, layout, 7));
  Open();
  const AcquireResult hit = Acquire(id, layout);
  ASSERT_NE(hit.object, nullptr) << static_cast<int>(hit.cause);
  EXPECT_TRUE(Holds(*hit.object, 7));
  ASSERT_OK_AND_ASSIGN(const ContextRecord record, store_->GetContext(kTenant, id));
  EXPECT_EQ(record.variants.size(), 1u);
  EXPECT_EQ(record.bytes, layout.TotalBytes());
}

TEST_F(StoreCoreTest, ExistsSaysWhatAcquireWouldFind) {
  NewContext context = ContextOf(1);
  context.ttl_seconds = 10;
  ASSERT_OK_AND_ASSIGN(const CreateResult created, store_->CreateContext(context));
  const ObjectKey key{created.record.id, {}};
  EXPECT_FALSE(store_->Exists(kTenant, key));
  ASSERT_OK(PutObject(store_.get(), kTenant, key, LayoutOf(8), 7));
  EXPECT_TRUE(store_->Exists(kTenant, key));
  EXPECT_FALSE(store_->Exists("other", key));
  EXPECT_FALSE(store_->Exists(kTenant, {key.id, {.prefix = CompilePrefixKind::kBos, .prefix_tokens = {}}}));
  Open();
  EXPECT_TRUE(store_->Exists(kTenant, key)) << "on disk";
  clock_.AdvanceMs(10'000);
  EXPECT_FALSE(store_->Exists(kTenant, key)) << "expired";
}

TEST_F(StoreCoreTest, PinsConcernObjectsOfBeforeAndAfterAndOutliveARestart) {
  const CacheId before = Create(1).id;
  ASSERT_OK(PutObject(store_.get(), kTenant, {before, {}}, LayoutOf(8), 1));
  ASSERT_OK(store_->UpdateContext(kTenant, before, {.pin = Pin::kHard}));
  NewContext pinned = ContextOf(2);
  pinned.pin = Pin::kSoft;
  ASSERT_OK_AND_ASSIGN(const CreateResult after, store_->CreateContext(pinned));
  ASSERT_OK(PutObject(store_.get(), kTenant, {after.record.id, {}}, LayoutOf(8), 2));
  store_->DrainWrites();
  EXPECT_EQ(store_->Explain(kTenant, {before, {}}).memory->pin, Pin::kHard);
  EXPECT_EQ(store_->Explain(kTenant, {after.record.id, {}}).memory->pin, Pin::kSoft);
  EXPECT_EQ(store_->Explain(kTenant, {after.record.id, {}}).disk->pin, Pin::kSoft);
  Open();
  EXPECT_EQ(store_->Explain(kTenant, {before, {}}).disk->pin, Pin::kHard);
  EXPECT_EQ(store_->Explain(kTenant, {after.record.id, {}}).disk->pin, Pin::kSoft);
  EXPECT_NE(Acquire(before, LayoutOf(8)).object, nullptr);
  EXPECT_EQ(store_->Explain(kTenant, {before, {}}).memory->pin, Pin::kHard);
}

TEST_F(StoreCoreTest, LayoutOfTheSameSizeIsAMiss) {
  const CacheId id = Create(1).id;
  ASSERT_OK(PutObject(store_.get(), kTenant, {id, {}}, LayoutOf(8, 2, 2, 8), 7));
  const AcquireResult miss = Acquire(id, LayoutOf(8, 2, 4, 4));
  EXPECT_EQ(miss.object, nullptr);
  EXPECT_EQ(miss.cause, MissCause::kLayoutMismatch);
}

TEST_F(StoreCoreTest, DeletedWhileLeasedStaysReadable) {
  const CacheId id = Create(1).id;
  const KvLayout layout = LayoutOf(8);
  ASSERT_OK_AND_ASSIGN(const auto object, PutObject(store_.get(), kTenant, {id, {}}, layout, 7));
  ASSERT_OK_AND_ASSIGN(const bool existed, store_->DeleteContext(kTenant, id));
  EXPECT_TRUE(existed);
  EXPECT_TRUE(Holds(*object, 7));
  EXPECT_EQ(store_->Usage().leased_objects, 1u);
  const AcquireResult miss = Acquire(id, layout);
  EXPECT_EQ(miss.object, nullptr);
  EXPECT_EQ(miss.cause, MissCause::kDeleted);
  EXPECT_EQ(CodeOf(store_->GetContext(kTenant, id).status()), ErrorCode::kContextDeleted);
}

TEST_F(StoreCoreTest, EveryVariantOfAContextIsListedAndGoesWithIt) {
  const CacheId id = Create(1).id;
  std::vector<std::pair<ObjectVariant, KvLayout>> objects;
  for (const auto prefix : {CompilePrefixKind::kNone, CompilePrefixKind::kSystem}) {
    for (const auto dtype : {KvDtype::kF32, KvDtype::kBf16}) {
      for (const auto compute : {ComputeFormat::kF32, ComputeFormat::kBf16}) {
        KvLayout layout = LayoutOf(8);
        layout.dtype = dtype;
        objects.push_back({{.prefix = prefix, .dtype = dtype, .compute = compute}, layout});
      }
    }
  }
  for (const auto& [variant, layout] : objects) {
    ASSERT_OK(PutObject(store_.get(), kTenant, {id, variant}, layout, 7));
  }
  store_->DrainWrites();
  const uint64_t stored = store_->Usage().disk_bytes;
  EXPECT_EQ(store_->GetContext(kTenant, id)->variants.size(), objects.size());
  ASSERT_OK(store_->DeleteContext(kTenant, id));
  EXPECT_EQ(store_->Usage().objects_in_memory, 0u);
  EXPECT_LT(store_->Usage().disk_bytes, stored / 10);
  Create(1);
  for (const auto& [variant, layout] : objects) {
    ASSERT_OK_AND_ASSIGN(const AcquireResult miss, store_->Acquire(kTenant, {id, variant}, layout));
    EXPECT_EQ(miss.object, nullptr);
  }
}

TEST_F(StoreCoreTest, CommitAfterDeleteIsNotFound) {
  const CacheId id = Create(1).id;
  const KvLayout layout = LayoutOf(8, 1);
  ASSERT_OK_AND_ASSIGN(const auto writer, store_->Reserve(kTenant, {id, {}}, layout));
  ASSERT_OK(writer->WriteLayer(0, AsBytes(SlabOf(layout, 0, 7))));
  ASSERT_OK(store_->DeleteContext(kTenant, id));
  EXPECT_THAT(writer->Commit(), epic::testing::StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(StoreCoreTest, MemoryBudgetHoldsAndLeasedObjectsStay) {
  Open(/*memory_bytes=*/8 * 4096, /*disk_bytes=*/16 << 20);
  const KvLayout layout = LayoutOf(8);  // one page each
  const CacheId leased_id = Create(1000).id;
  ASSERT_OK_AND_ASSIGN(const auto leased, PutObject(store_.get(), kTenant, {leased_id, {}}, layout, 1000));
  std::vector<CacheId> ids;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    ids.push_back(Create(seed).id);
    ASSERT_OK(PutObject(store_.get(), kTenant, {ids.back(), {}}, layout, seed));
    EXPECT_LE(store_->Usage().memory_bytes, 8u * 4096);
  }
  EXPECT_EQ(Acquire(leased_id, layout).object, leased);
  store_->DrainWrites();
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const AcquireResult hit = Acquire(ids[seed], layout);
    ASSERT_NE(hit.object, nullptr) << seed << " cause " << static_cast<int>(hit.cause);
    EXPECT_TRUE(Holds(*hit.object, seed));
  }
}

TEST_F(StoreCoreTest, AnObjectMayLieInTheGapsBetweenLeasedOnes) {
  Open(/*memory_bytes=*/8 * 4096, /*disk_bytes=*/16 << 20);
  EXPECT_EQ(store_->Usage().memory_largest_hole_bytes, 8u * 4096);
  std::vector<std::shared_ptr<const KvObject>> leases;
  for (uint64_t seed = 0; seed < 8; ++seed) {  // one page each
    ASSERT_OK_AND_ASSIGN(auto object,
                         PutObject(store_.get(), kTenant, {Create(seed).id, {}}, LayoutOf(8), seed));
    if (seed % 3 == 0) leases.push_back(std::move(object));
  }
  EXPECT_EQ(store_->Usage().memory_largest_hole_bytes, 0u);
  store_->DrainWrites();
  const KvLayout layout =
      LayoutOf(8, /*layers=*/5, /*kv_heads=*/2, /*head_dim=*/64);  // a page for each layer
  const CacheId a = Create(100).id, b = Create(101).id;
  ASSERT_OK(PutObject(store_.get(), kTenant, {a, {}}, layout, 100));
  EXPECT_TRUE(Holds(*Acquire(a, layout).object, 100));
  ASSERT_OK(PutObject(store_.get(), kTenant, {b, {}}, layout, 101));
  EXPECT_TRUE(Holds(*Acquire(b, layout).object, 101));
  store_->DrainWrites();
  const AcquireResult from_disk = Acquire(a, layout);
  ASSERT_NE(from_disk.object, nullptr) << static_cast<int>(from_disk.cause);
  EXPECT_TRUE(Holds(*from_disk.object, 100));
  for (size_t lease = 0; lease < leases.size(); ++lease) EXPECT_TRUE(Holds(*leases[lease], 3 * lease));
}

TEST_F(StoreCoreTest, AllLeasedMeansStorageFullOrNoMemory) {
  Open(/*memory_bytes=*/2 * 4096, /*disk_bytes=*/16 << 20);
  const KvLayout layout = LayoutOf(8);
  const CacheId a = Create(1).id, b = Create(2).id, c = Create(3).id;
  ASSERT_OK(PutObject(store_.get(), kTenant, {c, {}}, layout, 3));
  store_->DrainWrites();
  ASSERT_OK_AND_ASSIGN(auto first, PutObject(store_.get(), kTenant, {a, {}}, layout, 1));
  ASSERT_OK_AND_ASSIGN(const auto second, PutObject(store_.get(), kTenant, {b, {}}, layout, 2));
  EXPECT_EQ(CodeOf(store_->Reserve(kTenant, {c, {}}, layout).status()), ErrorCode::kStorageFull);
  EXPECT_EQ(Acquire(c, layout).cause, MissCause::kNoMemory);
  first.reset();
  EXPECT_NE(Acquire(c, layout).object, nullptr);
  EXPECT_EQ(CodeOf(store_->Reserve(kTenant, {c, {}}, LayoutOf(8, 64, 8, 64)).status()),
            ErrorCode::kStorageFull);
}

TEST_F(StoreCoreTest, HardPinnedObjectsAreEvictedFromNowhere) {
  Open(/*memory_bytes=*/4 * 4096, /*disk_bytes=*/6 * 4096);
  NewContext pinned = ContextOf(99);
  pinned.pin = Pin::kHard;
  ASSERT_OK_AND_ASSIGN(const CreateResult created, store_->CreateContext(pinned));
  const KvLayout layout = LayoutOf(8);
  ASSERT_OK(PutObject(store_.get(), kTenant, {created.record.id, {}}, layout, 99));
  for (uint64_t seed = 0; seed < 40; ++seed) {
    ASSERT_OK(PutObject(store_.get(), kTenant, {Create(seed).id, {}}, layout, seed));
  }
  store_->DrainWrites();
  const AcquireResult hit = Acquire(created.record.id, layout);
  ASSERT_NE(hit.object, nullptr);
  EXPECT_TRUE(Holds(*hit.object, 99));
  EXPECT_LE(store_->Usage().disk_bytes, 16u * 4096);
}

TEST_F(StoreCoreTest, ATenantKeepsToItsQuotaInMemoryAndOnDisk) {
  const KvLayout layout = LayoutOf(8);  // one page in memory
  store_.reset();
  ASSERT_OK_AND_ASSIGN(
      store_, StoreCore::Open(
                  std::make_unique<MemoryTableStore>(disk_),
                  {.memory_bytes = 1 << 20,
                   .disk_bytes_max = 16 << 20,
                   .quotas = {{"small", {.memory_bytes = 2 * 4096, .disk_bytes = 4 * ObjectBytes(layout)}}},
                   .clock = &clock_,
                   .writer = {}}));
  std::vector<CacheId> ids;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Create(seed);
    ASSERT_OK(
        PutObject(store_.get(), kTenant, {CacheId::Of(kTenant, {}, TokensOf(seed, 8)), {}}, layout, seed));
    ASSERT_OK_AND_ASSIGN(const CreateResult own, store_->CreateContext(ContextOf(seed, 8, "small")));
    ids.push_back(own.record.id);
    ASSERT_OK(PutObject(store_.get(), "small", {ids.back(), {}}, layout, seed));
    store_->DrainWrites();
  }
  store_->Housekeep();
  uint64_t in_memory = 0, on_disk = 0;
  for (const CacheId& id : ids) {
    const ObjectStanding standing = store_->Explain("small", {id, {}});
    in_memory += standing.memory.has_value();
    on_disk += standing.disk.has_value();
    if (!standing.memory.has_value() && !standing.disk.has_value()) {
      EXPECT_EQ(standing.cause, MissCause::kEvicted);
    }
  }
  EXPECT_EQ(in_memory, 2u);
  EXPECT_EQ(on_disk, 4u);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const CacheId id = CacheId::Of(kTenant, {}, TokensOf(seed, 8));
    EXPECT_TRUE(store_->Explain(kTenant, {id, {}}).memory.has_value()) << "others are not touched";
  }
}

TEST_F(StoreCoreTest, MemoryIsFreedInBatchesDownToTheLowMark) {
  store_.reset();
  ASSERT_OK_AND_ASSIGN(store_, StoreCore::Open(std::make_unique<MemoryTableStore>(disk_),
                                               {.memory_bytes = 10 * 4096,
                                                .disk_bytes_max = 16 << 20,
                                                .watermarks = {.high = 1.0, .low = 0.5},
                                                .clock = &clock_,
                                                .writer = {}}));
  const KvLayout layout = LayoutOf(8);
  for (uint64_t seed = 0; seed < 11; ++seed) {
    ASSERT_OK(PutObject(store_.get(), kTenant, {Create(seed).id, {}}, layout, seed));
    store_->DrainWrites();
    EXPECT_EQ(store_->Usage().objects_in_memory, seed == 10 ? 5u : seed + 1);
  }
}

TEST_F(StoreCoreTest, DurabilityObjectWaitsForTheDisk) {
  NewContext context = ContextOf(5);
  context.durability = Durability::kObject;
  ASSERT_OK_AND_ASSIGN(const CreateResult created, store_->CreateContext(context));
  const KvLayout layout = LayoutOf(8);
  ASSERT_OK(PutObject(store_.get(), kTenant, {created.record.id, {}}, layout, 5));
  Rng rng(1);
  // No drain: what was committed is on disk already, also through the worst of crashes.
  store_->Stop();
  disk_->Crash(&rng);
  Open();
  const AcquireResult hit = Acquire(created.record.id, layout);
  ASSERT_NE(hit.object, nullptr);
  EXPECT_TRUE(Holds(*hit.object, 5));
}

TEST_F(StoreCoreTest, AListGoesOnAfterADeletedContextAlsoAfterARestart) {
  std::vector<CacheId> ids;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    ids.push_back(Create(seed).id);
    clock_.AdvanceMs(1);
  }
  ASSERT_OK(store_->DeleteContext(kTenant, ids[1]));
  for (int life = 0; life < 2; ++life) {
    ASSERT_OK_AND_ASSIGN(const ContextPage page, store_->ListContexts(kTenant, {.after = ids[1]}));
    ASSERT_EQ(page.records.size(), 1u);
    EXPECT_EQ(page.records[0].id, ids[0]);
    Open();
  }
}

TEST_F(StoreCoreTest, TombstonesOfEveryVersionAreRead) {
  const Tombstone now{.at = {1'700'000'000'123, 7},
                      .cause = RemovalCause::kExpired,
                      .deleted = {1'600'000'000'000, 1},
                      .expired_life = {1'600'000'000'001, 2},
                      .expired = {1'600'000'000'002, 3},
                      .created_at_ms = -5};
  ASSERT_OK_AND_ASSIGN(const Tombstone back, DecodeTombstone(AsBytes(EncodeTombstone(now))));
  EXPECT_EQ(back, now);
  const std::string first = std::string("ETB1\x01\0\0\0\x7b\x68\xe5\xcf\x8b\x01\0\0\x07\0\0\0\x01", 21);
  std::string row = first;
  AppendLittle<uint32_t>(&row, Crc32c(0, AsBytes(row)));
  ASSERT_OK_AND_ASSIGN(const Tombstone old, DecodeTombstone(AsBytes(row)));
  Tombstone expected{.at = now.at, .cause = now.cause, .expired_life = now.at, .created_at_ms = std::nullopt};
  EXPECT_EQ(old, expected);
  std::string second = first;
  second[4] = 2;
  AppendLittle<int64_t>(&second, -5);
  AppendLittle<uint32_t>(&second, Crc32c(0, AsBytes(second)));
  ASSERT_OK_AND_ASSIGN(const Tombstone older, DecodeTombstone(AsBytes(second)));
  expected.created_at_ms = -5;
  EXPECT_EQ(older, expected);
  row[4] = 4;
  EXPECT_EQ(DecodeTombstone(AsBytes(row)).status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(StoreCoreTest, WhatAnotherNodeKnowsIsCheckedBeforeItCounts) {
  const NewContext context = ContextOf(7), other = ContextOf(8);
  auto there = MakeMemoryKvStore(1 << 20, &clock_);
  ASSERT_OK_AND_ASSIGN(const CreateResult made, there->CreateContext(context));
  const ContextKey key{context.tenant, made.record.id};
  ContextRecord record = made.record;
  record.variants.clear();
  const auto join = [&](const ContextRecord& joined, const std::vector<TokenId>* tokens) {
    return store_->JoinContext(key, {.record = joined, .tombstone = std::nullopt}, tokens).code();
  };
  EXPECT_EQ(join(record, nullptr), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(join(record, &other.tokens), absl::StatusCode::kInvalidArgument);
  ContextRecord foreign = record;
  foreign.tenant = "another";
  EXPECT_EQ(join(foreign, &context.tokens), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->StateOf(key), std::nullopt);
  EXPECT_EQ(join(record, &context.tokens), absl::StatusCode::kOk);
  EXPECT_EQ(join(record, nullptr), absl::StatusCode::kOk);  // known by now
  Open();
  ASSERT_OK_AND_ASSIGN(const std::vector<TokenId> tokens, store_->GetTokens(key.tenant, key.id));
  EXPECT_EQ(tokens, context.tokens);
}

TEST_F(StoreCoreTest, TombstonesLiveSevenDays) {
  const CacheId id = Create(1).id;
  ASSERT_OK(store_->DeleteContext(kTenant, id));
  clock_.AdvanceMs(kTombstoneLifeMs - 1);
  store_->Housekeep();
  Open();
  EXPECT_EQ(CodeOf(store_->GetContext(kTenant, id).status()), ErrorCode::kContextDeleted);
  clock_.AdvanceMs(1);
  store_->Housekeep();
  EXPECT_EQ(CodeOf(store_->GetContext(kTenant, id).status()), ErrorCode::kContextNotFound);
  Open();
  EXPECT_EQ(CodeOf(store_->GetContext(kTenant, id).status()), ErrorCode::kContextNotFound);
}

TEST_F(StoreCoreTest, UsesAreCountedAndOutliveAnOrderlyStop) {
  const CacheId id = Create(1).id;
  clock_.AdvanceMs(5000);
  store_->Touch(kTenant, id);
  store_->Touch(kTenant, id);
  Open();
  ASSERT_OK_AND_ASSIGN(const ContextRecord record, store_->GetContext(kTenant, id));
  EXPECT_EQ(record.hits, 2u);
  EXPECT_EQ(record.last_used_at_ms, clock_.UnixMs());
}

TEST_F(StoreCoreTest, DropObjectForgetsBothCopies) {
  const CacheId id = Create(1).id;
  const KvLayout layout = LayoutOf(8);
  ASSERT_OK(PutObject(store_.get(), kTenant, {id, {}}, layout, 7));
  store_->DrainWrites();
  ASSERT_OK(store_->DropObject(kTenant, {id, {}}));
  ASSERT_OK(store_->DropObject(kTenant, {id, {}}));
  EXPECT_EQ(Acquire(id, layout).cause, MissCause::kDeleted);
  Open();
  EXPECT_EQ(Acquire(id, layout).object, nullptr);
}

TEST_F(StoreCoreTest, TheStoreTellsWhatItsDiskRefused) {
  store_.reset();
  const auto faults = std::make_shared<Faults>(1);
  ASSERT_OK_AND_ASSIGN(
      store_,
      StoreCore::Open(std::make_unique<FaultyTableStore>(std::make_unique<MemoryTableStore>(disk_), faults),
                      {.memory_bytes = 1 << 20, .disk_bytes_max = 16 << 20, .clock = &clock_, .writer = {}}));
  const KvLayout layout = LayoutOf(8);
  const CacheId id = Create(1).id;
  EXPECT_EQ(store_->Disk().errors, 0u);

  clock_.AdvanceMs(1000);
  faults->Set({.read_error = 100});
  EXPECT_FALSE(store_->GetTokens(kTenant, id).ok());
  faults->Set({});
  EXPECT_EQ(store_->Disk().errors, 1u);
  EXPECT_EQ(store_->Disk().last_error_steady_ns, clock_.SteadyNs());
  EXPECT_FALSE(store_->Disk().full);

  faults->Set({.disk_full = 100});
  EXPECT_FALSE(store_->CreateContext(ContextOf(2)).ok());
  EXPECT_TRUE(store_->Disk().full);
  EXPECT_EQ(store_->Disk().errors, 2u);
  faults->Set({});
  Create(3);
  EXPECT_FALSE(store_->Disk().full) << "a row was written";

  faults->Set({.disk_full = 100});
  ASSERT_OK(PutObject(store_.get(), kTenant, {id, {}}, layout, 1));
  store_->DrainWrites();
  faults->Set({});
  EXPECT_TRUE(store_->Disk().full);
  EXPECT_GT(store_->Disk().errors, 2u);
  Create(4);
  EXPECT_TRUE(store_->Disk().full) << "a row fits where an object did not";
  ASSERT_OK(PutObject(store_.get(), kTenant, {Create(5).id, {}}, layout, 1));
  store_->DrainWrites();
  EXPECT_FALSE(store_->Disk().full);
}

}  // namespace
}  // namespace epic::kv_store
