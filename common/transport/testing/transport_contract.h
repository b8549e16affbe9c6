// What every path must do, as a typed suite: each implementation instantiates it in its own test.
//
//   INSTANTIATE_TYPED_TEST_SUITE_P(Ucx, TransportContract, UcxSetup);
//
// A Setup is
//   explicit Setup(PeerDownFn peer_down);    a path to a peer that is not there yet
//   void Serve(std::shared_ptr<TestSource>);  the peer is there and serves it, after Die() anew
//   void Die();                               it is gone as if killed; returns when it reads nothing any more
//   Path* path();
//   void DropPath();                          destroys the path
//   std::shared_ptr<const Region> Grant(std::shared_ptr<const Region>);   adds what the path needs of places
//   static constexpr bool kLayerWise;   whether a layer is given while a later one is not there yet
//   static constexpr bool kTellsCrcs;   whether the peer's checksums come with a layer, for regions without
// and, where it is not so,
//   static constexpr bool kAnyOrder = false;     a layer that cannot come ends those behind it
//   static constexpr bool kKnowsLeases = false;  the peer finds objects by key: what is no more leased is not
//                                                found, instead of over
// Tests wait on events, at most 20 s each. Tests only.
#ifndef EPIC_COMMON_TRANSPORT_TESTING_TRANSPORT_CONTRACT_H_
#define EPIC_COMMON_TRANSPORT_TESTING_TRANSPORT_CONTRACT_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/status/error.h"
#include "common/storage/object_codec.h"
#include "common/testing/status_matchers.h"
#include "common/transport/range_check.h"
#include "common/transport/testing/fetch_log.h"
#include "common/transport/testing/test_source.h"
#include "common/transport/transport.h"

namespace epic::transport {

MATCHER_P(EndsAs, end, "ends as " + std::to_string(static_cast<int>(end))) {
  *result_listener << arg.ToString();
  return EndOf(arg) == end;
}

template <typename Setup>
constexpr bool BringsLayersInAnyOrder() {
  if constexpr (requires { Setup::kAnyOrder; }) return Setup::kAnyOrder;
  return true;
}
// How a fetch ends whose lease is over, in the same life of the peer.
template <typename Setup>
constexpr FetchEnd EndWithoutLease() {
  if constexpr (requires { Setup::kKnowsLeases; }) {
    if (!Setup::kKnowsLeases) return FetchEnd::kNotOnThisPath;
  }
  return FetchEnd::kLeaseEnded;
}

// One fetch with its buffers, which must outlive it.
struct ContractFetch {
  std::shared_ptr<const Region> region;
  std::deque<std::vector<std::byte>> buffers;
  FetchRequest request;
  std::shared_ptr<FetchLog> log;
  FetchId id = 0;

  void Add(uint32_t layer, uint64_t offset, uint64_t bytes) {
    buffers.emplace_back(bytes, std::byte{0xA5});
    request.ranges.push_back({.layer = layer, .offset = offset, .to = buffers.back()});
  }
  void AddWholeLayers() {
    for (uint32_t layer = 0; layer < region->layout.layers; ++layer) {
      Add(layer, 0, region->layout.LayerBytes());
    }
  }
};

template <typename PathSetup>
class TransportContract : public ::testing::Test {
 protected:
  static constexpr int64_t kPlentyMs = 20'000;

  TransportContract() : setup_([this](const absl::Status& why) { NoteDown(why); }) {
    source_ = std::make_shared<TestSource>(11);
    setup_.Serve(source_);
  }
  ~TransportContract() override {
    setup_.DropPath();
    EXPECT_TRUE(source_->WaitForOpen(0)) << source_->open() << " leases are still open";
  }

  std::unique_ptr<ContractFetch> Plan(std::shared_ptr<const Region> region) {
    auto fetch = std::make_unique<ContractFetch>();
    fetch->region = setup_.Grant(std::move(region));
    fetch->request.region = fetch->region;
    return fetch;
  }
  void Start(ContractFetch* fetch, int64_t deadline_ms = kPlentyMs,
             std::function<void(size_t)> on_range = {}) {
    fetch->request.deadline_steady_ns = SystemClock::Get()->SteadyNs() + deadline_ms * 1'000'000;
    fetch->log = std::make_shared<FetchLog>(fetch->request.ranges.size(), std::move(on_range));
    fetch->id = path()->Fetch(fetch->request, fetch->log);
    EXPECT_NE(fetch->id, 0u);
  }
  std::unique_ptr<ContractFetch> StartWhole(std::shared_ptr<const Region> region,
                                            int64_t deadline_ms = kPlentyMs) {
    auto fetch = Plan(std::move(region));
    fetch->AddWholeLayers();
    Start(fetch.get(), deadline_ms);
    return fetch;
  }
  // Whether a range that ended OK has the bytes of the source.
  void ExpectBytes(const ContractFetch& fetch, size_t range) { ExpectBytes(fetch, range, *source_); }
  void ExpectBytes(const ContractFetch& fetch, size_t range, const TestSource& source) {
    const FetchRange& asked = fetch.request.ranges[range];
    const ByteSpan all = source.Bytes(*fetch.region, asked.layer);
    EXPECT_TRUE(
        std::equal(asked.to.begin(), asked.to.end(), all.begin() + static_cast<ptrdiff_t>(asked.offset)))
        << "range " << range << " has wrong bytes";
  }
  void ExpectWhole(const ContractFetch& fetch) {
    EXPECT_OK(fetch.log->WaitDone());
    for (size_t range = 0; range < fetch.request.ranges.size(); ++range) {
      EXPECT_OK(fetch.log->range(range));
      ExpectBytes(fetch, range);
    }
  }
  // What ended OK is right; what did not, ended as one of the others.
  void ExpectRightOr(const ContractFetch& fetch, std::vector<FetchEnd> ends) {
    (void)fetch.log->WaitDone();
    for (size_t range = 0; range < fetch.request.ranges.size(); ++range) {
      const absl::Status status = fetch.log->range(range);
      if (status.ok()) {
        ExpectBytes(fetch, range);
      } else {
        EXPECT_NE(std::find(ends.begin(), ends.end(), EndOf(status)), ends.end()) << status.ToString();
      }
    }
  }
  // The peer comes back with objects of another life.
  std::shared_ptr<TestSource> Restart(uint64_t incarnation) {
    auto next = std::make_shared<TestSource>(incarnation);
    setup_.Serve(next);
    EXPECT_TRUE(source_->WaitForOpen(0));
    return std::exchange(source_, next);
  }
  Path* path() { return setup_.path(); }
  int downs() const { return downs_.load(); }

  void NoteDown(const absl::Status& why) {
    EXPECT_FALSE(why.ok());
    ++downs_;
  }

  std::atomic<int> downs_{0};
  std::shared_ptr<TestSource> source_;
  PathSetup setup_;
};

TYPED_TEST_SUITE_P(TransportContract);

TYPED_TEST_P(TransportContract, RangesHaveTheBytesAndTheChecksumsOfTheirLayers) {
  const auto region = this->source_->Put(1, SmallLayout());
  auto fetch = this->StartWhole(region);
  this->ExpectWhole(*fetch);
  for (uint32_t layer = 0; layer < region->layout.layers; ++layer) {
    std::vector<uint32_t> crcs(BlocksPerLayer(region->layout));
    ComputeBlockCrcs(region->layout, fetch->buffers[layer], crcs);
    EXPECT_EQ(fetch->log->crcs(layer), crcs);
  }
}

TYPED_TEST_P(TransportContract, PartsOfLayersComeInAnyOrderThatIsAskedFor) {
  // Heads of 1.5 blocks: borders of blocks are not all multiples of anything.
  KvLayout layout = SmallLayout(2, 3 * 4096);
  const auto region = this->source_->Put(2, layout);
  auto fetch = this->Plan(region);
  const uint64_t blocks = BlocksPerLayer(layout);
  for (uint32_t layer = 2; layer-- > 0;) {
    fetch->Add(layer, BlockOffset(layout, 3), BlockOffset(layout, blocks) - BlockOffset(layout, 3));
    fetch->Add(layer, BlockOffset(layout, 1), BlockOffset(layout, 2) - BlockOffset(layout, 1));
    fetch->Add(layer, 0, BlockOffset(layout, 1));
  }
  this->Start(fetch.get());
  this->ExpectWhole(*fetch);
}

TYPED_TEST_P(TransportContract, EmptyRangesAndEmptyFetchesEndWell) {
  const auto region = this->source_->Put(3, SmallLayout());
  auto fetch = this->Plan(region);
  fetch->Add(0, 0, 0);
  fetch->Add(1, 0, region->layout.LayerBytes());
  fetch->Add(1, 7, 0);
  fetch->Add(3, region->layout.LayerBytes(), 0);
  this->Start(fetch.get());
  this->ExpectWhole(*fetch);
  auto nothing = this->Plan(region);
  this->Start(nothing.get());
  EXPECT_OK(nothing->log->WaitDone());
  for (int i = 0; i < 200; ++i) {
    auto late = this->Plan(region);
    late->Add(0, 0, 0);
    this->Start(late.get(), -1);
    ASSERT_OK(late->log->WaitDone()) << "what moves nothing cannot be late";
  }
}

TYPED_TEST_P(TransportContract, HugeRangesArrive) {
  const KvLayout layout = SmallLayout(2, 300'001);  // 36 MiB a layer, heads of odd size
  const auto region = this->source_->Put(4, layout);
  auto fetch = this->StartWhole(region);
  this->ExpectWhole(*fetch);
}

TYPED_TEST_P(TransportContract, ThousandsOfRangesArrive) {
  const KvLayout layout = SmallLayout(64);
  const auto region = this->source_->Put(5, layout);
  auto fetch = this->Plan(region);
  for (uint32_t layer = 0; layer < layout.layers; ++layer) {
    for (uint64_t block = 0; block < BlocksPerLayer(layout); ++block) {
      const uint64_t at = BlockOffset(layout, block);
      fetch->Add(layer, at, BlockOffset(layout, block + 1) - at);
      for (int i = 0; i < 15; ++i) fetch->Add(layer, at, 0);
    }
  }
  EXPECT_EQ(fetch->request.ranges.size(), 4096u);
  this->Start(fetch.get());
  this->ExpectWhole(*fetch);
}

TYPED_TEST_P(TransportContract, RequestsThatCannotBeAreRefused) {
  const auto region = this->source_->Put(6, SmallLayout());
  const uint64_t bytes = region->layout.LayerBytes();
  const std::vector<std::array<uint64_t, 3>> wrong = {
      {4, 0, bytes}, {0, 0, bytes + 1}, {0, 1, bytes - 1}, {0, 0, bytes - 1}, {0, ~uint64_t{0}, 64}};
  for (const auto& [layer, offset, size] : wrong) {
    auto fetch = this->Plan(region);
    fetch->Add(static_cast<uint32_t>(layer), offset, size);
    this->Start(fetch.get());
    EXPECT_THAT(fetch->log->WaitDone(), EndsAs(FetchEnd::kRefused));
  }
  auto fetch = this->Plan(region);
  fetch->AddWholeLayers();
  auto short_region = std::make_shared<Region>(*fetch->region);
  short_region->block_crcs.pop_back();
  fetch->request.region = short_region;
  this->Start(fetch.get());
  EXPECT_THAT(fetch->log->WaitDone(), EndsAs(FetchEnd::kRefused));
}

TYPED_TEST_P(TransportContract, LayersThatAreNotThereYetAreWaitedFor) {
  const auto region = this->source_->Put(7, SmallLayout(), /*ready=*/false);
  auto fetch = this->StartWhole(region);
  ASSERT_TRUE(this->source_->WaitForWaits(1));
  EXPECT_EQ(fetch->log->ended(), 0u);
  if constexpr (TypeParam::kLayerWise) {
    for (const uint32_t layer : {0u, 1u, 2u, 3u}) {
      this->source_->MakeReady(*region, layer);
      EXPECT_OK(fetch->log->WaitRange(layer));
      this->ExpectBytes(*fetch, layer);
    }
  }
  this->source_->MakeAllReady(*region);
  this->ExpectWhole(*fetch);
}

TYPED_TEST_P(TransportContract, ChecksumsThatTheRegionDoesNotHaveComeWithTheLayers) {
  if (!TypeParam::kTellsCrcs) return;
  const auto region = this->source_->Put(8, SmallLayout(), /*ready=*/true, /*told=*/false);
  this->source_->Damage(*region, 2, 100);
  auto fetch = this->StartWhole(region);
  EXPECT_THAT(fetch->log->WaitDone(), EndsAs(FetchEnd::kDamaged));
  std::vector<uint32_t> all;
  for (uint32_t layer = 0; layer < region->layout.layers; ++layer) {
    EXPECT_EQ(fetch->log->range(layer).ok(), layer != 2);
    EXPECT_EQ(fetch->log->crcs(layer).size(), layer == 2 ? 0 : BlocksPerLayer(region->layout));
  }
}

TYPED_TEST_P(TransportContract, ALayerThatCannotComeEndsWithTheSourcesReason) {
  if (!TypeParam::kLayerWise) return;
  const auto region = this->source_->Put(9, SmallLayout(), /*ready=*/false);
  auto fetch = this->StartWhole(region);
  ASSERT_TRUE(this->source_->WaitForWaits(1));
  for (const uint32_t layer : {0u, 2u, 3u}) this->source_->MakeReady(*region, layer);
  this->source_->Fail(*region, 1, Error(ErrorCode::kContextFailed, "the compile failed"));
  EXPECT_THAT(fetch->log->WaitDone(), EndsAs(FetchEnd::kRefused));
  EXPECT_EQ(CodeOf(fetch->log->range(1)), ErrorCode::kContextFailed);
  for (const uint32_t layer : {0u, 2u, 3u}) {
    if (layer > 1 && !BringsLayersInAnyOrder<TypeParam>()) continue;
    EXPECT_OK(fetch->log->range(layer));
    this->ExpectBytes(*fetch, layer);
  }
}

TYPED_TEST_P(TransportContract, DamagedBytesAreNeverCalledGood) {
  const auto region = this->source_->Put(10, SmallLayout(6));
  const uint64_t last = region->layout.LayerBytes() - 1;
  this->source_->Damage(*region, 1, 0);
  this->source_->Damage(*region, 4, last);
  auto fetch = this->StartWhole(region);
  EXPECT_THAT(fetch->log->WaitDone(), EndsAs(FetchEnd::kDamaged));
  for (uint32_t layer = 0; layer < region->layout.layers; ++layer) {
    if (layer == 1 || layer == 4) {
      EXPECT_THAT(fetch->log->range(layer), EndsAs(FetchEnd::kDamaged));
    } else {
      EXPECT_OK(fetch->log->range(layer));
      this->ExpectBytes(*fetch, layer);
    }
  }
}

TYPED_TEST_P(TransportContract, ALayerThatIsCutShortIsDamaged) {
  const auto region = this->source_->Put(11, SmallLayout());
  const uint64_t bytes = region->layout.LayerBytes();
  this->source_->Truncate(*region, 0, bytes - 1);
  this->source_->Truncate(*region, 1, 0);
  auto fetch = this->StartWhole(region);
  EXPECT_FALSE(fetch->log->WaitDone().ok());
  for (const uint32_t layer : {0u, 1u}) {
    EXPECT_THAT(fetch->log->range(layer), EndsAs(FetchEnd::kDamaged));
  }
}

TYPED_TEST_P(TransportContract, BytesOfAnotherBuildAreNotTakenForTheRegions) {
  const auto region = this->source_->Put(12, SmallLayout());
  auto fetch = this->Plan(region);
  fetch->AddWholeLayers();
  auto other = std::make_shared<Region>(*fetch->region);
  for (uint32_t& crc : other->block_crcs) crc ^= 1;
  other->build = BuildDigest(other->block_crcs);
  fetch->request.region = other;
  this->Start(fetch.get());
  const FetchEnd end = EndOf(fetch->log->WaitDone());
  EXPECT_TRUE(end == FetchEnd::kDamaged || end == FetchEnd::kLeaseEnded || end == FetchEnd::kNotOnThisPath);
  for (uint32_t layer = 0; layer < 4; ++layer) EXPECT_FALSE(fetch->log->range(layer).ok());
}

TYPED_TEST_P(TransportContract, ADeadlineEndsAFetchThatWaits) {
  const auto region = this->source_->Put(13, SmallLayout(), /*ready=*/false);
  if (TypeParam::kLayerWise) this->source_->MakeReady(*region, 0);
  auto fetch = this->StartWhole(region, /*deadline_ms=*/100);
  EXPECT_THAT(fetch->log->WaitDone(), EndsAs(FetchEnd::kDeadline));
  this->ExpectRightOr(*fetch, {FetchEnd::kDeadline});
  for (auto& buffer : fetch->buffers) std::fill(buffer.begin(), buffer.end(), std::byte{0x3C});
  this->source_->MakeAllReady(*region);
  auto again = this->StartWhole(region);
  this->ExpectWhole(*again);
  for (const auto& buffer : fetch->buffers) {
    EXPECT_TRUE(std::all_of(buffer.begin(), buffer.end(), [](std::byte b) { return b == std::byte{0x3C}; }))
        << "the path wrote to a buffer that it had given back";
  }
}

TYPED_TEST_P(TransportContract, ADeadlineThatIsOverEndsAFetchAtOnce) {
  const auto region = this->source_->Put(14, SmallLayout());
  auto fetch = this->StartWhole(region, /*deadline_ms=*/-1);
  EXPECT_THAT(fetch->log->WaitDone(), EndsAs(FetchEnd::kDeadline));
}

TYPED_TEST_P(TransportContract, ACancelledFetchThatWaitsEnds) {
  const auto region = this->source_->Put(15, SmallLayout(), /*ready=*/false);
  auto fetch = this->StartWhole(region);
  ASSERT_TRUE(this->source_->WaitForWaits(1));
  this->path()->Cancel(fetch->id);
  EXPECT_THAT(fetch->log->WaitDone(), EndsAs(FetchEnd::kCancelled));
  if (TypeParam::kLayerWise) {
    EXPECT_TRUE(this->source_->WaitForOpen(0));
  }
  this->path()->Cancel(fetch->id);
  this->path()->Cancel(fetch->id + 1000);
  this->path()->Cancel(0);
  this->source_->MakeAllReady(*region);
  auto again = this->StartWhole(region);
  this->ExpectWhole(*again);
}

TYPED_TEST_P(TransportContract, ACancelAtAnyPointGivesTheBuffersBack) {
  const KvLayout layout = SmallLayout(8, 12'000);  // 375 KiB a head
  const auto region = this->source_->Put(16, layout);
  for (size_t point = 0; point <= layout.layers; ++point) {
    auto fetch = this->Plan(region);
    fetch->AddWholeLayers();
    std::atomic<FetchId> id{0};
    std::atomic<size_t> ended{0};
    this->Start(fetch.get(), this->kPlentyMs, [&](size_t) {
      if (++ended == point && id.load() != 0) this->path()->Cancel(id.load());
    });
    id = fetch->id;
    if (point == 0 || ended.load() >= point) this->path()->Cancel(fetch->id);
    this->ExpectRightOr(*fetch, {FetchEnd::kCancelled});
    for (auto& buffer : fetch->buffers) std::fill(buffer.begin(), buffer.end(), std::byte{0x3C});
    auto again = this->StartWhole(this->source_->Put(1000 + point, SmallLayout()));
    this->ExpectWhole(*again);
    for (const auto& buffer : fetch->buffers) {
      EXPECT_TRUE(
          std::all_of(buffer.begin(), buffer.end(), [](std::byte b) { return b == std::byte{0x3C}; }));
    }
  }
}

TYPED_TEST_P(TransportContract, AFetchThatWaitsDoesNotHoldUpAnother) {
  const auto late = this->source_->Put(17, SmallLayout(), /*ready=*/false);
  const auto now = this->source_->Put(18, SmallLayout());
  auto waiting = this->StartWhole(late);
  ASSERT_TRUE(this->source_->WaitForWaits(1));
  auto fetch = this->StartWhole(now);
  this->ExpectWhole(*fetch);
  EXPECT_FALSE(waiting->log->done());
  this->source_->MakeAllReady(*late);
  this->ExpectWhole(*waiting);
}

TYPED_TEST_P(TransportContract, ManyFetchesAtATimeAllArrive) {
  std::vector<std::unique_ptr<ContractFetch>> fetches;
  for (uint64_t i = 0; i < 24; ++i) {
    fetches.push_back(this->StartWhole(this->source_->Put(100 + i, SmallLayout(3, 3000))));
  }
  for (const auto& fetch : fetches) this->ExpectWhole(*fetch);
}

TYPED_TEST_P(TransportContract, AStaleLeaseIsSaidToBeOver) {
  const auto region = this->source_->Put(19, SmallLayout());
  this->source_->EndLease(*region);
  auto fetch = this->StartWhole(region);
  EXPECT_THAT(fetch->log->WaitDone(), EndsAs(EndWithoutLease<TypeParam>()));
}

TYPED_TEST_P(TransportContract, ALeaseThatEndsAmidTheTransferIsNoticed) {
  const auto region = this->source_->Put(20, SmallLayout(), /*ready=*/false);
  auto fetch = this->StartWhole(region);
  ASSERT_TRUE(this->source_->WaitForWaits(1));
  this->source_->EndLease(*region);
  this->source_->MakeAllReady(*region);
  EXPECT_THAT(fetch->log->WaitDone(), EndsAs(EndWithoutLease<TypeParam>()));
  this->ExpectRightOr(*fetch, {EndWithoutLease<TypeParam>()});
}

TYPED_TEST_P(TransportContract, APeerThatDiesEndsItsFetches) {
  const auto region = this->source_->Put(21, SmallLayout(), /*ready=*/false);
  if (TypeParam::kLayerWise) this->source_->MakeReady(*region, 0);
  auto fetch = this->StartWhole(region);
  ASSERT_TRUE(this->source_->WaitForWaits(TypeParam::kLayerWise ? 2 : 1));
  if (TypeParam::kLayerWise) {
    EXPECT_OK(fetch->log->WaitRange(0));
  }
  this->setup_.Die();
  EXPECT_THAT(fetch->log->WaitDone(), EndsAs(FetchEnd::kPathDown));
  this->ExpectRightOr(*fetch, {FetchEnd::kPathDown});
  EXPECT_TRUE(this->source_->WaitForOpen(0));
  auto to_nobody = this->StartWhole(region, /*deadline_ms=*/3000);
  const FetchEnd end = EndOf(to_nobody->log->WaitDone());
  EXPECT_TRUE(end == FetchEnd::kPathDown || end == FetchEnd::kDeadline);
  EXPECT_GE(this->downs(), 1);
}

TYPED_TEST_P(TransportContract, APeerThatComesBackIsUsedAgainAndOldLeasesAreOver) {
  const auto old = this->source_->Put(22, SmallLayout());
  this->ExpectWhole(*this->StartWhole(old));
  for (uint64_t life = 0; life < 3; ++life) {
    this->setup_.Die();
    const auto dead = this->Restart(100 + life);
    auto stale = this->StartWhole(old);
    EXPECT_THAT(stale->log->WaitDone(), EndsAs(FetchEnd::kLeaseEnded));
    auto fetch = this->StartWhole(this->source_->Put(200 + life, SmallLayout()));
    this->ExpectWhole(*fetch);
  }
}

TYPED_TEST_P(TransportContract, AProbeSaysWhetherThePeerAnswers) {
  const auto probe = [this] {
    auto log = std::make_shared<FetchLog>(0);
    this->path()->Probe(SystemClock::Get()->SteadyNs() + 3'000'000'000,
                        [log](const absl::Status& status) { log->OnDone(status); });
    return log->WaitDone();
  };
  EXPECT_OK(probe());
  this->setup_.Die();
  EXPECT_FALSE(probe().ok());
  const auto dead = this->Restart(12);
  EXPECT_OK(probe());
}

TYPED_TEST_P(TransportContract, StopEndsWhatIsUnderWay) {
  const auto late = this->source_->Put(23, SmallLayout(), /*ready=*/false);
  const auto big = this->source_->Put(24, SmallLayout(4, 40'000));
  std::vector<std::unique_ptr<ContractFetch>> fetches;
  for (int i = 0; i < 3; ++i) {
    fetches.push_back(this->StartWhole(late));
    fetches.push_back(this->StartWhole(big));
  }
  this->path()->Stop();
  for (const auto& fetch : fetches) {
    EXPECT_TRUE(fetch->log->done()) << "Stop returned before its fetches had ended";
    this->ExpectRightOr(*fetch, {FetchEnd::kCancelled, FetchEnd::kPathDown});
  }
  this->path()->Stop();
  auto after = this->StartWhole(big);
  EXPECT_TRUE(after->log->done());
  EXPECT_THAT(after->log->WaitDone(), EndsAs(FetchEnd::kPathDown));
}

TYPED_TEST_P(TransportContract, RandomFetchesAndCancelsEndAsTheyShould) {
  const auto named = static_cast<uint64_t>(::testing::GTEST_FLAG(random_seed));
  const uint64_t seed = named != 0 ? named : 20261130;
  SCOPED_TRACE("--gtest_random_seed=" + std::to_string(seed));
  Rng rng(seed);
  std::vector<std::shared_ptr<const Region>> regions;
  for (uint64_t i = 0; i < 6; ++i) {
    regions.push_back(
        this->source_->Put(300 + i, SmallLayout(4, 64 + static_cast<uint32_t>(rng.Below(9000)))));
  }
  std::deque<std::unique_ptr<ContractFetch>> running;
  for (int i = 0; i < 200; ++i) {
    auto fetch = this->Plan(regions[rng.Below(regions.size())]);
    const KvLayout& layout = fetch->region->layout;
    for (uint64_t n = rng.Below(6); n > 0; --n) {
      const uint64_t first = rng.Below(BlocksPerLayer(layout));
      const uint64_t last = first + rng.Below(BlocksPerLayer(layout) - first + 1);
      const uint64_t at = BlockOffset(layout, first);
      fetch->Add(static_cast<uint32_t>(rng.Below(layout.layers)), at, BlockOffset(layout, last) - at);
    }
    this->Start(fetch.get());
    if (rng.Below(3) == 0) this->path()->Cancel(fetch->id);
    running.push_back(std::move(fetch));
    if (running.size() < 8) continue;
    if (rng.Below(2) == 0) this->path()->Cancel(running[rng.Below(running.size())]->id);
    this->ExpectRightOr(*running.front(), {FetchEnd::kCancelled});
    running.pop_front();
  }
  for (const auto& fetch : running) this->ExpectRightOr(*fetch, {FetchEnd::kCancelled});
}

REGISTER_TYPED_TEST_SUITE_P(TransportContract, RangesHaveTheBytesAndTheChecksumsOfTheirLayers,
                            PartsOfLayersComeInAnyOrderThatIsAskedFor, EmptyRangesAndEmptyFetchesEndWell,
                            HugeRangesArrive, ThousandsOfRangesArrive, RequestsThatCannotBeAreRefused,
                            LayersThatAreNotThereYetAreWaitedFor,
                            ChecksumsThatTheRegionDoesNotHaveComeWithTheLayers,
                            ALayerThatCannotComeEndsWithTheSourcesReason, DamagedBytesAreNeverCalledGood,
                            ALayerThatIsCutShortIsDamaged, BytesOfAnotherBuildAreNotTakenForTheRegions,
                            ADeadlineEndsAFetchThatWaits, ADeadlineThatIsOverEndsAFetchAtOnce,
                            ACancelledFetchThatWaitsEnds, ACancelAtAnyPointGivesTheBuffersBack,
                            AFetchThatWaitsDoesNotHoldUpAnother, ManyFetchesAtATimeAllArrive,
                            AStaleLeaseIsSaidToBeOver, ALeaseThatEndsAmidTheTransferIsNoticed,
                            APeerThatDiesEndsItsFetches, APeerThatComesBackIsUsedAgainAndOldLeasesAreOver,
                            AProbeSaysWhetherThePeerAnswers, StopEndsWhatIsUnderWay,
                            RandomFetchesAndCancelsEndAsTheyShould);

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_TESTING_TRANSPORT_CONTRACT_H_
