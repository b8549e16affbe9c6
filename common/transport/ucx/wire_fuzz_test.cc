// Random and mutated bytes into every decoder of what peers send: a value or nothing, never a crash, and
// never a value that does not encode to what was read. Prints its seed; more rounds run under the sanitizers.
#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/status/error.h"
#include "common/transport/ucx/ticket.h"
#include "common/transport/ucx/wire.h"

namespace epic::transport {
namespace {

constexpr int kRounds = 20'000;

std::string Mutate(std::string bytes, Rng* rng) {
  for (uint64_t changes = 1 + rng->Below(4); changes > 0; --changes) {
    const size_t at = bytes.empty() ? 0 : rng->Below(bytes.size());
    switch (rng->Below(4)) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(rng->Next());
        break;
      case 1:
        bytes.resize(at);
        break;
      case 2:
        bytes.insert(at, rng->Below(9), static_cast<char>(rng->Next()));
        break;
      default:
        if (!bytes.empty()) bytes[at] = static_cast<char>(rng->Below(2) == 0 ? 0xff : 0);
    }
  }
  return bytes;
}

std::string Random(Rng* rng) {
  std::string bytes(rng->Below(200), '\0');
  for (char& byte : bytes) byte = static_cast<char>(rng->Next());
  return bytes;
}

template <typename Decode>
void Try(const std::string& bytes, Decode decode) {
  if (const auto value = decode(AsBytes(bytes)); value.has_value()) {
    EXPECT_EQ(wire::Encode(*value), bytes);
  }
}

// A text with control characters is the one thing that decodes to something tamer.
template <typename Decode>
void TryWithStatus(const std::string& bytes, Decode decode) {
  if (const auto value = decode(AsBytes(bytes)); value.has_value()) {
    EXPECT_EQ(wire::Encode(*value).size(), bytes.size());
  }
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
    for (int round = 0; round < kRounds; ++round) {
      const std::string bytes =
          rng.Below(8) == 0 ? Random(&rng) : Mutate(samples[rng.Below(std::size(samples))], &rng);
      Try(bytes, wire::DecodeHello);
      Try(bytes, wire::DecodeWelcome);
      Try(bytes, wire::DecodeOpen);
      Try(bytes, wire::DecodeWait);
      TryWithStatus(bytes, wire::DecodeLayer);
      Try(bytes, wire::DecodeRead);
      TryWithStatus(bytes, wire::DecodePiece);
      Try(bytes, wire::DecodeConfirm);
      Try(bytes, wire::DecodeConfirmed);
      Try(bytes, wire::DecodeEnd);
      Try(bytes, wire::DecodePing);
      Try(bytes, wire::DecodePong);
      const std::string blob = Mutate(ticket, &rng);
      const auto decoded = DecodeTicket(blob);
      EXPECT_TRUE(!decoded.ok() || EncodeTicket(*decoded) == blob);
    }
  }
}

}  // namespace
}  // namespace epic::transport
