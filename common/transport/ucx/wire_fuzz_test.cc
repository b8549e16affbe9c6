// Random and mutated bytes into every decoder of what peers send: a value or nothing, never a crash, and
// never a value that does not encode to what was read. Prints its seed; more rounds run under the sanitizers.
#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/status/error.h"
#include "common/testing/mutate.h"
#include "common/transport/ucx/ticket.h"
#include "common/transport/ucx/wire.h"

namespace epic::transport {
namespace {

constexpr int kRounds = 20'000;

std::string Random(Rng* rng) {
  std::string bytes(rng->Below(200), '\0');
  for (char& byte : bytes) byte = static_cast<char>(rng->Next());
  return bytes;
}

template <typename Decode>
void Try(const std::string& bytes, Decode decode, int* good) {
  const auto value = decode(AsBytes(bytes));
  if (!value.has_value()) return;
  ++*good;
  EXPECT_EQ(wire::Encode(*value), bytes);
}

// A text with control characters is the one thing that decodes to something tamer.
template <typename Decode>
void TryWithStatus(const std::string& bytes, Decode decode, int* good) {
  const auto value = decode(AsBytes(bytes));
  if (!value.has_value()) return;
  ++*good;
  const std::string again = wire::Encode(*value);
  EXPECT_EQ(again.size(), bytes.size());
  if (value->status.ok()) {
    EXPECT_EQ(again, bytes);
  }
  const auto twice = decode(AsBytes(again));
  ASSERT_TRUE(twice.has_value());
  EXPECT_EQ(wire::Encode(*twice), again);
}

TEST(UcxWireFuzzTest, DecodersSurviveHostileBytes) {
  const std::string samples[] = {
      wire::Encode(wire::Hello{}),
      wire::Encode(wire::Welcome{.incarnation = 4}),
      wire::Encode(wire::Open{.fetch = 1, .lease = {.incarnation = 2}, .layers = {0, 1, 2}}),
      wire::Encode(wire::Wait{.fetch = 1, .layers = {3}}),
      wire::Encode(wire::Layer{.fetch = 1, .layer = 2, .size = 100, .address = 7}),
      wire::Encode(wire::Layer{.fetch = 1, .layer = 2, .status = DamagedStatus(2)}),
      wire::Encode(wire::Read{.fetch = 1, .request = 2, .layer = 3, .offset = 4, .length = 5}),
      wire::Encode(wire::Piece{.request = 1, .length = 9, .incarnation = 2, .crcs = {1, 2, 3}}),
      wire::Encode(wire::Piece{.request = 1, .status = LeaseEndedStatus()}),
      wire::Encode(wire::Confirmed{.fetch = 1, .held = true}),
      wire::Encode(wire::Ping{.number = 1}),
  };
  const std::string ticket = EncodeTicket({.incarnation = 1,
                                           .address = "127.0.0.1:5",
                                           .rma = true,
                                           .regions = {{.address = 1, .size = 2, .key = "k"}}});
  for (const uint64_t seed : {21, 22, 23}) {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    Rng rng(seed);
    int good = 0;
    for (int round = 0; round < kRounds; ++round) {
      const std::string bytes =
          rng.Below(8) == 0 ? Random(&rng) : testing::Mutate(samples[rng.Below(std::size(samples))], &rng);
      Try(bytes, wire::DecodeHello, &good);
      Try(bytes, wire::DecodeWelcome, &good);
      Try(bytes, wire::DecodeOpen, &good);
      Try(bytes, wire::DecodeWait, &good);
      TryWithStatus(bytes, wire::DecodeLayer, &good);
      Try(bytes, wire::DecodeRead, &good);
      TryWithStatus(bytes, wire::DecodePiece, &good);
      Try(bytes, wire::DecodeConfirm, &good);
      Try(bytes, wire::DecodeConfirmed, &good);
      Try(bytes, wire::DecodeEnd, &good);
      Try(bytes, wire::DecodePing, &good);
      Try(bytes, wire::DecodePong, &good);
      const std::string blob = testing::Mutate(ticket, &rng);
      const auto decoded = DecodeTicket(blob);
      EXPECT_TRUE(!decoded.ok() || EncodeTicket(*decoded) == blob);
    }
    EXPECT_GT(good, 1000) << "hardly anything decodes";
  }
}

}  // namespace
}  // namespace epic::transport
