// What a node promises to remote writers and readers, case by case; random ones are in
// store_node_model_test.cc.
#include "services/kv_store/core/node/store_node.h"

#include <set>
#include <thread>

#include "common/status/error.h"
#include "services/kv_store/core/node/store_node_fixture.h"

namespace epic::kv_store {
namespace {

constexpr int64_t kTimeoutMs = 30'000;

class StoreNodeTest : public StoreNodeFixture {};

TEST_F(StoreNodeTest, AnObjectIsVisibleFromItsCommitOn) {
  const ObjectKey key = Create(1);
  const ReserveResult reserved = Reserve(key);
  ASSERT_EQ(reserved.outcome, ReserveOutcome::kReserved);
  EXPECT_EQ(reserved.heartbeat_ms, 10'000);
  ASSERT_OK(SendAll(reserved.token, 7));
  EXPECT_FALSE(Exists(key).any());
  EXPECT_EQ(Acquire(key).outcome, AcquireOutcome::kMiss);
  ASSERT_OK_AND_ASSIGN(const Committed committed, Commit(reserved.token, 7));
  EXPECT_TRUE(committed.own);
  EXPECT_EQ(committed.build, SentObject(layout_, 7).build);
  EXPECT_TRUE(Exists(key).in_memory);
  const LeaseResult lease = Acquire(key);
  ASSERT_EQ(lease.outcome, AcquireOutcome::kLeased);
  EXPECT_TRUE(Holds(*lease.object, 7));
  EXPECT_EQ(lease.generation, committed.generation);
  EXPECT_EQ(lease.duration_ms, 10'000);
  EXPECT_EQ(Reserve(key).outcome, ReserveOutcome::kExists);
}

TEST_F(StoreNodeTest, OfTwoWritersOneIsTold) {
  const ObjectKey key = Create(1);
  const ReserveResult first = Reserve(key, "worker a");
  clock_.AdvanceMs(2000);
  const ReserveResult second = Reserve(key, "worker b", 2);
  EXPECT_EQ(second.outcome, ReserveOutcome::kBusy);
  EXPECT_EQ(second.source, "worker a");
  EXPECT_EQ(second.age_ms, 2000);
  EXPECT_EQ(second.retry_after_ms, 1000);
  clock_.AdvanceMs(kTimeoutMs - 2000 - 300);
  EXPECT_EQ(Reserve(key, "worker b", 2).retry_after_ms, 300);
  ASSERT_OK(SendAll(first.token, 7));
  ASSERT_OK(Commit(first.token, 7));
  EXPECT_EQ(Reserve(key, "worker b", 2).outcome, ReserveOutcome::kExists);
}

TEST_F(StoreNodeTest, AReserveWhoseAnswerWasLostGetsTheSameTokenWhenItIsAskedAgain) {
  const ObjectKey key = Create(1);
  const ReserveResult lost = ReserveAs({1, 2}, key);
  ASSERT_EQ(lost.outcome, ReserveOutcome::kReserved);
  clock_.AdvanceMs(kTimeoutMs - 1);
  const ReserveResult again = ReserveAs({1, 2}, key);
  EXPECT_EQ(again.outcome, ReserveOutcome::kReserved);
  EXPECT_EQ(again.token, lost.token);
  EXPECT_EQ(again.heartbeat_ms, lost.heartbeat_ms);
  clock_.AdvanceMs(kTimeoutMs - 1);
  EXPECT_EQ(Heartbeat(again.token), TokenState::kAlive) << "it is a sign of life";
  EXPECT_EQ(ReserveAs({1, 3}, key).outcome, ReserveOutcome::kBusy) << "another request";
  EXPECT_EQ(Reserve(key).outcome, ReserveOutcome::kBusy) << "none";
  EXPECT_EQ(node_->reservation_counts().reserved, 1u);
  ASSERT_OK(Send(again.token, 0, 7));
  EXPECT_EQ(ReserveAs({1, 2}, key).token, lost.token) << "with what was written";
  ASSERT_OK(Send(again.token, 1, 7));
  ASSERT_OK(Commit(again.token, 7));
  // A repetition that comes late opens nothing that nobody would end.
  EXPECT_EQ(ReserveAs({1, 2}, key).token, lost.token);
  EXPECT_EQ(Heartbeat(lost.token), TokenState::kCommitted);
  ASSERT_OK(store_->DropObject(kTenant, key));
  EXPECT_EQ(ReserveAs({1, 2}, key).token, lost.token);
  EXPECT_EQ(store_->Usage().reservations, 0u);
  clock_.AdvanceMs(600'000);
  node_->Sweep();
  EXPECT_NE(ReserveAs({1, 2}, key).token, lost.token) << "forgotten";
}

TEST_F(StoreNodeTest, ARepeatedReserveThatCameTooLateIsToldThatItsTokenEnded) {
  const ObjectKey key = Create(1);
  const ReserveResult lost = ReserveAs({1, 2}, key);
  clock_.AdvanceMs(kTimeoutMs);
  EXPECT_EQ(ReserveAs({1, 2}, key).token, lost.token);
  EXPECT_EQ(CodeOf(Send(lost.token, 0, 1)), ErrorCode::kReservationEnded);
  EXPECT_EQ(ReserveAs({5, 6}, key).outcome, ReserveOutcome::kReserved) << "begun anew";
}

TEST_F(StoreNodeTest, ARequestIdStaysOfItsPeerKeyAndLayoutWhenItsTokenHasEnded) {
  const ObjectKey key = Create(1), other = Create(2);
  const ReserveResult committed = ReserveAs({1, 2}, key);
  ASSERT_OK(SendAll(committed.token, 1));
  ASSERT_OK(Commit(committed.token, 1));
  const ReserveResult aborted = ReserveAs({3, 4}, other);
  EXPECT_EQ(Abort(aborted.token), TokenState::kAborted);
  const ReserveResult preempted = ReserveAs({5, 6}, other);
  clock_.AdvanceMs(kTimeoutMs);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(CodeOf(ReserveAs({1, 2}, key, 2).status), ErrorCode::kInvalidRequest) << "another peer";
    EXPECT_EQ(CodeOf(ReserveAs({1, 2}, other).status), ErrorCode::kInvalidRequest);
    EXPECT_EQ(CodeOf(ReserveAs({3, 4}, key).status), ErrorCode::kInvalidRequest);
    EXPECT_EQ(CodeOf(ReserveAs({5, 6}, key).status), ErrorCode::kInvalidRequest);
    const std::vector<ReserveItem> items = {
        {.tenant = kTenant, .key = key, .layout = LayoutOf(kTokens, 3), .source = "", .request = {1, 2}}};
    EXPECT_EQ(CodeOf(node_->Reserve(1, items).front().status), ErrorCode::kInvalidRequest)
        << "another layout";
    EXPECT_EQ(ReserveAs({1, 2}, key).token, committed.token);
    EXPECT_EQ(ReserveAs({3, 4}, other).token, aborted.token);
    EXPECT_EQ(ReserveAs({5, 6}, other).token, preempted.token);
  }
  clock_.AdvanceMs(600'000);
  EXPECT_EQ(ReserveAs({1, 2}, other).outcome, ReserveOutcome::kReserved) << "forgotten, and free for others";
}

TEST_F(StoreNodeTest, ARequestIdIsOfOnePeerKeyAndLayout) {
  const ObjectKey key = Create(1), other = Create(2);
  const ReserveResult first = ReserveAs({1, 2}, key);
  EXPECT_EQ(CodeOf(ReserveAs({1, 2}, key, 2).status), ErrorCode::kInvalidRequest);
  EXPECT_EQ(CodeOf(ReserveAs({1, 2}, other).status), ErrorCode::kInvalidRequest);
  EXPECT_EQ(ReserveAs({1, 2}, key).token, first.token);
  // What was not reserved is not remembered.
  EXPECT_EQ(ReserveAs({3, 4}, {CacheId::Of(kTenant, {}, TokensOf(9, kTokens)), {}}).outcome,
            ReserveOutcome::kFailed);
  EXPECT_EQ(ReserveAs({3, 4}, other).outcome, ReserveOutcome::kReserved);
}

TEST_F(StoreNodeTest, RepetitionsAtATimeShareOneReservation) {
  const ObjectKey key = Create(1);
  for (uint64_t round = 1; round <= 50; ++round) {
    std::vector<ReserveResult> results(4);
    std::vector<std::thread> threads;
    for (ReserveResult& result : results) {
      threads.emplace_back([&] { result = ReserveAs({round, 1}, key); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const ReserveResult& result : results) {
      EXPECT_EQ(result.outcome, ReserveOutcome::kReserved);
      EXPECT_EQ(result.token, results[0].token);
    }
    EXPECT_EQ(Abort(results[0].token), TokenState::kAborted);
  }
  EXPECT_EQ(node_->reservation_counts().reserved, 50u);
}

TEST_F(StoreNodeTest, AWriterThatFallsSilentIsPreemptedByTheNextOneAtOnce) {
  const ObjectKey key = Create(1);
  const ReserveResult first = Reserve(key);
  clock_.AdvanceMs(20'000);
  EXPECT_EQ(Heartbeat(first.token), TokenState::kAlive);
  clock_.AdvanceMs(kTimeoutMs - 1);
  EXPECT_EQ(Reserve(key).outcome, ReserveOutcome::kBusy);
  clock_.AdvanceMs(1);
  const ReserveResult second = Reserve(key);
  ASSERT_EQ(second.outcome, ReserveOutcome::kReserved);
  EXPECT_EQ(Heartbeat(first.token), TokenState::kPreempted);
  EXPECT_EQ(CodeOf(Send(first.token, 0, 1)), ErrorCode::kReservationEnded);
  EXPECT_EQ(CodeOf(Commit(first.token, 1).status()), ErrorCode::kReservationEnded);
  EXPECT_EQ(Abort(first.token), TokenState::kPreempted);
  ASSERT_OK(SendAll(second.token, 2));
  ASSERT_OK(Commit(second.token, 2));
  EXPECT_TRUE(Holds(*Acquire(key).object, 2));
}

TEST_F(StoreNodeTest, LayersAreSignsOfLife) {
  const ObjectKey key = Create(1);
  const ReserveResult reserved = Reserve(key);
  for (uint32_t layer = 0; layer < layout_.layers; ++layer) {
    clock_.AdvanceMs(kTimeoutMs - 1);
    ASSERT_OK(Send(reserved.token, layer, 1));
  }
  clock_.AdvanceMs(kTimeoutMs - 1);
  EXPECT_OK(Commit(reserved.token, 1));
}

TEST_F(StoreNodeTest, ADeadWritersMemoryIsFreeWithinOneSweep) {
  const ObjectKey key = Create(1);
  ASSERT_EQ(Reserve(key).outcome, ReserveOutcome::kReserved);
  EXPECT_EQ(store_->Usage().reservations, 1u);
  EXPECT_GT(store_->Usage().memory_bytes, 0u);
  clock_.AdvanceMs(kTimeoutMs);
  node_->Sweep();
  EXPECT_EQ(store_->Usage().reservations, 0u);
  EXPECT_EQ(store_->Usage().memory_bytes, 0u);
  EXPECT_EQ(node_->reservation_counts().preempted, 1u);
}

TEST_F(StoreNodeTest, ACommitIsRepeatedWithTheSameAnswerAsLongAsItIsRemembered) {
  const ObjectKey key = Create(1);
  const ReserveResult reserved = Reserve(key);
  ASSERT_OK(SendAll(reserved.token, 7));
  ASSERT_OK_AND_ASSIGN(const Committed first, Commit(reserved.token, 7));
  ASSERT_OK(store_->DropObject(kTenant, key));
  clock_.AdvanceMs(599'999);
  ASSERT_OK_AND_ASSIGN(const Committed again, Commit(reserved.token, 7));
  EXPECT_EQ(again.build, first.build);
  EXPECT_EQ(again.generation, first.generation);
  EXPECT_EQ(Heartbeat(reserved.token), TokenState::kCommitted);
  EXPECT_EQ(Abort(reserved.token), TokenState::kCommitted);
  clock_.AdvanceMs(1);
  EXPECT_EQ(Heartbeat(reserved.token), TokenState::kUnknown);
  EXPECT_EQ(CodeOf(Commit(reserved.token, 7).status()), ErrorCode::kReservationEnded);
}

TEST_F(StoreNodeTest, RememberedOutcomesAreBounded) {
  OpenNode({.reservations = {.remembered_max = 2}, .leases = {}});
  std::vector<ReservationToken> tokens;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    tokens.push_back(Reserve(Create(seed)).token);
    EXPECT_EQ(Abort(tokens.back()), TokenState::kAborted);
  }
  EXPECT_EQ(Heartbeat(tokens[0]), TokenState::kUnknown);
  EXPECT_EQ(Abort(tokens[0]), TokenState::kUnknown);
  EXPECT_EQ(Abort(tokens[1]), TokenState::kAborted);
  EXPECT_EQ(Abort(tokens[2]), TokenState::kAborted);
}

TEST_F(StoreNodeTest, ACommitWantsAllLayersAndTheirDigest) {
  const ObjectKey key = Create(1);
  const ReserveResult reserved = Reserve(key);
  ASSERT_OK(Send(reserved.token, 0, 7));
  const absl::Status missing = Commit(reserved.token, 7).status();
  EXPECT_EQ(CodeOf(missing), ErrorCode::kReservationConflict);
  EXPECT_THAT(MessageOf(missing), ::testing::HasSubstr("layer 1 is missing"));
  {
    auto fill = node_->BeginLayer(reserved.token, 1);
    ASSERT_OK(fill);
    EXPECT_EQ(CodeOf(Commit(reserved.token, 7).status()), ErrorCode::kReservationConflict);
    EXPECT_EQ(CodeOf(Send(reserved.token, 1, 7)), ErrorCode::kReservationConflict) << "another call sends it";
  }
  ASSERT_OK(Send(reserved.token, 1, 7));
  EXPECT_EQ(CodeOf(Send(reserved.token, 1, 7)), ErrorCode::kReservationConflict);
  EXPECT_EQ(CodeOf(Send(reserved.token, 0, 7)), ErrorCode::kReservationConflict);
  EXPECT_EQ(CodeOf(Commit(reserved.token, 8).status()), ErrorCode::kReservationConflict);
  EXPECT_OK(Commit(reserved.token, 7)) << "the token is still good";
}

TEST_F(StoreNodeTest, ADamagedLayerIsSentAgain) {
  const ObjectKey key = Create(1);
  const ReserveResult reserved = Reserve(key);
  const SentObject sent(layout_, 7);
  auto fill = node_->BeginLayer(reserved.token, 0);
  ASSERT_OK(fill);
  std::memset(fill->bytes().data(), 0, fill->bytes().size());
  EXPECT_EQ(CodeOf(node_->FinishLayer(*std::move(fill), sent.crcs[0])), ErrorCode::kLayerDamaged);
  EXPECT_EQ(node_->reservation_counts().damaged_layers, 1u);
  ASSERT_OK(SendAll(reserved.token, 7));
  ASSERT_OK(Commit(reserved.token, 7));
  EXPECT_TRUE(Holds(*Acquire(key).object, 7));
}

TEST_F(StoreNodeTest, LateBytesLandInNobodysObject) {
  OpenStore(3 * SlabFootprint(layout_));
  const ObjectKey key = Create(1);
  const ReserveResult first = Reserve(key);
  auto late = node_->BeginLayer(first.token, 0);
  ASSERT_OK(late);
  clock_.AdvanceMs(kTimeoutMs);
  const ReserveResult second = Reserve(key);
  ASSERT_EQ(second.outcome, ReserveOutcome::kReserved);
  ASSERT_OK(SendAll(second.token, 2));
  std::memset(late->bytes().data(), 0xee, late->bytes().size());
  ASSERT_OK(Commit(second.token, 2));
  std::memset(late->bytes().data(), 0xdd, late->bytes().size());
  EXPECT_TRUE(Holds(*Acquire(key).object, 2));
  EXPECT_EQ(store_->Usage().reservations, 1u) << "the memory of the late one is kept for it";
  EXPECT_EQ(CodeOf(node_->FinishLayer(*std::move(late), SentObject(layout_, 1).crcs[0])),
            ErrorCode::kReservationEnded);
  EXPECT_EQ(store_->Usage().reservations, 0u);
}

TEST_F(StoreNodeTest, ACommitOfAContextThatIsGoneEndsTheReservation) {
  const ObjectKey key = Create(1);
  const ReserveResult reserved = Reserve(key);
  ASSERT_OK(SendAll(reserved.token, 7));
  ASSERT_OK(store_->DeleteContext(kTenant, key.id));
  for (int repeat = 0; repeat < 2; ++repeat) {
    EXPECT_EQ(CodeOf(Commit(reserved.token, 7).status()), ErrorCode::kContextDeleted);
  }
  EXPECT_EQ(Heartbeat(reserved.token), TokenState::kFailed);
  EXPECT_EQ(store_->Usage().reservations, 0u);
  EXPECT_EQ(Reserve(key).status.code(), absl::StatusCode::kNotFound);
}

TEST_F(StoreNodeTest, ABadItemDoesNotFailItsNeighbours) {
  constexpr size_t kItems = 1000;
  OpenStore(kItems * SlabFootprint(layout_));
  OpenNode({.reservations = {.max_per_peer = kItems}, .leases = {}});
  std::vector<ReserveItem> items;
  for (uint64_t seed = 0; seed < kItems; ++seed) {
    items.push_back({.tenant = kTenant, .key = Create(seed), .layout = layout_, .source = ""});
  }
  items[3].key.id = CacheId();                // no such context
  items[502].layout.layers = 0;               // no layout
  items[999].source = std::string(300, 'x');  // over a limit
  const std::set<size_t> not_reserved = {3, 502, 999};
  const std::vector<ReserveResult> reserved = node_->Reserve(1, items);
  ASSERT_EQ(reserved.size(), kItems);
  for (size_t item = 0; item < kItems; ++item) {
    const auto wanted = not_reserved.contains(item) ? ReserveOutcome::kFailed : ReserveOutcome::kReserved;
    ASSERT_EQ(reserved[item].outcome, wanted) << item << " " << reserved[item].status;
    if (wanted == ReserveOutcome::kFailed) continue;
    if (item == 500) {
      ASSERT_OK(Send(reserved[item].token, 0, item));  // not whole
    } else {
      ASSERT_OK(SendAll(reserved[item].token, item));
    }
    const absl::StatusOr<Committed> committed = Commit(reserved[item].token, item == 503 ? 7 : item);
    EXPECT_EQ(committed.ok(), item != 500 && item != 503) << item << " " << committed.status();
    if (committed.ok()) continue;
    EXPECT_EQ(CodeOf(committed.status()), ErrorCode::kReservationConflict) << item;
  }
  EXPECT_EQ(reserved[3].status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(reserved[502].status), ErrorCode::kInvalidRequest);
  EXPECT_EQ(node_->reservation_counts().open, 2u);
  const std::vector<ReservationToken> open = {reserved[500].token, {}, reserved[503].token};
  EXPECT_EQ(node_->Abort(open),
            (std::vector<TokenState>{TokenState::kAborted, TokenState::kUnknown, TokenState::kAborted}));
  EXPECT_EQ(node_->reservation_counts().open, 0u);

  std::vector<AcquireItem> wanted;
  for (const ReserveItem& item : items) {
    wanted.push_back({.tenant = item.tenant, .key = item.key, .layout = item.layout});
  }
  const std::vector<LeaseResult> leases = node_->Acquire(1, wanted, 1000);
  ASSERT_EQ(leases.size(), kItems);
  for (size_t item = 0; item < kItems; ++item) {
    const bool bad = not_reserved.contains(item) || item == 500 || item == 503;
    AcquireOutcome outcome = bad ? AcquireOutcome::kMiss : AcquireOutcome::kLeased;
    if (item == 502) outcome = AcquireOutcome::kFailed;
    ASSERT_EQ(leases[item].outcome, outcome) << item;
    EXPECT_TRUE(bad || Holds(*leases[item].object, item)) << item;
  }
}

TEST_F(StoreNodeTest, ValuesThatAreTooLargeAreRefusedByName) {
  const ObjectKey key = Create(1);
  const auto reserve = [&](const KvLayout& layout) {
    const std::vector<ReserveItem> items = {{.tenant = kTenant, .key = key, .layout = layout, .source = ""}};
    return node_->Reserve(1, items).front();
  };
  const ReserveResult huge = reserve(LayoutOf(1 << 20, 64, 8, 128));
  EXPECT_EQ(CodeOf(huge.status), ErrorCode::kBodyTooLarge);
  const ReserveResult large = reserve(LayoutOf(1 << 12, 4, 4, 128));
  EXPECT_EQ(CodeOf(large.status), ErrorCode::kStorageFull);
  EXPECT_FALSE(MayRetry(large.status));
  const ReserveResult foreign = reserve(LayoutOf(kTokens + 1));
  EXPECT_EQ(CodeOf(foreign.status), ErrorCode::kInvalidRequest);
}

TEST_F(StoreNodeTest, OpenReservationsOfOneClientAreBounded) {
  OpenNode({.reservations = {.max = 3, .max_per_peer = 2}, .leases = {}});
  const ReserveResult first = Reserve(Create(1));
  EXPECT_EQ(Reserve(Create(2)).outcome, ReserveOutcome::kReserved);
  const ReserveResult third = Reserve(Create(3));
  EXPECT_EQ(CodeOf(third.status), ErrorCode::kQueueFull);
  EXPECT_TRUE(RetryAfterMsOf(third.status).has_value());
  EXPECT_EQ(Reserve(Create(3), "other", 2).outcome, ReserveOutcome::kReserved);
  EXPECT_EQ(CodeOf(Reserve(Create(4), "other", 2).status), ErrorCode::kQueueFull) << "of the node";
  Abort(first.token);
  EXPECT_EQ(Reserve(Create(4)).outcome, ReserveOutcome::kReserved);
}

// --- leases ---

TEST_F(StoreNodeTest, ALeaseEndsByTheClockWhetherSweptOrNot) {
  const ObjectKey key = Create(1);
  PutWhole(key, 7);
  const LeaseResult lease = Acquire(key, 5000);
  clock_.AdvanceMs(4999);
  EXPECT_EQ(Confirm(lease.lease), LeaseState::kHeld);
  EXPECT_OK(node_->Read(1, lease.lease));
  clock_.AdvanceMs(1);
  EXPECT_EQ(Confirm(lease.lease), LeaseState::kEnded);
  EXPECT_EQ(CodeOf(node_->Read(1, lease.lease).status()), ErrorCode::kLeaseEnded);
  EXPECT_EQ(node_->Renew(1, std::span(&lease.lease, 1), 5000).front(), LeaseState::kEnded);
}

TEST_F(StoreNodeTest, DurationsAreBroughtWithinTheirBounds) {
  const ObjectKey key = Create(1);
  PutWhole(key, 7);
  EXPECT_EQ(Acquire(key, 0).duration_ms, 1000);
  EXPECT_EQ(Acquire(key, -5).duration_ms, 1000);
  EXPECT_EQ(Acquire(key, int64_t{1} << 60).duration_ms, 300'000);
}

TEST_F(StoreNodeTest, ARenewedLeaseLivesOnAndIsNeverShortened) {
  const ObjectKey key = Create(1);
  PutWhole(key, 7);
  const LeaseId lease = Acquire(key, 5000).lease;
  clock_.AdvanceMs(4000);
  EXPECT_EQ(node_->Renew(1, std::span(&lease, 1), 20'000).front(), LeaseState::kHeld);
  EXPECT_EQ(node_->Renew(1, std::span(&lease, 1), 1000).front(), LeaseState::kHeld);
  clock_.AdvanceMs(19'999);
  EXPECT_EQ(Confirm(lease), LeaseState::kHeld);
  clock_.AdvanceMs(1);
  EXPECT_EQ(Confirm(lease), LeaseState::kEnded);
}

TEST_F(StoreNodeTest, ReadersFinishWhatIsDeletedMeanwhileAndItsMemoryIsFreeAfterThat) {
  const ObjectKey key = Create(1);
  PutWhole(key, 7);
  LeaseResult lease = Acquire(key);
  ASSERT_OK(store_->DeleteContext(kTenant, key.id));
  store_->DrainWrites();
  EXPECT_EQ(Acquire(key).cause, MissCause::kDeleted);
  ASSERT_OK_AND_ASSIGN(ObjectPtr object, node_->Read(1, lease.lease));
  EXPECT_TRUE(Holds(*object, 7));
  EXPECT_EQ(Confirm(lease.lease), LeaseState::kHeld);
  object.reset();
  lease.object.reset();
  EXPECT_GT(store_->Usage().memory_bytes, 0u);
  EXPECT_EQ(Confirm(lease.lease, /*release=*/true), LeaseState::kHeld);
  EXPECT_EQ(Confirm(lease.lease), LeaseState::kEnded);
  EXPECT_EQ(store_->Usage().memory_bytes, 0u);
}

TEST_F(StoreNodeTest, BytesOfALeaseThatEndedDuringReadingStayTheirsButDoNotCount) {
  OpenStore(2 * SlabFootprint(layout_));
  const ObjectKey key = Create(1);
  PutWhole(key, 1);
  LeaseResult lease = Acquire(key, 1000);
  ASSERT_OK_AND_ASSIGN(const ObjectPtr reading, node_->Read(1, lease.lease));
  lease.object.reset();
  clock_.AdvanceMs(2000);
  for (uint64_t seed = 2; seed < 6; ++seed) PutWhole(Create(seed), seed);
  EXPECT_TRUE(Holds(*reading, 1));
  EXPECT_EQ(Confirm(lease.lease), LeaseState::kEnded);
}

TEST_F(StoreNodeTest, AbandonedLeasesDoNotKeepMemoryFromThoseWhoWantIt) {
  constexpr uint64_t kObjects = 1000;
  OpenStore(kObjects * SlabFootprint(layout_));
  for (uint64_t seed = 0; seed < kObjects; ++seed) {
    PutWhole(Create(seed), seed);
    ASSERT_EQ(Acquire(Create(seed), 5000).outcome, AcquireOutcome::kLeased);
  }
  store_->DrainWrites();
  const ObjectKey next = Create(kObjects);
  EXPECT_EQ(CodeOf(Reserve(next).status), ErrorCode::kStorageFull) << "all is leased";
  clock_.AdvanceMs(5000);
  PutWhole(next, kObjects);  // no sweep has run
  EXPECT_TRUE(Holds(*Acquire(next).object, kObjects));
  EXPECT_EQ(node_->lease_counts().expired, kObjects);
}

TEST_F(StoreNodeTest, AReadFromDiskTakesTheMemoryOfLeasesThatAreOver) {
  OpenStore(SlabFootprint(layout_));
  const ObjectKey first = Create(1);
  const ObjectKey second = Create(2);
  PutWhole(first, 1);
  store_->DrainWrites();
  PutWhole(second, 2);
  store_->DrainWrites();
  Acquire(second, 1000);
  EXPECT_EQ(Acquire(first).cause, MissCause::kNoMemory);
  clock_.AdvanceMs(1000);
  const LeaseResult lease = Acquire(first);
  ASSERT_EQ(lease.outcome, AcquireOutcome::kLeased);
  EXPECT_TRUE(Holds(*lease.object, 1));
}

TEST_F(StoreNodeTest, ALeaseIsOfOnePeerOnly) {
  const ObjectKey key = Create(1);
  PutWhole(key, 7);
  const LeaseId lease = Acquire(key, 10'000, 1).lease;
  const LeaseId other = Acquire(key, 10'000, 17).lease;
  EXPECT_NE(lease, other);
  EXPECT_EQ(Confirm(lease, /*release=*/true, 17), LeaseState::kEnded);
  EXPECT_EQ(Confirm(lease, /*release=*/false, 1), LeaseState::kHeld);
  EXPECT_EQ(Confirm(other, /*release=*/false, 17), LeaseState::kHeld);
}

TEST_F(StoreNodeTest, AGoodbyeEndsAllOfAPeerAndNothingOfOthers) {
  const ObjectKey key = Create(1);
  PutWhole(key, 7);
  const LeaseId mine = Acquire(key, 10'000, 1).lease;
  const LeaseId other = Acquire(key, 10'000, 2).lease;
  const ReserveResult reserved = Reserve(Create(2), "a", 1);
  const ReserveResult others = Reserve(Create(3), "b", 2);
  node_->Goodbye(1);
  EXPECT_EQ(Confirm(mine, false, 1), LeaseState::kEnded);
  EXPECT_EQ(Confirm(other, false, 2), LeaseState::kHeld);
  EXPECT_EQ(Heartbeat(reserved.token), TokenState::kAborted);
  EXPECT_EQ(Heartbeat(others.token), TokenState::kAlive);
  EXPECT_EQ(store_->Usage().reservations, 1u);
}

TEST_F(StoreNodeTest, LeasesAreBounded) {
  OpenNode({.reservations = {}, .leases = {.max_per_peer = 2, .max = 3}});
  const ObjectKey key = Create(1);
  PutWhole(key, 7);
  const std::vector<AcquireItem> items(3, {.tenant = kTenant, .key = key, .layout = layout_});
  const std::vector<LeaseResult> mine = node_->Acquire(1, items, 1000);
  EXPECT_EQ(mine[1].outcome, AcquireOutcome::kLeased);
  EXPECT_EQ(CodeOf(mine[2].status), ErrorCode::kQueueFull);
  const std::vector<LeaseResult> others = node_->Acquire(2, items, 1000);
  EXPECT_EQ(others[0].outcome, AcquireOutcome::kLeased);
  EXPECT_EQ(CodeOf(others[1].status), ErrorCode::kQueueFull) << "of the node";
  clock_.AdvanceMs(1000);
  EXPECT_EQ(Acquire(key).outcome, AcquireOutcome::kLeased)
      << "those that are over do not count, swept or not";
  EXPECT_EQ(Acquire(key, 1000, 2).outcome, AcquireOutcome::kLeased);
}

// --- lives ---

TEST_F(StoreNodeTest, NothingOfAnEarlierLifeIsValid) {
  const ObjectKey key = Create(1);
  PutWhole(key, 7);
  std::set<Generation> generations;
  std::set<uint64_t> incarnations;
  LeaseId lease = Acquire(key).lease;
  ReservationToken token = Reserve(Create(2)).token;
  for (int life = 0; life < 5; ++life) {
    EXPECT_TRUE(generations.insert(Acquire(key).generation).second);
    EXPECT_TRUE(incarnations.insert(node_->incarnation()).second);
    store_->DrainWrites();
    OpenStore();
    EXPECT_EQ(Confirm(lease), LeaseState::kOtherLife);
    EXPECT_EQ(CodeOf(node_->Read(1, lease).status()), ErrorCode::kLeaseEnded);
    EXPECT_EQ(Heartbeat(token), TokenState::kUnknown);
    const LeaseResult again = Acquire(key);
    ASSERT_EQ(again.outcome, AcquireOutcome::kLeased);
    EXPECT_TRUE(Holds(*again.object, 7));
    EXPECT_NE(again.lease, lease);
    EXPECT_EQ(Confirm(lease), LeaseState::kOtherLife);
    lease = again.lease;
    token = Reserve(Create(2)).token;
  }
}

}  // namespace
}  // namespace epic::kv_store
