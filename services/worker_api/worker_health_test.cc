#include "services/worker_api/worker_health.h"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "services/worker_api/testing/fake_engine.h"

namespace epic {
namespace {

using ::epic::testing::FakeEngine;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Ignore final : public CompileSink {
  absl::Status OnLayer(uint32_t, ByteSpan) override { return absl::OkStatus(); }
  void OnDone(const absl::Status&) override {}
};

TEST(WorkerHealthTest, IsOkUntilItStopsOrItsEngineStandsStill) {
  ManualClock clock;
  FakeEngine engine;
  const auto health = [&](bool draining) { return HealthOfWorker(draining, engine, nullptr, 2000, clock); };
  EXPECT_TRUE(health(false).able);
  EXPECT_EQ(health(false).status, "ok");
  EXPECT_THAT(health(false).causes, IsEmpty());

  CompileRequest request;
  request.tokens = {1};
  ASSERT_OK(engine.SubmitCompile(request, std::make_shared<Ignore>()));
  engine.set_last_progress_ns(clock.SteadyNs());
  clock.AdvanceMs(5001);
  EXPECT_FALSE(health(false).able);
  EXPECT_EQ(health(false).status, "stuck");
  EXPECT_THAT(health(false).causes, ElementsAre(HasSubstr("stood still for 5 s with 1 requests running")));

  EXPECT_FALSE(health(true).able);
  EXPECT_EQ(health(true).status, "draining");
  EXPECT_THAT(health(true).causes, ElementsAre("the worker is stopping"));
}

TEST(WorkerHealthTest, GaugesAreShownAtEachScrapeWhileTheCollectorLives) {
  FakeEngine engine;
  Metrics metrics;
  {
    const Metrics::Collector collector = CollectOfWorker(&engine, nullptr, &metrics);
    EXPECT_THAT(metrics.Text(), HasSubstr("epic_requests_running 0\n"));
    CompileRequest request;
    request.tokens = {1};
    ASSERT_OK(engine.SubmitCompile(request, std::make_shared<Ignore>()));
    EXPECT_THAT(metrics.Text(), HasSubstr("epic_requests_running 1\n"));
  }
}

}  // namespace
}  // namespace epic
