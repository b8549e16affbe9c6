#include "kernels/decode_attention/decode_attention.h"

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
#include "kernels/decode_attention/decode_attention_internal.h"

namespace epic {
namespace {

constexpr uint32_t kMaxPosition = 9000;

// Keys and values of one object or block, one element past an aligned address.
struct Memory {
  Memory(uint32_t row_count, uint32_t kv_heads, uint32_t head_dim, DType type, Rng* rng)
      : rows(row_count), dtype(type), stride(size_t{row_count + 2} * head_dim) {
    const size_t count = 1 + stride * kv_heads;
    for (auto* values : {&k32, &v32}) {
      for (size_t i = 0; i < count; ++i) values->push_back(static_cast<float>(rng->Gaussian()));
    }
    for (size_t i = 0; i < count; ++i) {
      k16.push_back(ToBf16(k32[i]));
      v16.push_back(ToBf16(v32[i]));
    }
  }
  KvSegment View() const {
    KvSegment view;
    view.dtype = dtype;
    view.k = dtype == DType::kF32 ? static_cast<const void*>(k32.data() + 1) : k16.data() + 1;
    view.v = dtype == DType::kF32 ? static_cast<const void*>(v32.data() + 1) : v16.data() + 1;
    view.head_stride = stride;
    view.rows = rows;
    return view;
  }
  // One row of one kv head becomes NaN.
  void Poison(uint32_t row, uint32_t kv_head, uint32_t head_dim) {
    for (uint32_t d = 0; d < head_dim; ++d) {
      const size_t at = 1 + kv_head * stride + size_t{row} * head_dim + d;
      k32[at] = v32[at] = std::nanf("");
      k16[at] = v16[at] = ToBf16(std::nanf(""));
    }
  }

  uint32_t rows;
  DType dtype;
  size_t stride;
  std::vector<float> k32, v32;
  std::vector<Bf16> k16, v16;
};

// What one row reads; the vectors that views point to.
struct Sequence {
  std::vector<KvSegment> segments;
  std::vector<std::unique_ptr<std::vector<uint32_t>>> lists;
  std::vector<float> q;
  uint32_t position = 0;

  void Replace(std::vector<uint32_t> rows) {
    lists.push_back(std::make_unique<std::vector<uint32_t>>(std::move(rows)));
    segments.back().replaced = lists.back()->data();
    segments.back().replaced_count = static_cast<uint32_t>(lists.back()->size());
  }
  void Stand(std::vector<uint32_t> positions) {
    lists.push_back(std::make_unique<std::vector<uint32_t>>(std::move(positions)));
    segments.back().row_positions = lists.back()->data();
  }
};

struct Shape {
  uint32_t heads, kv_heads, head_dim;
  DType dtype;
  RopePairs pairs;
};

class World {
 public:
  World(const Shape& shape, uint64_t seed) : shape_(shape), rng_(seed) {
    std::vector<double> frequencies(shape.head_dim / 2);
    for (size_t j = 0; j < frequencies.size(); ++j) {
      frequencies[j] = std::pow(10000.0, -static_cast<double>(j) / static_cast<double>(frequencies.size()));
    }
    rope_ = std::make_unique<RopeTable>(shape.pairs, frequencies, 2 * kMaxPosition, 1.0);
  }

  Memory* Add(uint32_t rows) {
    memories_.push_back(
        std::make_unique<Memory>(rows, shape_.kv_heads, shape_.head_dim, shape_.dtype, &rng_));
    return memories_.back().get();
  }

  // A sequence over `shared` memories in a random order at random gaps, with random replaced rows and offsets
  // of compilation, then a private segment.
  void AddSequence(std::vector<Memory*> shared, uint32_t own_rows) {
    Sequence sequence;
    for (size_t i = shared.size(); i > 1; --i) std::swap(shared[i - 1], shared[rng_.Below(i)]);
    uint32_t at = static_cast<uint32_t>(rng_.Below(5));
    for (const Memory* memory : shared) {
      KvSegment view = memory->View();
      view.position = at;
      view.stored_position = static_cast<uint32_t>(rng_.Below(3)) * 4;
      view.first_row = static_cast<uint32_t>(rng_.Below(std::min(memory->rows, 40u) + 1));
      sequence.segments.push_back(view);
      if (rng_.Below(2) == 0) {
        std::vector<uint32_t> replaced;
        for (uint32_t r = view.first_row; r < memory->rows; r += 1 + static_cast<uint32_t>(rng_.Below(90))) {
          replaced.push_back(r);
        }
        sequence.Replace(std::move(replaced));
      }
      at += memory->rows + static_cast<uint32_t>(rng_.Below(3));
    }
    if (own_rows > 0) {
      std::vector<uint32_t> positions(own_rows);
      for (uint32_t& position : positions) position = at++;
      sequence.segments.push_back(Add(own_rows)->View());
      sequence.Stand(std::move(positions));
    }
    sequence.position = at == 0 ? 0 : at - 1;
    sequence.q.resize(width());
    for (float& value : sequence.q) value = static_cast<float>(rng_.Gaussian());
    sequences_.push_back(std::move(sequence));
  }

  // Outputs of sequences [first, first + count).
  std::vector<float> Run(KernelPath path, ThreadPool* pool, size_t first = 0, size_t count = SIZE_MAX) {
    count = std::min(count, sequences_.size() - first);
    std::vector<float> out(count * width(), -7.0f);
    std::vector<DecodeRow> rows;
    for (size_t i = 0; i < count; ++i) {
      const Sequence& sequence = sequences_[first + i];
      rows.push_back({sequence.q.data(), sequence.position, sequence.segments, out.data() + i * width()});
    }
    DecodeAttention({.rows = rows,
                     .heads = shape_.heads,
                     .kv_heads = shape_.kv_heads,
                     .head_dim = shape_.head_dim,
                     .scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)),
                     .rope = rope_.get()},
                    pool, path);
    return out;
  }

  std::vector<Sequence>& sequences() { return sequences_; }
  size_t width() const { return size_t{shape_.heads} * shape_.head_dim; }
  Rng* rng() { return &rng_; }

 private:
  Shape shape_;
  Rng rng_;
  std::unique_ptr<RopeTable> rope_;
  std::vector<std::unique_ptr<Memory>> memories_;
  std::vector<Sequence> sequences_;
};

// As for segment attention, and five more roundings for each join.
double Tolerance(const Shape& shape, size_t keys) {
  const double dim = shape.head_dim;
  return 5 * ((dim + 8) * 0x1.0p-24 * 4 * std::sqrt(dim) + 0x1.0p-22 +
              0x1.0p-24 * std::sqrt(static_cast<double>(keys)) * 4 + 64 * 0x1.0p-24);
}

double MaxDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(double{a[i]} - double{b[i]});
    if (std::isnan(difference)) return difference;
    worst = std::max(worst, difference);
  }
  return worst;
}

class DecodeAttentionTest : public ::testing::TestWithParam<int64_t> {
 protected:
  const testing::ForcedSimdTarget forced_{GetParam()};
  ThreadPool pool_{3};
};

constexpr Shape kShapes[] = {{3, 1, 64, DType::kBf16, RopePairs::kNorm},
                             {4, 2, 16, DType::kF32, RopePairs::kNeox},
                             {2, 2, 10, DType::kBf16, RopePairs::kNeox},
                             {6, 2, 128, DType::kBf16, RopePairs::kNeox}};

TEST_P(DecodeAttentionTest, EqualsTheReferenceAroundEveryTileAndRangeBorder) {
  for (const Shape& shape : kShapes) {
    World world(shape, 81);
    for (const uint32_t rows : {1u, 31u, 32u, 33u, 127u, 128u, 129u, 300u, 1023u, 1024u, 1025u, 2100u}) {
      world.AddSequence({world.Add(rows), world.Add(5)}, 1 + rows % 7);
      world.AddSequence({world.Add(rows)}, 0);
    }
    const std::vector<float> expected = world.Run(KernelPath::kReference, &pool_);
    EXPECT_LE(MaxDifference(world.Run(KernelPath::kCpu, &pool_), expected), Tolerance(shape, 2200));
  }
}

TEST_P(DecodeAttentionTest, SequencesThatShareMemoryEqualTheReferenceAndHaveTheBytesTheyHaveAlone) {
  for (const Shape& shape : kShapes) {
    World world(shape, 82);
    Memory* const a = world.Add(1500);
    Memory* const b = world.Add(200);
    Memory* const c = world.Add(64);
    const std::vector<std::vector<Memory*>> choices = {{a, b, c}, {b}, {a, c}, {c, c, b}, {a, b}, {}};
    // More than one unit of the same memory where heads are many.
    for (size_t i = 0; i < 100; ++i)
      world.AddSequence(choices[world.rng()->Below(choices.size())], 1 + i % 40);
    const std::vector<float> together = world.Run(KernelPath::kCpu, &pool_);
    EXPECT_LE(MaxDifference(together, world.Run(KernelPath::kReference, &pool_)), Tolerance(shape, 2000));
    for (size_t i = 0; i < 100; ++i) {
      const std::vector<float> alone = world.Run(KernelPath::kCpu, nullptr, i, 1);
      ASSERT_EQ(std::memcmp(alone.data(), together.data() + i * world.width(), alone.size() * sizeof(float)),
                0)
          << "sequence " << i;
    }
    // Few read a tile in place and many pack it: from one to the other.
    for (const size_t count : {2, 3, 4, 5, 8, 9, 17}) {
      const std::vector<float> some = world.Run(KernelPath::kCpu, &pool_, 3, count);
      EXPECT_EQ(std::memcmp(some.data(), together.data() + 3 * world.width(), some.size() * sizeof(float)), 0)
          << count << " sequences";
    }
  }
}

TEST_P(DecodeAttentionTest, KeysThatARowDoesNotSeeDoNotReachItThoughTheyAreNotNumbers) {
  const Shape shape = kShapes[0];
  World world(shape, 83);
  Memory* const shared = world.Add(400);
  world.AddSequence({shared}, 3);
  world.AddSequence({shared}, 3);
  Sequence& blind = world.sequences()[0];
  Sequence& seeing = world.sequences()[1];
  for (Sequence* sequence : {&blind, &seeing}) {
    KvSegment& segment = sequence->segments[0];
    segment.first_row = 10;
    segment.replaced_count = 0;
    segment.position = 0;
    segment.stored_position = 0;
  }
  const std::vector<float> before = world.Run(KernelPath::kCpu, &pool_, 0, 1);
  // Before the first row seen, replaced for one of the two, and behind the position of a third.
  std::vector<uint32_t> replaced = {200};
  blind.segments[0].replaced = replaced.data();
  blind.segments[0].replaced_count = 1;
  const std::vector<float> without = world.Run(KernelPath::kCpu, &pool_, 0, 1);
  EXPECT_GT(MaxDifference(without, before), 0);
  shared->Poison(9, 0, shape.head_dim);
  shared->Poison(200, 0, shape.head_dim);
  const std::vector<float> both = world.Run(KernelPath::kCpu, &pool_);
  const size_t width = world.width();
  EXPECT_EQ(std::memcmp(both.data(), without.data(), width * sizeof(float)), 0);
  EXPECT_TRUE(std::all_of(both.begin() + static_cast<ptrdiff_t>(width), both.end(),
                          [](float value) { return std::isnan(value); }));
  world.sequences()[1].position = 150;  // row 200 stands in its future
  const std::vector<float> early = world.Run(KernelPath::kCpu, &pool_, 1, 1);
  EXPECT_TRUE(std::none_of(early.begin(), early.end(), [](float value) { return std::isnan(value); }));
}

TEST_P(DecodeAttentionTest, AMemoryWhoseScoresAreAllMinusInfinityWeighsNothing) {
  const Shape shape = {2, 1, 16, DType::kF32, RopePairs::kNorm};
  World world(shape, 86);
  Memory* const sound = world.Add(30);
  world.AddSequence({sound}, 0);
  Sequence& sequence = world.sequences()[0];
  sequence.segments[0].first_row = 0;
  sequence.segments[0].replaced_count = 0;
  // Every product with the query overflows: the keys are the query, turned round, times a huge number.
  Memory* const loud = world.Add(1);
  KvSegment segment = loud->View();
  segment.position = 0;
  sequence.position = 40;
  sequence.segments[0].position = 5;
  std::fill(loud->k32.begin(), loud->k32.end(), 0.0f);
  std::fill(sequence.q.begin(), sequence.q.end(), 0.0f);
  for (uint32_t head = 0; head < shape.heads; ++head)
    sequence.q[head * shape.head_dim + shape.head_dim - 2] = 64;
  // The slowest pair turns by less than a right angle, so its first element keeps its sign.
  loud->k32[1 + shape.head_dim - 2] = -3e38f;
  const std::vector<float> before = world.Run(KernelPath::kCpu, &pool_);
  sequence.segments.insert(sequence.segments.begin(), segment);
  const std::vector<float> after = world.Run(KernelPath::kCpu, &pool_);
  EXPECT_EQ(after, before);
  loud->k32[1 + shape.head_dim - 2] = 3.0f;  // the control: a product of the other sign weighs much
  EXPECT_NE(world.Run(KernelPath::kCpu, &pool_), before);
}

TEST_P(DecodeAttentionTest, ARowThatSeesNothingGetsZeros) {
  const Shape shape = kShapes[0];
  World world(shape, 84);
  Memory* const shared = world.Add(40);
  world.AddSequence({shared}, 0);
  world.AddSequence({}, 0);
  KvSegment& segment = world.sequences()[0].segments[0];
  segment.position = 500;
  world.sequences()[0].position = 499;
  for (const float value : world.Run(KernelPath::kCpu, &pool_)) EXPECT_EQ(value, 0.0f);
  segment.first_row = segment.rows;
  world.sequences()[0].position = 600;
  for (const float value : world.Run(KernelPath::kCpu, &pool_)) EXPECT_EQ(value, 0.0f);
  DecodeAttention({}, &pool_);
}

TEST(DecodePlanTest, ReadsTheSameMemoryOnceWhoeverListsIt) {
  World world(kShapes[1], 85);
  Memory* const shared = world.Add(3000);
  for (int i = 0; i < 5; ++i) world.AddSequence({shared}, 2);
  std::vector<DecodeRow> rows;
  for (const Sequence& sequence : world.sequences()) {
    rows.push_back({sequence.q.data(), sequence.position, sequence.segments, nullptr});
  }
  const internal::DecodePlan plan = internal::PlanDecode({.rows = rows, .heads = 4, .kv_heads = 2});
  // Three ranges of the object and one of each private segment, for two kv heads.
  EXPECT_EQ(plan.units.size(), 2u * (3 + 5));
  EXPECT_EQ(plan.result_count, 5u * 4);
  size_t of_five = 0;
  for (const internal::DecodeUnit& unit : plan.units)
    of_five += unit.member_end - unit.member_begin == 5 ? 1 : 0;
  EXPECT_EQ(of_five, 2u * 3);
}

INSTANTIATE_TEST_SUITE_P(Targets, DecodeAttentionTest, ::testing::ValuesIn(testing::SimdTargets()),
                         [](const auto& info) { return testing::NameOfSimdTarget(info.param); });

}  // namespace
}  // namespace epic
