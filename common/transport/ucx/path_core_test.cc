#include "common/transport/ucx/path_core.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "common/base/crc32c.h"
#include "common/testing/status_matchers.h"
#include "common/transport/ucx/testing/protocol_world.h"

namespace epic::transport {
namespace {

constexpr uint8_t kRead = static_cast<uint8_t>(wire::Kind::kRead);
constexpr uint8_t kPiece = static_cast<uint8_t>(wire::Kind::kPiece);

// 4 pieces a layer: 2048 blocks of 128 bytes.
KvLayout BigLayout(uint32_t layers = 3) {
  KvLayout layout = SmallLayout(layers, 4);
  layout.kv_heads = 1024;
  return layout;
}

// A device whose memory is host memory, with copies that wait for the test.
class FakeDevice final : public DeviceMemory {
 public:
  explicit FakeDevice(bool can_sum, uint32_t slots = 100) : can_sum_(can_sum), slots_(slots) {}
  ~FakeDevice() override { EXPECT_EQ(pinned_.size(), 0u); }
  absl::StatusOr<MutableByteSpan> AllocatePinned(uint64_t bytes) override {
    if (pinned_.size() >= slots_) return absl::ResourceExhaustedError("no pinned memory");
    auto memory = std::make_unique<std::vector<std::byte>>(bytes);
    const MutableByteSpan span = *memory;
    pinned_[span.data()] = std::move(memory);
    return span;
  }
  void FreePinned(MutableByteSpan memory) override { EXPECT_EQ(pinned_.erase(memory.data()), 1u); }
  void CopyIn(ByteSpan host, MutableByteSpan device, std::function<void(absl::Status)> done) override {
    waiting_.push_back([host, device, done = std::move(done)] {
      std::copy(host.begin(), host.end(), device.begin());
      done(absl::OkStatus());
    });
  }
  bool can_sum() const override { return can_sum_; }
  void Sum(ByteSpan device, std::vector<uint64_t> part_bytes,
           std::function<void(absl::StatusOr<std::vector<uint32_t>>)> done) override {
    waiting_.push_back([device, part_bytes = std::move(part_bytes), done = std::move(done)] {
      std::vector<uint32_t> sums;
      uint64_t at = 0;
      for (const uint64_t bytes : part_bytes) {
        sums.push_back(Crc32c(0, device.subspan(at, bytes)));
        at += bytes;
      }
      done(std::move(sums));
    });
  }
  // Ends what has begun; true when there was something.
  bool Finish() {
    const auto waiting = std::exchange(waiting_, {});
    for (const auto& end : waiting) end();
    return !waiting.empty();
  }
  size_t waiting() const { return waiting_.size(); }
  size_t pinned() const { return pinned_.size(); }

 private:
  const bool can_sum_;
  const uint32_t slots_;
  std::map<std::byte*, std::unique_ptr<std::vector<std::byte>>> pinned_;
  std::vector<std::function<void()>> waiting_;
};

TEST(PathCoreTest, FetchesShareOneConnectionAttempt) {
  ProtocolWorld world;
  PathCore* const core = world.MakeCore();
  std::vector<WorldFetch> fetches;
  for (uint64_t i = 0; i < 5; ++i) {
    fetches.push_back(world.Start(core, world.source->Put(i + 1, SmallLayout())));
  }
  world.loop->Run();
  for (const WorldFetch& fetch : fetches) world.ExpectWhole(fetch);
  EXPECT_EQ(world.door->asked, 1);
  EXPECT_EQ(world.fabric.connects(), 1);
  EXPECT_EQ(world.source->open(), 0);
  world.loop->Advance(1'000);
  EXPECT_EQ(world.loop->timers(), 0u) << "nothing is due on an idle link";
}

TEST(PathCoreTest, PiecesUnderWayAreBoundedPerPeerAndInAll) {
  ProtocolWorld world(/*rma=*/false, /*device=*/false, /*max_pieces=*/5);
  PathCore* const one = world.MakeCore({.window = 3});
  PathCore* const two = world.MakeCore({.window = 3});
  world.fabric.Hold(true);
  const WorldFetch a = world.Start(one, world.source->Put(1, BigLayout()));
  const WorldFetch b = world.Start(two, world.source->Put(2, BigLayout()));
  const WorldFetch c = world.Start(one, world.source->Put(3, BigLayout()));
  for (int round = 0; round < 200 && !(a.log->done() && b.log->done() && c.log->done()); ++round) {
    world.loop->Run();
    ASSERT_LE(one->pieces_under_way(), 3u);
    ASSERT_LE(two->pieces_under_way(), 3u);
    ASSERT_LE(one->pieces_under_way() + two->pieces_under_way(), 5u);
    ASSERT_EQ(world.fabric.under_way(), one->pieces_under_way() + two->pieces_under_way());
    world.fabric.Finish();
  }
  for (const auto* fetch : {&a, &b, &c}) world.ExpectWhole(*fetch);
}

TEST(PathCoreTest, APeerThatIsBusyLeavesPiecesToTheOthers) {
  ProtocolWorld world(/*rma=*/false, /*device=*/false, /*max_pieces=*/1);
  PathCore* const busy = world.MakeCore({.window = 2});
  PathCore* const other = world.MakeCore({.window = 2});
  world.fabric.Hold(true);
  std::vector<WorldFetch> many;
  for (uint64_t i = 1; i <= 8; ++i) many.push_back(world.Start(busy, world.source->Put(i, BigLayout())));
  const WorldFetch one = world.Start(other, world.source->Put(9, BigLayout()));
  while (!one.log->done()) {
    ASSERT_FALSE(many.back().log->done()) << "the last of eight ended before the only one of the other peer";
    world.loop->Run();
    world.fabric.Finish();
  }
  world.ExpectWhole(one);
}

TEST(PathCoreTest, FetchesGoBeforeRepairs) {
  ProtocolWorld world;
  PathCore* const core = world.MakeCore({.window = 1});
  world.fabric.Hold(true);
  const WorldFetch repair =
      world.Start(core, world.source->Put(1, BigLayout()), MemoryKind::kHost, 60'000, TrafficClass::kRepair);
  world.loop->Run();
  const WorldFetch fetch = world.Start(core, world.source->Put(2, BigLayout()));
  while (!fetch.log->done()) {
    world.loop->Run();
    world.fabric.Finish();
  }
  EXPECT_EQ(repair.log->ended(), 0u);
  world.fabric.Hold(false);
  world.fabric.Finish();
  world.loop->Run();
  world.ExpectWhole(fetch);
  world.ExpectWhole(repair);
}

TEST(PathCoreTest, ABufferIsNotGivenBackWhileAPieceIsOnItsWayIntoIt) {
  ProtocolWorld world;
  PathCore* const core = world.MakeCore({.window = 2});
  world.fabric.Hold(true);
  WorldFetch fetch = world.Start(core, world.source->Put(1, BigLayout(2)));
  world.loop->Run();
  ASSERT_EQ(world.fabric.under_way(), 2u);
  core->Cancel(fetch.id);
  world.loop->Run();
  EXPECT_FALSE(fetch.log->done());
  EXPECT_EQ(fetch.log->ended(), 1u) << "only the layer of which nothing is on its way";
  world.fabric.Finish();
  world.loop->Run();
  EXPECT_EQ(world.EndOf(fetch), FetchEnd::kCancelled);
  EXPECT_EQ(world.source->open(), 0);
}

TEST(PathCoreTest, AfterTheGraceTheLaneIsClosedByForceAndOthersGoOn) {
  ProtocolWorld world;
  PathCore* const core = world.MakeCore({.window = 2, .end_grace_ms = 500});
  world.fabric.Hold(true);
  WorldFetch stuck = world.Start(core, world.source->Put(1, BigLayout(1)), MemoryKind::kHost, 1000);
  const WorldFetch other = world.Start(core, world.source->Put(2, SmallLayout()));
  world.loop->Advance(1000);
  EXPECT_FALSE(stuck.log->done());
  world.loop->Advance(510);
  EXPECT_EQ(world.EndOf(stuck), FetchEnd::kDeadline);
  for (auto& buffer : stuck.buffers) std::fill(buffer.begin(), buffer.end(), std::byte{0x3C});
  world.fabric.Hold(false);
  world.fabric.Finish();
  world.loop->Advance(100);
  world.ExpectWhole(other);
  EXPECT_EQ(world.fabric.connects(), 2);
  EXPECT_EQ(world.downs, 1);
  for (const auto& buffer : stuck.buffers) {
    EXPECT_TRUE(std::all_of(buffer.begin(), buffer.end(), [](std::byte b) { return b == std::byte{0x3C}; }));
  }
}

TEST(PathCoreTest, ALostLinkIsMendedOnceUnderAFetch) {
  ProtocolWorld world;
  PathCore* const core = world.MakeCore({.window = 3});
  world.fabric.Hold(true);
  const WorldFetch fetch = world.Start(core, world.source->Put(1, BigLayout()));
  world.loop->Run();
  world.fabric.Finish();
  world.loop->Run();
  world.fabric.Break();
  world.loop->Run();
  EXPECT_FALSE(fetch.log->done());
  EXPECT_EQ(world.downs, 1);
  world.fabric.Hold(false);
  world.fabric.Finish();
  world.loop->Run();
  world.ExpectWhole(fetch);

  const WorldFetch unlucky = world.Start(core, world.source->Put(2, SmallLayout(), /*ready=*/false));
  world.loop->Run();
  world.fabric.Break();
  world.loop->Run();
  EXPECT_FALSE(unlucky.log->done());
  world.fabric.Break();
  world.loop->Run();
  EXPECT_EQ(world.EndOf(unlucky), FetchEnd::kPathDown);
}

TEST(PathCoreTest, ALinkThatIsLostAtTheConfirmationIsAskedAgain) {
  ProtocolWorld world;
  PathCore* const core = world.MakeCore();
  bool drop = true;
  world.fabric.set_filter([&](uint8_t kind, std::string*) {
    return kind != static_cast<uint8_t>(wire::Kind::kConfirm) || !drop;
  });
  const WorldFetch fetch = world.Start(core, world.source->Put(1, SmallLayout()));
  world.loop->Run();
  EXPECT_EQ(fetch.log->ended(), 4u);
  EXPECT_FALSE(fetch.log->done());
  drop = false;
  world.fabric.Break();
  world.loop->Run();
  world.ExpectWhole(fetch);
}

TEST(PathCoreTest, FailedAttemptsAreMadeOneAtATimeAndFurtherAndFurtherApart) {
  ProtocolWorld world;
  PathCore* const core = world.MakeCore();
  world.door->mood = ScriptedDoor::Mood::kRefuses;
  const auto region = world.source->Put(1, SmallLayout());
  const WorldFetch first = world.Start(core, region);
  world.loop->Run();
  EXPECT_EQ(world.EndOf(first), FetchEnd::kPathDown);
  std::vector<WorldFetch> fetches;
  for (int i = 0; i < 300; ++i) {
    fetches.push_back(world.Start(core, region));
    world.loop->Advance(100);
  }
  EXPECT_LT(world.door->asked, 60) << "in 30 s, with 2 s between attempts at most";
  EXPECT_GT(world.door->asked, 10);
  world.door->mood = ScriptedDoor::Mood::kGives;
  const WorldFetch fetch = world.Start(core, region);
  world.loop->Advance(2'010);
  world.ExpectWhole(fetch);
}

TEST(PathCoreTest, ADoorThatNeverAnswersIsGivenUp) {
  ProtocolWorld world;
  PathCore* const core = world.MakeCore();
  world.door->mood = ScriptedDoor::Mood::kSilent;
  const WorldFetch fetch = world.Start(core, world.source->Put(1, SmallLayout()));
  world.loop->Advance(2'900);
  EXPECT_FALSE(fetch.log->done());
  world.loop->Advance(200);
  EXPECT_EQ(world.EndOf(fetch), FetchEnd::kPathDown);
}

TEST(PathCoreTest, APeerThatFallsSilentEndsTheLinkButWaitingAloneDoesNot) {
  ProtocolWorld world;
  PathCore* const core = world.MakeCore();
  const auto late = world.source->Put(1, SmallLayout(), /*ready=*/false);
  const WorldFetch fetch = world.Start(core, late, MemoryKind::kHost, 600'000);
  world.loop->Advance(60'000);
  EXPECT_FALSE(fetch.log->done()) << "the peer answers pings while a layer is being compiled";
  EXPECT_EQ(world.downs, 0);
  bool silent = true;
  world.fabric.set_filter([&](uint8_t, std::string*) { return !silent; });
  world.loop->Advance(7'100);
  EXPECT_EQ(world.downs, 1);
  world.loop->Advance(10'000);
  EXPECT_EQ(world.EndOf(fetch), FetchEnd::kPathDown);
  silent = false;
  world.source->MakeAllReady(*late);
  const WorldFetch again = world.Start(core, late);
  world.loop->Advance(2'010);
  world.ExpectWhole(again);
}

TEST(PathCoreTest, LiesAboutPiecesNeverBecomeBytesThatAreCalledGood) {
  struct Lie {
    const char* what;
    std::function<void(wire::Piece*)> tell;
    FetchEnd end;
  };
  const std::vector<Lie> lies = {
      {"a request that was never made", [](wire::Piece* p) { p->request += 1000; }, FetchEnd::kPathDown},
      {"another life", [](wire::Piece* p) { p->incarnation += 1; }, FetchEnd::kPathDown},
      {"another layer", [](wire::Piece* p) { p->layer += 1; }, FetchEnd::kDamaged},
      {"another offset", [](wire::Piece* p) { p->offset += 1; }, FetchEnd::kDamaged},
      {"a shorter piece", [](wire::Piece* p) { p->length -= 1; }, FetchEnd::kDamaged},
      {"a checksum too few", [](wire::Piece* p) { p->crcs.pop_back(); }, FetchEnd::kDamaged},
      {"a wrong checksum", [](wire::Piece* p) { p->crcs[0] ^= 1; }, FetchEnd::kDamaged},
      {"a cancel that nobody asked for",
       [](wire::Piece* p) {
         p->crcs.clear();
         p->status = CancelledStatus();
       },
       FetchEnd::kPathDown},
  };
  for (const bool rma : {false, true}) {
    for (const Lie& lie : lies) {
      SCOPED_TRACE(std::string(lie.what) + (rma ? ", rma" : ""));
      ProtocolWorld world(rma);
      PathCore* const core = world.MakeCore();
      world.fabric.set_filter([&](uint8_t kind, std::string* header) {
        if (kind != kPiece) return true;
        auto piece = wire::DecodePiece(AsBytes(*header));
        EXPECT_TRUE(piece.has_value());
        lie.tell(&*piece);
        *header = wire::Encode(*piece);
        return true;
      });
      // Without checksums of its own, so that the peer's word is asked for with RMA, too.
      const WorldFetch fetch =
          world.Start(core, world.source->Put(1, SmallLayout(2, 100), /*ready=*/true, /*told=*/false));
      world.loop->Advance(100);
      EXPECT_EQ(world.EndOf(fetch), lie.end);
      for (size_t range = 0; range < 2; ++range) EXPECT_FALSE(fetch.log->range(range).ok());
    }
  }
}

TEST(PathCoreTest, GarbageInsteadOfAnswersEndsTheLinkOnly) {
  for (const wire::Kind kind :
       {wire::Kind::kWelcome, wire::Kind::kLayer, wire::Kind::kPiece, wire::Kind::kConfirmed}) {
    SCOPED_TRACE(static_cast<int>(kind));
    ProtocolWorld world;
    PathCore* const core = world.MakeCore();
    bool lie = true;
    world.fabric.set_filter([&](uint8_t sent, std::string* header) {
      if (lie && sent == static_cast<uint8_t>(kind)) *header = "garbage";
      return true;
    });
    const WorldFetch fetch = world.Start(core, world.source->Put(1, SmallLayout()));
    world.loop->Advance(10'000);
    EXPECT_EQ(world.EndOf(fetch), FetchEnd::kPathDown);
    lie = false;
    const WorldFetch again = world.Start(core, world.source->Put(2, SmallLayout()));
    world.loop->Advance(3'000);
    world.ExpectWhole(again);
  }
}

TEST(PathCoreTest, RmaReadsBytesAndAsksForChecksumsOnlyWhereTheyAreNotKnown) {
  for (const bool told : {true, false}) {
    SCOPED_TRACE(told);
    ProtocolWorld world(/*rma=*/true);
    PathCore* const core = world.MakeCore();
    int reads = 0;
    world.fabric.set_filter([&](uint8_t kind, std::string*) {
      reads += kind == kRead ? 1 : 0;
      return true;
    });
    const WorldFetch fetch = world.Start(core, world.source->Put(1, BigLayout(), /*ready=*/true, told));
    world.loop->Run();
    world.ExpectWhole(fetch);
    EXPECT_EQ(world.fabric.gets(), 3 * 4);
    EXPECT_EQ(reads, told ? 0 : 3 * 4);
  }
}

TEST(PathCoreTest, DamageThatRmaBringsIsSeenAndALeaseThatEndedMeanwhileToo) {
  ProtocolWorld world(/*rma=*/true);
  PathCore* const core = world.MakeCore();
  const auto damaged = world.source->Put(1, BigLayout());
  world.source->Damage(*damaged, 1, 200'000);
  const WorldFetch bad = world.Start(core, damaged);
  world.loop->Run();
  EXPECT_EQ(world.EndOf(bad), FetchEnd::kDamaged);
  EXPECT_OK(bad.log->range(0));
  EXPECT_FALSE(bad.log->range(1).ok());

  world.fabric.Hold(true);
  const auto region = world.source->Put(2, SmallLayout());
  const WorldFetch late = world.Start(core, region);
  world.loop->Run();
  world.source->EndLease(*region);
  world.fabric.Hold(false);
  world.fabric.Finish();
  world.loop->Run();
  EXPECT_EQ(world.EndOf(late), FetchEnd::kLeaseEnded);
}

TEST(PathCoreTest, RmaOnItsWayKeepsTheBufferUntilTheLaneIsClosed) {
  ProtocolWorld world(/*rma=*/true);
  PathCore* const core = world.MakeCore({.window = 4, .end_grace_ms = 500});
  world.fabric.Hold(true);
  WorldFetch fetch = world.Start(core, world.source->Put(1, BigLayout(1), /*ready=*/true, /*told=*/false));
  world.loop->Run();
  core->Cancel(fetch.id);
  world.loop->Run();
  EXPECT_FALSE(fetch.log->done());
  world.loop->Advance(600);
  EXPECT_EQ(world.EndOf(fetch), FetchEnd::kCancelled);
}

TEST(PathCoreTest, EndsOfDifferentKindsDoNotMeet) {
  ProtocolWorld world;
  world.door->ticket.rma = true;
  PathCore* const core = world.MakeCore();
  const WorldFetch fetch = world.Start(core, world.source->Put(1, SmallLayout()));
  world.loop->Run();
  EXPECT_EQ(world.EndOf(fetch), FetchEnd::kPathDown);
  EXPECT_EQ(world.fabric.connects(), 0);
}

TEST(PathCoreTest, PiecesForADeviceAreCheckedInPinnedMemoryAndCopied) {
  ProtocolWorld* world = nullptr;
  FakeDevice device(/*can_sum=*/false);
  {
    StagingPool pool(&device, wire::kMaxPieceBytes, 32);
    ProtocolWorld own;
    world = &own;
    own.staging = &pool;
    PathCore* const core = own.MakeCore({.window = 4});
    const WorldFetch fetch = own.Start(core, own.source->Put(1, BigLayout(2)), MemoryKind::kCuda);
    own.loop->Run();
    EXPECT_EQ(device.waiting(), 4u);
    EXPECT_EQ(fetch.buffers[0][0], std::byte{0xA5}) << "nothing was copied yet";
    while (device.Finish()) own.loop->Run();
    own.ExpectWhole(fetch);
    EXPECT_EQ(device.pinned(), 4u) << "no more slots than pieces under way";

    const auto damaged = own.source->Put(2, SmallLayout());
    own.source->Damage(*damaged, 0, 7);
    const WorldFetch bad = own.Start(core, damaged, MemoryKind::kCuda);
    for (own.loop->Run(); device.Finish();) own.loop->Run();
    EXPECT_EQ(own.EndOf(bad), FetchEnd::kDamaged);
    EXPECT_EQ(bad.buffers[0][0], std::byte{0xA5}) << "damaged bytes do not reach the device";
  }
  EXPECT_NE(world, nullptr);
}

TEST(PathCoreTest, ADeviceBufferIsNotGivenBackWhileItIsCopiedTo) {
  FakeDevice device(/*can_sum=*/false);
  StagingPool pool(&device, wire::kMaxPieceBytes, 32);
  ProtocolWorld world;
  world.staging = &pool;
  PathCore* const core = world.MakeCore();
  const WorldFetch fetch = world.Start(core, world.source->Put(1, SmallLayout(1)), MemoryKind::kCuda);
  world.loop->Run();
  core->Cancel(fetch.id);
  world.loop->Run();
  EXPECT_FALSE(fetch.log->done());
  device.Finish();
  world.loop->Run();
  EXPECT_EQ(world.EndOf(fetch), FetchEnd::kCancelled);
}

TEST(PathCoreTest, WhereUcxReachesADeviceThatCanSumNothingIsStaged) {
  FakeDevice device(/*can_sum=*/true);
  StagingPool pool(&device, wire::kMaxPieceBytes, 32);
  ProtocolWorld world(/*rma=*/false, /*device=*/true);
  world.staging = &pool;
  PathCore* const core = world.MakeCore();
  const WorldFetch fetch = world.Start(core, world.source->Put(1, BigLayout()), MemoryKind::kCuda);
  for (world.loop->Run(); device.Finish();) world.loop->Run();
  world.ExpectWhole(fetch);
  EXPECT_EQ(device.pinned(), 0u);
  const auto damaged = world.source->Put(2, SmallLayout());
  world.source->Damage(*damaged, 0, 7);
  const WorldFetch bad = world.Start(core, damaged, MemoryKind::kCuda);
  for (world.loop->Run(); device.Finish();) world.loop->Run();
  EXPECT_EQ(world.EndOf(bad), FetchEnd::kDamaged);
}

TEST(PathCoreTest, WithoutADeviceOrItsMemoryTheFetchIsForAnotherPath) {
  ProtocolWorld world;
  PathCore* const core = world.MakeCore();
  const WorldFetch fetch = world.Start(core, world.source->Put(1, SmallLayout()), MemoryKind::kCuda);
  EXPECT_EQ(world.EndOf(fetch), FetchEnd::kNotOnThisPath);

  FakeDevice device(/*can_sum=*/false, /*slots=*/0);
  StagingPool pool(&device, wire::kMaxPieceBytes, 32);
  ProtocolWorld full;
  full.staging = &pool;
  const WorldFetch none = full.Start(full.MakeCore(), full.source->Put(1, SmallLayout()), MemoryKind::kCuda);
  full.loop->Run();
  EXPECT_EQ(full.EndOf(none), FetchEnd::kPathDown);
}

TEST(PathCoreTest, TooManyFetchesAreRefused) {
  ProtocolWorld world;
  PathCore* const core = world.MakeCore({.max_fetches = 3});
  const auto late = world.source->Put(1, SmallLayout(), /*ready=*/false);
  std::vector<WorldFetch> fetches;
  for (int i = 0; i < 4; ++i) fetches.push_back(world.Start(core, late));
  EXPECT_EQ(world.EndOf(fetches[3]), FetchEnd::kPathDown);
  world.source->MakeAllReady(*late);
  world.loop->Run();
  for (int i = 0; i < 3; ++i) world.ExpectWhole(fetches[i]);
}

TEST(PathCoreTest, CancelledRequestsKeepTheirPlaceUntilTheyAreAnswered) {
  ProtocolWorld world;
  PathCore* const core = world.MakeCore({.window = 2});
  std::vector<WorldFetch> fetches;
  int open = 0;
  int most = 0;
  world.fabric.set_filter([&](uint8_t kind, std::string*) {
    open += kind == kRead ? 1 : kind == kPiece ? -1 : 0;
    most = std::max(most, open);
    return true;
  });
  for (uint64_t i = 0; i < 30; ++i) {
    fetches.push_back(world.Start(core, world.source->Put(i + 1, BigLayout(1))));
    if (i == 0) world.loop->Run();
    core->Cancel(fetches.back().id);
  }
  world.loop->Run();
  EXPECT_LE(most, 2);
  const WorldFetch fetch = world.Start(core, world.source->Put(100, BigLayout(1)));
  world.loop->Run();
  world.ExpectWhole(fetch);
  EXPECT_LE(most, 2);
}

TEST(PathCoreTest, RandomFaultsEndEveryFetchAndNoWrongByteIsCalledGood) {
  const uint64_t seed = 77;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  for (const bool rma : {false, true}) {
    ProtocolWorld world(rma, false, 6);
    PathCore* const cores[] = {world.MakeCore({.window = 3, .end_grace_ms = 300}),
                               world.MakeCore({.window = 4, .end_grace_ms = 300})};
    world.fabric.set_filter([&](uint8_t kind, std::string* header) {
      if (rng.Below(200) != 0) return true;
      // A wrong address would be read here, out of this very process.
      if (rma && kind == static_cast<uint8_t>(wire::Kind::kLayer)) return true;
      if (rng.Below(3) == 0) return false;
      if (!header->empty()) (*header)[rng.Below(header->size())] ^= static_cast<char>(1 + rng.Below(255));
      return true;
    });
    std::vector<std::shared_ptr<const Region>> regions;
    for (uint64_t i = 0; i < 4; ++i) regions.push_back(world.source->Put(i + 1, BigLayout()));
    std::vector<WorldFetch> fetches;
    int whole = 0;
    for (int step = 0; step < 400; ++step) {
      fetches.push_back(world.Start(cores[rng.Below(2)], regions[rng.Below(4)], MemoryKind::kHost,
                                    100 + static_cast<int64_t>(rng.Below(4000))));
      world.fabric.Hold(rng.Below(3) == 0);
      world.loop->Advance(static_cast<int64_t>(rng.Below(100)));
      if (rng.Below(5) == 0) cores[rng.Below(2)]->Cancel(fetches[rng.Below(fetches.size())].id);
      if (rng.Below(40) == 0) world.fabric.Break();
      world.door->mood = rng.Below(10) == 0 ? ScriptedDoor::Mood::kRefuses : ScriptedDoor::Mood::kGives;
      if (rng.Below(2) == 0) world.fabric.Finish();
    }
    world.fabric.set_filter(nullptr);
    world.fabric.Hold(false);
    world.fabric.Finish();
    world.loop->Advance(20'000);
    for (const WorldFetch& fetch : fetches) {
      ASSERT_TRUE(fetch.log->done());
      if (fetch.log->WaitDone().ok()) {
        world.ExpectWhole(fetch);
        whole += 1;
      }
    }
    EXPECT_GT(whole, 50);
  }
}

}  // namespace
}  // namespace epic::transport
