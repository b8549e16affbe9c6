#include "kernels/row_copy/row_copy_cuda_sweep.h"

#include <string>
#include <vector>

#include "kernels/row_copy/row_copy_cuda.h"
#include "kernels/simt/device_memory.h"

namespace epic {
namespace {

constexpr uint32_t kUntouched = 0xabcdef01u;
constexpr size_t kRows = 50;

void SweepShape(size_t words, size_t count, uint32_t off, Rng* rng, simt::SweepReport* report) {
  const std::string what =
      std::to_string(count) + " rows of " + std::to_string(words) + " words off by " + std::to_string(off);
  const size_t stride = words + off * 3;
  std::vector<uint32_t> in(off + kRows * stride);
  for (uint32_t& word : in) word = static_cast<uint32_t>(rng->Next());
  std::vector<uint32_t> rows;
  for (size_t i = 0; i < count; ++i)
    rows.push_back(static_cast<uint32_t>((i * 13 + 5) % kRows));  // all different
  const simt::DeviceArray<uint32_t> device_in(in), device_rows(rows),
      gathered(off + kRows * stride, kUntouched), scattered(off + kRows * stride, kUntouched);
  RowCopyArgs args = {.in = device_in.data() + off,
                      .in_stride = stride,
                      .rows = device_rows.data(),
                      .count = count,
                      .words = words,
                      .out = gathered.data() + off,
                      .out_stride = stride};
  if (!report->ExpectOk(GatherRowsCuda(args, nullptr), what)) return;
  args.out = scattered.data() + off;
  if (!report->ExpectOk(ScatterRowsCuda(args, nullptr), what)) return;
  if (!report->ExpectOk(simt::SynchronizeDevice(), what)) return;
  std::vector<uint32_t> expected_gathered(off + kRows * stride, kUntouched),
      expected_scattered = expected_gathered;
  for (size_t i = 0; i < count; ++i) {
    for (size_t w = 0; w < words; ++w) {
      expected_gathered[off + i * stride + w] = in[off + rows[i] * stride + w];
      expected_scattered[off + rows[i] * stride + w] = in[off + i * stride + w];
    }
  }
  report->ExpectSameBytes<uint32_t>(gathered.Download(), expected_gathered, what + " gathered");
  report->ExpectSameBytes<uint32_t>(scattered.Download(), expected_scattered, what + " scattered");
}

}  // namespace

void SweepRowCopy(simt::SweepReport* report) {
  Rng rng(71);
  for (const size_t words : {0u, 1u, 3u, 4u, 31u, 32u, 127u, 128u, 129u, 576u}) {
    for (const size_t count : {0u, 1u, 3u, 50u}) {
      for (const uint32_t off : {0u, 1u}) SweepShape(words, count, off, &rng, report);
    }
  }
  report->Expect(GatherRowsCuda({.in_stride = 3, .count = 1, .words = 4, .out_stride = 4}, nullptr).code ==
                     GpuCode::kInvalid,
                 "a stride below a row is not refused");
}

}  // namespace epic
