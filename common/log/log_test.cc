#include "common/log/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

namespace epic {
namespace {

using ::testing::EndsWith;
using ::testing::MatchesRegex;

// A line without its time.
std::string AfterTime(const std::string& line) { return line.substr(line.find(' ') + 1); }

TEST(LogTest, ATextLineHasTimeLevelMessageAndFields) {
  std::ostringstream out;
  const Logger log({.out = &out});
  log.Info("context compiled",
           {{"tokens", 512}, {"ms", 12.5}, {"cached", false}, {"id", "ctx_abc"}, {"n", size_t{7}}});
  EXPECT_THAT(out.str(), MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{3}Z .*\n"));
  EXPECT_EQ(AfterTime(out.str()), "info context compiled tokens=512 ms=12.5 cached=false id=ctx_abc n=7\n");
}

TEST(LogTest, AJsonLineIsOneDocumentWithTypedValues) {
  std::ostringstream out;
  const Logger log({.format = LogFormat::kJson, .out = &out});
  log.Warn("slow \"step\"",
           {{"rows", 3}, {"ratio", NAN}, {"big", UINT64_MAX}, {"on", true}, {"text", "a\nb\t\x01\x80"}});
  const auto json = nlohmann::json::parse(out.str());
  EXPECT_EQ(json.at("level"), "warn");
  EXPECT_EQ(json.at("message"), "slow \"step\"");
  EXPECT_EQ(json.at("rows"), 3);
  EXPECT_EQ(json.at("ratio"), "nan");
  EXPECT_EQ(json.at("big"), UINT64_MAX);
  EXPECT_EQ(json.at("on"), true);
  EXPECT_EQ(json.at("text"), "a\nb\t\x01\u0080");
  EXPECT_THAT(json.at("time").get<std::string>(), EndsWith("Z"));
}

TEST(LogTest, AValueCannotBreakOutOfItsLine) {
  std::ostringstream out;
  const Logger log({.out = &out});
  log.Info("got", {{"a", "x\n2026-01-01 error forged=1"}, {"b", "has space"}, {"c", "k=v"}, {"d", ""}});
  EXPECT_EQ(AfterTime(out.str()),
            "info got a=\"x\\u000a2026-01-01 error forged=1\" b=\"has space\" c=\"k=v\" d=\"\"\n");
}

TEST(LogTest, LongTextsAreCut) {
  std::ostringstream out;
  const Logger log({.format = LogFormat::kJson, .out = &out});
  log.Info("long", {{"text", std::string(100000, 'x')}});
  EXPECT_EQ(nlohmann::json::parse(out.str()).at("text"), std::string(256, 'x') + "...");
}

TEST(LogTest, BoundFieldsStandOnEveryLineOfTheCopyOnly) {
  std::ostringstream out;
  const Logger log({.out = &out});
  const Logger request = log.With({"request_id", "r-1"}).With({"door", "http"});
  request.Info("begins", {{"x", 1}});
  EXPECT_EQ(AfterTime(out.str()), "info begins request_id=r-1 door=http x=1\n");
  out.str("");
  log.Info("ends");
  EXPECT_EQ(AfterTime(out.str()), "info ends\n");
}

TEST(LogTest, LinesBelowTheLevelAreNotWrittenAndCopiesShareTheLevel) {
  std::ostringstream out;
  const Logger log({.level = LogLevel::kWarn, .out = &out});
  const Logger copy = log.With({"a", 1});
  copy.Info("no");
  EXPECT_EQ(out.str(), "");
  EXPECT_FALSE(log.IsOn(LogLevel::kInfo));
  log.SetLevel(LogLevel::kDebug);
  copy.Debug("yes");
  EXPECT_EQ(AfterTime(out.str()), "debug yes a=1\n");
}

TEST(LogTest, TheDefaultLoggerWritesNothing) {
  const Logger log;
  log.Error("nobody sees this", {{"a", 1}});
  log.SetLevel(LogLevel::kTrace);
  EXPECT_FALSE(log.With({"a", 1}).IsOn(LogLevel::kError));
}

TEST(LogTest, LinesOfManyThreadsStayWhole) {
  std::ostringstream out;
  const Logger log({.format = LogFormat::kJson, .out = &out});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&log, t] {
      for (int i = 0; i < 200; ++i) log.With({"thread", t}).Info("line", {{"i", i}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::istringstream in(out.str());
  int lines = 0;
  for (std::string line; std::getline(in, line); ++lines) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  EXPECT_EQ(lines, 800);
}

TEST(LogTest, LevelsAndFormatsHaveTheNamesOfTheSettings) {
  EXPECT_EQ(ParseLogLevel("warn"), LogLevel::kWarn);
  EXPECT_EQ(ParseLogLevel("warning"), std::nullopt);
  EXPECT_EQ(ParseLogFormat("json"), LogFormat::kJson);
  EXPECT_EQ(ParseLogFormat(""), std::nullopt);
}

}  // namespace
}  // namespace epic
