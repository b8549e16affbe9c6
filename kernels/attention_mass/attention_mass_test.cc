#include "kernels/attention_mass/attention_mass.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "kernels/api/testing/kernel_ways.h"

namespace epic {
namespace {

constexpr uint32_t kMaxPosition = 4000;

// A segment with its memory. Rows that are hidden hold NaN.
struct SegmentData {
  std::vector<float> k32;
  std::vector<Bf16> k16;
  std::vector<uint32_t> replaced, positions;
  KvSegment view;

  void Put(size_t at, float value) {
    if (view.dtype == DType::kF32) {
      k32[at] = value;
    } else {
      k16[at] = ToBf16(value);
    }
  }
  void Link() {
    view.k = view.dtype == DType::kF32 ? static_cast<const void*>(k32.data()) : k16.data();
    view.replaced = replaced.empty() ? nullptr : replaced.data();
    view.replaced_count = static_cast<uint32_t>(replaced.size());
    view.row_positions = positions.empty() ? nullptr : positions.data();
  }
};

struct Problem {
  uint32_t heads = 6, kv_heads = 2, head_dim = 32;
  DType dtype = DType::kF32;
  RopePairs pairs = RopePairs::kNorm;
  std::vector<SegmentData> segments;
  std::vector<uint32_t> q_positions;
  std::vector<float> q;
  std::unique_ptr<RopeTable> rope;

  size_t width() const { return size_t{heads} * head_dim; }
  uint32_t end() const { return q_positions.back() + 1; }

  SegmentData MakeSegment(uint32_t rows, uint32_t position, uint32_t stored, std::vector<uint32_t> replaced,
                          std::vector<uint32_t> positions, Rng* rng) const {
    SegmentData data;
    data.view.dtype = dtype;
    data.view.rows = rows;
    data.view.position = position;
    data.view.stored_position = stored;
    data.view.head_stride = size_t{rows + 3} * head_dim;
    data.replaced = std::move(replaced);
    data.positions = std::move(positions);
    const size_t count = data.view.head_stride * kv_heads;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    data.k32.assign(dtype == DType::kF32 ? count : 0, nan);
    data.k16.assign(dtype == DType::kF32 ? 0 : count, ToBf16(nan));
    for (uint32_t head = 0; head < kv_heads; ++head) {
      for (uint32_t r = 0; r < rows; ++r) {
        if (std::binary_search(data.replaced.begin(), data.replaced.end(), r)) continue;
        for (uint32_t d = 0; d < head_dim; ++d) {
          data.Put(head * data.view.head_stride + size_t{r} * head_dim + d,
                   static_cast<float>(rng->Gaussian()));
        }
      }
    }
    return data;
  }

  void SetQueries(std::vector<uint32_t> positions, Rng* rng) {
    q_positions = std::move(positions);
    q.resize(q_positions.size() * width());
    for (float& value : q) value = static_cast<float>(rng->Gaussian());
    std::vector<double> frequencies(head_dim / 2);
    for (size_t j = 0; j < frequencies.size(); ++j) {
      frequencies[j] = std::pow(10000.0, -2.0 * static_cast<double>(j) / head_dim);
    }
    rope = std::make_unique<RopeTable>(pairs, frequencies, kMaxPosition, 1.0);
  }

  // Rows [first, first + count) over `views`.
  SegmentAttentionArgs Args(std::span<const KvSegment> views, size_t first, size_t count) const {
    SegmentAttentionArgs args;
    args.q = q.data() + first * width();
    args.q_stride = width();
    args.q_positions = q_positions.data() + first;
    args.rows = std::min(count, q_positions.size() - first);
    args.heads = heads;
    args.kv_heads = kv_heads;
    args.head_dim = head_dim;
    args.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    args.segments = views;
    args.rope = rope.get();
    return args;
  }
  std::vector<KvSegment> Views() {
    std::vector<KvSegment> views;
    for (SegmentData& segment : segments) {
      segment.Link();
      views.push_back(segment.view);
    }
    return views;
  }

  // The sums of calls of `batch` rows.
  std::vector<uint64_t> Mass(KernelPath path, ThreadPool* pool, size_t batch = SIZE_MAX,
                             bool* finite = nullptr) {
    const std::vector<KvSegment> views = Views();
    std::vector<uint64_t> mass(size_t{heads} * end(), 0);
    for (size_t first = 0; first < q_positions.size(); first += std::min(batch, q_positions.size())) {
      AttentionMassArgs args;
      args.attention = Args(views, first, batch);
      args.mass = mass.data();
      args.mass_stride = end();
      const bool good = AttentionMass(args, pool, path);
      if (finite != nullptr) *finite = good;
    }
    return mass;
  }
};

std::vector<uint32_t> Range(uint32_t begin, uint32_t end) {
  std::vector<uint32_t> out(end - begin);
  std::iota(out.begin(), out.end(), begin);
  return out;
}

// Shared segments compiled behind prefixes, with replaced rows, and private rows among them.
Problem LinkedProblem(DType dtype, RopePairs pairs, uint32_t head_dim, Rng* rng) {
  Problem problem;
  problem.dtype = dtype;
  problem.pairs = pairs;
  problem.head_dim = head_dim;
  problem.segments.push_back(problem.MakeSegment(140, 5, 0, {0, 1, 60, 139}, {}, rng));
  problem.segments.push_back(problem.MakeSegment(33, 150, 4, {}, {}, rng));
  std::vector<uint32_t> own = Range(0, 7);
  for (const uint32_t row : {65u, 144u, 145u, 148u, 149u}) own.push_back(row);
  for (const uint32_t row : Range(183, 200)) own.push_back(row);
  own.erase(std::unique(own.begin(), own.end()), own.end());
  problem.segments.push_back(problem.MakeSegment(static_cast<uint32_t>(own.size()), 0, 0, {}, own, rng));
  problem.SetQueries(own, rng);
  return problem;
}

// Two sums of `rows` weights below one each: half a unit of rounding a weight on both sides, and errors of
// scores and of Exp2 as segment attention has them.
double Tolerance(const Problem& problem, double sum) {
  const double dim = problem.head_dim;
  const double relative = (dim + 8) * 0x1.0p-24 * 4 * std::sqrt(dim) + 0x1.0p-21;
  return static_cast<double>(problem.q_positions.size()) + sum * relative;
}

void ExpectNear(const Problem& problem, const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(a[i]), static_cast<double>(b[i]),
                Tolerance(problem, static_cast<double>(b[i])))
        << "at " << i;
  }
}

class AttentionMassTest : public testing::KernelWayTest {
 protected:
  ThreadPool pool_{2};
};

TEST_P(AttentionMassTest, EqualsTheReferenceAndEveryRowGivesAwayOneWhole) {
  Rng rng(61);
  for (const uint32_t head_dim : {2u, 16u, 48u, 64u, 96u, 128u}) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      for (const RopePairs pairs : {RopePairs::kNorm, RopePairs::kNeox}) {
        Problem problem = LinkedProblem(dtype, pairs, head_dim, &rng);
        bool finite = false;
        const std::vector<uint64_t> mass = problem.Mass(path(), &pool_, SIZE_MAX, &finite);
        EXPECT_TRUE(finite);
        ExpectNear(problem, mass, problem.Mass(KernelPath::kReference, &pool_));
        const uint64_t sum = std::accumulate(mass.begin(), mass.end(), uint64_t{0});
        const double rows = static_cast<double>(problem.q_positions.size()) * problem.heads;
        EXPECT_NEAR(static_cast<double>(sum) * kAttentionMassUnit, rows, rows * 1e-4);
      }
    }
  }
}

// The weights are those that segment attention gives to values: with values that tell keys apart, its output
// is the mass of a single row.
TEST_P(AttentionMassTest, WeightsAreThoseOfSegmentAttention) {
  Rng rng(62);
  Problem problem;
  problem.heads = 2;
  problem.kv_heads = 1;
  problem.head_dim = 64;
  problem.segments.push_back(problem.MakeSegment(50, 3, 7, {4}, {}, &rng));
  problem.SetQueries({52}, &rng);
  std::vector<KvSegment> views = problem.Views();
  const std::vector<uint64_t> mass = problem.Mass(path(), &pool_);
  std::vector<float> values(size_t{50} * 64, 0.0f);
  for (size_t row = 0; row < 50; ++row) values[row * 64 + row] = 1.0f;
  views[0].v = values.data();
  SegmentAttentionArgs args = problem.Args(views, 0, 1);
  std::vector<float> out(problem.width());
  args.out = out.data();
  args.out_stride = problem.width();
  SegmentAttention(args, &pool_);
  for (uint32_t head = 0; head < 2; ++head) {
    for (uint32_t row = 0; row < 50; ++row) {
      EXPECT_NEAR(static_cast<double>(mass[head * problem.end() + 3 + row]) * kAttentionMassUnit,
                  out[head * 64 + row], 1e-6);
    }
  }
}

TEST_P(AttentionMassTest, EqualsTheReferenceAroundTileAndBlockBoundaries) {
  Rng rng(63);
  for (const uint32_t keys : {1u, 31u, 32u, 33u, 127u, 128u, 129u, 511u, 512u, 513u, 700u}) {
    for (const uint32_t rows : {1u, 63u, 64u, 65u, 130u}) {
      Problem problem;
      problem.dtype = rng.Below(2) == 0 ? DType::kF32 : DType::kBf16;
      problem.head_dim = 16;
      problem.segments.push_back(problem.MakeSegment(keys, 0, 2, {}, {}, &rng));
      const auto start = static_cast<uint32_t>(rng.Below(keys + 10));
      problem.segments.push_back(
          problem.MakeSegment(rows, 0, 0, {}, Range(keys + start, keys + start + rows), &rng));
      problem.SetQueries(Range(start, start + rows), &rng);
      for (SegmentData& segment : problem.segments) segment.Link();
      ExpectNear(problem, problem.Mass(path(), &pool_), problem.Mass(KernelPath::kReference, &pool_));
    }
  }
}

TEST_P(AttentionMassTest, SumsAreTheSameHoweverRowsAreSplitOverCallsAndThreads) {
  Rng rng(64);
  ThreadPool one(1), five(5);
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    Problem problem = LinkedProblem(dtype, RopePairs::kNeox, 64, &rng);
    const std::vector<uint64_t> expected = problem.Mass(path(), nullptr);
    for (const size_t batch : {1u, 2u, 7u, 16u, 100u}) {
      for (ThreadPool* pool : {&one, &pool_, &five}) {
        EXPECT_EQ(problem.Mass(path(), pool, batch), expected) << batch;
      }
    }
  }
}

TEST_P(AttentionMassTest, RowsThatSeeNothingAddNothing) {
  Rng rng(65);
  Problem problem;
  problem.segments.push_back(problem.MakeSegment(20, 30, 0, Range(0, 20), {}, &rng));
  problem.segments.push_back(problem.MakeSegment(20, 60, 0, {}, {}, &rng));
  problem.SetQueries({3, 40, 59}, &rng);
  bool finite = false;
  for (const uint64_t value : problem.Mass(path(), &pool_, SIZE_MAX, &finite)) EXPECT_EQ(value, 0u);
  EXPECT_TRUE(finite);
}

TEST_P(AttentionMassTest, WhatIsNotANumberIsSaidAndAddsNothing) {
  Rng rng(66);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Problem problem = LinkedProblem(DType::kF32, RopePairs::kNorm, 32, &rng);
    problem.Views();
    // Rows from 183 on see it.
    problem.segments[1].Put(7 * 32 + 3, bad);
    bool finite = true;
    const std::vector<uint64_t> mass = problem.Mass(path(), &pool_, SIZE_MAX, &finite);
    EXPECT_FALSE(finite);
    const uint64_t sum = std::accumulate(mass.begin(), mass.end(), uint64_t{0});
    EXPECT_LE(static_cast<double>(sum) * kAttentionMassUnit,
              static_cast<double>(problem.q_positions.size()) * problem.heads + 1);
  }
}

// --- change

// A prompt of 90 rows: two chunks of 30 and 25 rows, the rest own text. Fresh keys of all of it, stored keys
// of the chunks.
struct ChangeProblem {
  Problem problem;
  SegmentData fresh;
  std::vector<SegmentData> stored;
  std::vector<uint32_t> covered;

  ChangeProblem(DType dtype, Rng* rng) {
    problem.dtype = dtype;
    problem.SetQueries(Range(0, 90), rng);
    fresh = problem.MakeSegment(90, 0, 0, {}, Range(0, 90), rng);
    stored.push_back(problem.MakeSegment(30, 10, 0, {}, {}, rng));
    stored.push_back(problem.MakeSegment(25, 45, 3, {}, {}, rng));
    covered = Range(10, 40);
    for (const uint32_t row : Range(45, 70)) covered.push_back(row);
  }

  std::vector<uint64_t> Change(KernelPath path, ThreadPool* pool, size_t batch = SIZE_MAX,
                               bool* finite = nullptr) {
    fresh.Link();
    std::vector<KvSegment> views;
    for (SegmentData& segment : stored) {
      segment.Link();
      views.push_back(segment.view);
    }
    views.push_back(fresh.view);
    views.back().replaced = covered.data();
    views.back().replaced_count = static_cast<uint32_t>(covered.size());
    std::vector<uint64_t> change(90, 0);
    for (size_t first = 0; first < 90; first += std::min<size_t>(batch, 90)) {
      KvSegment rows = fresh.view;
      rows.rows = static_cast<uint32_t>(std::min<size_t>(90, first + std::min<size_t>(batch, 90)));
      AttentionChangeArgs args;
      args.fresh = problem.Args({&rows, 1}, first, batch);
      args.stored = views;
      args.change = change.data();
      const bool good = AttentionChange(args, pool, path);
      if (finite != nullptr) *finite = good;
    }
    return change;
  }
};

TEST_P(AttentionMassTest, ChangeEqualsTheReferenceOnCoveredRowsAndIsZeroElsewhere) {
  Rng rng(67);
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    ChangeProblem problem(dtype, &rng);
    bool finite = false;
    const std::vector<uint64_t> change = problem.Change(path(), &pool_, SIZE_MAX, &finite);
    EXPECT_TRUE(finite);
    const std::vector<uint64_t> expected = problem.Change(KernelPath::kReference, &pool_);
    for (uint32_t row = 0; row < 90; ++row) {
      if (!std::binary_search(problem.covered.begin(), problem.covered.end(), row)) {
        EXPECT_EQ(change[row], 0u);
        continue;
      }
      EXPECT_GT(change[row], 0u);
      // Differences of weights below one: the errors of six heads' weights add up.
      EXPECT_NEAR(static_cast<double>(change[row]), static_cast<double>(expected[row]),
                  90 * 6 + 6 * 90 * 0x1.0p24 * 2e-6);
    }
  }
}

TEST_P(AttentionMassTest, EqualKeysChangeNothing) {
  Rng rng(68);
  ChangeProblem problem(DType::kF32, &rng);
  for (SegmentData& segment : problem.stored) {
    // Stored where they stand: the same keys.
    segment.view.stored_position = segment.view.position;
    for (uint32_t head = 0; head < problem.problem.kv_heads; ++head) {
      std::copy_n(problem.fresh.k32.begin() + static_cast<ptrdiff_t>(head * problem.fresh.view.head_stride +
                                                                     size_t{segment.view.position} * 32),
                  size_t{segment.view.rows} * 32,
                  segment.k32.begin() + static_cast<ptrdiff_t>(head * segment.view.head_stride));
    }
  }
  // What is left are the roundings of sums in another order.
  for (const uint64_t change : problem.Change(path(), &pool_)) EXPECT_LE(change, 6u * 90u * 8u);
}

TEST_P(AttentionMassTest, ChangeIsTheSameHoweverRowsAreSplitAndSaysWhatIsNotANumber) {
  Rng rng(69);
  ChangeProblem problem(DType::kBf16, &rng);
  ThreadPool five(5);
  const std::vector<uint64_t> expected = problem.Change(path(), nullptr);
  for (const size_t batch : {1u, 4u, 32u, 64u}) {
    EXPECT_EQ(problem.Change(path(), &pool_, batch), expected);
    EXPECT_EQ(problem.Change(path(), &five, batch), expected);
  }
  problem.stored[0].Put(5, std::numeric_limits<float>::quiet_NaN());
  bool finite = true;
  problem.Change(path(), &pool_, SIZE_MAX, &finite);
  EXPECT_FALSE(finite);
}

INSTANTIATE_TEST_SUITE_P(EveryWay, AttentionMassTest, ::testing::ValuesIn(testing::KernelWays()),
                         testing::NameOfWay);

}  // namespace
}  // namespace epic
