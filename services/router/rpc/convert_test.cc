#include "services/router/rpc/convert.h"

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"

namespace epic {
namespace {

TEST(ConvertTest, ChatRequestKeepsPresence) {
  v1::ChatRequest proto;
  ASSERT_OK_AND_ASSIGN(ChatRequest empty, FromProto(proto));
  EXPECT_EQ(empty.temperature, std::nullopt);
  EXPECT_EQ(empty.n, std::nullopt);
  EXPECT_EQ(empty.linking.strategy, std::nullopt);
  proto.set_temperature(0);
  proto.set_n(0);
  EXPECT_EQ(empty.linking.ratio, std::nullopt);
  EXPECT_EQ(empty.linking.budget, std::nullopt);
  proto.mutable_linking()->set_k(0);
  proto.mutable_linking()->set_ratio(0);
  proto.mutable_linking()->set_budget(9);
  proto.add_stop("");
  auto* bias = proto.add_logit_bias();
  bias->set_token(7);
  bias->set_bias(-1.5);
  ASSERT_OK_AND_ASSIGN(ChatRequest set, FromProto(proto));
  EXPECT_EQ(set.temperature, 0.0);
  EXPECT_EQ(set.n, 0);
  EXPECT_EQ(set.linking.k, 0);
  EXPECT_EQ(set.linking.ratio, 0.0);
  EXPECT_EQ(set.linking.budget, 9);
  EXPECT_EQ(set.stop, std::vector<std::string>{""});
  ASSERT_EQ(set.logit_bias.size(), 1u);
  EXPECT_EQ(set.logit_bias[0].first, "7");
}

TEST(ConvertTest, PartsKeepTheirOrderAndKind) {
  v1::ChatRequest proto;
  auto* message = proto.add_messages();
  message->set_role("user");
  message->add_content()->set_context_id("ctx_a");
  message->add_content()->set_text("and");
  message->add_content()->set_context_name("manual");
  ASSERT_OK_AND_ASSIGN(ChatRequest request, FromProto(proto));
  ASSERT_EQ(request.messages.size(), 1u);
  const auto& content = request.messages[0].content;
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0].kind, ContentPart::Kind::kContextId);
  EXPECT_EQ(content[1].value, "and");
  EXPECT_EQ(content[2].kind, ContentPart::Kind::kContextName);
}

TEST(ConvertTest, AnEmptyPartNamesItsPlace) {
  v1::ChatRequest proto;
  proto.add_messages()->add_content()->set_text("x");
  proto.mutable_messages(0)->add_content();
  const auto request = FromProto(proto);
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(ParamOf(request.status()), "messages[0].content[1]");
}

TEST(ConvertTest, UnknownEnumValuesAreRefusedByName) {
  v1::CreateContextRequest create;
  create.set_text("x");
  create.set_pin(static_cast<v1::Pin>(99));
  EXPECT_EQ(ParamOf(FromProto(create).status()), "pin");
  v1::ChatRequest chat;
  chat.mutable_linking()->set_on_missing(static_cast<v1::Linking::OnMissing>(99));
  EXPECT_EQ(ParamOf(FromProto(chat).status()), "linking.on_missing");
  chat.mutable_linking()->set_compile_prefix(static_cast<v1::CompilePrefixType>(99));
  EXPECT_FALSE(FromProto(chat).ok());
  v1::ListContextsRequest list;
  list.set_state(static_cast<v1::ContextState>(99));
  EXPECT_EQ(ParamOf(FromProto(list).status()), "state");
}

TEST(ConvertTest, ACompilePrefixOfAChatIsAWordOrTheMessageOfACreate) {
  v1::ChatRequest proto;
  proto.mutable_linking()->set_compile_prefix(v1::COMPILE_PREFIX_TYPE_SYSTEM);
  ASSERT_OK_AND_ASSIGN(const ChatRequest word, FromProto(proto));
  EXPECT_EQ(word.linking.compile_prefix, "system");
  EXPECT_FALSE(word.linking.compile_prefix_object.has_value());
  proto.mutable_linking()->clear_compile_prefix();
  v1::CompilePrefix& prefix = *proto.mutable_linking()->mutable_prefix();
  prefix.set_type(v1::COMPILE_PREFIX_TYPE_SYSTEM);
  prefix.set_context_id("ctx_a");
  ASSERT_OK_AND_ASSIGN(const ChatRequest object, FromProto(proto));
  EXPECT_FALSE(object.linking.compile_prefix.has_value());
  ASSERT_TRUE(object.linking.compile_prefix_object.has_value());
  EXPECT_EQ(object.linking.compile_prefix_object->type, "system");
  EXPECT_EQ(object.linking.compile_prefix_object->text, std::nullopt);
  EXPECT_EQ(object.linking.compile_prefix_object->context_id, "ctx_a");
  prefix.set_type(static_cast<v1::CompilePrefixType>(99));
  EXPECT_EQ(ParamOf(FromProto(proto).status()), "linking.compile_prefix.type");
}

TEST(ConvertTest, ACreateWithoutASourceIsRefused) {
  const auto request = FromProto(v1::CreateContextRequest());
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(CodeOf(request.status()), ErrorCode::kInvalidRequest);
}

TEST(ConvertTest, UpdateChangesWhatTheMaskNamesAndNothingElse) {
  v1::UpdateContextRequest proto;
  EXPECT_EQ(ParamOf(FromProto(proto).status()), "update_mask");
  proto.mutable_update_mask()->add_paths("ttl_seconds");
  proto.set_name("ignored");
  ASSERT_OK_AND_ASSIGN(PatchContextRequest clear, FromProto(proto));
  ASSERT_TRUE(clear.ttl.has_value());
  EXPECT_EQ(*clear.ttl, std::nullopt);
  EXPECT_EQ(clear.name, std::nullopt);
  proto.mutable_update_mask()->add_paths("tokens");
  EXPECT_FALSE(FromProto(proto).ok());
}

TEST(ConvertTest, RecordsPrintTimesInSecondsAndAbsentOnesNotAtAll) {
  ContextRecord record;
  record.created_at_ms = 1'700'000'000'999;
  record.state = ContextState::kReady;
  record.variants.push_back({.prefix = CompilePrefixKind::kBos4});
  const v1::Context proto = ToProto(record);
  EXPECT_EQ(proto.created_at(), 1'700'000'000);
  EXPECT_FALSE(proto.has_expires_at());
  EXPECT_FALSE(proto.has_ttl_seconds());
  EXPECT_EQ(proto.state(), v1::CONTEXT_STATE_READY);
  EXPECT_EQ(proto.variants(0), "bos4/bf16");
}

}  // namespace
}  // namespace epic
