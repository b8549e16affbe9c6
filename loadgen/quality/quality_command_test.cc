// The command as a user runs it, in process, on a tiny random model and small data.
#include "loadgen/quality/quality_command.h"

#include <fstream>
#include <sstream>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/model/testing/tiny_model.h"

namespace epic::loadgen {
namespace {

using ::epic::testing::StatusIs;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class QualityCommandTest : public ::testing::Test {
 protected:
  QualityCommandTest() {
    testing::TinyModelSpec spec;
    spec.context_length = 4096;
    flags_.model = dir_.path() + "/tiny.gguf";
    testing::TinyModel(spec).WriteGguf(flags_.model);
    flags_.dataset = dir_.path() + "/questions.jsonl";
    std::ofstream data(flags_.dataset);
    for (int i = 0; i < 6; ++i) {
      data << json{{"question", "who is " + std::to_string(i)},
                   {"answers", {"number " + std::to_string(i)}},
                   {"ctxs", {{{"title", "T"}, {"text", "Here is number " + std::to_string(i) + "."}}}}}
                  .dump()
           << '\n';
    }
    flags_.strategies = "full,naive,legolink-4";
    flags_.chunks = 3;
    flags_.questions = 3;
    flags_.max_tokens = 4;
    flags_.threads = 2;
    flags_.compute = "f32";
    flags_.timing_prompts = 1;
  }

  absl::StatusOr<json> Run(const QualityFlags& flags) {
    std::ostringstream out;
    err_.str("");
    const absl::Status status = RunQuality(flags, true, SystemClock::Get(), out, err_);
    if (!status.ok()) {
      EXPECT_EQ(out.str(), "");
      return status;
    }
    return json::parse(out.str());
  }

  // What must not depend on the time.
  static json Quality(json report) {
    json rows = report["strategies"];
    rows.push_back(report["reference"]);
    for (json& row : rows) {
      for (const char* const key : {"ttft_seconds", "link_seconds", "decide_seconds", "queue_seconds",
                                    "decide_share", "full_ttft_ratio", "link_ratio", "break_even_reuses"}) {
        row.erase(key);
      }
    }
    return rows;
  }

  testing::TempDir dir_;
  QualityFlags flags_;
  std::ostringstream err_;
};

TEST_F(QualityCommandTest, OneRunGivesQualityAndTimesOfEveryStrategy) {
  flags_.command_line = "epic-loadgen quality";
  ASSERT_OK_AND_ASSIGN(const json report, Run(flags_));
  EXPECT_EQ(report["dataset"], "questions.jsonl");
  EXPECT_EQ(report["compute"], "f32");
  EXPECT_EQ(report["threads"], 2);
  EXPECT_EQ(report["chunks"], 3);
  EXPECT_EQ(report["command"], "epic-loadgen quality");
  EXPECT_EQ(report["model_identity"].get<std::string>().size(), 64u);
  EXPECT_EQ(report["questions"]["evaluated"], 3);
  EXPECT_EQ(report["baseline"], "naive");
  ASSERT_EQ(report["strategies"].size(), 3u);
  const char* const names[] = {"full", "naive", "legolink-4"};
  for (size_t i = 0; i < 3; ++i) {
    const json& row = report["strategies"][i];
    EXPECT_EQ(row["strategy"], names[i]);
    EXPECT_GT(row["ttft_seconds"]["median"], 0);
    EXPECT_LE(row["ttft_seconds"]["min"], row["ttft_seconds"]["median"]);
    EXPECT_GE(row["ttft_seconds"]["max"], row["ttft_seconds"]["median"]);
    EXPECT_GT(row["link_seconds"]["median"], 0);
  }
  EXPECT_EQ(report["strategies"][0]["kl"], 0.0);
  EXPECT_GT(report["strategies"][1]["kl"], 0.0);
  EXPECT_EQ(report["strategies"][2]["rows_recomputed"], 12.0);
  EXPECT_TRUE(report["strategies"][2]["paired"].is_object());
  EXPECT_EQ(report["timing"]["samples"], 5);
  EXPECT_GT(report["compile"]["tokens_per_second"], 0);
  EXPECT_THAT(err_.str(), AllOf(HasSubstr("3/3 questions"), HasSubstr("timing, round 5/5")));
}

TEST_F(QualityCommandTest, ATableIsPrintedForPeople) {
  flags_.timing_repeats = 0;
  std::ostringstream out;
  ASSERT_OK(RunQuality(flags_, false, SystemClock::Get(), out, err_));
  EXPECT_THAT(out.str(), AllOf(HasSubstr("3 of 3 questions"), HasSubstr("legolink-4")));
}

TEST_F(QualityCommandTest, FullIsTimedAndReportedWhenItIsNotAmongTheStrategies) {
  flags_.strategies = "legolink-4";
  ASSERT_OK_AND_ASSIGN(const json report, Run(flags_));
  EXPECT_EQ(report["strategies"].size(), 1u);
  EXPECT_GT(report["timing"]["full_tokens_per_second"]["median"], 0);
  EXPECT_GT(report["reference"]["ttft_seconds"]["median"], 0);
  EXPECT_GT(report["strategies"][0]["full_ttft_ratio"]["median"], 0);
}

TEST_F(QualityCommandTest, AResumedRunReportsTheSameAndTakesFurtherStrategiesAndQuestions) {
  flags_.timing_repeats = 0;
  ASSERT_OK_AND_ASSIGN(const json whole, Run(flags_));
  QualityFlags part = flags_;
  part.resume = dir_.path() + "/results.jsonl";
  part.strategies = "naive";
  part.questions = 2;
  ASSERT_OK(Run(part));
  part.strategies = flags_.strategies;
  part.questions = flags_.questions;
  ASSERT_OK_AND_ASSIGN(const json resumed, Run(part));
  EXPECT_EQ(resumed["questions"]["resumed"], 4) << "full and naive of two questions";
  EXPECT_EQ(Quality(resumed), Quality(whole));
  ASSERT_OK_AND_ASSIGN(const json again, Run(part));
  EXPECT_EQ(again["questions"]["resumed"], 9);
  EXPECT_EQ(again["compile"]["objects"], 0) << "nothing was left to do";
  EXPECT_EQ(Quality(again), Quality(whole));
}

TEST_F(QualityCommandTest, WithoutAnswersTheScoresAreTheSame) {
  flags_.timing_repeats = 0;
  ASSERT_OK_AND_ASSIGN(const json with, Run(flags_));
  flags_.no_answers = true;
  ASSERT_OK_AND_ASSIGN(const json without, Run(flags_));
  for (size_t i = 0; i < 3; ++i) {
    const json& row = without["strategies"][i];
    for (const char* const key :
         {"kl", "kl_ci", "kl_first", "top1", "rows_recomputed", "rows_cached", "paired"}) {
      EXPECT_EQ(row[key], with["strategies"][i][key]) << key;
    }
    for (const char* const key : {"f1", "f1_ci", "exact_match", "contained"}) {
      EXPECT_EQ(row[key].is_null(), row["strategy"] != "full") << key;
    }
  }
  EXPECT_EQ(without["reference"]["f1"], with["reference"]["f1"]);
}

TEST_F(QualityCommandTest, AResultsFileOfOtherOptionsIsRefused) {
  flags_.timing_repeats = 0;
  flags_.questions = 1;
  flags_.resume = dir_.path() + "/results.jsonl";
  ASSERT_OK(Run(flags_));
  const auto refused = [&](QualityFlags flags, const std::string& name) {
    EXPECT_THAT(Run(flags), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(name)));
  };
  QualityFlags other = flags_;
  other.seed = 2;
  refused(other, "seed");
  other = flags_;
  other.max_tokens = 5;
  refused(other, "max_tokens");
  other = flags_;
  other.no_answers = true;
  refused(other, "answers");
  other = flags_;
  other.chunks = 2;
  refused(other, "chunks");
  other = flags_;
  std::ofstream(other.dataset, std::ios::app) << "\n";
  refused(other, "dataset_sha256");
}

TEST_F(QualityCommandTest, GeneratedTasksNeedNoFile) {
  flags_.timing_repeats = 0;
  flags_.questions = 1;
  for (const char* const task : {"needle", "keys", "classification", "tracking"}) {
    flags_.dataset = std::string("generated:") + task;
    ASSERT_OK_AND_ASSIGN(const json report, Run(flags_));
    EXPECT_EQ(report["dataset"], flags_.dataset);
    EXPECT_EQ(report["questions"]["evaluated"], 1);
  }
}

TEST_F(QualityCommandTest, WrongFlagsAreToldBeforeAnythingIsLoaded) {
  const auto refused = [&](void (*change)(QualityFlags*), const std::string& message) {
    QualityFlags flags = flags_;
    flags.model = "/nowhere";
    change(&flags);
    EXPECT_THAT(Run(flags), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  refused([](QualityFlags* flags) { flags->strategies = ""; }, "at least one");
  refused([](QualityFlags* flags) { flags->strategies = "upside-down"; }, "upside-down");
  refused([](QualityFlags* flags) { flags->more_strategies = {"naive"}; }, "twice");
  refused([](QualityFlags* flags) { flags->baseline = "legolink-5"; }, "--baseline");
  refused([](QualityFlags* flags) { flags->questions = 0; }, "--questions");
  refused([](QualityFlags* flags) { flags->chunks = 0; }, "chunks");
  refused([](QualityFlags* flags) { flags->max_tokens = 33; }, "--max-tokens");
  refused([](QualityFlags* flags) { flags->timing_repeats = 3; }, "--timing-repeats");
  refused([](QualityFlags* flags) { flags->timing_prompts = 0; }, "--timing-prompts");
  refused([](QualityFlags* flags) { flags->compute = "int4"; }, "--compute");
  refused([](QualityFlags* flags) { flags->dataset = "generated:poem"; }, "needle");
  QualityFlags flags = flags_;
  flags.model = "/nowhere";
  EXPECT_THAT(Run(flags), StatusIs(absl::StatusCode::kNotFound));
  flags.dataset = "/nowhere";
  EXPECT_THAT(Run(flags), StatusIs(absl::StatusCode::kNotFound, HasSubstr("data file")));
}

TEST(QualityFlagsTest, TheCommandLineFillsThem) {
  const auto parse = [](const std::string& line, QualityFlags* flags) {
    CLI::App app("x", "x");
    app.require_subcommand(1);
    AddQualityCommand(&app, flags);
    app.parse(line);
  };
  QualityFlags flags;
  parse(
      "quality --model m --dataset d --strategies naive;full --strategy query-guided:layers=1-2,first=4 "
      "--strategy legolink-8 --chunks 5 --passages-per-chunk 4 --questions 100 --skip 7 --seed 3 --resume r "
      "--timing-repeats 9 --timing-prompts 3 --threads 2 --max-tokens 8 --baseline naive",
      &flags);
  EXPECT_EQ(flags.strategies, "naive;full");
  EXPECT_EQ(flags.more_strategies,
            (std::vector<std::string>{"query-guided:layers=1-2,first=4", "legolink-8"}));
  EXPECT_EQ(flags.chunks, 5u);
  EXPECT_EQ(flags.passages_per_chunk, 4u);
  EXPECT_EQ(flags.questions, 100u);
  EXPECT_EQ(flags.skip, 7u);
  EXPECT_EQ(flags.timing_repeats, 9u);
  EXPECT_EQ(flags.resume, "r");
  QualityFlags missing;
  EXPECT_THROW(parse("quality --model m --dataset d --chunks 2", &missing), CLI::RequiredError);
}

}  // namespace
}  // namespace epic::loadgen
