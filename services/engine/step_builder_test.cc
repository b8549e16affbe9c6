#include "services/engine/step_builder.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"

namespace epic {
namespace {

using Rows = std::vector<uint32_t>;

TEST(SharePanelTest, OneJobGetsTheWholePanelAndNoMoreThanItNeeds) {
  EXPECT_EQ(SharePanel(Rows{900}, 512, 0).rows, Rows{512});
  EXPECT_EQ(SharePanel(Rows{9}, 512, 0).rows, Rows{9});
  EXPECT_TRUE(SharePanel(Rows{}, 512, 0).rows.empty());
}

TEST(SharePanelTest, SharesAreEqualAndWhatIsLeftGoesToThoseWithMore) {
  EXPECT_EQ(SharePanel(Rows{4000, 4000}, 512, 0).rows, (Rows{256, 256}));
  EXPECT_EQ(SharePanel(Rows{4000, 40, 4000}, 512, 0).rows, (Rows{302, 40, 170}));
}

TEST(SharePanelTest, WhenSharesWouldBeTooSmallTurnsAreTaken) {
  EXPECT_EQ(SharePanel(Rows{100, 100, 100}, 64, 0).rows, (Rows{32, 32, 0}));
  EXPECT_EQ(SharePanel(Rows{100, 100, 100}, 64, 1).rows, (Rows{0, 32, 32}));
  EXPECT_EQ(SharePanel(Rows{100, 100, 100}, 64, 2).rows, (Rows{32, 0, 32}));
}

TEST(SharePanelTest, ShortJobsAreNotCutButWhereThePanelEnds) {
  EXPECT_EQ(SharePanel(Rows{64, 64, 64, 64, 64, 64}, 256, 0).rows, (Rows{64, 64, 64, 64, 0, 0}));
  EXPECT_EQ(SharePanel(Rows{64, 64, 64, 64, 64, 64}, 256, 3).rows, (Rows{64, 0, 0, 64, 64, 64}));
  EXPECT_EQ(SharePanel(Rows{129, 128, 128}, 256, 0).rows, (Rows{85, 128, 43}));
  EXPECT_EQ(SharePanel(Rows{4000, 100, 4000, 100}, 256, 0).rows, (Rows{64, 100, 64, 28}));
}

TEST(SharePanelTest, TheNextTurnBeginsWithTheJobThatGotTooLittle) {
  EXPECT_EQ(SharePanel(Rows{64, 64, 64}, 128, 0).next, 2u);
  EXPECT_EQ(SharePanel(Rows{64, 64, 64}, 128, 2).next, 1u);
  EXPECT_EQ(SharePanel(Rows{64, 64, 64}, 100, 0).next, 1u) << "cut short";
  EXPECT_EQ(SharePanel(Rows{4000, 4000, 4000}, 512, 1).next, 2u) << "all had their share";
}

TEST(SharePanelTest, NeverMoreThanTheBudgetNorLessThanCanBeUsed) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  for (int round = 0; round < 500; ++round) {
    Rows remaining(1 + rng.Below(9));
    for (uint32_t& rows : remaining) rows = static_cast<uint32_t>(1 + rng.Below(300));
    const auto budget = static_cast<uint32_t>(1 + rng.Below(600));
    const PanelShares shares = SharePanel(remaining, budget, rng.Below(remaining.size()));
    EXPECT_LT(shares.next, remaining.size());
    for (size_t i = 0; i < remaining.size(); ++i) EXPECT_LE(shares.rows[i], remaining[i]);
    const uint32_t wanted = std::accumulate(remaining.begin(), remaining.end(), 0u);
    EXPECT_EQ(std::accumulate(shares.rows.begin(), shares.rows.end(), 0u), std::min(budget, wanted));
  }
}

// A job of `rows` prompt rows and, if it decodes, one decode row.
class FakeJob final : public Job {
 public:
  FakeJob(uint32_t rows, bool is_shallow, bool decodes, RowKind kind = RowKind::kPrompt)
      : Job({}, 0), decodes_(decodes) {
    panels_.tokens.resize(rows);
    panels_.is_shallow = is_shallow;
    panels_.kind = kind;
  }
  void Admit(const JobContext&) override {}
  void AddDecodeRows(std::vector<RowGroup>* groups, std::vector<uint32_t>* choices) override {
    if (!decodes_) return;
    groups->push_back({.tokens = {&token_, 1}});
    choices->push_back(7);
  }
  bool complete() const override { return false; }
  void Finish(const absl::Status&) override {}

 private:
  const bool decodes_;
  const TokenId token_ = 0;
};

Rows PanelRowsOf(const Step& step) {
  EXPECT_EQ(step.groups.size(), step.owners.size());
  Rows rows;
  for (const GroupOwner& owner : step.owners) {
    if (owner.panel_rows > 0) rows.push_back(owner.panel_rows);
  }
  return rows;
}

TEST(StepBuilderTest, PanelsShrinkBesideDecodeRowsUnlessTheyLeaveAfterAFewLayers) {
  StepBuilder builder(512);
  const auto rows = [&](bool decodes, bool first_shallow, bool second_shallow) {
    std::vector<std::unique_ptr<Job>> jobs;
    jobs.push_back(std::make_unique<FakeJob>(4000, first_shallow, decodes));
    jobs.push_back(std::make_unique<FakeJob>(4000, second_shallow, false));
    return PanelRowsOf(builder.Build(jobs));
  };
  EXPECT_EQ(rows(false, false, false), (Rows{256, 256}));
  EXPECT_EQ(rows(true, false, false), (Rows{64, 64}));
  EXPECT_EQ(rows(true, true, false), (Rows{64, 64}));
  EXPECT_EQ(rows(true, true, true), (Rows{256, 256}));
}

TEST(StepBuilderTest, RowsOfPromptsComeLast) {
  StepBuilder builder(512);
  std::vector<std::unique_ptr<Job>> jobs;
  jobs.push_back(std::make_unique<FakeJob>(40, false, false));
  jobs.push_back(std::make_unique<FakeJob>(30, false, false, RowKind::kProbe));
  jobs.push_back(std::make_unique<FakeJob>(20, false, true));
  jobs.push_back(std::make_unique<FakeJob>(10, false, false, RowKind::kProbe));
  const Step step = builder.Build(jobs);
  ASSERT_EQ(step.groups.size(), 5u);
  const struct {
    size_t job, rows;
    RowKind kind;
  } expected[] = {{2, 1, RowKind::kDecode},
                  {1, 30, RowKind::kProbe},
                  {3, 10, RowKind::kProbe},
                  {0, 40, RowKind::kPrompt},
                  {2, 20, RowKind::kPrompt}};
  for (size_t i = 0; i < step.groups.size(); ++i) {
    EXPECT_EQ(step.owners[i].job, jobs[expected[i].job].get()) << i;
    EXPECT_EQ(step.groups[i].tokens.size(), expected[i].rows) << i;
    EXPECT_EQ(step.groups[i].kind, expected[i].kind) << i;
    EXPECT_EQ(step.owners[i].panel_rows, i == 0 ? 0 : expected[i].rows) << i;
  }
}

// Steps until all jobs have no rows left, ended jobs dropped behind every step as the engine does it. Returns
// how many of the first steps each job waited for its first rows.
std::vector<size_t> StepsBeforeTheFirstRows(StepBuilder* builder, std::vector<std::unique_ptr<Job>> jobs) {
  std::vector<Job*> all;
  for (const auto& job : jobs) all.push_back(job.get());
  std::vector<std::unique_ptr<Job>> ended;
  std::vector<size_t> waited(all.size(), SIZE_MAX);
  for (size_t step = 0; !jobs.empty() && step < 10000; ++step) {
    const Step built = builder->Build(jobs);
    for (const GroupOwner& owner : built.owners) {
      const size_t job = std::find(all.begin(), all.end(), owner.job) - all.begin();
      waited[job] = std::min(waited[job], step);
      if (owner.ends_panel) {
        EXPECT_TRUE(owner.job->panels().EndStep());
      }
    }
    for (size_t i = jobs.size(); i-- > 0;) {
      if (jobs[i]->panels().remaining() > 0) continue;
      ended.push_back(std::move(jobs[i]));
      jobs.erase(jobs.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  EXPECT_TRUE(jobs.empty());
  return waited;
}

TEST(StepBuilderTest, ShortJobsHaveTheirTurnInOrderOfArrivalThoughOthersEndBeforeThem) {
  StepBuilder builder(512);
  std::vector<std::unique_ptr<Job>> jobs;
  for (int i = 0; i < 64; ++i) jobs.push_back(std::make_unique<FakeJob>(64, false, false));
  const std::vector<size_t> waited = StepsBeforeTheFirstRows(&builder, std::move(jobs));
  for (size_t i = 0; i < waited.size(); ++i) EXPECT_EQ(waited[i], i / 8);
}

TEST(StepBuilderTest, AShortJobBehindManyLongOnesWaitsForOneTurnOnly) {
  StepBuilder builder(512);
  std::vector<std::unique_ptr<Job>> jobs;
  for (int i = 0; i < 40; ++i) jobs.push_back(std::make_unique<FakeJob>(4000, false, false));
  jobs.push_back(std::make_unique<FakeJob>(100, false, false));
  EXPECT_LE(StepsBeforeTheFirstRows(&builder, std::move(jobs)).back(), 2u);
}

}  // namespace
}  // namespace epic
