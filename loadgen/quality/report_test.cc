#include "loadgen/quality/report.h"

#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace epic::loadgen {
namespace {

using ::epic::testing::StatusIs;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

PromptResult Result(uint64_t question, const std::string& strategy, std::vector<double> kl, double f1) {
  PromptResult result;
  result.question = question;
  result.strategy = strategy;
  result.prompt_tokens = 1000;
  result.recomputed = strategy == "full" ? 900 : 80;
  result.cached = 900 - result.recomputed;
  result.fresh = 100;
  result.same_likeliest = static_cast<uint32_t>(kl.size()) - (strategy == "naive" ? 1 : 0);
  result.kl = std::move(kl);
  result.f1 = f1;
  result.exact_match = f1 == 1 ? 1 : 0;
  return result;
}

TimingSample Sample(double ttft, uint32_t fresh) {
  TimingSample sample;
  sample.question = 0;
  sample.ttft = ttft;
  sample.link = ttft / 2;
  sample.decide = ttft / 10;
  sample.queue = 0.001;
  sample.stats.prompt_tokens = 1000;
  sample.stats.fresh_tokens = fresh;
  return sample;
}

class ReportTest : public ::testing::Test {
 protected:
  ReportTest() : log_(*ResultsLog::Open("", json::object())) {
    for (uint64_t question = 0; question < 4; ++question) {
      const double scale = static_cast<double>(question + 1);
      Add(Result(question, "full", {0, 0}, question == 3 ? 1 : 0.5));
      Add(Result(question, "naive", {0.4 * scale, 0.2 * scale}, 0.25));
      Add(Result(question, "legolink-16", {0.1 * scale, 0.05 * scale}, 0.5));
    }
    EXPECT_OK(log_->AddSkipped(4, "too long"));
    input_.setup = {{"model", "tiny"},  {"dataset", "d"}, {"threads", 2},
                    {"compute", "f32"}, {"version", "0"}, {"commit", "c"}};
    input_.machine = {.cpu = "cpu", .isa = "isa", .cores = 2, .kernel = "k", .governor = "g"};
    input_.strategies = *ParseStrategies({"naive", "legolink-16"});
    input_.asked = {0, 1, 2, 3, 4};
    input_.log = log_.get();
    input_.compile = {.objects = 9, .tokens = 500, .bytes = 77, .seconds = 2, .objects_found = 0};
    input_.bootstrap.resamples = 200;
  }
  void Add(PromptResult result) { EXPECT_OK(log_->Add(std::move(result))); }

  static std::set<std::string> KeysOf(const json& object) {
    std::set<std::string> keys;
    for (const auto& [key, value] : object.items()) keys.insert(key);
    return keys;
  }

  std::unique_ptr<ResultsLog> log_;
  ReportInput input_;
};

const std::set<std::string> kRowKeys = {"strategy",
                                        "rows_recomputed",
                                        "rows_cached",
                                        "rows_fresh",
                                        "kl",
                                        "kl_median",
                                        "kl_first",
                                        "kl_ci",
                                        "top1",
                                        "f1",
                                        "f1_ci",
                                        "exact_match",
                                        "contained",
                                        "paired",
                                        "f1_relative",
                                        "ttft_seconds",
                                        "link_seconds",
                                        "decide_seconds",
                                        "queue_seconds",
                                        "decide_share",
                                        "full_ttft_ratio",
                                        "link_ratio",
                                        "break_even_reuses"};

TEST_F(ReportTest, TheReportHasItsFieldsAndNoOthers) {
  ASSERT_OK_AND_ASSIGN(const json report, MakeReport(input_));
  EXPECT_EQ(KeysOf(report),
            (std::set<std::string>{"model", "dataset", "threads", "compute", "version", "commit", "cpu",
                                   "isa", "cores", "kernel", "governor", "questions", "prompt_tokens",
                                   "compile", "timing", "bootstrap", "baseline", "reference", "strategies"}));
  ASSERT_EQ(report["strategies"].size(), 2u);
  for (const json& row : report["strategies"]) EXPECT_EQ(KeysOf(row), kRowKeys);
  EXPECT_EQ(KeysOf(report["reference"]), kRowKeys);
  EXPECT_EQ(KeysOf(report["questions"]), (std::set<std::string>{"asked", "evaluated", "resumed", "skipped"}));
  EXPECT_TRUE(report["timing"].is_null());
  EXPECT_TRUE(report["strategies"][0]["ttft_seconds"].is_null());
}

TEST_F(ReportTest, QualityIsThatOfTheResults) {
  ASSERT_OK_AND_ASSIGN(const json report, MakeReport(input_));
  EXPECT_EQ(report["baseline"], "naive");
  const json& naive = report["strategies"][0];
  const json& lego = report["strategies"][1];
  EXPECT_EQ(naive["strategy"], "naive");
  EXPECT_NEAR(naive["kl"], 0.3 * 2.5, 1e-12);
  EXPECT_NEAR(naive["kl_median"], 0.3 * 2.5, 1e-12);
  EXPECT_NEAR(naive["kl_first"], 0.4 * 2.5, 1e-12);
  EXPECT_NEAR(naive["top1"], 0.5, 1e-12);
  EXPECT_NEAR(naive["rows_recomputed"], 80, 1e-12);
  EXPECT_LT(naive["kl_ci"][0], naive["kl"]);
  EXPECT_GT(naive["kl_ci"][1], naive["kl"]);
  EXPECT_TRUE(naive["paired"].is_null());
  EXPECT_EQ(lego["paired"]["baseline"], "naive");
  EXPECT_NEAR(lego["paired"]["kl_ratio"], 0.25, 1e-12);
  EXPECT_NEAR(lego["paired"]["kl_ratio_ci"][0], 0.25, 1e-12) << "every prompt has the same ratio";
  EXPECT_NEAR(lego["paired"]["kl_ratio_ci"][1], 0.25, 1e-12);
  EXPECT_NEAR(lego["f1_relative"]["ratio"], 0.5 / 0.625, 1e-12);
  EXPECT_NEAR(report["reference"]["f1"], 0.625, 1e-12);
  EXPECT_EQ(report["reference"]["kl"], 0.0);
  EXPECT_NEAR(report["reference"]["exact_match"], 0.25, 1e-12);
  EXPECT_EQ(report["questions"]["asked"], 5);
  EXPECT_EQ(report["questions"]["evaluated"], 4);
  EXPECT_EQ(report["questions"]["skipped"], (json{{{"question", 4}, {"reason", "too long"}}}));
}

TEST_F(ReportTest, ANamedBaselineIsPairedWith) {
  input_.baseline = "legolink-16";
  ASSERT_OK_AND_ASSIGN(const json report, MakeReport(input_));
  EXPECT_NEAR(report["strategies"][0]["paired"]["kl_ratio"], 4, 1e-12);
  EXPECT_TRUE(report["strategies"][1]["paired"].is_null());
}

TEST_F(ReportTest, TimesAreSpreadsAndRatiosSampleBySample) {
  input_.timings = {{"full", {Sample(1.0, 100), Sample(2.0, 100), Sample(3.0, 100)}},
                    {"naive", {Sample(0.1, 100), Sample(0.1, 100), Sample(0.1, 100)}},
                    {"legolink-16", {Sample(0.2, 100), Sample(0.4, 100), Sample(0.3, 100)}}};
  ASSERT_OK_AND_ASSIGN(const json report, MakeReport(input_));
  const json& lego = report["strategies"][1];
  EXPECT_EQ(lego["ttft_seconds"], (json{{"median", 0.3}, {"min", 0.2}, {"max", 0.4}}));
  EXPECT_NEAR(lego["full_ttft_ratio"]["median"], 5, 1e-12);
  EXPECT_NEAR(lego["full_ttft_ratio"]["max"], 10, 1e-12);
  EXPECT_NEAR(lego["link_ratio"]["median"], 3, 1e-12);
  EXPECT_NEAR(lego["decide_share"]["median"], 0.1, 1e-12);
  EXPECT_NEAR(report["timing"]["full_tokens_per_second"]["median"], 500, 1e-9);
  EXPECT_EQ(report["timing"]["samples"], 3);
  EXPECT_EQ(report["timing"]["prompts"], json::array({0}));
  // 900 covered rows at 250 tokens/s are 3.6 s; a read saves (0.8 + 1.6 + 2.7) / 3 s.
  EXPECT_NEAR(lego["break_even_reuses"], 3 * 3.6 / 5.1, 1e-9);
  EXPECT_TRUE(report["reference"]["break_even_reuses"].is_null()) << "full saves nothing";
}

TEST_F(ReportTest, NothingToReportOnIsAnError) {
  input_.asked = {4};
  EXPECT_THAT(MakeReport(input_), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("too long")));
  input_.asked = {};
  EXPECT_THAT(MakeReport(input_), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--skip")));
  input_.asked = {0, 9};
  EXPECT_THAT(MakeReport(input_), StatusIs(absl::StatusCode::kInternal, HasSubstr("question 9")));
}

TEST_F(ReportTest, TheTableNamesWhatStandsInIt) {
  ASSERT_OK_AND_ASSIGN(json report, MakeReport(input_));
  std::ostringstream out;
  PrintReport(report, out);
  for (const char* const word : {"tiny", "4 of 5 questions", "question 4 was left out: too long",
                                 "legolink-16", "naive", "full", "KL of naive"}) {
    EXPECT_THAT(out.str(), HasSubstr(word));
  }
  EXPECT_THAT(out.str(), Not(HasSubstr("tokens/s"))) << "nothing was timed";
  input_.timings = {{"full", {Sample(1.0, 100)}}, {"naive", {Sample(0.1, 100)}}};
  ASSERT_OK_AND_ASSIGN(report, MakeReport(input_));
  std::ostringstream timed;
  PrintReport(report, timed);
  EXPECT_THAT(timed.str(), HasSubstr("1000 prompt tokens/s"));
}

}  // namespace
}  // namespace epic::loadgen
