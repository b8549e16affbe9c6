// Templates that try to take memory or time that their limits do not see: each ends in an error, and within a
// small multiple of what it may print.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "services/model/chat_template.h"
#include "services/model/testing/allocation_meter.h"

namespace epic {
namespace {

constexpr TemplateLimits kLimits{.max_steps = 100'000, .max_output_bytes = 1 << 20};
// Eight times the output may be made as text, and a step may make a value.
constexpr uint64_t kMostBytes = 64u << 20;

// Sets ns.s to `text`, half a million times.
std::string Doubled(const std::string& text) {
  return "{% set ns = namespace(s=" + text +
         ") %}{% for i in range(18) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}";
}

absl::Status RenderMeasured(const std::string& source) {
  const auto made = ChatTemplate::Create(source, "<s>", "</s>", kLimits);
  if (!made.ok()) return made.status();
  const std::vector<Message> messages = {{"user", {{MessagePart::Kind::kText, "u", 0}}}};
  epic::testing::ResetAllocationPeak();
  const absl::Status status = (*made)->Render(messages, true).status();
  EXPECT_LE(epic::testing::AllocationPeakBytes(), kMostBytes);
  return status;
}

TEST(ChatTemplateHostileTest, TheTextThatTheOthersBeginWithIsWithinTheLimits) {
  EXPECT_OK(RenderMeasured(Doubled("'a.'") + "{{ ns.s | length }}"));
  EXPECT_GT(epic::testing::AllocationPeakBytes(), 1u << 19) << "the meter does not count";
}

TEST(ChatTemplateHostileTest, WhatOneCallMultipliesIsPaidForBeforeItIsMade) {
  const std::string sources[] = {
      // Parts of one byte each.
      Doubled("'a.'") + "{{ ns.s.split('.') | length }}",
      Doubled("'a.'") + "{{ ns.s.rsplit('.') | length }}",
      Doubled("'a '") + "{{ ns.s.split() | length }}",
      Doubled("'a\\n'") + "{{ ns.s.splitlines() | length }}",
      Doubled("'a\\n'") + "{{ ns.s | indent }}",
      Doubled("'a.'") + "{{ [1] | map(attribute=ns.s) | list }}",
      Doubled("'a.'") + "{{ [1] | selectattr(ns.s) | list }}",
      Doubled("'a.'") + "{{ ns.s | list | length }}",
      // A long text once for each of many elements.
      Doubled("'a.'") + "{{ range(40000) | list | tojson(separators=[ns.s, ':']) }}",
      Doubled("'a.'") + "{{ ([{'k': 1}] * 40000) | tojson(separators=[',', ns.s]) }}",
      Doubled("'a.'") + "{{ ([ns.s] * 5000) | sort | length }}",
      Doubled("'a.'") + "{{ ([ns.s] * 5000) | unique | list | length }}",
      Doubled("'a.'") + "{{ ([ns.s] * 5000) | map('upper') | list | length }}",
      Doubled("'a.'") + "{{ ([1] * 5000) | join(ns.s) | length }}",
      Doubled("'a.'") + "{{ ns.s.replace('a', ns.s) | length }}",
      Doubled("'a.'") + "{{ ns.s.startswith((ns.s[:-1] ~ 'b',) * 50000) }}",
      // Origins that change at every byte.
      "{% set ns = namespace(s='x' ~ messages[0].content) %}{% for i in range(18) %}"
      "{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s | length }}",
  };
  for (const std::string& source : sources) {
    EXPECT_THAT(RenderMeasured(source), epic::testing::StatusIs(absl::StatusCode::kResourceExhausted))
        << source;
  }
}

}  // namespace
}  // namespace epic
