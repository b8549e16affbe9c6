#include "common/transport/ucx/piece_server.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/testing/status_matchers.h"
#include "common/transport/ucx/testing/protocol_world.h"

namespace epic::transport {
namespace {

// A reader that says whatever a test wants, and takes bodies or leaves them.
class RawReader final : public LaneEvents {
 public:
  explicit RawReader(ProtocolWorld* world) : world_(world) {
    auto lane = world->fabric.Connect("peer", this);
    EPIC_CHECK(lane.ok());
    lane_ = *lane;
    world->loop->Run();
  }
  ~RawReader() override {
    lane_->Close();
    world_->loop->Run();
  }
  template <typename Message>
  void Say(wire::Kind kind, const Message& message) {
    SayRaw(static_cast<uint8_t>(kind), wire::Encode(message));
  }
  void SayRaw(uint8_t kind, std::string header, ByteSpan body = {}) {
    lane_->Send(kind, std::move(header), body, MemoryKind::kHost, [](const absl::Status&) {});
    world_->loop->Run();
  }
  void Hello() { Say(wire::Kind::kHello, wire::Hello{.secret = world_->book.Issue()}); }
  void Open(const Region& region, uint64_t fetch, std::vector<uint32_t> layers) {
    Say(wire::Kind::kOpen, wire::Open{.fetch = fetch, .lease = region.lease, .layers = std::move(layers)});
  }

  void OnMessage(uint8_t kind, ByteSpan header, IncomingBody& body) override {
    heard.emplace_back(static_cast<wire::Kind>(kind), std::string(AsText(header)));
    if (body.size() == 0) return;
    bodies.emplace_back(body.size());
    body.ReceiveInto(bodies.back(), MemoryKind::kHost, [](const absl::Status&) {});
  }
  void OnDown(const absl::Status&) override { down = true; }

  std::optional<wire::Layer> LastLayer() const { return wire::DecodeLayer(AsBytes(heard.back().second)); }
  std::optional<wire::Piece> LastPiece() const { return wire::DecodePiece(AsBytes(heard.back().second)); }

  std::vector<std::pair<wire::Kind, std::string>> heard;
  std::deque<std::vector<std::byte>> bodies;
  bool down = false;

 private:
  ProtocolWorld* const world_;
  Lane* lane_ = nullptr;
};

TEST(PieceServerTest, NobodyIsServedWithoutATicket) {
  ProtocolWorld world;
  const auto region = world.source->Put(1, SmallLayout());
  {
    RawReader reader(&world);
    reader.Open(*region, 1, {0});
    EXPECT_TRUE(reader.down);
    EXPECT_TRUE(reader.heard.empty());
  }
  {
    RawReader reader(&world);
    reader.Say(wire::Kind::kHello, wire::Hello{});
    EXPECT_TRUE(reader.down);
  }
  const wire::Secret secret = world.book.Issue();
  RawReader reader(&world);
  reader.Say(wire::Kind::kHello, wire::Hello{.secret = secret});
  EXPECT_FALSE(reader.down);
  ASSERT_EQ(reader.heard.size(), 1u);
  EXPECT_EQ(wire::DecodeWelcome(AsBytes(reader.heard[0].second))->incarnation, 11u);
  RawReader thief(&world);
  thief.Say(wire::Kind::kHello, wire::Hello{.secret = secret});
  EXPECT_TRUE(thief.down) << "a ticket opens one lane";
}

TEST(PieceServerTest, ALaneThatShowsNoTicketIsClosed) {
  ProtocolWorld world;
  RawReader reader(&world);
  world.loop->Advance(4'900);
  EXPECT_FALSE(reader.down);
  world.loop->Advance(700);
  EXPECT_TRUE(reader.down);
  EXPECT_EQ(world.server.sessions(), 0u);
  EXPECT_EQ(world.loop->timers(), 0u);
}

TEST(PieceServerTest, WhatCannotBeEndsTheLaneAndLetsGoOfTheObject) {
  ProtocolWorld world;
  const auto region = world.source->Put(1, SmallLayout(), /*ready=*/false);
  const std::vector<std::pair<uint8_t, std::string>> wrong = {
      {1, wire::Encode(wire::Hello{})},
      {2, wire::Encode(wire::Welcome{})},
      {3, wire::Encode(wire::Open{.fetch = 1, .lease = region->lease})},
      {3, "short"},
      {4, wire::Encode(wire::Wait{.fetch = 1, .layers = {4}})},
      {4, wire::Encode(wire::Wait{.fetch = 1, .layers = {0}})},
      {6, "x"},
      {7, wire::Encode(wire::Piece{.crcs = {1}})},
      {8, ""},
      {10, "123456789"},
      {11, ""},
      {15, ""},
  };
  for (const auto& [kind, header] : wrong) {
    SCOPED_TRACE(static_cast<int>(kind));
    RawReader reader(&world);
    reader.Hello();
    reader.Open(*region, 1, {0});
    EXPECT_EQ(world.source->open(), 1);
    reader.SayRaw(kind, header);
    EXPECT_TRUE(reader.down);
    EXPECT_EQ(world.source->open(), 0);
  }
  RawReader reader(&world);
  reader.Hello();
  const std::vector<std::byte> body(10);
  reader.SayRaw(11, wire::Encode(wire::Ping{}), body);
  EXPECT_TRUE(reader.down) << "a body that nobody asked for";
}

TEST(PieceServerTest, ReadsThatMayNotBeAreRefusedWithoutBytes) {
  ProtocolWorld world;
  const auto region = world.source->Put(1, SmallLayout(4, 2'000), /*ready=*/false);
  world.source->MakeReady(*region, 0);
  RawReader reader(&world);
  reader.Hello();
  reader.Open(*region, 1, {0, 1});
  const uint64_t head = region->layout.HeadBytes();
  const auto read = [&](wire::Read message) {
    message.request = reader.heard.size();
    reader.Say(wire::Kind::kRead, message);
    const auto piece = reader.LastPiece();
    EXPECT_TRUE(piece.has_value() && piece->request == message.request);
    return piece.has_value() ? piece->status : absl::InternalError("no answer");
  };
  EXPECT_OK(read({.fetch = 1, .layer = 0, .offset = 0, .length = static_cast<uint32_t>(head)}));
  EXPECT_EQ(reader.bodies.size(), 1u);
  EXPECT_OK(
      read({.fetch = 1, .layer = 0, .offset = 0, .length = static_cast<uint32_t>(head), .sums_only = true}));
  EXPECT_FALSE(read({.fetch = 2, .layer = 0, .offset = 0, .length = static_cast<uint32_t>(head)}).ok());
  EXPECT_FALSE(read({.fetch = 1, .layer = 1, .offset = 0, .length = static_cast<uint32_t>(head)}).ok());
  EXPECT_FALSE(read({.fetch = 1, .layer = 3, .offset = 0, .length = static_cast<uint32_t>(head)}).ok());
  EXPECT_FALSE(read({.fetch = 1, .layer = 9, .offset = 0, .length = static_cast<uint32_t>(head)}).ok());
  EXPECT_FALSE(read({.fetch = 1, .layer = 0, .offset = 1, .length = 100}).ok());
  EXPECT_FALSE(read({.fetch = 1, .layer = 0, .offset = 4 * head, .length = 100}).ok());
  EXPECT_FALSE(read({.fetch = 1, .layer = 0, .offset = uint64_t{1} << 60, .length = 100}).ok());
  EXPECT_EQ(reader.bodies.size(), 1u);
  EXPECT_FALSE(reader.down);
}

TEST(PieceServerTest, AReaderThatTakesNothingLosesItsLaneAndTheObjectIsLetGo) {
  ProtocolWorld world;
  const auto region = world.source->Put(1, SmallLayout(1, 2'000));
  RawReader reader(&world);
  reader.Hello();
  reader.Open(*region, 1, {0});
  world.fabric.Hold(true);
  reader.Say(wire::Kind::kRead,
             wire::Read{.fetch = 1, .length = static_cast<uint32_t>(region->layout.HeadBytes())});
  reader.Say(wire::Kind::kEnd, wire::End{.fetch = 1});
  EXPECT_EQ(world.source->open(), 1) << "the bytes are still on their way";
  world.loop->Advance(14'000);
  EXPECT_FALSE(reader.down);
  world.loop->Advance(2'000);
  EXPECT_TRUE(reader.down);
  EXPECT_EQ(world.source->open(), 0);
}

TEST(PieceServerTest, AReaderThatSaysNothingMoreHoldsItsObjectsForAWhileOnly) {
  ProtocolWorld world;
  const auto region = world.source->Put(1, SmallLayout(), /*ready=*/false);
  RawReader reader(&world);
  reader.Hello();
  reader.Open(*region, 1, {0});
  for (int seconds = 0; seconds < 60; seconds += 10) {
    world.loop->Advance(10'000);
    reader.Say(wire::Kind::kPing, wire::Ping{});
  }
  EXPECT_EQ(world.source->open(), 1) << "it waits for a layer, and says that it is there";
  world.loop->Advance(16'000);
  EXPECT_TRUE(reader.down);
  EXPECT_EQ(world.source->open(), 0);
}

TEST(PieceServerTest, MoreReadsAtATimeThanAReaderMayHaveEndTheLane) {
  ProtocolWorld world;
  const auto region = world.source->Put(1, SmallLayout(1, 2'000));
  RawReader reader(&world);
  reader.Hello();
  reader.Open(*region, 1, {0});
  world.fabric.Hold(true);
  const auto length = static_cast<uint32_t>(region->layout.HeadBytes());
  for (uint64_t request = 0; request < 64; ++request) {
    reader.Say(wire::Kind::kRead, wire::Read{.fetch = 1, .request = request, .length = length});
  }
  EXPECT_FALSE(reader.down);
  reader.Say(wire::Kind::kRead, wire::Read{.fetch = 1, .request = 64, .length = length});
  EXPECT_TRUE(reader.down);
}

TEST(PieceServerTest, TooManyFetchesAreRefusedAndEndedOnesMakeRoom) {
  ProtocolWorld world;
  const auto region = world.source->Put(1, SmallLayout());
  RawReader reader(&world);
  reader.Hello();
  for (uint64_t fetch = 1; fetch <= 1024; ++fetch) reader.Open(*region, fetch, {});
  EXPECT_EQ(world.source->open(), 1024);
  reader.Open(*region, 1025, {0});
  ASSERT_TRUE(reader.LastLayer().has_value());
  EXPECT_EQ(EndOf(reader.LastLayer()->status), FetchEnd::kPathDown);
  reader.Say(wire::Kind::kEnd, wire::End{.fetch = 7});
  reader.Open(*region, 1026, {0});
  EXPECT_OK(reader.LastLayer()->status);
  EXPECT_EQ(world.source->open(), 1024);
}

TEST(PieceServerTest, RandomWordsNeverBreakIt) {
  const uint64_t seed = 31;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  ProtocolWorld world;
  const auto region = world.source->Put(1, SmallLayout(4, 100));
  auto reader = std::make_unique<RawReader>(&world);
  reader->Hello();
  for (int step = 0; step < 20'000; ++step) {
    if (reader->down) {
      reader = std::make_unique<RawReader>(&world);
      reader->Hello();
    }
    const uint64_t fetch = rng.Below(4);
    std::string header;
    const auto kind = static_cast<uint8_t>(1 + rng.Below(12));
    switch (static_cast<wire::Kind>(kind)) {
      case wire::Kind::kOpen:
        header = wire::Encode(wire::Open{
            .fetch = fetch, .lease = region->lease, .layers = {static_cast<uint32_t>(rng.Below(5))}});
        break;
      case wire::Kind::kWait:
        header = wire::Encode(wire::Wait{.fetch = fetch, .layers = {static_cast<uint32_t>(rng.Below(5))}});
        break;
      case wire::Kind::kRead:
        header = wire::Encode(wire::Read{.fetch = fetch,
                                         .layer = static_cast<uint32_t>(rng.Below(5)),
                                         .offset = rng.Below(3) * region->layout.HeadBytes(),
                                         .length = static_cast<uint32_t>(region->layout.HeadBytes())});
        break;
      case wire::Kind::kConfirm:
      case wire::Kind::kEnd:
      case wire::Kind::kPing:
        header = wire::Encode(wire::End{.fetch = fetch});
        break;
      default:
        header = std::string(rng.Below(64), static_cast<char>(rng.Next()));
    }
    if (rng.Below(10) == 0 && !header.empty()) header[rng.Below(header.size())] ^= 0x10;
    reader->SayRaw(kind, header);
    ASSERT_LE(world.source->open(), 4);
  }
}

}  // namespace
}  // namespace epic::transport
