// For each cause of a miss: the verdict that a reader's miss agrees with, and a sentence that says what
// helps.
#include "services/kv_store/core/node/explanation.h"

#include <set>

#include "services/kv_store/core/node/store_node_fixture.h"
#include "services/kv_store/testing/faulty_table_store.h"

namespace epic::kv_store {
namespace {

using ::testing::HasSubstr;

class ExplanationTest : public StoreNodeFixture {
 protected:
  // Over tables that fail on purpose.
  void OpenFaulty(uint64_t memory_bytes, uint64_t disk_bytes = 64 << 20) {
    node_.reset();
    store_.reset();
    auto store = StoreCore::Open(
        std::make_unique<FaultyTableStore>(std::make_unique<MemoryTableStore>(disk_), faults_),
        {.memory_bytes = memory_bytes, .disk_bytes_max = disk_bytes, .clock = &clock_, .writer = {}});
    ASSERT_OK(store);
    store_ = *std::move(store);
    OpenNode();
  }
  Explanation Explain(const ObjectKey& key) {
    return node_->Explain({.tenant = kTenant, .key = key}, layout_);
  }
  std::string Sentence(const ObjectKey& key) { return SentenceOf(Explain(key), clock_.UnixMs()); }
  // What lies on disk only.
  ObjectKey OnDiskOnly(uint64_t seed) {
    const ObjectKey key = Create(seed);
    PutWhole(key, seed);
    store_->DrainWrites();
    OpenFaulty(kMemoryBytes);
    return key;
  }

  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>(1);
};

TEST_F(ExplanationTest, WhatNobodyWroteAndWhoWritesIt) {
  const ObjectKey unknown{CacheId::Of(kTenant, {}, TokensOf(5, kTokens)), {}};
  EXPECT_EQ(Explain(unknown).verdict, Verdict::kNoContext);
  EXPECT_THAT(Sentence(unknown), HasSubstr("create it"));
  const ObjectKey key = Create(1);
  EXPECT_EQ(Explain(key).verdict, Verdict::kNeverStored);
  EXPECT_THAT(Sentence(key), HasSubstr("compile it again"));
  const ReserveResult reserved = Reserve(key, "worker-3");
  ASSERT_OK(Send(reserved.token, 0, 1));
  clock_.AdvanceMs(2000);
  const Explanation busy = Explain(key);
  ASSERT_TRUE(busy.writing.has_value());
  EXPECT_EQ(busy.writing->source, "worker-3");
  EXPECT_EQ(busy.writing->age_ms, 2000);
  EXPECT_EQ(busy.writing->layers_finished, 1u);
  EXPECT_THAT(Sentence(key), HasSubstr("worker-3 has been writing it for 2000 ms, 1 of 2 layers arrived"));
  clock_.AdvanceMs(30'000);
  EXPECT_FALSE(Explain(key).writing.has_value()) << "it was preempted";
}

TEST_F(ExplanationTest, WhatIsThereAndWhatKeepsIt) {
  const ObjectKey key = Create(1);
  PutWhole(key, 7);
  store_->DrainWrites();
  EXPECT_EQ(Explain(key).verdict, Verdict::kInMemory);
  EXPECT_FALSE(Explain(key).held);
  const LeaseId lease = Acquire(key).lease;
  Acquire(key);
  const Explanation leased = Explain(key);
  EXPECT_EQ(leased.leases, 2u);
  EXPECT_TRUE(leased.held);
  EXPECT_THAT(Sentence(key), HasSubstr("in memory and on disk"));
  EXPECT_THAT(Sentence(key), HasSubstr("2 leases keep it in memory"));
  Confirm(lease, /*release=*/true);
  EXPECT_EQ(Explain(key).leases, 1u);
}

TEST_F(ExplanationTest, AnotherLayoutNamesBoth) {
  const ObjectKey key = Create(1);
  PutWhole(key, 7);
  KvLayout other = layout_;
  other.first_position = 4;
  const Explanation e = node_->Explain({.tenant = kTenant, .key = key}, other);
  EXPECT_EQ(e.verdict, Verdict::kLayoutMismatch);
  EXPECT_EQ(e.tiers.layout, layout_);
  const std::string sentence = SentenceOf(e, clock_.UnixMs());
  EXPECT_THAT(sentence, HasSubstr("from position 0"));
  EXPECT_THAT(sentence, HasSubstr("from position 4"));
  EXPECT_EQ(node_->Explain({.tenant = kTenant, .key = key}, std::nullopt).verdict, Verdict::kInMemory);
}

TEST_F(ExplanationTest, WhatIsGoneSaysWhyAndWhen) {
  const ObjectKey dropped = Create(1);
  PutWhole(dropped, 1);
  ASSERT_OK(store_->DropObject(kTenant, dropped));
  clock_.AdvanceMs(90'000);
  EXPECT_EQ(Explain(dropped).verdict, Verdict::kDropped);
  EXPECT_EQ(Explain(dropped).gone_at_ms, clock_.UnixMs() - 90'000);
  EXPECT_THAT(Sentence(dropped), HasSubstr("deleted 90 s ago"));
  const ObjectKey deleted = Create(2);
  ASSERT_OK(store_->DeleteContext(kTenant, deleted.id));
  EXPECT_EQ(Explain(deleted).verdict, Verdict::kContextDeleted);
  const ObjectKey expired = Create(3);
  ASSERT_OK(store_->UpdateContext(kTenant, expired.id, {.ttl_seconds = int64_t{5}}));
  clock_.AdvanceMs(5000);
  EXPECT_EQ(Explain(expired).verdict, Verdict::kContextExpired);
  store_->Housekeep();
  EXPECT_EQ(Explain(expired).verdict, Verdict::kContextExpired) << "also once its tombstone is written";
}

TEST_F(ExplanationTest, AnEvictedObjectSaysWhen) {
  OpenFaulty(SlabFootprint(layout_), /*disk_bytes=*/0);
  const ObjectKey key = Create(1);
  PutWhole(key, 1);
  PutWhole(Create(2), 2);
  clock_.AdvanceMs(1000);
  EXPECT_EQ(Explain(key).verdict, Verdict::kEvicted);
  EXPECT_THAT(Sentence(key), HasSubstr("evicted from memory and disk 1000 ms ago"));
  EXPECT_EQ(Acquire(key).cause, MissCause::kEvicted);
}

TEST_F(ExplanationTest, WhatIsOnDiskFitsOrNot) {
  const ObjectKey key = OnDiskOnly(1);
  OpenFaulty(SlabFootprint(layout_));
  EXPECT_EQ(Explain(key).verdict, Verdict::kOnDisk);
  EXPECT_THAT(Sentence(key), HasSubstr("read to memory"));
  const ObjectKey other = Create(2);
  PutWhole(other, 2);
  store_->DrainWrites();
  EXPECT_EQ(Explain(key).verdict, Verdict::kOnDisk) << "the other one may be evicted";
  const LeaseId lease = Acquire(other).lease;
  EXPECT_EQ(Explain(key).verdict, Verdict::kNoMemory);
  EXPECT_THAT(Sentence(key), HasSubstr("raise the store's memory"));
  EXPECT_EQ(Acquire(key).cause, MissCause::kNoMemory);
  Confirm(lease, /*release=*/true);
  EXPECT_EQ(Acquire(key).outcome, AcquireOutcome::kLeased);
}

TEST_F(ExplanationTest, DamageAndAFailingDiskAreToldApart) {
  const ObjectKey damaged = OnDiskOnly(1);
  faults_->Set({.bit_flip = 100});
  const MissCause cause = Acquire(damaged).cause;
  faults_->Set({});
  EXPECT_EQ(cause, MissCause::kChecksum);
  EXPECT_EQ(Explain(damaged).verdict, Verdict::kChecksum);
  const ObjectKey unread = OnDiskOnly(2);
  faults_->Set({.read_error = 100});
  EXPECT_EQ(Acquire(unread).cause, MissCause::kIoError);
  faults_->Set({});
  EXPECT_EQ(Explain(unread).verdict, Verdict::kIoError);
  EXPECT_THAT(Sentence(unread), HasSubstr("the disk did not give it back"));
}

TEST_F(ExplanationTest, EveryVerdictHasANameAndASentenceOfItsOwn) {
  std::set<std::string_view> names;
  std::set<std::string> sentences;
  for (uint8_t verdict = 0; verdict <= static_cast<uint8_t>(Verdict::kNoMemory); ++verdict) {
    Explanation e;
    e.verdict = static_cast<Verdict>(verdict);
    e.tiers.in_memory = e.verdict == Verdict::kInMemory;
    e.tiers.on_disk = e.verdict == Verdict::kOnDisk;
    names.insert(NameOf(e.verdict));
    sentences.insert(SentenceOf(e, 0));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(Verdict::kNoMemory) + 1);
  EXPECT_EQ(sentences.size(), names.size());
}

}  // namespace
}  // namespace epic::kv_store
