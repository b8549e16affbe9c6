// One step of the transformer over rows of any number of sequences: products run over all rows at once,
// attention over each sequence's own segment list.
//
// A row's bytes depend on its own sequence only, whatever shares the step. Owns the scratch of a step; engine
// thread only, which lends its pool. Knows nothing of requests, sampling or queues.
#ifndef EPIC_SERVICES_ENGINE_FORWARD_H_
#define EPIC_SERVICES_ENGINE_FORWARD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/storage/cache_id.h"
#include "kernels/api/thread_pool.h"
#include "kernels/rope/rope.h"
#include "services/engine/kv_block.h"
#include "services/engine/weights.h"
#include "services/model/model_config.h"

namespace epic {

// Which form of the weights multiplies a row: never a matter of what else is in its step.
enum class RowKind : uint8_t { kPrompt, kDecode };

// Consecutive rows of one sequence. They are written to rows [first_row, first_row + tokens.size()) of
// `block`, whose positions they have, and see the shared segments, `before` and the block's rows up to
// themselves.
struct RowGroup {
  std::span<const TokenId> tokens;
  KvBlock* block = nullptr;
  uint32_t first_row = 0;
  std::span<const SharedSegment> shared;  // ascending by position
  const KvBlock* before = nullptr;        // complete block read before `block`: the prompt's rows, or null
  uint32_t logits_rows = 0;               // how many of the last rows need logits
  RowKind kind = RowKind::kPrompt;
};

class Forward {
 public:
  // A step may hold up to max_rows rows. All arguments outlive this.
  Forward(const ModelConfig* config, const Weights* weights, const RopeTable* rope, const KvShape& shape,
          uint32_t max_rows, ThreadPool* pool);

  // Called for every row with logits, groups in order, rows ascending. The callee may change the logits.
  // `row` counts from 0 within the group's rows that need logits. Shape: [vocab].
  using LogitsFunction = std::function<void(size_t group, uint32_t row, std::span<float> logits)>;

  // Called before every layer with one flag for each group: it sets those of the groups that leave the step.
  // Their rows stay half written and get no logits; from then on their blocks and segments are not touched
  // and may be gone.
  using LeaveFunction = std::function<void(std::vector<bool>* left)>;

  // Runs all layers. False when no group stayed to the end. REQUIRES: groups of decode rows come first.
  bool Run(std::span<const RowGroup> groups, const LeaveFunction& leave, const LogitsFunction& on_logits);

  uint32_t max_rows() const { return max_rows_; }
  // Bytes of scratch that a Forward of this size holds.
  static uint64_t ScratchBytes(const ModelConfig& config, uint32_t max_rows);

 private:
  // Where a group's rows stand in the step.
  struct Placed {
    size_t begin = 0;
    size_t rows = 0;
  };

  bool DropRows(std::span<const RowGroup> groups, const LeaveFunction& leave);
  void Embed(std::span<const RowGroup> groups);
  void Layer(std::span<const RowGroup> groups, uint32_t layer);
  void LastLayer(std::span<const RowGroup> groups);
  void WriteKv(std::span<const RowGroup> groups, uint32_t layer, float* k, float* v, size_t stride);
  void Attend(std::span<const RowGroup> groups, uint32_t layer, const float* q, size_t q_stride);
  void OutputAndMlp(const LayerWeights& weights, size_t rows);
  void KeepLogitsRows(std::span<const RowGroup> groups);
  void Norm(const std::vector<float>& weight, size_t rows);
  void NormHeads(const std::vector<float>& weight, uint32_t heads, size_t rows, float* x, size_t stride);
  // Rows [first, first + rows) of the step, which stand at `x` and `out`, times `matrix`.
  struct ProductRows {
    const float* x = nullptr;
    size_t x_stride = 0;
    size_t first = 0;
    size_t rows = 0;
    float* out = nullptr;
    size_t out_stride = 0;
    const float* bias = nullptr;
    bool accumulate = false;
  };
  void Product(const ProductRows& rows, const Projection& matrix);
  void Head(std::span<const RowGroup> groups, const LogitsFunction& on_logits);

  const ModelConfig& config_;
  const Weights* const weights_;
  const RopeTable* const rope_;
  const KvShape shape_;
  const uint32_t max_rows_;
  ThreadPool* const pool_;

  std::vector<Placed> placed_;
  std::vector<bool> left_;     // one for each group
  size_t rows_ = 0;            // rows of the step that are still in work
  size_t decode_rows_ = 0;     // how many of them, from the first, are decode rows
  std::vector<float> x_;       // [max_rows][hidden], the residual stream
  std::vector<float> normed_;  // [max_rows][hidden]
  std::vector<float> qkv_;     // [max_rows][(H + 2G) * D]
  std::vector<float> mixed_;   // [max_rows][H * D], attention's output
  std::vector<float> gates_;   // [max_rows][2 * ffn]
  std::vector<float> logits_;  // [kHeadRows][vocab]
};

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_FORWARD_H_
