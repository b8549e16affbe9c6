// Attention on a GPU, by tensor cores in bf16 with f32 sums, for the two ways in which rows of queries come:
// the rows of a link (many rows of one sequence) and decode rows (one or a few of each of several sequences,
// where those that read the same object share its loads).
//
// The meaning is that of segment_attention.h. Keys and values are bf16; the rotated and scaled query and the
// weights are rounded to bf16 as well. Keys of a segment are taken in tiles of 64 rows, and every 512 rows of
// a segment (a split) have a softmax of their own; splits are then joined in order. Both boundaries lie at
// fixed rows of the segment, so a row's bytes depend on its own query and segments only: not on the call's
// other rows, not on whether splits run side by side, not on whether it came as a link row or a decode row.
//
// Launchers only enqueue. Plans are made on the host, once per request or batch, and uploaded by the caller.
#ifndef EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_CUDA_H_
#define EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_CUDA_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/api/gpu.h"
#include "kernels/rope/gpu_rope.h"
#include "kernels/segment_attention/segment_attention.h"

namespace epic {

constexpr uint32_t kAttentionSplitRows = 512;

// What both kinds of call have. Unless said otherwise pointers are device memory.
struct GpuAttentionArgs {
  const float* q = nullptr;               // [rows][q_stride]; heads*head_dim per row, not rotated
  size_t q_stride = 0;                    // elements
  const uint32_t* q_positions = nullptr;  // [rows]
  size_t rows = 0;
  uint32_t heads = 0;     // H; heads % kv_heads == 0, heads / kv_heads <= 64
  uint32_t kv_heads = 0;  // G
  uint32_t head_dim = 0;  // D, even, at most 128
  float scale = 0;        // 1/sqrt(head_dim)
  const KvSegment* segments =
      nullptr;                // [...]; dtype kBf16; fastest where k, v and head_stride*2 bytes are
                              // multiples of 16 and head_dim of 8. Pointers inside are device memory
  GpuRope rope;               // REQUIRES: every position and its rotation < max_position
  float* out = nullptr;       // [rows][out_stride]; a row that sees nothing gets zeros
  size_t out_stride = 0;      // elements
  void* workspace = nullptr;  // aligned to 16 bytes
  size_t workspace_bytes = 0;
};

// A run of keys with a softmax of its own.
struct AttentionSplit {
  uint32_t segment = 0;    // index into segments
  uint32_t first_row = 0;  // a multiple of kAttentionSplitRows
};

// The splits of a segment list, in order. `segments` is the host's copy; only `rows` is read.
std::vector<AttentionSplit> PlanLinkAttention(std::span<const KvSegment> segments);

enum class LinkAttentionMode : uint8_t {
  kAuto = 0,    // by the number of rows
  kSplits,      // splits side by side, then joined: for few rows; needs workspace
  kSequential,  // a block walks all splits of its rows: no workspace
};

struct LinkAttentionArgs {
  GpuAttentionArgs common;                 // rows of one sequence
  const AttentionSplit* splits = nullptr;  // [split_count], device memory
  uint32_t split_count = 0;
  LinkAttentionMode mode = LinkAttentionMode::kAuto;
};

// Bytes with which a call runs best, at most 32 MiB unless a single tile of rows needs more. With less (but
// enough for one tile of 64/(heads/kv_heads) rows) it runs in more launches and gives the same bytes.
size_t LinkAttentionWorkspaceBytes(const LinkAttentionArgs& args);

// Errors: kInvalid, kUnsupported, kWorkspace, kDevice.
GpuStatus LinkAttentionCuda(const LinkAttentionArgs& args, GpuStream stream);

// A row of queries that reads a split.
struct AttentionReader {
  uint32_t row = 0;      // of q, q_positions and out
  uint32_t segment = 0;  // its sequence's view of the object: index into segments
  uint32_t slot = 0;  // where the split's result goes; a row's slots are neighbours, in order of its splits
};

// Readers of one split of one object: they share its loads.
struct AttentionGroup {
  uint32_t first_reader = 0;
  uint32_t reader_count = 0;  // 1 .. 64/(heads/kv_heads)
  uint32_t first_row = 0;     // of the segment, a multiple of kAttentionSplitRows
};

struct DecodeAttentionPlan {
  std::vector<AttentionReader> readers;
  std::vector<AttentionGroup> groups;
  std::vector<uint32_t> row_slots;  // [rows + 1]: slots of row r are [row_slots[r], row_slots[r + 1])
};

// `segments` is the host's copy; row_segments[r] lists, in order, those that row r reads. Rows whose segments
// have the same k, v, row_positions, head_stride and rows are grouped. The plan stays right while `rows` of
// private segments grow within their last split. REQUIRES: heads_per_kv_head in [1, 64].
DecodeAttentionPlan PlanDecodeAttention(std::span<const KvSegment> segments,
                                        std::span<const std::vector<uint32_t>> row_segments,
                                        uint32_t heads_per_kv_head);

struct DecodeAttentionArgs {
  GpuAttentionArgs common;                   // rows of any sequences
  const AttentionReader* readers = nullptr;  // device memory, as are the next two
  const AttentionGroup* groups = nullptr;    // [group_count]
  const uint32_t* row_slots = nullptr;       // [rows + 1]
  uint32_t group_count = 0;
  uint32_t slot_count = 0;  // row_slots[rows]
};

size_t DecodeAttentionWorkspaceBytes(const DecodeAttentionArgs& args);

// Errors: kInvalid, kUnsupported, kWorkspace, kDevice.
GpuStatus DecodeAttentionCuda(const DecodeAttentionArgs& args, GpuStream stream);

}  // namespace epic

#endif  // EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_CUDA_H_
