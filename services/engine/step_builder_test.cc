#include "services/engine/step_builder.h"

#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"

namespace epic {
namespace {

using Rows = std::vector<uint32_t>;

TEST(SharePanelTest, OneJobGetsTheWholePanelAndNoMoreThanItNeeds) {
  EXPECT_EQ(SharePanel(Rows{900}, 512, 0), Rows{512});
  EXPECT_EQ(SharePanel(Rows{9}, 512, 0), Rows{9});
  EXPECT_TRUE(SharePanel(Rows{}, 512, 0).empty());
}

TEST(SharePanelTest, SharesAreEqualAndWhatIsLeftGoesToThoseWithMore) {
  EXPECT_EQ(SharePanel(Rows{4000, 4000}, 512, 0), (Rows{256, 256}));
  EXPECT_EQ(SharePanel(Rows{4000, 40, 4000}, 512, 0), (Rows{302, 40, 170}));
}

TEST(SharePanelTest, WhenSharesWouldBeTooSmallTurnsAreTaken) {
  EXPECT_EQ(SharePanel(Rows{100, 100, 100}, 64, 0), (Rows{32, 32, 0}));
  EXPECT_EQ(SharePanel(Rows{100, 100, 100}, 64, 1), (Rows{0, 32, 32}));
  EXPECT_EQ(SharePanel(Rows{100, 100, 100}, 64, 2), (Rows{32, 0, 32}));
}

TEST(SharePanelTest, NeverMoreThanTheBudgetNorLessThanCanBeUsed) {
  Rng rng(std::random_device{}());
  for (int round = 0; round < 500; ++round) {
    Rows remaining(1 + rng.Below(9));
    for (uint32_t& rows : remaining) rows = static_cast<uint32_t>(1 + rng.Below(300));
    const auto budget = static_cast<uint32_t>(1 + rng.Below(600));
    const Rows rows = SharePanel(remaining, budget, rng.Below(remaining.size()));
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_LE(rows[i], remaining[i]);
    const uint32_t wanted = std::accumulate(remaining.begin(), remaining.end(), 0u);
    EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), 0u), std::min(budget, wanted));
  }
}

// A job of `rows` prompt rows and, if it decodes, one decode row.
class FakeJob final : public Job {
 public:
  FakeJob(uint32_t rows, bool is_shallow, bool decodes) : Job({}, 0), decodes_(decodes) {
    panels_.tokens.resize(rows);
    panels_.is_shallow = is_shallow;
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

TEST(PanelRunTest, RowsThatResumeAreGroupsOfTheirOwn) {
  PanelRun run;
  run.tokens.resize(20);
  run.logits_rows = 2;
  run.resume_layer = 1;
  for (uint32_t row = 11; row < 17; ++row) {
    run.resumed.push_back(row);
    for (int i = 0; i < 3; ++i) run.hidden.push_back(static_cast<float>(row));
  }
  std::vector<RowGroup> groups;
  run.Next(13, &groups);
  run.EndStep();
  run.Next(7, &groups);
  ASSERT_EQ(groups.size(), 4u);
  const uint32_t first[] = {0, 11, 13, 17};
  const size_t rows[] = {11, 2, 4, 3};
  const uint32_t logits[] = {0, 0, 0, 2};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(groups[i].first_row, first[i]);
    EXPECT_EQ(groups[i].tokens.size(), rows[i]);
    EXPECT_EQ(groups[i].logits_rows, logits[i]);
    const bool resumes = i == 1 || i == 2;
    EXPECT_EQ(groups[i].first_layer, resumes ? 1u : 0u);
    ASSERT_EQ(groups[i].hidden != nullptr, resumes);
    if (resumes) {
      EXPECT_EQ(groups[i].hidden[0], static_cast<float>(first[i]));
    }
  }
  run.EndStep();
  EXPECT_EQ(run.remaining(), 0u);
}

}  // namespace
}  // namespace epic
