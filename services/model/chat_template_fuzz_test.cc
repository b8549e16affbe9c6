// Random templates made of fragments of constructs: each must end within its limits, without a fault.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "services/model/chat_template.h"

namespace epic {
namespace {

const std::vector<std::string> kFragments = {"{{",
                                             "}}",
                                             "{%",
                                             "%}",
                                             "{#",
                                             "#}",
                                             "{{-",
                                             "-}}",
                                             "{%-",
                                             "-%}",
                                             "{%+",
                                             "+%}",
                                             " ",
                                             "\n",
                                             "if",
                                             "elif",
                                             "else",
                                             "endif",
                                             "for",
                                             "in",
                                             "endfor",
                                             "set",
                                             "endset",
                                             "macro",
                                             "endmacro",
                                             "filter",
                                             "endfilter",
                                             "raw",
                                             "endraw",
                                             "with",
                                             "endwith",
                                             "break",
                                             "continue",
                                             "generation",
                                             "endgeneration",
                                             "x",
                                             "y",
                                             "f",
                                             "messages",
                                             "message",
                                             "loop",
                                             "ns",
                                             "namespace",
                                             "range",
                                             "(",
                                             ")",
                                             "[",
                                             "]",
                                             "{",
                                             "}",
                                             ",",
                                             ":",
                                             ".",
                                             "=",
                                             "==",
                                             "!=",
                                             "<",
                                             ">",
                                             "+",
                                             "-",
                                             "*",
                                             "/",
                                             "//",
                                             "%",
                                             "**",
                                             "~",
                                             "|",
                                             "is",
                                             "not",
                                             "and",
                                             "or",
                                             "true",
                                             "none",
                                             "'a'",
                                             "' b '",
                                             "\"",
                                             "'",
                                             "0",
                                             "1",
                                             "-1",
                                             "99",
                                             "1.5",
                                             "9223372036854775807",
                                             "role",
                                             "content",
                                             "trim",
                                             "tojson",
                                             "length",
                                             "join",
                                             "map",
                                             "select",
                                             "selectattr",
                                             "default",
                                             "list",
                                             "items",
                                             "replace",
                                             "indent",
                                             "sort",
                                             "unique",
                                             "reverse",
                                             "int",
                                             "upper",
                                             "title",
                                             "defined",
                                             "string",
                                             "odd",
                                             "split",
                                             "strip",
                                             "get",
                                             "index",
                                             "cycle",
                                             "changed",
                                             "é🙂",
                                             "\\",
                                             "\r\n",
                                             "raise_exception",
                                             "strftime_now",
                                             "attribute",
                                             "slice"};

const std::vector<std::string> kStatements = {"{% for m in messages %}",
                                              "{% for i in range(9) %}",
                                              "{% endfor %}",
                                              "{% if x %}",
                                              "{% if messages %}",
                                              "{% endif %}",
                                              "{% else %}",
                                              "{% set ns = namespace(a=[1]) %}",
                                              "{% set ns.a = [ns.a, ns.a] %}",
                                              "{% set ns.a = ns.a ~ ns.a %}",
                                              "{% macro f(a, b=1) %}",
                                              "{% endmacro %}",
                                              "{{ f(1) }}",
                                              "{{ f(f) }}",
                                              "{{ m.content | trim }}",
                                              "{{ m }}",
                                              "{{ loop.index }}",
                                              "{{ messages | tojson(indent=2) }}",
                                              "{{ ns.a }}",
                                              "{% set x = messages %}",
                                              "{% set x = x + x %}",
                                              "{{ x[::-1] }}",
                                              "text\n",
                                              "{{ x | map('upper') | list }}",
                                              "{{ loop.changed(x) }}",
                                              "{% filter trim %}",
                                              "{% endfilter %}",
                                              "{% break %}"};

void RunOne(const std::string& source) {
  const TemplateLimits limits{20'000, 100'000};
  const auto made = ChatTemplate::Create(source, "<s>", "</s>", limits);
  if (!made.ok()) return;
  const std::vector<Message> messages = {
      {"user", {{MessagePart::Kind::kText, " héllo ", 0}, {MessagePart::Kind::kContext, "", 4}}},
      {"assistant", {{MessagePart::Kind::kText, "x", 0}}}};
  const auto rendered = (*made)->Render(messages, true);
  if (!rendered.ok()) return;
  size_t contexts = 0;
  for (const RenderedPiece& piece : *rendered)
    contexts += piece.kind == RenderedPiece::Kind::kContext ? 1 : 0;
  EXPECT_EQ(contexts, 1u) << source;
}

TEST(ChatTemplateFuzzTest, SoupOfFragmentsEndsWithinItsLimits) {
  const uint64_t seed = 99;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  for (int round = 0; round < 30000; ++round) {
    std::string source = rng.Below(2) == 0 ? "{{ " : "{% set x = ";
    for (uint64_t i = 1 + rng.Below(12); i > 0; --i)
      source += kFragments[rng.Below(kFragments.size())] + (rng.Below(3) ? " " : "");
    source += source[1] == '{' ? " }}" : " %}";
    RunOne(source);
  }
}

TEST(ChatTemplateFuzzTest, SoupOfStatementsEndsWithinItsLimits) {
  const uint64_t seed = 100;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  for (int round = 0; round < 6000; ++round) {
    std::string source;
    std::vector<std::string> open;
    for (uint64_t i = 1 + rng.Below(14); i > 0; --i) {
      const std::string& statement = kStatements[rng.Below(kStatements.size())];
      source += statement;
      for (const char* block : {"for", "if", "macro", "filter"}) {
        if (statement.starts_with(std::string("{% ") + block)) open.push_back(block);
      }
      if (statement.starts_with("{% end") && !open.empty()) open.pop_back();
    }
    for (; !open.empty(); open.pop_back()) source += "{% end" + open.back() + " %}";
    RunOne(source);
  }
}

TEST(ChatTemplateFuzzTest, RandomBytesAreAnErrorOrText) {
  const uint64_t seed = 101;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  for (int round = 0; round < 20000; ++round) {
    std::string source;
    for (uint64_t i = rng.Below(40); i > 0; --i) {
      source += rng.Below(3) == 0 ? std::string(1, static_cast<char>(rng.Below(256)))
                                  : kFragments[rng.Below(kFragments.size())];
    }
    RunOne(source);
  }
}

}  // namespace
}  // namespace epic
