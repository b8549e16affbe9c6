#include "services/engine/panel_run.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/storage/testing/scripted_object.h"
#include "services/engine/testing/plain_object.h"

namespace epic {
namespace {

using testing::PlainObject;
using testing::ScriptedObject;

constexpr size_t kHidden = 3;
constexpr uint32_t kLayers = 6;

std::shared_ptr<ScriptedObject> OnItsWay() {
  const KvLayout layout{.layers = kLayers, .kv_heads = 1, .head_dim = 8, .tokens = 1};
  return std::make_shared<ScriptedObject>(std::make_shared<PlainObject>(layout));
}

// What row `row` enters `layer` with, in these tests.
std::vector<float> Residual(uint32_t row, uint32_t layer) {
  std::vector<float> residual(kHidden);
  for (size_t i = 0; i < kHidden; ++i) residual[i] = static_cast<float>(row * 1000 + layer * 10 + i);
  return residual;
}

// Runs the step's groups from their entries on, as Forward does, until MustWait. Checks that rows enter with
// what they left with. `passed`: for each row the layers that it has been through.
void RunGroups(PanelRun* run, const std::vector<RowGroup>& groups, std::vector<uint32_t>* passed) {
  for (const RowGroup& group : groups) {
    for (size_t r = 0; r < group.tokens.size(); ++r) {
      const auto row = static_cast<uint32_t>(group.first_row + r);
      EXPECT_EQ((*passed)[row], group.first_layer);
      if (group.first_layer == 0) {
        EXPECT_EQ(group.hidden, nullptr);
        continue;
      }
      const float* const residual = group.hidden + r * kHidden;
      EXPECT_EQ(std::vector<float>(residual, residual + kHidden), Residual(row, group.first_layer));
    }
  }
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    if (run->MustWait(layer)) {
      for (const RowGroup& group : groups) {
        std::vector<float> residuals;
        for (size_t r = 0; r < group.tokens.size(); ++r) {
          const std::vector<float> residual = Residual(static_cast<uint32_t>(group.first_row + r), layer);
          residuals.insert(residuals.end(), residual.begin(), residual.end());
        }
        run->Suspend(group, layer, residuals);
      }
      return;
    }
    for (const RowGroup& group : groups) {
      if (layer < group.first_layer) continue;
      for (size_t r = 0; r < group.tokens.size(); ++r) {
        const size_t row = group.first_row + r;
        // Those before it have left their keys and values there, or do so in this very step.
        for (size_t before = 0; before < row; ++before) EXPECT_GE((*passed)[before], layer);
        (*passed)[row] = layer + 1;
      }
    }
  }
}

TEST(PanelRunTest, WithoutObjectsOnTheirWayPanelsRunThroughOneBehindTheOther) {
  PanelRun run;
  run.tokens.resize(20);
  run.logits_rows = 2;
  std::vector<uint32_t> passed(20);
  for (const uint32_t rows : {13u, 7u}) {
    EXPECT_EQ(run.Runnable(), run.remaining());
    std::vector<RowGroup> groups;
    run.Next(rows, &groups);
    ASSERT_EQ(groups.size(), 1u);
    EXPECT_EQ(groups[0].first_row, rows == 13 ? 0u : 13u);
    EXPECT_EQ(groups[0].logits_rows, rows == 13 ? 0u : 2u);
    RunGroups(&run, groups, &passed);
    EXPECT_TRUE(run.EndStep());
  }
  EXPECT_EQ(run.remaining(), 0u);
  EXPECT_EQ(run.kept_bytes(), 0u);
}

TEST(PanelRunTest, RowsThatResumeAreGroupsOfTheirOwn) {
  PanelRun run;
  run.tokens.resize(20);
  run.logits_rows = 2;
  for (uint32_t row = 11; row < 17; ++row) run.Resume(row, 1, Residual(row, 1));
  std::vector<RowGroup> groups;
  run.Next(13, &groups);
  EXPECT_TRUE(run.EndStep());
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
      EXPECT_EQ(groups[i].hidden[1], Residual(first[i], 1)[1]);
    }
  }
  EXPECT_TRUE(run.EndStep());
  EXPECT_EQ(run.remaining(), 0u);
  run.DropKept();
  EXPECT_EQ(run.kept_bytes(), 0u);
}

TEST(PanelRunTest, AllPanelsGoAsFarAsTheObjectsAreAndTheFirstOneGoesOnFirst) {
  const auto object = OnItsWay();
  PanelRun run;
  run.tokens.resize(30);
  run.gate.Add(0, object, 0);
  EXPECT_EQ(run.Runnable(), 0u);
  object->Release(2);
  std::vector<uint32_t> passed(30);
  const auto step = [&](uint32_t rows) {
    std::vector<RowGroup> groups;
    run.Next(rows, &groups);
    RunGroups(&run, groups, &passed);
    return std::pair(groups.front().first_row, run.EndStep());
  };
  EXPECT_EQ(run.Runnable(), 30u);
  EXPECT_EQ(step(20), std::pair(0u, false));
  EXPECT_EQ(run.Runnable(), 10u) << "the rest may go as far";
  EXPECT_EQ(step(10), std::pair(20u, false));
  EXPECT_EQ(run.Runnable(), 0u);
  object->Release(3);
  EXPECT_EQ(run.Runnable(), 30u);
  EXPECT_EQ(step(5), std::pair(0u, false)) << "a panel may be cut";
  object->Release(kLayers);
  EXPECT_EQ(step(30), std::pair(0u, true)) << "rows at two layers in one step";
  EXPECT_EQ(passed, std::vector<uint32_t>(30, kLayers));
  EXPECT_EQ(run.remaining(), 0u);
}

TEST(PanelRunTest, RowsDoNotGoWhereThoseBeforeThemHaveNotBeen) {
  const auto object = OnItsWay();
  PanelRun run;
  run.tokens.resize(8);
  run.gate.Add(0, object, 0);
  object->Release(2);
  std::vector<uint32_t> passed(8);
  std::vector<RowGroup> groups;
  run.Next(4, &groups);
  RunGroups(&run, groups, &passed);
  EXPECT_FALSE(run.EndStep());
  groups.clear();
  run.Next(4, &groups);
  object->Release(5);  // while the step of the last four rows runs
  EXPECT_FALSE(run.MustWait(1));
  EXPECT_TRUE(run.MustWait(2));
  RunGroups(&run, groups, &passed);
  EXPECT_FALSE(run.EndStep());
  EXPECT_EQ(passed, std::vector<uint32_t>(8, 2));
}

TEST(PanelRunTest, WhateverTheScheduleEveryRowGoesThroughEveryLayerOnce) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (uint64_t round = 0; round < 200; ++round) {
    Rng rng(seed + round);
    const std::shared_ptr<ScriptedObject> objects[] = {OnItsWay(), OnItsWay()};
    uint32_t released[] = {0, 0};
    const auto total = static_cast<uint32_t>(1 + rng.Below(40));
    PanelRun run;
    run.tokens.resize(total);
    run.gate.Add(0, objects[0], static_cast<uint32_t>(rng.Below(3)));
    run.gate.Add(1, objects[1], static_cast<uint32_t>(rng.Below(3)));
    std::vector<uint32_t> passed(total);
    const auto release = [&] {
      const size_t i = rng.Below(2);
      released[i] = std::min<uint32_t>(kLayers, released[i] + static_cast<uint32_t>(rng.Below(3)));
      objects[i]->Release(released[i]);
    };
    for (int step = 0; run.remaining() > 0 && step < 10000; ++step) {
      release();
      if (run.Runnable() == 0) continue;
      std::vector<RowGroup> groups;
      run.Next(static_cast<uint32_t>(1 + rng.Below(run.Runnable())), &groups);
      if (rng.Below(2) == 0) release();
      RunGroups(&run, groups, &passed);
      run.EndStep();
    }
    EXPECT_EQ(run.remaining(), 0u);
    EXPECT_EQ(passed, std::vector<uint32_t>(total, kLayers));
    if (::testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace epic
