#include "kernels/kv_write/kv_write_cuda_sweep.h"

#include <cmath>
#include <string>
#include <vector>

#include "kernels/kv_write/kv_write_cuda.h"
#include "kernels/kv_write/kv_write_internal.h"
#include "kernels/simt/device_memory.h"

namespace epic {
namespace {

constexpr uint32_t kKvHeads = 3;
constexpr uint32_t kPositions = 5000;
constexpr Bf16 kUntouched = 77;

struct Shape {
  uint32_t head_dim;
  RopePairs pairs;
  size_t rows;
};

// Rows of a segment in f32, from the reference.
std::vector<float> Expected(const std::vector<float>& in, size_t in_stride, const Shape& shape,
                            const RopeTable* rope, const std::vector<uint32_t>& positions) {
  std::vector<float> out(kKvHeads * shape.rows * shape.head_dim);
  KvWriteArgs args;
  args.in = in.data();
  args.in_stride = in_stride;
  args.rows = shape.rows;
  args.kv_heads = kKvHeads;
  args.head_dim = shape.head_dim;
  args.rope = rope;
  args.positions = positions.data();
  args.out = out.data();
  args.dtype = DType::kF32;
  args.head_stride = shape.rows * shape.head_dim;
  internal::KvWriteReference(args, 0, shape.rows);
  return out;
}

// Element (head, row, d) of `out`, whose heads are `capacity` rows long, for every row of the shape.
void ExpectRows(const std::vector<Bf16>& out, size_t capacity, size_t first_row,
                const std::vector<float>& expected, const Shape& shape, double relative,
                const std::string& what, simt::SweepReport* report) {
  const size_t dim = shape.head_dim;
  bool untouched = true, near = true;
  for (size_t g = 0; g < kKvHeads; ++g) {
    for (size_t row = 0; row < capacity; ++row) {
      for (size_t d = 0; d < dim; ++d) {
        const Bf16 got = out[(g * capacity + row) * dim + d];
        if (row < first_row || row >= first_row + shape.rows) {
          untouched &= got == kUntouched;
          continue;
        }
        const double want = expected[(g * shape.rows + row - first_row) * dim + d];
        near &= std::abs(ToF32(got) - want) <= relative * std::abs(want) + 6 * 2 * 0x1.0p-24;
      }
    }
  }
  report->Expect(untouched, what + ": wrote beyond its rows");
  report->Expect(near, what + ": differs from the reference");
}

void SweepShape(const Shape& shape, Rng* rng, simt::SweepReport* report) {
  const size_t dim = shape.head_dim, stride = kKvHeads * dim + 5, capacity = shape.rows + 9, first = 4;
  const std::string what = "head_dim " + std::to_string(dim) + " rows " + std::to_string(shape.rows);
  std::vector<double> frequencies;
  for (size_t j = 0; j < dim / 2; ++j)
    frequencies.push_back(std::pow(1e4, -2.0 * static_cast<double>(j) / static_cast<double>(dim)));
  const RopeTable table(shape.pairs, frequencies, kPositions, 1.0);
  const simt::DeviceArray<float> cosines(std::span<const float>(table.cos(0), kPositions * dim / 2));
  const simt::DeviceArray<float> sines(std::span<const float>(table.sin(0), kPositions * dim / 2));
  const std::vector<float> k = simt::RandomFloats(shape.rows * stride, rng);
  const std::vector<float> v = simt::RandomFloats(shape.rows * stride, rng);
  std::vector<uint32_t> at;
  for (size_t r = 0; r < shape.rows; ++r) at.push_back(static_cast<uint32_t>(rng->Below(kPositions)));
  const simt::DeviceArray<float> device_k(k), device_v(v);
  const simt::DeviceArray<uint32_t> positions(at);
  const simt::DeviceArray<Bf16> out_k(kKvHeads * capacity * dim, kUntouched),
      out_v(kKvHeads * capacity * dim, kUntouched);
  KvWriteCudaArgs args;
  args.k = device_k.data();
  args.v = device_v.data();
  args.in_stride = stride;
  args.rows = shape.rows;
  args.kv_heads = kKvHeads;
  args.head_dim = shape.head_dim;
  args.rope = {.cos = cosines.data(),
               .sin = sines.data(),
               .half_dim = shape.head_dim / 2,
               .max_position = kPositions,
               .pairs = shape.pairs};
  args.positions = positions.data();
  args.target = {out_k.data() + first * dim, out_v.data() + first * dim, capacity * dim};
  if (!report->ExpectOk(KvWriteCuda(args, nullptr), what) ||
      !report->ExpectOk(simt::SynchronizeDevice(), what))
    return;
  // Rounded to bf16: half a unit of its 8 bits; the two roundings before it may cross a tie.
  ExpectRows(out_k.Download(), capacity, first, Expected(k, stride, shape, &table, at), shape, 0x1.01p-8,
             what + " keys", report);
  ExpectRows(out_v.Download(), capacity, first, Expected(v, stride, shape, nullptr, at), shape, 0x1.0p-8,
             what + " values", report);

  // Every row to a place of its own, last row first: the same bytes.
  const simt::DeviceArray<Bf16> own_k(kKvHeads * capacity * dim, kUntouched),
      own_v(kKvHeads * capacity * dim, kUntouched);
  std::vector<KvRowTarget> targets;
  for (size_t r = 0; r < shape.rows; ++r) {
    const size_t row = (first + shape.rows - 1 - r) * dim;
    targets.push_back({own_k.data() + row, own_v.data() + row, capacity * dim});
  }
  const simt::DeviceArray<KvRowTarget> device_targets(targets);
  args.row_targets = device_targets.data();
  if (!report->ExpectOk(KvWriteCuda(args, nullptr), what) ||
      !report->ExpectOk(simt::SynchronizeDevice(), what))
    return;
  for (const auto& [together, alone] :
       {std::pair{out_k.Download(), own_k.Download()}, std::pair{out_v.Download(), own_v.Download()}}) {
    bool same = true;
    for (size_t i = 0; i < together.size(); ++i) {
      const size_t row = i / dim % capacity;
      const bool written = row >= first && row < first + shape.rows;
      const size_t other = written ? i + (2 * first + shape.rows - 1) * dim - 2 * row * dim : i;
      same &= together[i] == alone[other];
    }
    report->Expect(same, what + ": other bytes at places of their own");
  }
}

}  // namespace

void SweepKvWrite(simt::SweepReport* report) {
  Rng rng(61);
  for (const uint32_t dim : {2u, 32u, 48u, 64u, 80u, 128u}) {
    for (const RopePairs pairs : {RopePairs::kNorm, RopePairs::kNeox}) {
      for (const size_t rows : {0u, 1u, 2u, 21u, 64u, 65u}) {
        if (!report->thorough() && rows > 2 && rng.Below(2) == 0) continue;
        SweepShape({dim, pairs, rows}, &rng, report);
      }
    }
  }
  report->Expect(KvWriteCuda({.kv_heads = 1, .head_dim = 3}, nullptr).code == GpuCode::kInvalid,
                 "an odd head_dim is not refused");
}

}  // namespace epic
