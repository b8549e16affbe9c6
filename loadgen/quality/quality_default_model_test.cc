// A few questions on the default model: that quality behaves as it must on real weights and real data.
// Skipped where the model, or the data, is absent. The numbers that count are made by the command itself, on
// many more.
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "loadgen/quality/quality_command.h"

namespace epic::loadgen {
namespace {

using nlohmann::json;

class QualityDefaultModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::optional<std::string> model = testing::DefaultModelPath();
    if (!model.has_value())
      GTEST_SKIP() << "the default model is not in the cache: run deploy/fetch_model.sh";
    flags_.model = *model;
    flags_.timing_prompts = 1;
  }
  json Run() {
    std::ostringstream out, err;
    const absl::Status status = RunQuality(flags_, true, SystemClock::Get(), out, err);
    EXPECT_OK(status) << err.str();
    return status.ok() ? json::parse(out.str()) : json();
  }
  QualityFlags flags_;
};

TEST_F(QualityDefaultModelTest, RealQuestionsAreWorseWithoutRepairAndExactWithAll) {
  const std::optional<std::string> data = testing::DataDir();
  if (!data.has_value()) GTEST_SKIP() << "EPIC_DATA_DIR does not name the folder of evaluation data";
  flags_.dataset = *data + "/nq-open-oracle.jsonl.gz";
  flags_.strategies = "full,naive,legolink-16,legolink-9999";
  flags_.chunks = 4;
  flags_.questions = 4;
  const json report = Run();
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["questions"]["evaluated"], 4);
  const json& rows = report["strategies"];
  EXPECT_GT(rows[1]["kl"], 0.01) << "naive loses something on real text";
  EXPECT_LT(rows[2]["kl"], rows[1]["kl"]) << "repair helps";
  EXPECT_LT(rows[3]["kl"], 1e-3) << "every row recomputed is exact";
  EXPECT_GT(rows[3]["top1"], 0.95);
  EXPECT_EQ(rows[2]["rows_recomputed"], 64.0);
  EXPECT_GT(rows[2]["full_ttft_ratio"]["median"], 1.0);
}

TEST_F(QualityDefaultModelTest, AGeneratedNeedleIsAnsweredByFullAttention) {
  flags_.dataset = "generated:needle";
  flags_.strategies = "legolink-16";
  flags_.chunks = 2;
  flags_.questions = 6;
  flags_.timing_repeats = 0;
  const json report = Run();
  ASSERT_TRUE(report.is_object());
  EXPECT_GE(report["reference"]["contained"], 0.5) << "the model reads a code out of two short texts";
}

}  // namespace
}  // namespace epic::loadgen
