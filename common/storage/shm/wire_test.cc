// The wire format of the hand-over: fixed bytes, bounds, and every decoder against mutated frames.
#include "common/storage/shm/wire.h"

#include <cstdio>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/storage/object_codec.h"
#include "common/testing/mutate.h"
#include "common/testing/status_matchers.h"

namespace epic::shm {
namespace {

using epic::testing::StatusIs;

LeaseRequest SomeRequest() {
  LeaseRequest request;
  request.zero_copy = true;
  request.tenant = "ключ/../x";
  request.key.id = CacheId::Of("t", {}, std::vector<TokenId>{1, 2});
  request.key.variant = {.prefix = CompilePrefixKind::kBos,
                         .prefix_tokens = Sha256Of(AsBytes("prefix")),
                         .dtype = KvDtype::kF32,
                         .compute = ComputeFormat::kBf16};
  request.layout = {
      .layers = 3, .kv_heads = 2, .head_dim = 64, .tokens = 5, .dtype = KvDtype::kF32, .first_position = 1};
  return request;
}

LeaseAnswer SomeAnswer() {
  LeaseAnswer answer;
  answer.outcome = LeaseOutcome::kLeased;
  answer.object = {.lease = 7,
                   .generation = 1234567890123,
                   .build = Sha256Of(AsBytes("build")),
                   .layer_offsets = {0, 8192, 1 << 20},
                   .block_crcs = {1, 2, 3, 4, 0xffffffff, 6}};
  return answer;
}

TEST(ShmWireTest, AFrameHasTheBytesThatTheTableSays) {
  EXPECT_EQ(EncodeFrame(FrameType::kRelease, 0x01020304, EncodeLeaseNumber(9)),
            std::string("EPSH\x01\0\x08\0\x04\x03\x02\x01\x08\0\0\0\x09\0\0\0\0\0\0\0", 24));
  EXPECT_EQ(EncodeWelcome({.incarnation = 1, .arena_bytes = 2}),
            std::string("\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 16));
  EXPECT_EQ(EncodeReason("no"), std::string("\2\0\0\0no", 6));
  EXPECT_EQ(EncodeConfirmed(true), "\1");
  LeaseRequest request = SomeRequest();
  request.tenant = "t";
  const std::string body = EncodeLeaseRequest(request);
  EXPECT_EQ(body.substr(0, 6), std::string("\1\1\0\0\0t", 6));
  EXPECT_EQ(body.substr(6, 36), request.key.id.text());
  EXPECT_EQ(body.substr(42, 1), "\1");
  EXPECT_EQ(body.substr(43, 32), request.key.variant.prefix_tokens.view());
  EXPECT_EQ(body.substr(75), std::string("\0\1\3\0\0\0\2\0\0\0\x40\0\0\0\5\0\0\0\1\0\0\0", 22));
}

TEST(ShmWireTest, EveryBodyComesBack) {
  const FrameHeader header{.type = FrameType::kLease, .number = 77, .body_bytes = 3};
  ASSERT_OK_AND_ASSIGN(
      const FrameHeader back,
      DecodeFrameHeader(AsBytes(EncodeFrame(header.type, header.number, "abc")).first(kFrameHeaderBytes),
                        kMaxRequestBytes));
  EXPECT_EQ(back, header);
  ASSERT_OK_AND_ASSIGN(const LeaseRequest request,
                       DecodeLeaseRequest(AsBytes(EncodeLeaseRequest(SomeRequest()))));
  EXPECT_EQ(request, SomeRequest());
  for (const LeaseAnswer& answer :
       {SomeAnswer(), LeaseAnswer{.outcome = LeaseOutcome::kMiss, .cause = MissCause::kNoMemory},
        LeaseAnswer{.outcome = LeaseOutcome::kMustCopy},
        LeaseAnswer{.outcome = LeaseOutcome::kRefused, .reason = "why"}}) {
    ASSERT_OK_AND_ASSIGN(const LeaseAnswer same, DecodeLeaseAnswer(AsBytes(EncodeLeaseAnswer(answer))));
    EXPECT_EQ(same, answer);
  }
  EXPECT_EQ(*DecodeWelcome(AsBytes(EncodeWelcome({5, 6}))), (Welcome{5, 6}));
  EXPECT_EQ(*DecodeReason(AsBytes(EncodeReason("why"))), "why");
  EXPECT_EQ(*DecodeLeaseNumber(AsBytes(EncodeLeaseNumber(UINT64_MAX))), UINT64_MAX);
  EXPECT_FALSE(*DecodeConfirmed(AsBytes(EncodeConfirmed(false))));
}

TEST(ShmWireTest, WhatIsOutOfBoundsIsRefused) {
  const auto header = [](std::string frame, size_t at, char value) {
    frame[at] = value;
    return DecodeFrameHeader(AsBytes(frame).first(kFrameHeaderBytes), kMaxRequestBytes).status();
  };
  const std::string frame = EncodeFrame(FrameType::kHello, 1, "");
  EXPECT_OK(header(frame, 0, 'E'));
  EXPECT_THAT(header(frame, 0, 'e'), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(header(frame, 4, 2), StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(header(frame, 6, 0), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(header(frame, 6, 9), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(header(frame, 13, 0x10));  // 4096
  EXPECT_THAT(header(frame, 14, 1), StatusIs(absl::StatusCode::kInvalidArgument));

  LeaseRequest request = SomeRequest();
  request.layout.layers = 0;
  EXPECT_THAT(DecodeLeaseRequest(AsBytes(EncodeLeaseRequest(request))),
              StatusIs(absl::StatusCode::kInvalidArgument));
  request = SomeRequest();
  request.tenant = std::string(kMaxTenantBytes, 'x');
  EXPECT_OK(DecodeLeaseRequest(AsBytes(EncodeLeaseRequest(request))));
  EXPECT_LE(EncodeLeaseRequest(request).size(), kMaxRequestBytes);
  std::string body = EncodeLeaseRequest(SomeRequest());
  EXPECT_FALSE(DecodeLeaseRequest(AsBytes(body + "x")).ok());
  EXPECT_FALSE(DecodeLeaseRequest(AsBytes(body).first(body.size() - 1)).ok());
  EXPECT_EQ(DecodeReason(AsBytes(EncodeReason(std::string(5000, 'x'))))->size(), kMaxReasonBytes);

  LeaseAnswer answer = SomeAnswer();
  answer.object.block_crcs.assign(kMaxBlocks, 1);
  answer.object.layer_offsets.assign(4096, 64);
  EXPECT_LE(EncodeLeaseAnswer(answer).size(), kMaxAnswerBytes);
  EXPECT_OK(DecodeLeaseAnswer(AsBytes(EncodeLeaseAnswer(answer))));
}

// A decoder gives an error, or a value that encodes to what it read.
TEST(ShmWireFuzzTest, DecodersSurviveHostileBytes) {
  constexpr int kRounds = 100'000;
  for (const uint64_t seed : {21, 22}) {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    Rng rng(seed);
    const std::string frame = EncodeFrame(FrameType::kLease, 5, "body");
    const std::string bodies[] = {EncodeLeaseRequest(SomeRequest()),
                                  EncodeLeaseAnswer(SomeAnswer()),
                                  EncodeLeaseAnswer({.outcome = LeaseOutcome::kRefused, .reason = "why"}),
                                  EncodeReason("why"),
                                  EncodeWelcome({1, 2}),
                                  EncodeConfirmed(true)};
    int good = 0;
    for (int round = 0; round < kRounds; ++round) {
      std::string bytes = testing::Mutate(frame, &rng);
      bytes.resize(kFrameHeaderBytes);
      if (const auto header = DecodeFrameHeader(AsBytes(bytes), kMaxAnswerBytes); header.ok()) {
        const std::string body(header->body_bytes, 'x');
        EXPECT_EQ(EncodeFrame(header->type, header->number, body).substr(0, kFrameHeaderBytes), bytes);
      }
      bytes = testing::Mutate(bodies[rng.Below(std::size(bodies))], &rng);
      if (const auto value = DecodeLeaseRequest(AsBytes(bytes)); value.ok()) {
        EXPECT_EQ(EncodeLeaseRequest(*value), bytes);
        EXPECT_OK(ValidateLayout(value->layout));
        ++good;
      }
      if (const auto value = DecodeLeaseAnswer(AsBytes(bytes)); value.ok()) {
        EXPECT_EQ(EncodeLeaseAnswer(*value), bytes);
      }
      if (const auto value = DecodeReason(AsBytes(bytes)); value.ok()) {
        EXPECT_EQ(EncodeReason(*value), bytes);
      }
      if (const auto value = DecodeWelcome(AsBytes(bytes)); value.ok()) {
        EXPECT_EQ(EncodeWelcome(*value), bytes);
      }
      if (const auto value = DecodeLeaseNumber(AsBytes(bytes)); value.ok()) {
        EXPECT_EQ(EncodeLeaseNumber(*value), bytes);
      }
      if (const auto value = DecodeConfirmed(AsBytes(bytes)); value.ok()) {
        EXPECT_EQ(EncodeConfirmed(*value), bytes);
      }
      if (HasFailure()) return;
    }
    EXPECT_GT(good, 1000);
  }
}

}  // namespace
}  // namespace epic::shm
