#include "common/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "common/testing/paths.h"

namespace epic {
namespace {

using ::testing::HasSubstr;

// A reader of the text exposition format that shares nothing with the writer. Records what breaks the format.
struct Exposition {
  std::map<std::string, double> samples;  // the series as written
  std::map<std::string, std::string> types;
  std::vector<std::string> problems;
};

// Histogram samples belong to the family without their suffix.
std::string FamilyOf(const std::string& name, const std::map<std::string, std::string>& types) {
  for (const char* suffix : {"_bucket", "_sum", "_count"}) {
    const std::string tail(suffix);
    if (!name.ends_with(tail)) continue;
    const std::string family = name.substr(0, name.size() - tail.size());
    const auto found = types.find(family);
    if (found != types.end() && found->second == "histogram") return family;
  }
  return name;
}

Exposition Parse(const std::string& text) {
  static const std::regex kHelp(R"(# HELP ([a-z_]+) .+)");
  static const std::regex kType(R"(# TYPE ([a-z_]+) (counter|gauge|histogram))");
  static const std::regex kSample(R"(([a-z_]+)(\{([a-z_]+="[^"\\\n]*",?)+\})? (\S+))");
  Exposition out;
  std::set<std::string> helped;
  std::string current;
  if (!text.ends_with('\n')) out.problems.push_back("no newline at the end");
  std::istringstream in(text);
  std::smatch match;
  for (std::string line; std::getline(in, line);) {
    if (std::regex_match(line, match, kHelp)) {
      if (!helped.insert(match[1]).second) out.problems.push_back("second HELP: " + line);
    } else if (std::regex_match(line, match, kType)) {
      current = match[1];
      if (!helped.contains(current)) out.problems.push_back("TYPE without HELP: " + line);
      if (!out.types.emplace(current, match[2]).second) out.problems.push_back("second TYPE: " + line);
    } else if (std::regex_match(line, match, kSample)) {
      if (FamilyOf(match[1], out.types) != current) out.problems.push_back("outside of its family: " + line);
      char* end = nullptr;
      const std::string number = match[4];
      const double value = std::strtod(number.c_str(), &end);
      if (*end != '\0') out.problems.push_back("not a number: " + line);
      if (!out.samples.emplace(std::string(match[1]) + std::string(match[2]), value).second) {
        out.problems.push_back("second sample: " + line);
      }
    } else {
      out.problems.push_back("not a line of the format: " + line);
    }
  }
  return out;
}

TEST(MetricsTest, TheReaderOfTheFormatFindsFaults) {
  EXPECT_EQ(Parse("# HELP a b\n# TYPE a counter\na 1\n").problems.size(), 0u);
  for (const char* bad :
       {"# HELP a b\n# TYPE a counter\na 1", "a 1\n", "# HELP a b\n# TYPE a counter\na 1\na 2\n",
        "# TYPE a counter\na 1\n", "# HELP a b\n# TYPE a counter\na x\n",
        "# HELP a b\n# TYPE a counter\na{x=1} 1\n", "# HELP a b\n# TYPE a meter\n"}) {
    EXPECT_GE(Parse(bad).problems.size(), 1u) << bad;
  }
}

TEST(MetricsTest, EverySeriesStandsAtZeroFromTheStartInAValidText) {
  Metrics metrics;
  const Exposition text = Parse(metrics.Text());
  EXPECT_THAT(text.problems, ::testing::IsEmpty());
  EXPECT_EQ(text.types.size(), MetricTable().size());
  size_t expected = 0;
  for (const MetricDescriptor& metric : MetricTable()) {
    EXPECT_EQ(text.types.at(std::string(metric.name)), NameOf(metric.type));
    size_t series = 1;
    for (const LabelDescriptor& label : metric.labels) series *= label.values.size();
    expected += series * (metric.type == MetricType::kHistogram ? metric.buckets.size() + 3 : 1);
  }
  EXPECT_EQ(text.samples.size(), expected);
  for (const auto& [series, value] : text.samples) EXPECT_EQ(value, 0) << series;
}

TEST(MetricsTest, HandlesChangeTheirOwnSeriesOnly) {
  Metrics metrics;
  metrics.GetCounter(MetricId::kRequestsTotal, {"http", "queue_full"}).Add(3);
  metrics.GetCounter(MetricId::kRequestsTotal, {"http", "queue_full"}).Add();
  metrics.GetGauge(MetricId::kRequestsRunning).Set(7);
  const Exposition text = Parse(metrics.Text());
  EXPECT_EQ(text.samples.at(R"(epic_requests_total{code="queue_full",door="http"})"), 4);
  EXPECT_EQ(text.samples.at("epic_requests_running"), 7);
  double sum = 0;
  for (const auto& [series, value] : text.samples) sum += value;
  EXPECT_EQ(sum, 11);
  EXPECT_EQ(metrics.GetCounter(MetricId::kRequestsTotal, {"http", "queue_full"}).Value(), 4u);
  EXPECT_EQ(metrics.GetCounter(MetricId::kRequestsTotal, {"grpc", "queue_full"}).Value(), 0u);
}

TEST(MetricsTest, HistogramBucketsAreCumulativeAndEndWithTheCount) {
  Metrics metrics;
  const Histogram ttft = metrics.GetHistogram(MetricId::kTimeToFirstTokenSeconds);
  for (const double seconds : {0.0005, 0.06, 0.06, 500.0}) ttft.Observe(seconds);
  const Exposition text = Parse(metrics.Text());
  const std::string bucket = "epic_time_to_first_token_seconds_bucket";
  EXPECT_EQ(text.samples.at(bucket + R"({le="0.001"})"), 1);
  EXPECT_EQ(text.samples.at(bucket + R"({le="0.05"})"), 1);
  EXPECT_EQ(text.samples.at(bucket + R"({le="0.075"})"), 3);
  EXPECT_EQ(text.samples.at(bucket + R"({le="120"})"), 3);
  EXPECT_EQ(text.samples.at(bucket + R"({le="+Inf"})"), 4);
  EXPECT_EQ(text.samples.at("epic_time_to_first_token_seconds_count"), 4);
  EXPECT_NEAR(text.samples.at("epic_time_to_first_token_seconds_sum"), 500.1205, 1e-9);
}

TEST(MetricsTest, ValuesThatAreNoTimeCountAsZero) {
  Metrics metrics;
  const Histogram wait = metrics.GetHistogram(MetricId::kPhaseSeconds, {"queue"});
  for (const double seconds : {-1.0, std::nan("")}) wait.Observe(seconds);
  const Exposition text = Parse(metrics.Text());
  EXPECT_EQ(text.samples.at(R"(epic_phase_seconds_count{phase="queue"})"), 2);
  EXPECT_EQ(text.samples.at(R"(epic_phase_seconds_sum{phase="queue"})"), 0);
}

TEST(MetricsTest, CollectorsRunAtEachTextUntilTheyEnd) {
  Metrics metrics;
  int runs = 0;
  {
    const Metrics::Collector collector =
        metrics.AddCollector([&] { metrics.GetGauge(MetricId::kStoreContexts).Set(++runs); });
    EXPECT_THAT(metrics.Text(), HasSubstr("epic_store_contexts 1\n"));
    EXPECT_THAT(metrics.Text(), HasSubstr("epic_store_contexts 2\n"));
    EXPECT_EQ(runs, 2);
  }
  (void)metrics.Text();
  EXPECT_EQ(runs, 2);
}

TEST(MetricsTest, AMovedCollectorRunsOnce) {
  Metrics metrics;
  int runs = 0;
  Metrics::Collector first = metrics.AddCollector([&] { ++runs; });
  Metrics::Collector second = std::move(first);
  (void)metrics.Text();
  EXPECT_EQ(runs, 1);
  second = Metrics::Collector();
  (void)metrics.Text();
  EXPECT_EQ(runs, 1);
}

TEST(MetricsTest, CountsOfManyThreadsAddUp) {
  Metrics metrics;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&metrics] {
      const Counter tokens = metrics.GetCounter(MetricId::kPromptTokensTotal, {"cached"});
      const Histogram itl = metrics.GetHistogram(MetricId::kInterTokenLatencySeconds);
      for (int i = 0; i < 1000; ++i) {
        tokens.Add(2);
        itl.Observe(0.01);
        if (i % 250 == 0) (void)metrics.Text();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Exposition text = Parse(metrics.Text());
  EXPECT_EQ(text.samples.at(R"(epic_prompt_tokens_total{source="cached"})"), 8000);
  EXPECT_EQ(text.samples.at("epic_inter_token_latency_seconds_count"), 4000);
}

TEST(MetricsDeathTest, AWrongLabelOrTypeIsOurOwnMistake) {
  Metrics metrics;
  EXPECT_DEATH((void)metrics.GetCounter(MetricId::kRequestsTotal, {"http"}), "check failed");
  EXPECT_DEATH((void)metrics.GetCounter(MetricId::kRequestsTotal, {"http", "no_such_code"}), "check failed");
  EXPECT_DEATH((void)metrics.GetGauge(MetricId::kRequestsTotal, {"http", "ok"}), "check failed");
}

TEST(MetricTableTest, RowsStandInTheOrderOfTheEnumAndFollowTheNamingRules) {
  std::set<std::string_view> names;
  size_t index = 0;
  for (const MetricDescriptor& metric : MetricTable()) {
    EXPECT_EQ(static_cast<size_t>(metric.id), index++) << metric.name;
    EXPECT_TRUE(names.insert(metric.name).second) << metric.name;
    EXPECT_TRUE(metric.name.starts_with("epic_")) << metric.name;
    EXPECT_EQ(metric.type == MetricType::kCounter, metric.name.ends_with("_total")) << metric.name;
    EXPECT_EQ(metric.type == MetricType::kHistogram, !metric.buckets.empty()) << metric.name;
    EXPECT_TRUE(std::is_sorted(metric.buckets.begin(), metric.buckets.end())) << metric.name;
    if (metric.unit == "seconds") {
      EXPECT_TRUE(metric.name.ends_with("_seconds")) << metric.name;
    }
    if (metric.unit == "bytes") {
      EXPECT_TRUE(metric.name.ends_with(metric.type == MetricType::kCounter ? "_bytes_total" : "_bytes"))
          << metric.name;
    }
    EXPECT_FALSE(metric.help.empty()) << metric.name;
  }
}

TEST(MetricTableTest, TheReadmeHasTheTable) {
  const std::string table = MetricsMarkdown();
  const std::string file = testing::BuildDir() + "/metrics.md";
  std::ofstream(file) << table;
  EXPECT_THAT(testing::ReadFileOrDie(testing::SourceDir() + "/common/metrics/README.md"), HasSubstr(table))
      << "Put the table of " << file << " into common/metrics/README.md.";
}

}  // namespace
}  // namespace epic
