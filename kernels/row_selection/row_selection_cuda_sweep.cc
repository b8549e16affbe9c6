#include "kernels/row_selection/row_selection_cuda_sweep.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/row_selection/row_selection_cuda.h"
#include "kernels/simt/device_memory.h"

namespace epic {
namespace {

constexpr uint32_t kUntouched = 0xabcdef01u;

void ExpectSelection(const std::vector<float>& values, const std::vector<uint8_t>& eligible,
                     std::vector<SelectGroup> groups, const std::string& what, simt::SweepReport* report) {
  uint32_t room = 0;
  for (SelectGroup& group : groups) {
    group.out_begin = room;
    room += group.count;
  }
  const simt::DeviceArray<float> device_values(values);
  const simt::DeviceArray<uint8_t> device_eligible(eligible);
  const simt::DeviceArray<SelectGroup> device_groups(groups);
  const simt::DeviceArray<uint32_t> out(room + 1, kUntouched), counts(groups.size(), kUntouched);
  const SelectRowsArgs args = {.values = device_values.data(),
                               .eligible = device_eligible.data(),
                               .groups = device_groups.data(),
                               .group_count = static_cast<uint32_t>(groups.size()),
                               .out = out.data(),
                               .out_counts = counts.data()};
  if (!report->ExpectOk(SelectRowsCuda(args, nullptr), what) ||
      !report->ExpectOk(simt::SynchronizeDevice(), what))
    return;
  std::vector<uint32_t> expected(room + 1, kUntouched), expected_counts;
  for (const SelectGroup& group : groups) {
    const std::vector<uint32_t> rows = SelectRowsReference(values, eligible, group);
    for (size_t i = 0; i < rows.size(); ++i) expected[group.out_begin + i] = rows[i];
    expected_counts.push_back(static_cast<uint32_t>(rows.size()));
  }
  report->ExpectSameBytes<uint32_t>(counts.Download(), expected_counts, what + ": counts");
  report->ExpectSameBytes<uint32_t>(out.Download(), expected, what);
}

}  // namespace

void SweepRowSelection(simt::SweepReport* report) {
  Rng rng(81);
  for (const uint32_t count : {1u, 2u, 255u, 256u, 257u, 700u}) {
    for (const bool has_equals : {false, true}) {
      std::vector<float> values = simt::RandomFloats(count, &rng);
      // Few different numbers: ties everywhere, both zeros among them.
      for (float& value : values) value = has_equals ? std::trunc(value) : value;
      std::vector<uint8_t> eligible;
      if (rng.Below(2) == 0) {
        for (uint32_t i = 0; i < count; ++i) eligible.push_back(rng.Below(3) != 0);
      }
      for (const uint32_t picks : {0u, 1u, 16u, count / 2, count, count + 5}) {
        ExpectSelection(values, eligible, {{0, count, picks, 0}},
                        std::to_string(picks) + " of " + std::to_string(count), report);
      }
      ExpectSelection(values, eligible,
                      {{0, count / 3, 5, 0}, {count / 3, count / 3, 4, 0}, {count / 3, count, 17, 0}},
                      "three groups", report);
    }
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> odd = {1,  std::nanf(""),  -kInfinity, kInfinity, -0.0f, 0.0f,
                                  -1, -std::nanf(""), 1e-42f};
  for (uint32_t picks = 0; picks <= odd.size(); ++picks) {
    ExpectSelection(odd, {}, {{0, static_cast<uint32_t>(odd.size()), picks, 0}}, "odd numbers", report);
  }
}

}  // namespace epic
