// A random attention problem for sweeps and benches of the GPU kernels: the same inputs on the host, for the
// reference, and on the device. Nothing here is for a service.
#ifndef EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_CUDA_FIXTURE_H_
#define EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_CUDA_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "kernels/segment_attention/segment_attention_cuda.h"
#include "kernels/simt/device_memory.h"

namespace epic {

constexpr uint32_t kFixturePositions = 6000;

// Keys and values of one object or private part, on both sides. Hidden rows are NaN.
class SegmentFixture {
 public:
  struct Shape {
    uint32_t rows = 0;
    uint32_t position = 0;
    uint32_t stored_position = 0;
    uint32_t first_row = 0;
    std::vector<uint32_t> replaced;
    std::vector<uint32_t> positions;  // not empty: a private segment
    // Elements by which k and v lie off a multiple of 16 bytes.
    uint32_t misaligned_by = 0;
  };
  SegmentFixture(const Shape& shape, uint32_t kv_heads, uint32_t head_dim, Rng* rng);
  // Another sequence's view of the same memory.
  SegmentFixture(const SegmentFixture& object, const Shape& shape);

  // The same memory and the same view.
  SegmentFixture Again() const { return SegmentFixture(*this, shape_); }
  // Every element of a row, in all heads.
  void SetRow(uint32_t row, float k, float v);
  KvSegment Host() const;
  KvSegment Device() const;

 private:
  struct Memory {
    std::vector<Bf16> k, v;
    simt::DeviceArray<Bf16> device_k, device_v;
    uint32_t kv_heads = 0, head_dim = 0, capacity = 0, offset = 0;
  };
  KvSegment View() const;

  Shape shape_;
  std::shared_ptr<Memory> memory_;
  simt::DeviceArray<uint32_t> device_replaced_, device_positions_;
};

// Heads, a cos/sin table and queries.
class AttentionFixture {
 public:
  AttentionFixture(uint32_t heads, uint32_t kv_heads, uint32_t head_dim, RopePairs pairs);

  size_t width() const { return size_t{heads_} * head_dim_; }
  void SetQueries(std::vector<uint32_t> positions, Rng* rng, float scale = 1);
  std::vector<float>& q() { return q_; }
  const std::vector<uint32_t>& positions() const { return positions_; }

  // Rows [first, first + count) of a link over these segments.
  struct LinkRun {
    size_t first = 0;
    size_t count = SIZE_MAX;
    LinkAttentionMode mode = LinkAttentionMode::kAuto;
    size_t workspace_rows = SIZE_MAX;  // at most as much workspace as so many rows need
  };
  GpuStatus Link(const std::vector<SegmentFixture>& segments, const LinkRun& run,
                 std::vector<float>* out) const;
  // All rows as decode rows; row r reads the segments row_segments[r].
  GpuStatus Decode(const std::vector<SegmentFixture>& segments,
                   const std::vector<std::vector<uint32_t>>& row_segments, std::vector<float>* out) const;

  // The same, ready to be launched as often as one likes. The fixture and the segments outlive it.
  struct DeviceInputs {
    simt::DeviceArray<float> q, out;
    simt::DeviceArray<uint32_t> positions;
    simt::DeviceArray<KvSegment> segments;
    simt::DeviceArray<uint8_t> workspace;
  };
  struct LinkLaunch {
    DeviceInputs inputs;
    simt::DeviceArray<AttentionSplit> splits;
    LinkAttentionArgs args;
  };
  LinkLaunch MakeLink(const std::vector<SegmentFixture>& segments, const LinkRun& run) const;
  struct DecodeLaunch {
    DeviceInputs inputs;
    simt::DeviceArray<AttentionReader> readers;
    simt::DeviceArray<AttentionGroup> groups;
    simt::DeviceArray<uint32_t> row_slots;
    DecodeAttentionArgs args;
  };
  DecodeLaunch MakeDecode(const std::vector<SegmentFixture>& segments,
                          const std::vector<std::vector<uint32_t>>& row_segments) const;

  // segment_attention.h's reference for one row.
  std::vector<float> Reference(const std::vector<SegmentFixture>& segments,
                               const std::vector<uint32_t>& reads, size_t row) const;
  // The same in double with the kernel's roundings of the query; `weighted` gets the weighted mean of |v|.
  std::vector<float> RoundedModel(const std::vector<SegmentFixture>& segments,
                                  const std::vector<uint32_t>& reads, size_t row,
                                  std::vector<float>* weighted) const;

 private:
  GpuAttentionArgs Upload(const std::vector<SegmentFixture>& segments, size_t first, size_t count,
                          DeviceInputs* inputs) const;
  // Query `head` of a row as the kernel rounds it, in units of log2.
  std::vector<float> RotatedQuery(size_t row, uint32_t head, uint32_t turn) const;

  const uint32_t heads_, kv_heads_, head_dim_;
  RopeTable table_;
  simt::DeviceArray<float> cos_, sin_;
  std::vector<uint32_t> positions_;
  std::vector<float> q_;
};

std::vector<uint32_t> PositionRange(uint32_t begin, uint32_t end);

}  // namespace epic

#endif  // EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_CUDA_FIXTURE_H_
