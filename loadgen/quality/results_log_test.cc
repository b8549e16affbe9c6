#include "loadgen/quality/results_log.h"

#include <filesystem>
#include <fstream>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"

namespace epic::loadgen {
namespace {

using ::epic::testing::StatusIs;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

PromptResult Result(uint64_t question, const std::string& strategy) {
  PromptResult result;
  result.question = question;
  result.strategy = strategy;
  result.prompt_tokens = 100;
  result.cached = 60;
  result.recomputed = 30;
  result.fresh = 10;
  result.kl = {0.1, 1.0 / 3, 1e-300 * static_cast<double>(question + 1)};
  result.same_likeliest = 2;
  result.answer_tokens = {5, 6, 4'000'000'000u};
  result.answer = "line\nbreak \"quoted\" é";
  result.f1 = 2.0 / 3;
  return result;
}

class ResultsLogTest : public ::testing::Test {
 protected:
  std::string Path() const { return dir_.path() + "/results.jsonl"; }
  std::string Bytes() const { return testing::ReadFileOrDie(Path()); }
  void Write(std::string_view bytes) const { std::ofstream(Path(), std::ios::binary) << bytes; }

  const json pins_ = {{"model", "m"}, {"seed", 7}};
  testing::TempDir dir_;
};

TEST_F(ResultsLogTest, WhatWasAddedIsThereAgainBitByBit) {
  {
    ASSERT_OK_AND_ASSIGN(const auto log, ResultsLog::Open(Path(), pins_));
    EXPECT_OK(log->Add(Result(3, "naive")));
    EXPECT_OK(log->AddSkipped(4, "too long"));
    EXPECT_OK(log->Add(Result(3, "legolink-16")));
    EXPECT_EQ(log->resumed(), 0u);
  }
  ASSERT_OK_AND_ASSIGN(const auto log, ResultsLog::Open(Path(), pins_));
  EXPECT_EQ(log->resumed(), 2u);
  ASSERT_NE(log->Find(3, "naive"), nullptr);
  EXPECT_EQ(*log->Find(3, "naive"), Result(3, "naive"));
  EXPECT_EQ(log->Find(3, "full"), nullptr);
  EXPECT_EQ(log->Find(4, "naive"), nullptr);
  ASSERT_NE(log->FindSkipped(4), nullptr);
  EXPECT_EQ(*log->FindSkipped(4), "too long");
  EXPECT_EQ(log->FindSkipped(3), nullptr);
}

TEST_F(ResultsLogTest, WithoutAPathResultsAreInMemoryOnly) {
  ASSERT_OK_AND_ASSIGN(const auto log, ResultsLog::Open("", pins_));
  EXPECT_OK(log->Add(Result(1, "naive")));
  EXPECT_NE(log->Find(1, "naive"), nullptr);
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

// A killed run leaves the file at any length.
TEST_F(ResultsLogTest, CutAtAnyByteTheWholeLinesStayAndTheRunGoesOn) {
  {
    ASSERT_OK_AND_ASSIGN(const auto log, ResultsLog::Open(Path(), pins_));
    EXPECT_OK(log->Add(Result(0, "full")));
    EXPECT_OK(log->AddSkipped(1, "why"));
    EXPECT_OK(log->Add(Result(2, "full")));
  }
  const std::string whole = Bytes();
  for (size_t size = 0; size <= whole.size(); ++size) {
    SCOPED_TRACE(size);
    Write(std::string_view(whole).substr(0, size));
    {
      ASSERT_OK_AND_ASSIGN(const auto log, ResultsLog::Open(Path(), pins_));
      if (log->Find(0, "full") == nullptr) {
        EXPECT_OK(log->Add(Result(0, "full")));
      }
      if (log->FindSkipped(1) == nullptr) {
        EXPECT_OK(log->AddSkipped(1, "why"));
      }
      if (log->Find(2, "full") == nullptr) {
        EXPECT_OK(log->Add(Result(2, "full")));
      }
    }
    ASSERT_EQ(Bytes(), whole);
  }
}

TEST_F(ResultsLogTest, AChangedOptionIsNamedWithBothValues) {
  EXPECT_OK(ResultsLog::Open(Path(), pins_));
  const std::string before = Bytes();
  json other = pins_;
  other["seed"] = 8;
  EXPECT_THAT(ResultsLog::Open(Path(), other),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("seed 7"), HasSubstr("this run has 8"), HasSubstr(Path()))));
  json more = pins_;
  more["isa"] = "x";
  EXPECT_THAT(ResultsLog::Open(Path(), more),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("isa null")));
  EXPECT_EQ(Bytes(), before);
}

TEST_F(ResultsLogTest, OtherFilesAreRefusedAndNotTouched) {
  for (const std::string_view text :
       {"notes", "notes\n", "{\"a\": 1}\n", "[1]\n{}\n", "{\"format\": 3}\n", "{\"fern"}) {
    SCOPED_TRACE(std::string(text));
    Write(text);
    EXPECT_THAT(ResultsLog::Open(Path(), pins_),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 1:")));
    EXPECT_EQ(Bytes(), text);
  }
  EXPECT_THAT(ResultsLog::Open(dir_.path(), pins_), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(ResultsLog::Open(dir_.path() + "/none/x", pins_), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(ResultsLogTest, DamagedLinesAreToldWithTheirNumber) {
  {
    ASSERT_OK_AND_ASSIGN(const auto log, ResultsLog::Open(Path(), pins_));
    EXPECT_OK(log->Add(Result(0, "full")));
  }
  const std::string whole = Bytes();
  const std::string second = whole.substr(whole.find('\n') + 1);
  const struct {
    std::string line;
    std::string_view message;
  } kCases[] = {
      {"nonsense\n", "no JSON object"},
      {"{}\n", "no result"},
      {"{\"question\": 1, \"skipped\": 3}\n", "left out"},
      {"{\"question\": -1, \"skipped\": \"x\"}\n", "left out"},
      {second, "there already"},
      {"{\"question\": \"x\"" + second.substr(13), "no"},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.line);
    Write(whole + test.line);
    EXPECT_THAT(
        ResultsLog::Open(Path(), pins_),
        StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("line 3:"), HasSubstr(test.message))));
  }
}

TEST_F(ResultsLogTest, OneRunAtATimeOwnsTheFile) {
  ASSERT_OK_AND_ASSIGN(auto log, ResultsLog::Open(Path(), pins_));
  EXPECT_THAT(ResultsLog::Open(Path(), pins_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another run")));
  log.reset();
  EXPECT_OK(ResultsLog::Open(Path(), pins_));
}

TEST_F(ResultsLogTest, BytesThatAreNoTextAreReplacedAndTheLineIsRead) {
  {
    ASSERT_OK_AND_ASSIGN(const auto log, ResultsLog::Open(Path(), pins_));
    PromptResult result = Result(0, "full");
    result.answer = "cut \xe2\x82";
    EXPECT_OK(log->Add(result));
  }
  ASSERT_OK_AND_ASSIGN(const auto log, ResultsLog::Open(Path(), pins_));
  EXPECT_THAT(log->Find(0, "full")->answer, HasSubstr("cut "));
}

}  // namespace
}  // namespace epic::loadgen
