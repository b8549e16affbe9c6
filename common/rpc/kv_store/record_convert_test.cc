// What a store's records are on the wire: every field comes back as it went, and nothing that a stranger may
// send is taken for something else.
#include "common/rpc/kv_store/record_convert.h"

#include <string>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/rpc/kv_store/item_status.h"
#include "common/status/error.h"
#include "common/testing/status_matchers.h"

namespace epic {
namespace {

Digest AnyDigest(Rng* rng) {
  Digest digest;
  for (uint8_t& byte : digest.bytes) byte = static_cast<uint8_t>(rng->Next());
  return digest;
}
std::string AnyText(Rng* rng) {
  std::string text(rng->Below(12), '\0');
  for (char& c : text) c = static_cast<char>(rng->Next());
  return text;
}
std::optional<int64_t> MaybeInt(Rng* rng) {
  return rng->Below(2) == 0 ? std::nullopt : std::optional<int64_t>(static_cast<int64_t>(rng->Next()));
}
HybridTime AnyTime(Rng* rng) {
  return {static_cast<int64_t>(rng->Next()), static_cast<uint32_t>(rng->Next())};
}
CacheId AnyId(Rng* rng) {
  const TokenId token = static_cast<TokenId>(rng->Next());
  return CacheId::Of("t", {}, {&token, 1});
}
ObjectVariant AnyVariant(Rng* rng) {
  return {.prefix = static_cast<CompilePrefixKind>(rng->Below(4)),
          .prefix_tokens = rng->Below(2) == 0 ? Digest{} : AnyDigest(rng),
          .dtype = static_cast<KvDtype>(rng->Below(2)),
          .compute = static_cast<ComputeFormat>(rng->Below(2))};
}
CompilePrefixSpec AnyPrefix(Rng* rng) {
  CompilePrefixSpec prefix{.kind = static_cast<CompilePrefixKind>(rng->Below(4))};
  prefix.tokens.resize(rng->Below(4), static_cast<TokenId>(rng->Next()));
  if (rng->Below(2) == 0) prefix.context_id = AnyId(rng);
  return prefix;
}
std::vector<std::string> AnyTags(Rng* rng) {
  std::vector<std::string> tags(rng->Below(4));
  for (std::string& tag : tags) tag = AnyText(rng);
  return tags;
}

ContextRecord AnyRecord(Rng* rng) {
  ContextRecord record{.tenant = AnyText(rng), .id = AnyId(rng), .model_identity = AnyDigest(rng)};
  record.model = AnyText(rng);
  record.token_count = static_cast<uint32_t>(rng->Next());
  record.created_at_ms = static_cast<int64_t>(rng->Next());
  record.created = AnyTime(rng);
  record.hidden = rng->Below(2) == 0;
  record.compile_prefix = AnyPrefix(rng);
  record.durability = static_cast<Durability>(rng->Below(3));
  record.state = static_cast<ContextState>(rng->Below(3));
  record.compile_ms = static_cast<int64_t>(rng->Next());
  record.error = AnyText(rng);
  record.ttl_seconds = MaybeInt(rng);
  record.expires_at_ms = MaybeInt(rng);
  record.expiry_changed = AnyTime(rng);
  record.pin = static_cast<Pin>(rng->Below(3));
  record.pin_until_ms = MaybeInt(rng);
  record.pin_changed = AnyTime(rng);
  record.tags = AnyTags(rng);
  record.tags_changed = AnyTime(rng);
  record.name = AnyText(rng);
  record.name_changed = AnyTime(rng);
  record.last_used_at_ms = static_cast<int64_t>(rng->Next());
  record.hits = rng->Next();
  for (uint64_t i = rng->Below(3); i > 0; --i) record.variants.push_back(AnyVariant(rng));
  record.bytes = rng->Next();
  return record;
}

// Through the bytes of the wire.
template <typename Proto>
Proto Travel(const Proto& proto) {
  Proto arrived;
  EXPECT_TRUE(arrived.ParseFromString(proto.SerializeAsString()));
  return arrived;
}

TEST(RecordConvertTest, EveryRecordComesBackAsItWent) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    Rng rng(seed);
    const ContextRecord record = AnyRecord(&rng);
    const auto back = FromProto(Travel(ToProto(record)), record.tenant);
    ASSERT_OK(back);
    EXPECT_EQ(*back, record) << "seed " << seed;
  }
}

TEST(RecordConvertTest, EveryNewContextComesBackAsItWent) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    Rng rng(seed);
    NewContext sent{.tenant = AnyText(&rng), .model_identity = AnyDigest(&rng), .model = AnyText(&rng)};
    sent.tokens.resize(rng.Below(9), static_cast<TokenId>(rng.Next()));
    sent.hidden = rng.Below(2) == 0;
    sent.ttl_seconds = MaybeInt(&rng);
    sent.pin = static_cast<Pin>(rng.Below(3));
    sent.pin_until_ms = MaybeInt(&rng);
    sent.tags = AnyTags(&rng);
    sent.name = AnyText(&rng);
    sent.compile_prefix = AnyPrefix(&rng);
    sent.durability = static_cast<Durability>(rng.Below(3));
    const auto back = FromProto(Travel(ToProto(sent)));
    ASSERT_OK(back);
    EXPECT_EQ(ToProto(*back).SerializeAsString(), ToProto(sent).SerializeAsString()) << "seed " << seed;
    EXPECT_EQ(back->tokens, sent.tokens);
    EXPECT_EQ(back->compile_prefix, sent.compile_prefix);
    EXPECT_EQ(back->durability, sent.durability);
    EXPECT_EQ(back->ttl_seconds, sent.ttl_seconds);
    EXPECT_EQ(back->tags, sent.tags);
  }
}

TEST(RecordConvertTest, APatchTellsAbsentFromCleared) {
  Rng rng(7);
  const CacheId id = AnyId(&rng);
  const auto none = FromProto(Travel(ToProto("t", id, ContextPatch{})));
  ASSERT_OK(none);
  EXPECT_FALSE(none->ttl_seconds.has_value() || none->pin.has_value() || none->pin_until_ms.has_value() ||
               none->tags.has_value() || none->name.has_value());
  ContextPatch patch;
  patch.ttl_seconds = std::optional<int64_t>();
  patch.pin = Pin::kNone;
  patch.pin_until_ms = std::optional<int64_t>(0);
  patch.tags = std::vector<std::string>();
  patch.name = "";
  const auto cleared = FromProto(Travel(ToProto("t", id, patch)));
  ASSERT_OK(cleared);
  EXPECT_EQ(cleared->ttl_seconds, patch.ttl_seconds);
  EXPECT_EQ(cleared->pin, Pin::kNone);
  EXPECT_EQ(cleared->pin_until_ms, patch.pin_until_ms);
  EXPECT_EQ(cleared->tags, patch.tags);
  EXPECT_EQ(cleared->name, "");
}

TEST(RecordConvertTest, AQueryComesBackAsItWent) {
  Rng rng(8);
  const ContextQuery sent{.limit = 7,
                          .after = AnyId(&rng),
                          .descending = false,
                          .tag = "",
                          .model = "m",
                          .state = ContextState::kFailed,
                          .name = "n"};
  const auto back = FromProto(Travel(ToProto("t", sent)));
  ASSERT_OK(back);
  EXPECT_EQ(back->limit, sent.limit);
  EXPECT_EQ(back->after, sent.after);
  EXPECT_EQ(back->descending, sent.descending);
  EXPECT_EQ(back->tag, sent.tag);
  EXPECT_EQ(back->model, sent.model);
  EXPECT_EQ(back->state, sent.state);
  EXPECT_EQ(back->name, sent.name);
  const auto plain = FromProto(Travel(ToProto("t", ContextQuery{})));
  ASSERT_OK(plain);
  EXPECT_FALSE(plain->tag.has_value() || plain->model.has_value() || plain->state.has_value());
  EXPECT_TRUE(plain->descending && plain->after.empty());
}

TEST(RecordConvertTest, WhatThisVersionDoesNotKnowIsRefusedByName) {
  v1::StoreCreateContextRequest create;
  create.set_pin(static_cast<v1::Pin>(77));
  EXPECT_EQ(ParamOf(FromProto(create).status()), "pin");
  create.clear_pin();
  create.set_durability(static_cast<v1::Durability>(77));
  EXPECT_EQ(ParamOf(FromProto(create).status()), "durability");
  create.clear_durability();
  create.set_model_identity("short");
  EXPECT_EQ(ParamOf(FromProto(create).status()), "model_identity");
  v1::StoreListContextsRequest list;
  list.set_after("../../etc/passwd");
  EXPECT_EQ(ParamOf(FromProto(list).status()), "after");
  list.clear_after();
  list.set_state(static_cast<v1::ContextState>(-1));
  EXPECT_EQ(ParamOf(FromProto(list).status()), "state");
  EXPECT_EQ(ParamOf(FromProto(v1::ObjectVariant()).status()), "dtype");
}

TEST(RecordConvertTest, GarbageIsRefusedOrReadTheSameTwice) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    Rng rng(seed);
    std::string wire = ToProto(AnyRecord(&rng)).SerializeAsString();
    for (uint64_t flips = 1 + rng.Below(6); flips > 0; --flips) {
      wire[rng.Below(wire.size())] = static_cast<char>(rng.Next());
    }
    if (rng.Below(4) == 0) wire.resize(rng.Below(wire.size()));
    v1::StoredContext proto;
    if (!proto.ParseFromString(wire)) continue;
    const auto record = FromProto(proto, "t");
    if (!record.ok()) {
      EXPECT_EQ(CodeOf(record.status()), ErrorCode::kInvalidRequest) << "seed " << seed;
      EXPECT_NE(ParamOf(record.status()), "") << "seed " << seed;
      continue;
    }
    const auto again = FromProto(Travel(ToProto(*record)), "t");
    ASSERT_OK(again);
    EXPECT_EQ(*again, *record) << "seed " << seed;
  }
}

TEST(ItemStatusTest, EveryCodeCrossesTheWireAndBack) {
  EXPECT_OK(FromProto(ToProto(absl::OkStatus())));
  for (const ErrorInfo& info : ErrorTable()) {
    const absl::Status back = FromProto(Travel(ToProto(Error(info.code, "do this", "id"))));
    EXPECT_EQ(CodeOf(back), info.code) << info.name;
    EXPECT_EQ(back.code(), info.status_code) << info.name;
    EXPECT_EQ(ParamOf(back), "id");
    EXPECT_EQ(MessageOf(back), "do this");
  }
  EXPECT_EQ(RetryAfterMsOf(FromProto(ToProto(RetryLater(ErrorCode::kQueueFull, "wait", 250)))), 250);
}

TEST(ItemStatusTest, ADiskThatFailsIsToldFromAFaultWithoutItsText) {
  for (const absl::Status& status :
       {absl::UnavailableError("/data/x: EIO"), absl::DataLossError("/data/x: bad")}) {
    const absl::Status item = FromProto(ToProto(status));
    EXPECT_EQ(item.code(), status.code());
    EXPECT_EQ(MessageOf(item).find("/data"), std::string::npos);
    const grpc::Status call = ToStoreGrpcStatus(status);
    EXPECT_EQ(static_cast<int>(call.error_code()), static_cast<int>(status.code()));
    EXPECT_EQ(call.error_message().find("/data"), std::string::npos);
  }
  EXPECT_EQ(FromProto(ToProto(absl::UnknownError("/data/x"))).code(), absl::StatusCode::kInternal);
}

TEST(ItemStatusTest, ACodeOfALaterVersionKeepsItsStatus) {
  v1::ItemStatus proto;
  proto.set_grpc_code(5);
  proto.set_code("lost_in_time");
  proto.set_message("ask again");
  EXPECT_EQ(FromProto(proto).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace epic
