#include "kernels/segment_attention/segment_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "kernels/api/testing/kernel_ways.h"
#include "kernels/segment_attention/segment_attention_internal.h"
#include "kernels/segment_attention/tile_unit_emulated.h"

namespace epic {
namespace {

constexpr uint32_t kMaxPosition = 6000;

std::vector<double> Frequencies(size_t half) {
  std::vector<double> out(half);
  for (size_t j = 0; j < half; ++j) out[j] = std::pow(10000.0, -static_cast<double>(j) / half);
  return out;
}

std::vector<float> RandomValues(size_t count, Rng* rng) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(rng->Gaussian());
  return values;
}

// An implementation. Those with a unit take bf16 segments only.
struct Way : testing::KernelWay {
  const internal::TileUnit* unit = nullptr;
};
const Way kReference = {{"reference", KernelPath::kReference}};
const Way kAuto = {{"auto", KernelPath::kAuto}};

// A segment with its memory. Keys and values start one element past an aligned address.
struct SegmentData {
  std::vector<float> k32, v32;
  std::vector<Bf16> k16, v16;
  std::vector<uint32_t> replaced, positions;
  KvSegment view;

  float K(size_t at) const { return view.dtype == DType::kF32 ? k32[1 + at] : ToF32(k16[1 + at]); }
  float V(size_t at) const { return view.dtype == DType::kF32 ? v32[1 + at] : ToF32(v16[1 + at]); }
  void Put(size_t at, float k, float v) {
    if (view.dtype == DType::kF32) {
      k32[1 + at] = k;
      v32[1 + at] = v;
    } else {
      k16[1 + at] = ToBf16(k);
      v16[1 + at] = ToBf16(v);
    }
  }
  void Link() {
    view.k = view.dtype == DType::kF32 ? static_cast<const void*>(k32.data() + 1) : k16.data() + 1;
    view.v = view.dtype == DType::kF32 ? static_cast<const void*>(v32.data() + 1) : v16.data() + 1;
    view.replaced = replaced.empty() ? nullptr : replaced.data();
    view.replaced_count = static_cast<uint32_t>(replaced.size());
    view.row_positions = positions.empty() ? nullptr : positions.data();
  }
};

// One call's inputs: heads, segments one after another, queries. The memory outlives Args().
struct Problem {
  uint32_t heads = 3, kv_heads = 1, head_dim = 64;
  DType dtype = DType::kF32;
  DType arithmetic = DType::kF32;
  RopePairs pairs = RopePairs::kNorm;
  std::vector<SegmentData> segments;
  std::vector<uint32_t> q_positions;
  std::vector<float> q;
  std::unique_ptr<RopeTable> rope;

  size_t width() const { return size_t{heads} * head_dim; }

  // Adds a segment of random rows; hidden rows are poisoned with NaN.
  void AddSegment(uint32_t rows, uint32_t position, uint32_t stored_position, uint32_t first_row,
                  std::vector<uint32_t> replaced, std::vector<uint32_t> positions, Rng* rng) {
    SegmentData data;
    data.view.dtype = dtype;
    data.view.rows = rows;
    data.view.first_row = first_row;
    data.view.position = position;
    data.view.stored_position = stored_position;
    data.view.head_stride = size_t{rows + 3} * head_dim;
    data.replaced = std::move(replaced);
    data.positions = std::move(positions);
    const size_t count = 1 + data.view.head_stride * kv_heads;
    const float nan = std::nanf("");
    if (dtype == DType::kF32) {
      data.k32.assign(count, nan);
      data.v32.assign(count, nan);
    } else {
      data.k16.assign(count, ToBf16(nan));
      data.v16.assign(count, ToBf16(nan));
    }
    for (uint32_t g = 0; g < kv_heads; ++g) {
      for (uint32_t r = first_row; r < rows; ++r) {
        if (std::binary_search(data.replaced.begin(), data.replaced.end(), r)) continue;
        for (uint32_t d = 0; d < head_dim; ++d) {
          data.Put(g * data.view.head_stride + size_t{r} * head_dim + d, static_cast<float>(rng->Gaussian()),
                   static_cast<float>(rng->Gaussian()));
        }
      }
    }
    segments.push_back(std::move(data));
  }

  void SetQueries(std::vector<uint32_t> positions, Rng* rng) {
    q_positions = std::move(positions);
    q = RandomValues(1 + q_positions.size() * width(), rng);
    rope = std::make_unique<RopeTable>(pairs, Frequencies(head_dim / 2), kMaxPosition, 1.0);
  }

  // The call for rows [first, first + count), which writes from out[0] on. `views` lives as long.
  SegmentAttentionArgs Args(size_t first, size_t count, std::vector<KvSegment>* views, float* out) {
    for (SegmentData& segment : segments) {
      segment.Link();
      views->push_back(segment.view);
    }
    SegmentAttentionArgs args;
    args.q = q.data() + 1 + first * width();
    args.q_stride = width();
    args.q_positions = q_positions.data() + first;
    args.rows = count;
    args.heads = heads;
    args.kv_heads = kv_heads;
    args.head_dim = head_dim;
    args.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    args.segments = *views;
    args.rope = rope.get();
    args.arithmetic = arithmetic;
    args.out = out;
    args.out_stride = width();
    return args;
  }

  // Runs rows [first, first + count).
  std::vector<float> Run(const Way& way, ThreadPool* pool, size_t first = 0, size_t count = SIZE_MAX) {
    count = std::min(count, q_positions.size() - first);
    std::vector<KvSegment> views;
    std::vector<float> out(1 + count * width(), -7.0f);
    const SegmentAttentionArgs args = Args(first, count, &views, out.data() + 1);
    if (way.unit != nullptr && count > 0) {
      internal::SegmentAttentionTiles(args, pool, *way.unit);
    } else {
      SegmentAttention(args, pool, way.path);
    }
    return {out.begin() + 1, out.end()};
  }
};

std::vector<uint32_t> Range(uint32_t begin, uint32_t end) {
  std::vector<uint32_t> out;
  for (uint32_t i = begin; i < end; ++i) out.push_back(i);
  return out;
}

// Values are about N(0, 1), so outputs are below about 5. Scores have an error of at most
// (head_dim + 8) u |q||k| / sqrt(head_dim), below (head_dim + 8) u 4 sqrt(head_dim) with u = 2^-24; weights
// carry it and Exp2's 2^-22, and the sums add one rounding per key.
//
// A tile unit rounds queries and weights to bf16. A score is a sum of head_dim products of N(0, 1) numbers
// over sqrt(head_dim), each off by a uniform part of 2^-9: together N(0, 2^-9 / sqrt(3)). A weight is off by
// as much once more; an output moves by less than six such deviations of a value.
double Tolerance(const Way& way, const Problem& problem, size_t keys) {
  const double dim = problem.head_dim;
  const double rounding = way.unit == nullptr ? 0 : 6 * std::sqrt(2.0 / 3) * 0x1.0p-9;
  return 5 * (rounding + (dim + 8) * 0x1.0p-24 * 4 * std::sqrt(dim) + 0x1.0p-22 +
              0x1.0p-24 * std::sqrt(static_cast<double>(keys)) * 4);
}

double MaxDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(std::abs(double{a[i]} - b[i]) <= worst)) worst = std::abs(double{a[i]} - b[i]);
    if (std::isnan(worst)) return worst;
  }
  return worst;
}

std::vector<Way> Ways() {
  std::vector<Way> ways;
  for (const testing::KernelWay& way : testing::KernelWays()) ways.push_back({way});
  for (const int64_t target : testing::SimdTargets()) {
    const std::string name = "emulated_tiles_" + testing::NameOfSimdTarget(target);
    ways.push_back({{name, KernelPath::kCpu, target}, &internal::EmulatedTileUnit()});
  }
  if (const internal::TileUnit* amx = internal::AmxTileUnit(); amx != nullptr) {
    ways.push_back({{"amx", KernelPath::kCpu}, amx});
  }
  return ways;
}

class SegmentAttentionTest : public ::testing::TestWithParam<Way> {
 protected:
  bool uses_tiles() const { return GetParam().unit != nullptr; }
  std::vector<DType> DTypes() const {
    return uses_tiles() ? std::vector{DType::kBf16} : std::vector{DType::kF32, DType::kBf16};
  }
  DType AnyDType(Rng* rng) const { return rng->Below(2) == 0 && !uses_tiles() ? DType::kF32 : DType::kBf16; }
  Problem PlainProblem() const {
    Problem problem;
    problem.dtype = DTypes().front();
    return problem;
  }

  void ExpectEqualsReference(Problem* problem, const std::string& what) {
    size_t keys = 0;
    for (const SegmentData& segment : problem->segments) keys += segment.view.rows;
    const std::vector<float> expected = problem->Run(kReference, &pool_);
    const double difference = MaxDifference(problem->Run(GetParam(), &pool_), expected);
    EXPECT_LE(difference, Tolerance(GetParam(), *problem, keys)) << what;
  }

  ThreadPool pool_{2};

 private:
  const testing::ForcedSimdTarget forced_{GetParam().simd_target};
};

// The reference's own check: keys rotated to absolute positions and plain softmax, all in double, by code
// that shares nothing with the kernels.
std::vector<double> RotateBy(std::vector<double> x, int64_t steps, RopePairs pairs) {
  const size_t half = x.size() / 2;
  const std::vector<double> frequencies = Frequencies(half);
  for (size_t j = 0; j < half; ++j) {
    const size_t a = pairs == RopePairs::kNorm ? 2 * j : j;
    const size_t b = pairs == RopePairs::kNorm ? 2 * j + 1 : j + half;
    const double angle = static_cast<double>(steps) * frequencies[j];
    const double first = x[a] * std::cos(angle) - x[b] * std::sin(angle);
    x[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
    x[a] = first;
  }
  return x;
}

struct AbsoluteKey {
  uint32_t position;
  std::vector<double> k, v;
};

std::vector<AbsoluteKey> AbsoluteKeys(const Problem& problem, size_t kv_head, RopePairs pairs) {
  std::vector<AbsoluteKey> keys;
  for (const SegmentData& segment : problem.segments) {
    for (uint32_t row = segment.view.first_row; row < segment.view.rows; ++row) {
      if (std::count(segment.replaced.begin(), segment.replaced.end(), row) > 0) continue;
      const bool shared = segment.positions.empty();
      const size_t at = kv_head * segment.view.head_stride + size_t{row} * problem.head_dim;
      AbsoluteKey key{shared ? segment.view.position + row : segment.positions[row], {}, {}};
      for (size_t d = 0; d < problem.head_dim; ++d) {
        key.k.push_back(segment.K(at + d));
        key.v.push_back(segment.V(at + d));
      }
      const int64_t move = shared ? int64_t{segment.view.position} - segment.view.stored_position : 0;
      key.k = RotateBy(key.k, move, pairs);
      keys.push_back(std::move(key));
    }
  }
  return keys;
}

std::vector<double> AbsoluteAttention(const Problem& problem, RopePairs pairs) {
  std::vector<double> out(problem.q_positions.size() * problem.width(), 0.0);
  const size_t dim = problem.head_dim;
  const size_t group = problem.heads / problem.kv_heads;
  for (uint32_t head = 0; head < problem.heads; ++head) {
    const std::vector<AbsoluteKey> keys = AbsoluteKeys(problem, head / group, pairs);
    for (size_t r = 0; r < problem.q_positions.size(); ++r) {
      const float* q = problem.q.data() + 1 + r * problem.width() + head * dim;
      const std::vector<double> query = RotateBy({q, q + dim}, problem.q_positions[r], pairs);
      double total = 0;
      std::vector<double> sum(dim, 0.0);
      for (const AbsoluteKey& key : keys) {
        if (key.position > problem.q_positions[r]) continue;
        double score = 0;
        for (size_t d = 0; d < dim; ++d) score += query[d] * key.k[d];
        const double weight = std::exp(score / std::sqrt(static_cast<double>(dim)));
        total += weight;
        for (size_t d = 0; d < dim; ++d) sum[d] += weight * key.v[d];
      }
      for (size_t d = 0; d < dim && total > 0; ++d) {
        out[r * problem.width() + head * dim + d] = sum[d] / total;
      }
    }
  }
  return out;
}

// Three shared segments with compile offsets, replaced rows and a private segment in between.
Problem LinkedProblem(DType dtype, RopePairs pairs, uint32_t head_dim, Rng* rng) {
  Problem problem;
  problem.heads = 6;
  problem.kv_heads = 2;
  problem.head_dim = head_dim;
  problem.dtype = dtype;
  problem.pairs = pairs;
  problem.AddSegment(40, 0, 0, 0, {}, {}, rng);
  problem.AddSegment(150, 40, 4, 16, {}, {}, rng);
  problem.AddSegment(140, 190, 0, 5, {7, 8, 90, 139}, {}, rng);
  std::vector<uint32_t> own = Range(40, 56);
  for (const uint32_t row : {190u, 191u, 192u, 193u, 194u, 197u, 198u, 280u, 329u}) own.push_back(row);
  for (const uint32_t row : Range(330, 350)) own.push_back(row);
  problem.AddSegment(static_cast<uint32_t>(own.size()), 0, 0, 0, {}, own, rng);
  problem.SetQueries(own, rng);
  return problem;
}

TEST_P(SegmentAttentionTest, RotatingTheQueryEqualsRotatingTheKeysAndTheOtherPairingDoesNot) {
  Rng rng(21);
  for (const RopePairs pairs : {RopePairs::kNorm, RopePairs::kNeox}) {
    for (const DType dtype : DTypes()) {
      Problem problem = LinkedProblem(dtype, pairs, 64, &rng);
      const std::vector<float> out = problem.Run(GetParam(), &pool_);
      const RopePairs other = pairs == RopePairs::kNorm ? RopePairs::kNeox : RopePairs::kNorm;
      const std::vector<double> expected = AbsoluteAttention(problem, pairs);
      const std::vector<double> wrong = AbsoluteAttention(problem, other);
      double difference = 0, control = 0;
      for (size_t i = 0; i < out.size(); ++i) {
        difference = std::max(difference, std::abs(out[i] - expected[i]));
        control = std::max(control, std::abs(out[i] - wrong[i]));
      }
      // The rotation itself adds the rounding of the table's cos and sin.
      EXPECT_LE(difference, 2 * Tolerance(GetParam(), problem, 400));
      EXPECT_GT(control, 0.1);
    }
  }
}

TEST_P(SegmentAttentionTest, EqualsTheReferenceOverHeadSizesAndGroups) {
  Rng rng(22);
  for (const uint32_t head_dim : {2u, 6u, 32u, 48u, 64u, 80u, 96u, 128u, 256u}) {
    for (const DType dtype : DTypes()) {
      Problem problem = LinkedProblem(dtype, RopePairs::kNeox, head_dim, &rng);
      ExpectEqualsReference(&problem, "head_dim " + std::to_string(head_dim));
    }
  }
  for (uint32_t group = 1; group <= 8; ++group) {
    Problem problem = PlainProblem();
    problem.kv_heads = 1 + group % 3;
    problem.heads = group * problem.kv_heads;
    problem.head_dim = 32;
    problem.AddSegment(70, 0, 3, 0, {}, {}, &rng);
    problem.SetQueries(Range(30, 70), &rng);
    ExpectEqualsReference(&problem, "group " + std::to_string(group));
  }
}

TEST_P(SegmentAttentionTest, EqualsTheReferenceAroundTileBoundariesOfKeysAndRows) {
  Rng rng(23);
  for (const uint32_t keys : {1u, 15u, 16u, 17u, 31u, 32u, 33u, 127u, 128u, 129u, 255u, 256u, 257u, 300u}) {
    for (const uint32_t rows : {1u, 3u, 4u, 5u, 63u, 64u, 65u}) {
      Problem problem = PlainProblem();
      problem.dtype = AnyDType(&rng);
      problem.head_dim = 32;
      problem.AddSegment(keys, 0, 2, 0, {}, {}, &rng);
      // Causal at the end, wholly visible, or wholly in the future of the first rows.
      const uint32_t start = static_cast<uint32_t>(rng.Below(keys + 10));
      problem.AddSegment(rows, 0, 0, 0, {}, Range(keys + start, keys + start + rows), &rng);
      problem.SetQueries(Range(start, start + rows), &rng);
      ExpectEqualsReference(&problem, "keys " + std::to_string(keys) + " rows " + std::to_string(rows) +
                                          " start " + std::to_string(start));
    }
  }
}

TEST_P(SegmentAttentionTest, EqualsTheReferenceOnRandomReplacedRows) {
  Rng rng(24);
  for (int round = 0; round < 20; ++round) {
    Problem problem = PlainProblem();
    problem.dtype = AnyDType(&rng);
    problem.head_dim = 48;
    uint32_t position = 0;
    for (int s = 0; s < 4; ++s) {
      const uint32_t rows = static_cast<uint32_t>(1 + rng.Below(200));
      const uint32_t first = static_cast<uint32_t>(rng.Below(rows + 1));
      std::vector<uint32_t> replaced;
      for (uint32_t r = first; r < rows; ++r) {
        if (rng.Below(3) == 0) replaced.push_back(r);
      }
      problem.AddSegment(rows, position, static_cast<uint32_t>(rng.Below(5)), first, replaced, {}, &rng);
      position += rows;
    }
    std::vector<uint32_t> at;
    for (uint32_t p = 0; p < position; ++p) {
      if (rng.Below(9) == 0) at.push_back(p);
    }
    at.push_back(position);
    problem.SetQueries(at, &rng);
    ExpectEqualsReference(&problem, "round " + std::to_string(round));
  }
}

TEST_P(SegmentAttentionTest, RowsThatSeeNothingAndEmptySegmentsGiveZeros) {
  Rng rng(25);
  Problem problem = PlainProblem();
  problem.AddSegment(0, 0, 0, 0, {}, {}, &rng);
  problem.AddSegment(20, 10, 0, 20, {}, {}, &rng);  // wholly replaced
  problem.AddSegment(20, 30, 0, 0, {}, {}, &rng);   // in the future of the first rows
  problem.SetQueries({3, 12, 29, 30, 45}, &rng);
  const std::vector<float> out = problem.Run(GetParam(), &pool_);
  for (size_t i = 0; i < 3 * problem.width(); ++i) ASSERT_EQ(out[i], 0.0f);
  ExpectEqualsReference(&problem, "partly empty");
  problem.segments.clear();
  for (const float value : problem.Run(GetParam(), &pool_)) ASSERT_EQ(value, 0.0f);
}

TEST_P(SegmentAttentionTest, ARowHasTheSameBytesInEveryCallAndOnEveryNumberOfThreads) {
  Rng rng(26);
  ThreadPool one(1), five(5);
  for (const DType dtype : DTypes()) {
    Problem problem = PlainProblem();
    problem.heads = 6;
    problem.kv_heads = 2;
    problem.dtype = dtype;
    problem.AddSegment(200, 0, 0, 16, {}, {}, &rng);
    problem.AddSegment(150, 200, 4, 3, {30, 31}, {}, &rng);
    problem.AddSegment(140, 0, 0, 0, {}, Range(320, 460), &rng);
    problem.SetQueries(Range(250, 460), &rng);
    const std::vector<float> expected = problem.Run(GetParam(), &one);
    for (const size_t batch : {1u, 2u, 3u, 5u, 16u, 64u, 210u}) {
      for (ThreadPool* pool : {&one, &pool_, &five}) {
        for (size_t first = 0; first + batch <= 210; first += std::max<size_t>(batch, 29)) {
          const std::vector<float> out = problem.Run(GetParam(), pool, first, batch);
          ASSERT_EQ(std::memcmp(out.data(), expected.data() + first * problem.width(), out.size() * 4), 0)
              << "batch " << batch << " first " << first << " threads " << pool->threads();
        }
      }
    }
  }
}

TEST_P(SegmentAttentionTest, ARowOfTinyValuesHasTheSameBytesAloneThoughSumsBecomeSubnormal) {
  Rng rng(13);
  Problem problem = PlainProblem();
  problem.AddSegment(200, 0, 0, 0, {}, {}, &rng);
  problem.AddSegment(90, 0, 0, 0, {}, Range(200, 290), &rng);
  problem.SetQueries(Range(150, 290), &rng);
  for (SegmentData& segment : problem.segments) {
    for (size_t at = 0; at < size_t{segment.view.rows} * problem.head_dim; ++at) {
      segment.Put(at, 8 * segment.K(at), segment.V(at) * 0x1.0p-124f);
    }
  }
  const std::vector<float> all = problem.Run(GetParam(), &pool_);
  for (size_t row = 0; row < 140; row += 3) {
    const std::vector<float> alone = problem.Run(GetParam(), &pool_, row, 1);
    ASSERT_EQ(std::memcmp(alone.data(), all.data() + row * problem.width(), alone.size() * sizeof(float)), 0)
        << "row " << row;
  }
}

TEST_P(SegmentAttentionTest, CallsMadeTogetherHaveTheBytesOfEachAlone) {
  Rng rng(12);
  ThreadPool one(1), four(4);
  std::vector<Problem> problems;
  // Many short sequences, none at all among them, and one that is too large to be left to one thread.
  for (const uint32_t rows : {64u, 16u, 0u, 1u, 33u, 128u, 64u, 5u, 900u, 17u, 64u, 64u}) {
    Problem& problem = problems.emplace_back();
    problem.heads = 4;
    problem.kv_heads = 2;
    problem.AddSegment(20, 0, 0, rows % 3, {}, {}, &rng);
    problem.AddSegment(rows, 0, 0, 0, {}, Range(20, 20 + rows), &rng);
    problem.SetQueries(Range(20, 20 + rows), &rng);
  }
  for (ThreadPool* pool : {static_cast<ThreadPool*>(nullptr), &one, &four}) {
    std::vector<std::vector<KvSegment>> views(problems.size());
    std::vector<std::vector<float>> outs;
    std::vector<SegmentAttentionArgs> calls;
    for (size_t i = 0; i < problems.size(); ++i) {
      const size_t rows = problems[i].q_positions.size();
      outs.emplace_back(rows * problems[i].width(), -7.0f);
      calls.push_back(problems[i].Args(0, rows, &views[i], outs.back().data()));
    }
    SegmentAttentionOfEach(calls, pool);
    for (size_t i = 0; i < problems.size(); ++i) {
      const std::vector<float> alone = problems[i].Run(kAuto, &one);
      ASSERT_EQ(outs[i].size(), alone.size());
      if (alone.empty()) continue;
      EXPECT_EQ(std::memcmp(outs[i].data(), alone.data(), alone.size() * sizeof(float)), 0)
          << "call " << i << " of " << alone.size() / problems[i].width() << " rows";
    }
  }
}

TEST_P(SegmentAttentionTest, LaterKeysChangeNoByteOfEarlierRowsEvenWhenTheyAreNotFinite) {
  Rng rng(27);
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), 3.0f}) {
    Problem problem = PlainProblem();
    problem.AddSegment(100, 0, 0, 0, {}, {}, &rng);
    problem.AddSegment(80, 0, 0, 0, {}, Range(100, 180), &rng);
    problem.SetQueries(Range(100, 180), &rng);
    const std::vector<float> clean = problem.Run(GetParam(), &pool_);
    for (uint32_t d = 0; d < problem.head_dim; ++d)
      problem.segments[1].Put(37 * problem.head_dim + d, bad, bad);
    const std::vector<float> out = problem.Run(GetParam(), &pool_);
    const size_t before = 37 * problem.width();
    EXPECT_EQ(std::memcmp(out.data(), clean.data(), before * 4), 0);
    for (size_t i = before; i < out.size(); ++i) {
      if (std::isfinite(bad)) {
        EXPECT_TRUE(std::isfinite(out[i]));
      } else {
        ASSERT_TRUE(std::isnan(out[i])) << "row " << i / problem.width();
      }
    }
  }
}

TEST_P(SegmentAttentionTest, ANanInOneQueryStaysInItsRow) {
  Rng rng(28);
  Problem problem = LinkedProblem(DType::kBf16, RopePairs::kNorm, 64, &rng);
  const std::vector<float> clean = problem.Run(GetParam(), &pool_);
  problem.q[1 + 5 * problem.width() + 3] = std::nanf("");
  const std::vector<float> out = problem.Run(GetParam(), &pool_);
  for (size_t i = 0; i < out.size(); ++i) {
    // Head 0 of row 5.
    if (i >= 5 * problem.width() && i < 5 * problem.width() + 64) {
      EXPECT_TRUE(std::isnan(out[i]));
    } else {
      EXPECT_EQ(out[i], clean[i]);
    }
  }
}

TEST_P(SegmentAttentionTest, LargeScoresNeitherOverflowNorLoseTheWinner) {
  Rng rng(29);
  Problem problem = PlainProblem();
  problem.AddSegment(300, 0, 0, 0, {}, {}, &rng);
  problem.SetQueries({300, 301}, &rng);
  for (float& value : problem.q) value *= 400;
  if (!uses_tiles()) return ExpectEqualsReference(&problem, "scores in the thousands");
  // Rounded queries move such scores by more than winners are apart, so one key may win by far.
  for (uint32_t r = 0; r < 300; ++r) {
    for (uint32_t d = 0; d < problem.head_dim; ++d) problem.segments[0].Put(r * problem.head_dim + d, 0, 0);
  }
  for (uint32_t d = 0; d < problem.head_dim; ++d) {
    problem.segments[0].Put(137 * problem.head_dim + d, problem.q[1 + d] > 0 ? 1 : -1, 0.5f + d);
  }
  const std::vector<float> out = problem.Run(GetParam(), &pool_);
  const std::vector<float> expected = problem.Run(kReference, &pool_);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], expected[i], 0.01 * std::abs(expected[i]));
}

TEST_P(SegmentAttentionTest, WeightsOfAConstantValueGiveThatValue) {
  Rng rng(30);
  Problem problem = PlainProblem();
  problem.AddSegment(333, 0, 0, 0, {}, {}, &rng);
  problem.SetQueries(Range(200, 333), &rng);
  SegmentData& data = problem.segments[0];
  for (size_t at = 0; at < size_t{333} * problem.head_dim; ++at) data.Put(at, data.K(at), 1.5f);
  for (const float value : problem.Run(GetParam(), &pool_)) ASSERT_NEAR(value, 1.5f, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(EveryWay, SegmentAttentionTest, ::testing::ValuesIn(Ways()),
                         [](const auto& info) { return info.param.name; });

// What a call with bf16 arithmetic runs, by its own choice.
TEST(SegmentAttentionDispatchTest, MatrixTilesAreUsedOnlyForBf16ArithmeticOverBf16Segments) {
  Rng rng(31);
  ThreadPool pool(2);
  const internal::TileUnit* amx = internal::AmxTileUnit();
  EXPECT_TRUE(amx == nullptr || GetCpuFeatures().amx_bf16);
  const Way plain = {{"cpu", KernelPath::kCpu}};
  const Way tiles = {{"amx", KernelPath::kCpu}, amx};
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    Problem problem = LinkedProblem(dtype, RopePairs::kNorm, 64, &rng);
    const bool expect_tiles = amx != nullptr && dtype == DType::kBf16;
    const std::vector<float> expected = problem.Run(expect_tiles ? tiles : plain, &pool);
    problem.arithmetic = DType::kBf16;
    EXPECT_EQ(problem.Run(kAuto, &pool), expected);
  }
}

}  // namespace
}  // namespace epic
