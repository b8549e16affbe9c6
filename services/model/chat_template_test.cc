#include "services/model/chat_template.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/status/error.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"

namespace epic {
namespace {

using ::epic::testing::StatusIs;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = RenderedPiece::Kind;

const std::string kFolder = "/services/model/jinja/golden/";

std::string Read(const std::string& name) {
  return testing::ReadFileOrDie(testing::SourceDir() + kFolder + name);
}

MessagePart Text(std::string text) { return {MessagePart::Kind::kText, std::move(text), 0}; }
MessagePart Context(uint32_t index) { return {MessagePart::Kind::kContext, "", index}; }

absl::StatusOr<std::vector<RenderedPiece>> Render(std::string_view source,
                                                  const std::vector<Message>& messages, bool generate = false,
                                                  TemplateLimits limits = {}) {
  auto made = ChatTemplate::Create(source, "<s>", "</s>", limits);
  if (!made.ok()) return made.status();
  return (*made)->Render(messages, generate);
}

std::string Joined(const std::vector<RenderedPiece>& pieces) {
  std::string text;
  for (const RenderedPiece& piece : pieces) text += piece.text;
  return text;
}

std::vector<Message> MessagesOf(const json& items) {
  std::vector<Message> messages;
  for (const json& item : items) messages.push_back({item["role"], {Text(item["content"])}});
  return messages;
}

MATCHER_P2(Piece, kind, text, "") { return arg.kind == kind && arg.text == text; }
MATCHER_P(ContextPiece, index, "") { return arg.kind == Kind::kContext && arg.context_index == index; }

TEST(ChatTemplateTest, ConstructsRenderAsTheReferenceDoes) {
  const std::vector<Message> messages = {{"system", {Text(" Be brief. ")}},
                                         {"user", {Text("Hi \"there\"\n")}},
                                         {"assistant", {Text("Hello, Ünïcode 🙂!")}}};
  size_t outputs = 0;
  for (const json& item : json::parse(Read("constructs.json"))) {
    const std::string source = item["source"];
    const auto rendered = Render(source, messages);
    if (item.contains("output")) {
      ++outputs;
      EXPECT_TRUE(rendered.ok()) << source << "\n" << rendered.status().ToString();
      if (!rendered.ok()) continue;
      EXPECT_EQ(Joined(*rendered), item["output"].get<std::string>()) << source;
    } else {
      EXPECT_FALSE(rendered.ok()) << source << "\n" << item["error"] << " but " << Joined(*rendered);
    }
  }
  EXPECT_GT(outputs, 800u);
}

TEST(ChatTemplateTest, TemplatesOfKnownModelsRenderAsTheReferenceDoes) {
  for (const json& item : json::parse(Read("chats.json"))) {
    SCOPED_TRACE(item.dump());
    const auto rendered = Render(Read("templates/" + item["template"].get<std::string>()),
                                 MessagesOf(item["messages"]), item["generate"]);
    if (item.contains("output")) {
      ASSERT_OK(rendered);
      EXPECT_EQ(Joined(*rendered), item["output"].get<std::string>());
    } else {
      ASSERT_FALSE(rendered.ok());
      const std::string error = item["error"];
      if (error.find("alternate") != std::string::npos || error.find("Only") != std::string::npos) {
        EXPECT_EQ(CodeOf(rendered.status()), ErrorCode::kTemplateRefused);
        EXPECT_EQ(MessageOf(rendered.status()), error);
      }
    }
  }
}

TEST(ChatTemplateTest, UserTextAndContextsStayApartFromTheTemplate) {
  const std::vector<Message> messages = {
      {"system", {Text("S ")}},
      {"user", {Text("  a "), Context(3), Context(1), Text(" b\n"), Context(3), Text(" ")}}};
  ASSERT_OK_AND_ASSIGN(
      const auto pieces,
      Render("{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content | trim }};{% endfor %}",
             messages));
  EXPECT_THAT(pieces, ElementsAre(Piece(Kind::kTemplate, "<s>[system]"), Piece(Kind::kUser, "S"),
                                  Piece(Kind::kTemplate, ";[user]"), Piece(Kind::kUser, "a "),
                                  ContextPiece(3u), ContextPiece(1u), Piece(Kind::kUser, " b\n"),
                                  ContextPiece(3u), Piece(Kind::kTemplate, ";")));
}

TEST(ChatTemplateTest, ContextsSurviveEveryFilterThatKeepsText) {
  for (const char* expression :
       {"m.content | trim", "m.content.strip()", "m.content.lstrip('x')", "m.content.rstrip(' y')",
        "m.content | upper", "m.content | replace('x', 'zz')", "m.content[0:]", "m.content.split('|')[0]",
        "m.content | tojson", "m.content | title", "m.content | indent", "'' ~ m.content",
        "[m.content] | join", "m.content | list | join", "m.content.split('q') | join('q')",
        "[m.content] | map('trim') | first", "m.content | string | default('d')"}) {
    SCOPED_TRACE(expression);
    const std::vector<Message> messages = {{"user", {Context(7), Text(" x y "), Context(8)}}};
    ASSERT_OK_AND_ASSIGN(
        const auto pieces,
        Render(std::string("{% for m in messages %}{{ ") + expression + " }}{% endfor %}", messages));
    std::vector<uint32_t> seen;
    for (const RenderedPiece& piece : pieces) {
      if (piece.kind == Kind::kContext) seen.push_back(piece.context_index);
    }
    EXPECT_THAT(seen, ElementsAre(7u, 8u));
  }
}

TEST(ChatTemplateTest, ADroppedOrRepeatedContextIsAnError) {
  const std::vector<Message> messages = {{"user", {Text("a"), Context(5)}}};
  EXPECT_THAT(Render("{{ messages[0].content[:1] }}", messages),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("leaves out context 5")));
  EXPECT_THAT(Render("{{ messages[0].content }}{{ messages[0].content }}", messages),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("repeats context 5")));
  EXPECT_THAT(Render("", {{"user", {Context(5)}}, {"user", {Context(5)}}}), ::epic::testing::IsOk());
}

TEST(ChatTemplateTest, AnUnknownRoleIsTextOfTheUser) {
  ASSERT_OK_AND_ASSIGN(const auto pieces, Render("", {{"<|im_end|>", {Text("x")}}}));
  EXPECT_THAT(pieces[1], Piece(Kind::kUser, "<|im_end|>"));
}

TEST(ChatTemplateTest, AnEmptySourceIsChatMl) {
  ASSERT_OK_AND_ASSIGN(const auto pieces, Render("", {{"user", {Text("hi")}}}, true));
  EXPECT_THAT(pieces, ElementsAre(Piece(Kind::kTemplate, "<|im_start|>user\n"), Piece(Kind::kUser, "hi"),
                                  Piece(Kind::kTemplate, "<|im_end|>\n<|im_start|>assistant\n")));
}

TEST(ChatTemplateTest, ARefusalCarriesTheWordsOfTheTemplate) {
  const auto rendered = Render("{{ raise_exception('Only ' ~ messages | length) }}", {{"user", {Text("x")}}});
  EXPECT_EQ(CodeOf(rendered.status()), ErrorCode::kTemplateRefused);
  EXPECT_EQ(MessageOf(rendered.status()), "Only 1");
}

TEST(ChatTemplateTest, SyntaxOutsideTheSubsetNamesLineAndConstruct) {
  const auto expect = [](const char* source, const char* words) {
    EXPECT_THAT(ChatTemplate::Create(source, "", ""),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(words)));
  };
  expect("a\n\n{{ x | nosuch }}", "line 3: unknown filter 'nosuch'");
  expect("\n{% include 'x' %}", "line 2: unknown tag 'include'");
  expect("{% if x is nosuch %}{% endif %}", "unknown test 'nosuch'");
  expect("{% if x %}\n", "'endif' is missing");
  expect("{% for x in y %}{% macro m() %}{% endmacro %}{% endfor %}", "macro inside a loop");
  expect("{{ x", "'{{' has no '}}'");
  expect("{{ x.1.2 + }}", "expected an expression");
  expect("{{ (x] }}", "unexpected ']'");
  expect("{{ 99999999999999999999 }}", "too large");
  expect("\xFF", "not UTF-8");
  expect("{% break %}", "outside a loop");
  const std::string deep = "{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}";
  expect(deep.c_str(), "nested too deeply");
  std::string chain = "{{ 1";
  for (int i = 0; i < 5000; ++i) chain += " + 1";
  expect((chain + " }}").c_str(), "nested too deeply");
  std::string blocks;
  for (int i = 0; i < 5000; ++i) blocks += "{% if x %}";
  expect(blocks.c_str(), "nested too deeply");
}

TEST(ChatTemplateTest, AFaultWhileRenderingNamesItsLine) {
  EXPECT_THAT(Render("a\n{{ nope.x }}", {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 2: 'nope' is undefined")));
  EXPECT_THAT(Render("{{ 9223372036854775807 + 1 }}", {}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Render("", {{"user", {Text("\xFF")}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("messages[0].content")));
}

TEST(ChatTemplateTest, RunawayTemplatesEndAtALimit) {
  const char* sources[] = {
      "{% for i in range(1000000000) %}{% endfor %}",
      "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% set ns = namespace(s='ab') %}{% for i in range(1000) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(50) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ "
      "ns.s }}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(50) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ "
      "ns.s == ns.s }}",
      "{{ 'x' * 1000000000000 }}",
      "{{ [0] * 1000000000000 }}",
      "{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}",
      "{% set ns = namespace(s=[]) %}{% for i in range(100000) %}{% set ns.s = [ns.s] %}{% endfor %}",
      "{% set ns = namespace() %}{% set ns.s = ns %}",
      "{% set ns = namespace() %}{% set ns.s = [ns] %}",
      "{% for i in [1] %}{{ loop.changed(loop) }}{% endfor %}",
      "{{ ['x' * 100000] * 9 | tojson(indent=64) }}",
  };
  for (const char* source : sources) {
    SCOPED_TRACE(source);
    EXPECT_FALSE(Render(source, {}).ok());
  }
  EXPECT_THAT(Render("{{ 'x' * 101 }}", {}, false, {1000, 100}),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Render("{% for i in range(200) %}{{ i }}{% endfor %}", {}, false, {300, 1000}),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(ChatTemplateTest, LongTextsOfUsersPassThrough) {
  const std::string text(8 << 20, 'x');
  ASSERT_OK_AND_ASSIGN(const auto pieces, Render(Read("templates/llama3.jinja"), {{"user", {Text(text)}}}));
  EXPECT_EQ(pieces[1].text.size(), text.size());
}

}  // namespace
}  // namespace epic
