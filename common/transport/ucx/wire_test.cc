#include "common/transport/ucx/wire.h"

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/transport/ucx/lane.h"

namespace epic::transport::wire {
namespace {

TEST(WireTest, EveryMessageComesBackAsItWas) {
  Hello hello;
  for (size_t i = 0; i < hello.secret.size(); ++i) hello.secret[i] = static_cast<std::byte>(i * 17);
  EXPECT_EQ(DecodeHello(AsBytes(Encode(hello)))->secret, hello.secret);
  EXPECT_EQ(DecodeWelcome(AsBytes(Encode(Welcome{.incarnation = 9})))->incarnation, 9u);

  const auto open = DecodeOpen(AsBytes(Encode(Open{
      .fetch = 1, .lease = {.incarnation = 2, .holder = 3, .number = 4}, .layers = {5, 0, ~uint32_t{0}}})));
  ASSERT_TRUE(open.has_value());
  EXPECT_EQ(open->fetch, 1u);
  EXPECT_EQ(open->lease, (LeaseName{.incarnation = 2, .holder = 3, .number = 4}));
  EXPECT_EQ(open->layers, (std::vector<uint32_t>{5, 0, ~uint32_t{0}}));
  const auto wait = DecodeWait(AsBytes(Encode(Wait{.fetch = 7, .layers = {}})));
  ASSERT_TRUE(wait.has_value());
  EXPECT_EQ(wait->fetch, 7u);

  const auto layer = DecodeLayer(AsBytes(Encode(Layer{.fetch = 1, .layer = 2, .size = 3, .address = 4})));
  ASSERT_TRUE(layer.has_value());
  EXPECT_EQ(layer->layer, 2u);
  EXPECT_EQ(layer->size, 3u);
  EXPECT_EQ(layer->address, 4u);
  EXPECT_TRUE(layer->status.ok());

  const auto read = DecodeRead(AsBytes(Encode(Read{
      .fetch = 1, .request = 2, .layer = 3, .offset = uint64_t{1} << 40, .length = 5, .sums_only = true})));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->offset, uint64_t{1} << 40);
  EXPECT_EQ(read->length, 5u);
  EXPECT_TRUE(read->sums_only);

  const auto piece = DecodePiece(AsBytes(
      Encode(Piece{.request = 1, .layer = 2, .offset = 3, .length = 4, .incarnation = 5, .crcs = {6, 7}})));
  ASSERT_TRUE(piece.has_value());
  EXPECT_EQ(piece->crcs, (std::vector<uint32_t>{6, 7}));
  EXPECT_EQ(piece->incarnation, 5u);

  EXPECT_TRUE(DecodeConfirmed(AsBytes(Encode(Confirmed{.fetch = 1, .held = true})))->held);
  EXPECT_EQ(DecodeConfirm(AsBytes(Encode(Confirm{.fetch = 8})))->fetch, 8u);
  EXPECT_EQ(DecodeEnd(AsBytes(Encode(End{.fetch = 8})))->fetch, 8u);
  EXPECT_EQ(DecodePing(AsBytes(Encode(Ping{.number = 8})))->number, 8u);
  EXPECT_EQ(DecodePong(AsBytes(Encode(Pong{.number = 8})))->number, 8u);
}

TEST(WireTest, AStatusKeepsItsMeaningAndItsWords) {
  const absl::Status statuses[] = {
      LeaseEndedStatus(),
      DamagedStatus(3),
      PathDownStatus("too much is open"),
      NotOnThisPathStatus("no"),
      DeadlineStatus(),
      Error(ErrorCode::kContextFailed, "the compile failed"),
      Error(ErrorCode::kDraining, "going"),
      absl::UnknownError("odd"),
      absl::InvalidArgumentError(""),
  };
  for (const absl::Status& status : statuses) {
    const auto layer = DecodeLayer(AsBytes(Encode(Layer{.fetch = 1, .layer = 2, .status = status})));
    ASSERT_TRUE(layer.has_value()) << status;
    EXPECT_EQ(layer->status.code(), status.code());
    EXPECT_EQ(EndOf(layer->status), EndOf(status)) << status;
    EXPECT_EQ(CodeOf(layer->status), CodeOf(status)) << status;
    EXPECT_EQ(layer->status.message(), status.message());
  }
  const auto cut = DecodeLayer(
      AsBytes(Encode(Layer{.fetch = 1, .layer = 2, .status = absl::UnknownError(std::string(5000, 'x'))})));
  ASSERT_TRUE(cut.has_value());
  EXPECT_EQ(cut->status.message().size(), kMaxStatusText);
  const auto tame = DecodeLayer(
      AsBytes(Encode(Layer{.fetch = 1, .layer = 2, .status = absl::UnknownError("a\nb\x1b[31m")})));
  ASSERT_TRUE(tame.has_value());
  EXPECT_EQ(tame->status.message(), "a b [31m");
}

TEST(WireTest, TheLargestMessagesFitIntoAHeader) {
  EXPECT_LE(Encode(Open{.layers = std::vector<uint32_t>(kMaxLayers)}).size(), Fabric::kMaxHeaderBytes);
  EXPECT_LE(Encode(Piece{.crcs = std::vector<uint32_t>(kMaxPieceBlocks)}).size() + kMaxStatusText,
            Fabric::kMaxHeaderBytes);
  EXPECT_TRUE(DecodePiece(AsBytes(Encode(Piece{.length = static_cast<uint32_t>(kMaxPieceBytes),
                                               .crcs = std::vector<uint32_t>(kMaxPieceBlocks)})))
                  .has_value());
}

TEST(WireTest, WhatCannotBeIsRefused) {
  const std::string read = Encode(Read{.length = 1});
  EXPECT_TRUE(DecodeRead(AsBytes(read)).has_value());
  EXPECT_FALSE(DecodeRead(AsBytes(read + "x")).has_value());
  EXPECT_FALSE(DecodeRead(AsBytes(read.substr(1))).has_value());
  EXPECT_FALSE(DecodeRead({}).has_value());
  EXPECT_FALSE(DecodeRead(AsBytes(Encode(Read{.length = 0}))).has_value());
  EXPECT_FALSE(DecodeRead(AsBytes(Encode(Read{.length = kMaxPieceBytes + 1}))).has_value());
  EXPECT_FALSE(DecodeRead(AsBytes(Encode(Read{.offset = ~uint64_t{0}, .length = 2}))).has_value());

  std::string hello = Encode(Hello{});
  hello[4] = 2;
  EXPECT_FALSE(DecodeHello(AsBytes(hello)).has_value()) << "another version";
  EXPECT_FALSE(DecodePiece(AsBytes(Encode(Piece{.length = 1}))).has_value()) << "no checksums and no error";
  EXPECT_FALSE(DecodeLayer(AsBytes(Encode(Layer{}))).has_value()) << "all layers at once";
  EXPECT_FALSE(
      DecodeLayer(AsBytes(Encode(Layer{.layer = 1, .size = 5, .status = DamagedStatus(1)}))).has_value());
  std::string wait = Encode(Wait{.layers = {1, 2}});
  wait[8] = 3;
  EXPECT_FALSE(DecodeWait(AsBytes(wait)).has_value()) << "fewer than it says";
}

}  // namespace
}  // namespace epic::transport::wire
