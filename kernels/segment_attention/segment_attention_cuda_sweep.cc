#include "kernels/segment_attention/segment_attention_cuda_sweep.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/segment_attention/segment_attention_cuda_fixture.h"

namespace epic {
namespace {

using simt::SweepReport;
using Shape = SegmentFixture::Shape;
using LinkRun = AttentionFixture::LinkRun;

std::vector<uint32_t> All(const std::vector<SegmentFixture>& segments) {
  return PositionRange(0, static_cast<uint32_t>(segments.size()));
}

// Against the model of the kernel's rounding. Each weight is rounded to bf16, and the total is of rounded
// weights: 2^-9 of the weighted |v| and of the result. Scores sum head_dim products of up to `score_size` in
// all, in f32.
void ExpectRow(const std::vector<float>& got, const AttentionFixture& problem,
               const std::vector<SegmentFixture>& segments, const std::vector<uint32_t>& reads, size_t row,
               double score_size, const std::string& what, SweepReport* report) {
  std::vector<float> weighted;
  const std::vector<float> expected = problem.RoundedModel(segments, reads, row, &weighted);
  const double relative = 0x1.1p-9 + 2 * score_size * 0x1.0p-17 + 0x1.0p-20;
  report->ExpectNear(
      got, expected, [&](size_t i) { return relative * (weighted[i] + std::abs(double{expected[i]})); },
      what + " row " + std::to_string(row));
}

// Runs a link in both modes and checks some rows of it; returns the bytes of the first mode.
std::vector<float> ExpectLink(AttentionFixture* problem, const std::vector<SegmentFixture>& segments,
                              const std::string& what, SweepReport* report, double score_size = 20) {
  std::vector<float> splits, sequence;
  if (!report->ExpectOk(problem->Link(segments, {.mode = LinkAttentionMode::kSplits}, &splits), what) ||
      !report->ExpectOk(problem->Link(segments, {.mode = LinkAttentionMode::kSequential}, &sequence), what)) {
    return splits;
  }
  report->ExpectSameBytes<float>(splits, sequence, what + ": splits joined at the end against on the way");
  const size_t rows = problem->positions().size(), width = problem->width();
  const size_t step = report->thorough() ? 1 : std::max<size_t>(1, rows / 12);
  for (size_t row = 0; row < rows; ++row) {
    if (row % step != 0 && row + 1 != rows) continue;
    const std::vector<float> got(splits.begin() + static_cast<ptrdiff_t>(row * width),
                                 splits.begin() + static_cast<ptrdiff_t>((row + 1) * width));
    ExpectRow(got, *problem, segments, All(segments), row, score_size, what, report);
  }
  return splits;
}

struct Linked {
  std::vector<SegmentFixture> segments;
  std::vector<uint32_t> own;
};

// Three shared segments with compile offsets, replaced rows and a private segment in between.
Linked LinkedSegments(uint32_t kv_heads, uint32_t head_dim, uint32_t misaligned_by, Rng* rng) {
  Linked out;
  const auto add = [&](Shape shape) {
    shape.misaligned_by = misaligned_by;
    out.segments.emplace_back(shape, kv_heads, head_dim, rng);
  };
  add({.rows = 40});
  add({.rows = 150, .position = 40, .stored_position = 4, .first_row = 16});
  add({.rows = 140, .position = 190, .first_row = 5, .replaced = {7, 8, 90, 139}});
  out.own = PositionRange(40, 56);
  for (const uint32_t row : {190u, 191u, 192u, 193u, 194u, 197u, 198u, 280u, 329u}) out.own.push_back(row);
  for (const uint32_t row : PositionRange(330, 350)) out.own.push_back(row);
  add({.rows = static_cast<uint32_t>(out.own.size()), .positions = out.own});
  return out;
}

double Difference(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(double{a[i]} - b[i]));
  return worst;
}

void SweepRotation(SweepReport* report) {
  Rng rng(21);
  for (const RopePairs pairs : {RopePairs::kNorm, RopePairs::kNeox}) {
    const RopePairs other = pairs == RopePairs::kNorm ? RopePairs::kNeox : RopePairs::kNorm;
    AttentionFixture problem(6, 2, 64, pairs), wrong(6, 2, 64, other);
    const Linked linked = LinkedSegments(2, 64, 0, &rng);
    problem.SetQueries(linked.own, &rng);
    wrong.SetQueries(linked.own, &rng);
    wrong.q() = problem.q();
    const std::vector<float> got = ExpectLink(&problem, linked.segments, "rotation", report);
    if (got.empty()) return;
    double difference = 0, control = 0;
    const size_t rows = linked.own.size(), width = problem.width();
    for (size_t row = 0; row < rows; row += report->thorough() ? 1 : 4) {
      const std::vector<float> part(got.begin() + static_cast<ptrdiff_t>(row * width),
                                    got.begin() + static_cast<ptrdiff_t>((row + 1) * width));
      difference = std::max(difference,
                            Difference(part, problem.Reference(linked.segments, All(linked.segments), row)));
      control =
          std::max(control, Difference(part, wrong.Reference(linked.segments, All(linked.segments), row)));
    }
    // The query's rounding to bf16 moves a score by up to 2^-9 |q||k|/8, below 2^-9 * 16, and a mean of
    // values of about 1 by twice that.
    report->Expect(difference <= 2 * 16 * 0x1.0p-9,
                   "rotation: differs from the reference by " + std::to_string(difference));
    report->Expect(control > 0.1, "rotation: the other pairing gives the same");
  }
}

void SweepHeadSizes(SweepReport* report) {
  Rng rng(22);
  for (const uint32_t head_dim : {2u, 6u, 32u, 48u, 64u, 80u, 96u, 128u}) {
    for (const uint32_t misaligned_by : {0u, 1u}) {
      if (!report->thorough() && misaligned_by != 0 && head_dim % 64 != 0) continue;
      AttentionFixture problem(6, 2, head_dim, head_dim % 32 == 0 ? RopePairs::kNeox : RopePairs::kNorm);
      const Linked linked = LinkedSegments(2, head_dim, misaligned_by, &rng);
      problem.SetQueries(linked.own, &rng);
      ExpectLink(&problem, linked.segments,
                 "head_dim " + std::to_string(head_dim) + " off by " + std::to_string(misaligned_by), report);
    }
  }
  for (const uint32_t group : {1u, 2u, 4u, 5u, 7u, 8u, 64u}) {
    const uint32_t kv_heads = group == 64 ? 1 : 1 + group % 3;
    AttentionFixture problem(group * kv_heads, kv_heads, 32, RopePairs::kNeox);
    std::vector<SegmentFixture> segments;
    segments.emplace_back(Shape{.rows = 70, .stored_position = 3}, kv_heads, 32, &rng);
    problem.SetQueries(PositionRange(group == 64 ? 66 : 50, 70), &rng);
    ExpectLink(&problem, segments, "group " + std::to_string(group), report);
  }
}

void SweepBoundaries(SweepReport* report) {
  Rng rng(23);
  for (const uint32_t keys : {1u, 15u, 16u, 17u, 63u, 64u, 65u, 127u, 128u, 129u, 511u, 512u, 513u, 1100u}) {
    for (const uint32_t rows : {1u, 20u, 21u, 22u, 64u}) {
      if (!report->thorough() && rng.Below(3) != 0) continue;
      AttentionFixture problem(3, 1, 32, RopePairs::kNorm);
      std::vector<SegmentFixture> segments;
      segments.emplace_back(Shape{.rows = keys, .stored_position = 2}, 1, 32, &rng);
      // Causal at the end, wholly visible, or wholly in the future of the first rows.
      const uint32_t start = static_cast<uint32_t>(rng.Below(keys + 10));
      segments.emplace_back(
          Shape{.rows = rows, .positions = PositionRange(keys + start, keys + start + rows)}, 1, 32, &rng);
      problem.SetQueries(PositionRange(start, start + rows), &rng);
      ExpectLink(&problem, segments,
                 "keys " + std::to_string(keys) + " rows " + std::to_string(rows) + " start " +
                     std::to_string(start),
                 report);
    }
  }
}

void SweepReplaced(SweepReport* report) {
  Rng rng(24);
  for (int round = 0; round < (report->thorough() ? 20 : 4); ++round) {
    AttentionFixture problem(4, 2, 48, RopePairs::kNeox);
    std::vector<SegmentFixture> segments;
    uint32_t position = 0;
    for (int s = 0; s < 3; ++s) {
      Shape shape{.rows = static_cast<uint32_t>(1 + rng.Below(s == 1 ? 700 : 200)), .position = position};
      shape.stored_position = static_cast<uint32_t>(rng.Below(5));
      shape.first_row = static_cast<uint32_t>(rng.Below(shape.rows + 1));
      for (uint32_t r = shape.first_row; r < shape.rows; ++r) {
        if (rng.Below(3) == 0) shape.replaced.push_back(r);
      }
      position += shape.rows;
      segments.emplace_back(shape, 2, 48, &rng);
    }
    std::vector<uint32_t> at;
    for (uint32_t p = 0; p < position; ++p) {
      if (rng.Below(29) == 0) at.push_back(p);
    }
    at.push_back(position);
    problem.SetQueries(at, &rng);
    ExpectLink(&problem, segments, "replaced, round " + std::to_string(round), report);
  }
}

void SweepEmpty(SweepReport* report) {
  Rng rng(25);
  AttentionFixture problem(3, 1, 64, RopePairs::kNorm);
  std::vector<SegmentFixture> segments;
  segments.emplace_back(Shape{}, 1, 64, &rng);
  segments.emplace_back(Shape{.rows = 20, .position = 10, .first_row = 20}, 1, 64, &rng);  // wholly replaced
  segments.emplace_back(Shape{.rows = 20, .position = 30}, 1, 64, &rng);  // in the future of the first rows
  problem.SetQueries({3, 12, 29, 30, 45}, &rng);
  const std::vector<float> out = ExpectLink(&problem, segments, "partly empty", report);
  if (out.empty()) return;
  const auto is_zero = [](float value) { return value == 0 && !std::signbit(value); };
  report->Expect(std::all_of(out.begin(), out.begin() + static_cast<ptrdiff_t>(3 * problem.width()), is_zero),
                 "rows that see nothing are not zero");
  const std::vector<float> none = ExpectLink(&problem, {}, "no segments", report);
  report->Expect(std::all_of(none.begin(), none.end(), is_zero), "no segments, but not zero");
  problem.SetQueries({}, &rng);
  std::vector<float> nothing;
  report->ExpectOk(problem.Link(segments, {}, &nothing), "no rows");
}

// A row's bytes in every panel, mode and size of workspace.
void SweepPanels(SweepReport* report) {
  Rng rng(26);
  AttentionFixture problem(6, 2, 64, RopePairs::kNeox);
  std::vector<SegmentFixture> segments;
  segments.emplace_back(Shape{.rows = 600, .first_row = 16}, 2, 64, &rng);
  segments.emplace_back(
      Shape{.rows = 150, .position = 600, .stored_position = 4, .first_row = 3, .replaced = {30, 31}}, 2, 64,
      &rng);
  segments.emplace_back(Shape{.rows = 70, .positions = PositionRange(720, 790)}, 2, 64, &rng);
  problem.SetQueries(PositionRange(720, 790), &rng);
  std::vector<float> expected, out;
  if (!report->ExpectOk(problem.Link(segments, {.mode = LinkAttentionMode::kSequential}, &expected),
                        "panels"))
    return;
  const auto expect = [&](const LinkRun& run) {
    const std::string what =
        "panel of " + std::to_string(run.count) + " rows from " + std::to_string(run.first);
    if (!report->ExpectOk(problem.Link(segments, run, &out), what)) return;
    const std::span<const float> same(expected.data() + run.first * problem.width(), out.size());
    report->ExpectSameBytes<float>(out, same, what);
  };
  expect({.mode = LinkAttentionMode::kSplits, .workspace_rows = 21});
  expect({.mode = LinkAttentionMode::kSplits, .workspace_rows = 50});
  for (const size_t count : {1u, 2u, 5u, 16u, 22u, 64u}) {
    const size_t step = report->thorough() ? count : std::max<size_t>(count, 31);
    for (size_t first = 0; first + count <= 70; first += step) expect({.first = first, .count = count});
  }
  const GpuStatus small =
      problem.Link(segments, {.mode = LinkAttentionMode::kSplits, .workspace_rows = 3}, &out);
  report->Expect(small.code == GpuCode::kWorkspace, "a workspace below one tile is not refused");
}

void SweepNotFinite(SweepReport* report) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto row_of = [](const std::vector<float>& values, size_t width, size_t row) {
    return std::vector<float>(values.begin() + static_cast<ptrdiff_t>(row * width),
                              values.begin() + static_cast<ptrdiff_t>((row + 1) * width));
  };
  for (const bool only_values : {true, false}) {
    for (const float bad : {std::nanf(""), kInfinity, 3.0f}) {
      Rng rng(27);
      AttentionFixture problem(3, 1, 64, RopePairs::kNorm);
      std::vector<SegmentFixture> segments;
      segments.emplace_back(Shape{.rows = 100}, 1, 64, &rng);
      segments.emplace_back(Shape{.rows = 80, .positions = PositionRange(100, 180)}, 1, 64, &rng);
      problem.SetQueries(PositionRange(100, 180), &rng);
      std::vector<float> clean, out;
      if (!report->ExpectOk(problem.Link(segments, {}, &clean), "clean")) return;
      segments[1].SetRow(37, only_values ? 0.5f : bad, bad);
      if (!report->ExpectOk(problem.Link(segments, {}, &out), "a row of " + std::to_string(bad))) return;
      const size_t width = problem.width();
      for (size_t row = 0; row < 80; ++row) {
        const std::vector<float> got = row_of(out, width, row);
        const std::string what = "row " + std::to_string(row) + " beside a key of " + std::to_string(bad);
        if (row < 37) report->ExpectSameBytes<float>(got, row_of(clean, width, row), what);
        const bool should_spread = row >= 37 && !std::isfinite(bad);
        report->Expect(std::all_of(got.begin(), got.end(),
                                   [&](float value) { return std::isnan(value) == should_spread; }),
                       what);
      }
    }
  }
}

void SweepQueries(SweepReport* report) {
  Rng rng(28);
  AttentionFixture problem(6, 2, 64, RopePairs::kNorm);
  const Linked linked = LinkedSegments(2, 64, 0, &rng);
  problem.SetQueries(linked.own, &rng);
  std::vector<float> clean, out;
  if (!report->ExpectOk(problem.Link(linked.segments, {}, &clean), "clean queries")) return;
  problem.q()[5 * problem.width() + 3] = std::nanf("");
  if (!report->ExpectOk(problem.Link(linked.segments, {}, &out), "a NaN in a query")) return;
  const size_t begin = 5 * problem.width();
  bool stays = true;
  for (size_t i = 0; i < out.size(); ++i) {
    stays &= i >= begin && i < begin + 64 ? std::isnan(out[i]) : out[i] == clean[i];
  }
  report->Expect(stays, "a NaN in one query's head leaves it");

  std::vector<SegmentFixture> segments;
  segments.emplace_back(Shape{.rows = 600}, 2, 64, &rng);
  problem.SetQueries({600, 601}, &rng, 400);
  ExpectLink(&problem, segments, "scores in the thousands", report, 400 * 20);
}

void SweepRefusals(SweepReport* report) {
  LinkAttentionArgs args;
  report->Expect(LinkAttentionCuda(args, nullptr).code == GpuCode::kInvalid, "no heads are not refused");
  args.common.heads = 6;
  args.common.kv_heads = 4;
  report->Expect(LinkAttentionCuda(args, nullptr).code == GpuCode::kInvalid,
                 "6 heads over 4 are not refused");
  args.common.kv_heads = 2;
  for (const uint32_t head_dim : {0u, 3u, 130u, 256u}) {
    args.common.head_dim = head_dim;
    report->Expect(LinkAttentionCuda(args, nullptr).code == GpuCode::kUnsupported,
                   "head_dim " + std::to_string(head_dim) + " is not refused");
  }
  args.common.head_dim = 64;
  report->Expect(LinkAttentionCuda(args, nullptr).code == GpuCode::kInvalid,
                 "a missing table is not refused");
}

// Sequences over the same two objects, at other positions and with other replaced rows in each, and private
// parts.
struct Batch {
  std::vector<SegmentFixture> segments;
  std::vector<std::vector<uint32_t>> reads;
  std::vector<uint32_t> positions;
};

Batch MakeBatch(uint32_t sequences, uint32_t kv_heads, uint32_t head_dim, Rng* rng) {
  Batch batch;
  const SegmentFixture first(Shape{.rows = 530}, kv_heads, head_dim, rng);
  const SegmentFixture second(Shape{.rows = 200}, kv_heads, head_dim, rng);
  for (uint32_t s = 0; s < sequences; ++s) {
    const bool second_first = s % 3 == 1;
    const uint32_t own = 1 + s % 4 * 22, offset = s % 2 * 9;
    Shape a{.rows = 530,
            .position = offset + (second_first ? 200 : 0),
            .stored_position = s % 2,
            .first_row = s % 5};
    Shape b{.rows = 200, .position = offset + (second_first ? 0 : 530), .stored_position = 4};
    for (uint32_t r = s; r < 200; r += 17 + s) b.replaced.push_back(r);
    const uint32_t end = offset + 730;
    const auto at = static_cast<uint32_t>(batch.segments.size());
    batch.segments.emplace_back(first, a);
    batch.segments.emplace_back(second, b);
    batch.segments.emplace_back(Shape{.rows = own, .positions = PositionRange(end, end + own)}, kv_heads,
                                head_dim, rng);
    std::vector<uint32_t> reads = {at, at + 1, at + 2};
    if (second_first) std::swap(reads[0], reads[1]);
    if (s == 2) reads = {at + 1};  // one that reads a single object
    batch.reads.push_back(reads);
    batch.positions.push_back(end + own - 1);
    if (s == 0) {  // two rows of one sequence
      batch.reads.push_back(reads);
      batch.positions.push_back(end + own - 1);
    }
  }
  return batch;
}

void SweepBatch(uint32_t sequences, uint32_t heads, uint32_t kv_heads, uint32_t head_dim,
                SweepReport* report) {
  Rng rng(31);
  const std::string what = std::to_string(sequences) + " sequences, head_dim " + std::to_string(head_dim);
  AttentionFixture problem(heads, kv_heads, head_dim, RopePairs::kNeox);
  const Batch batch = MakeBatch(sequences, kv_heads, head_dim, &rng);
  problem.SetQueries(batch.positions, &rng);
  std::vector<float> out;
  if (!report->ExpectOk(problem.Decode(batch.segments, batch.reads, &out), what)) return;
  const size_t width = problem.width();
  for (size_t row = 0; row < batch.positions.size(); ++row) {
    const std::vector<float> got(out.begin() + static_cast<ptrdiff_t>(row * width),
                                 out.begin() + static_cast<ptrdiff_t>((row + 1) * width));
    ExpectRow(got, problem, batch.segments, batch.reads[row], row, 20, what, report);
    // The same row alone, and as a link row of its sequence.
    AttentionFixture alone(heads, kv_heads, head_dim, RopePairs::kNeox);
    alone.SetQueries({batch.positions[row]}, &rng);
    std::copy_n(problem.q().begin() + static_cast<ptrdiff_t>(row * width), width, alone.q().begin());
    std::vector<float> other;
    if (!report->ExpectOk(alone.Decode(batch.segments, {batch.reads[row]}, &other), what)) return;
    report->ExpectSameBytes<float>(got, other, what + ": row " + std::to_string(row) + " alone");
    if (!report->thorough() && row % 4 != 0) continue;
    std::vector<SegmentFixture> list;
    for (const uint32_t s : batch.reads[row]) list.push_back(batch.segments[s].Again());
    if (!report->ExpectOk(alone.Link(list, {}, &other), what)) return;
    report->ExpectSameBytes<float>(got, other, what + ": row " + std::to_string(row) + " as a link row");
  }
}

}  // namespace

void SweepLinkAttention(SweepReport* report) {
  SweepRotation(report);
  SweepHeadSizes(report);
  SweepBoundaries(report);
  SweepReplaced(report);
  SweepEmpty(report);
  SweepPanels(report);
  SweepNotFinite(report);
  SweepQueries(report);
  SweepRefusals(report);
}

void SweepDecodeAttention(SweepReport* report) {
  SweepBatch(1, 3, 1, 64, report);
  SweepBatch(5, 6, 2, 64, report);
  SweepBatch(11, 16, 2, 32, report);
  SweepBatch(4, 8, 2, 128, report);
  SweepBatch(0, 3, 1, 64, report);
}

}  // namespace epic
