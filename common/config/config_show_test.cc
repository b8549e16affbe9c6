#include "common/config/config_show.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/config/settings.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"

namespace epic {
namespace {

using ::testing::HasSubstr;

Config Sample() {
  ConfigSources sources;
  sources.environment = {{"HOME", "/home/some one"}, {"EPIC_LIMITS_N", "3"}};
  sources.sets = {"model.alias=a: \"b\" # c", "store.memory_bytes=5242880", "insecure=true",
                  "listen.http=[::1]:9"};
  auto config = LoadConfig(sources);
  EXPECT_OK(config);
  return *config;
}

TEST(ConfigShowTest, TheYamlFormLoadsBackToTheSameValues) {
  const Config config = Sample();
  const testing::TempDir dir;
  const std::string path = dir.path() + "/shown.yaml";
  std::ofstream(path) << ShowConfigYaml(config);
  ASSERT_OK_AND_ASSIGN(
      const Config again,
      LoadConfig({.file = path, .environment = {{"HOME", "/other"}}, .sets = {}, .flags = {}}));
  ASSERT_EQ(again.origins.size(), config.origins.size());
  for (size_t i = 0; i < config.origins.size(); ++i) {
    EXPECT_EQ(again.origins[i].value, config.origins[i].value) << config.origins[i].name;
    EXPECT_THAT(again.origins[i].source, HasSubstr(path));
  }
}

TEST(ConfigShowTest, TheYamlFormSaysWhereEachValueCameFrom) {
  const std::string text = ShowConfigYaml(Sample());
  EXPECT_THAT(text, HasSubstr("listen:\n  http: \"[::1]:9\"  # --set\n"));
  EXPECT_THAT(text, HasSubstr("  n: 3  # environment EPIC_LIMITS_N\n"));
  EXPECT_THAT(text, HasSubstr("  memory_bytes: 5MiB  # --set\n"));
  EXPECT_THAT(text, HasSubstr("  level: info  # default\n"));
}

TEST(ConfigShowTest, TheJsonFormHasTypedValues) {
  const auto json = nlohmann::json::parse(ShowConfigJson(Sample()));
  const auto& settings = json.at("settings");
  EXPECT_EQ(settings.size(), SettingTable().size());
  EXPECT_EQ(settings.at("store.memory_bytes").at("value"), 5242880);
  EXPECT_EQ(settings.at("store.memory_bytes").at("unit"), "bytes");
  EXPECT_EQ(settings.at("insecure").at("value"), true);
  EXPECT_EQ(settings.at("limits.n").at("source"), "environment EPIC_LIMITS_N");
  EXPECT_EQ(settings.at("limits.n").at("default"), "8");
  EXPECT_EQ(settings.at("model.alias").at("value"), "a: \"b\" # c");
  EXPECT_TRUE(json.at("warnings").empty());
}

TEST(ConfigShowTest, TheReadmeHasTheTableOfSettings) {
  const std::string table = SettingsMarkdown();
  const std::string file = testing::BuildDir() + "/settings.md";
  std::ofstream(file) << table;
  EXPECT_THAT(testing::ReadFileOrDie(testing::SourceDir() + "/common/config/README.md"), HasSubstr(table))
      << "Put the table of " << file << " into common/config/README.md.";
}

}  // namespace
}  // namespace epic
