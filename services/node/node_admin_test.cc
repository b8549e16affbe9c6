#include "services/node/node_admin.h"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"

namespace epic {
namespace {

class NodeAdminTest : public ::testing::Test {
 protected:
  const EffectiveSetting& Find(const std::string& name) {
    settings_ = admin_.Settings();
    for (const EffectiveSetting& setting : settings_) {
      if (setting.name == name) return setting;
    }
    ADD_FAILURE() << "no setting " << name;
    return settings_.front();
  }
  static Config MakeConfig() {
    ConfigSources sources;
    sources.environment = {{"HOME", "/nowhere"}};
    sources.sets = {"limits.n=3"};
    auto config = LoadConfig(sources);
    EXPECT_OK(config);
    return *std::move(config);
  }

  std::ostringstream out_;
  Logger log_{LogOptions{.level = LogLevel::kInfo, .format = LogFormat::kText, .out = &out_}};
  uint64_t running_ = 2;
  Config config_ = MakeConfig();
  NodeAdmin admin_{config_, log_, [this] { return running_--; }};
  std::vector<EffectiveSetting> settings_;
};

TEST_F(NodeAdminTest, EverySettingIsShownWithItsSource) {
  EXPECT_EQ(admin_.Settings().size(), config_.origins.size());
  EXPECT_EQ(Find("limits.n").value, "3");
  EXPECT_EQ(Find("limits.n").source, "--set");
  EXPECT_EQ(Find("log.format").source, "default");
}

TEST_F(NodeAdminTest, TheLogLevelChangesForEveryCopyOfTheLoggerAndIsShown) {
  const Logger copy = log_.With({"part", "x"});
  copy.Debug("hidden");
  ASSERT_OK_AND_ASSIGN(const std::string previous, admin_.SetLogLevel("debug"));
  EXPECT_EQ(previous, "info");
  copy.Debug("visible");
  EXPECT_THAT(out_.str(), ::testing::HasSubstr("visible"));
  EXPECT_THAT(out_.str(), ::testing::Not(::testing::HasSubstr("hidden")));
  EXPECT_EQ(Find("log.level").value, "debug");
  EXPECT_EQ(Find("log.level").source, "admin call");
  const auto wrong = admin_.SetLogLevel("loud");
  EXPECT_EQ(CodeOf(wrong.status()), ErrorCode::kInvalidRequest);
  EXPECT_EQ(ParamOf(wrong.status()), "level");
  EXPECT_EQ(Find("log.level").value, "debug");
}

TEST_F(NodeAdminTest, DrainTellsHowManyRequestsAreLeft) {
  EXPECT_EQ(admin_.Drain(), 2u);
  EXPECT_EQ(admin_.Drain(), 1u);
}

}  // namespace
}  // namespace epic
