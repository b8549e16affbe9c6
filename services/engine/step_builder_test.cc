#include "services/engine/step_builder.h"

#include <numeric>
#include <random>

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

}  // namespace
}  // namespace epic
