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
#include "kernels/segment_attention/segment_attention.h"
#include "services/engine/kv_block.h"
#include "services/engine/weights.h"
#include "services/model/model_config.h"

namespace epic {

// What a row is computed with: never a matter of what else is in its step.
enum class RowKind : uint8_t {
  kPrompt,  // full weights
  kDecode,  // quantised weights, attention that reads in place
  kProbe,   // quantised weights, attention of prompt rows: rows of which nothing is kept
};
inline constexpr uint32_t kAllLayers = UINT32_MAX;

// What rows see in some layers, beside the rows of their own block up to themselves.
struct LayerBand {
  uint32_t end_layer = kAllLayers;        // exclusive
  std::vector<SharedSegment> shared;      // ascending by position
  std::shared_ptr<const KvBlock> before;  // complete block read before the own one, or null
  uint32_t own_first_row = 0;             // rows of the own block before it are hidden: `before` has them
};

// Watches a group on its way through the layers. Called on the engine's thread; must not block.
class GroupObserver {
 public:
  virtual ~GroupObserver() = default;
  // Before each layer that the rows enter: their residual stream. Shape: [rows][hidden]. first_row: of the
  // block.
  virtual void OnEnter(uint32_t layer, uint32_t first_row, std::span<const float> x) = 0;
  // Whether OnQueries is to be called in a layer.
  virtual bool WantsQueries(uint32_t layer) const = 0;
  // What the layer's attention is about to read, but for its output.
  virtual void OnQueries(uint32_t layer, const SegmentAttentionArgs& args, ThreadPool* pool) = 0;
};

// Consecutive rows of one sequence. They are written to rows [first_row, first_row + tokens.size()) of
// `block`, whose positions they have, and see what `bands` say and the block's rows up to themselves. Several
// groups of a step may be of one sequence: a later group's rows see an earlier one's.
struct RowGroup {
  std::span<const TokenId> tokens;
  KvBlock* block = nullptr;  // has layers [0, last_layer]
  uint32_t first_row = 0;
  std::span<const LayerBand> bands;  // by layer, ascending, the last ending above last_layer; or none
  uint32_t logits_rows = 0;          // how many of the last rows need logits
  RowKind kind = RowKind::kPrompt;
  // Not 0: the rows enter there, with the residual stream `hidden`, and not at the embedding. Shape:
  // [rows][hidden].
  uint32_t first_layer = 0;
  const float* hidden = nullptr;
  // Not kAllLayers: the rows leave there, once their keys, values and queries are computed. No logits then.
  uint32_t last_layer = kAllLayers;
  GroupObserver* observer = nullptr;  // or null

  const LayerBand& BandAt(uint32_t layer) const;
};

class Forward {
 public:
  // A step may hold up to max_rows rows. All arguments outlive this.
  Forward(const ModelConfig* config, const Weights* weights, const RopeTable* rope, const KvShape& shape,
          uint32_t max_rows, ThreadPool* pool);

  // Called for every row with logits, groups in order, rows ascending. The callee may change the logits.
  // `row` counts from 0 within the group's rows that need logits. Shape: [vocab].
  using LogitsFunction = std::function<void(size_t group, uint32_t row, std::span<float> logits)>;

  // The residual stream of a group that is in work. Shape: [rows][hidden].
  using ResidualFunction = std::function<std::span<const float>(size_t group)>;
  // Called before every layer with one flag for each group: it sets those of the groups that leave the step.
  // Their rows have been through the layers before this one and get no logits; what they enter this one with
  // is `residual` of them, during the call. From then on their blocks and segments are not touched and may be
  // gone.
  using LeaveFunction =
      std::function<void(uint32_t layer, const ResidualFunction& residual, std::vector<bool>* left)>;

  // Runs all layers that some group is in. False when every group was made to leave. REQUIRES: groups of
  // prompt rows come last.
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
  // A buffer whose rows move with those of the step.
  struct RowBuffer {
    float* data;
    size_t stride;
  };

  bool DropGroups(std::span<const RowGroup> groups, uint32_t layer, const LeaveFunction& leave);
  void Enter(std::span<const RowGroup> groups, uint32_t layer);
  void EnterGroup(const RowGroup& group, float* x);
  void OrderGroups(std::span<const RowGroup> groups);
  uint32_t LastLayerOf(const RowGroup& group) const;
  void Layer(std::span<const RowGroup> groups, uint32_t layer);
  void LastLayer(std::span<const RowGroup> groups);
  template <typename RowsOf>
  void KeepRows(std::span<const RowGroup> groups, const RowsOf& rows_of, std::span<const RowBuffer> buffers);
  void Observe(std::span<const RowGroup> groups, uint32_t layer, const float* q, size_t q_stride);
  SegmentAttentionArgs AttentionOf(const RowGroup& group, const Placed& placed, uint32_t layer,
                                   const float* q, size_t q_stride);
  void WriteKv(std::span<const RowGroup> groups, uint32_t layer, float* k, float* v, size_t stride);
  void Attend(std::span<const RowGroup> groups, uint32_t layer, const float* q, size_t q_stride);
  void OutputAndMlp(const LayerWeights& weights, size_t rows);
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
  void Head(const LogitsFunction& on_logits);

  const ModelConfig& config_;
  const Weights* const weights_;
  const RopeTable* const rope_;
  const KvShape shape_;
  const uint32_t max_rows_;
  ThreadPool* const pool_;

  std::vector<Placed> placed_;       // one for each group
  std::vector<bool> left_;           // likewise
  std::vector<size_t> order_;        // groups with rows in work, ascending; so stand their rows
  std::vector<KvSegment> segments_;  // of the attention that runs
  std::vector<std::vector<KvSegment>> group_segments_;  // what each group of a layer reads
  size_t rows_ = 0;                                     // rows of the step that are still in work
  size_t quantized_rows_ = 0;                           // how many of them, from the first, are not kPrompt
  std::vector<float> x_;                                // [max_rows][hidden], the residual stream
  std::vector<float> normed_;                           // [max_rows][hidden]
  std::vector<float> qkv_;                              // [max_rows][(H + 2G) * D]
  std::vector<float> mixed_;                            // [max_rows][H * D], attention's output
  std::vector<float> gates_;                            // [max_rows][2 * ffn]
  std::vector<float> logits_;                           // [kHeadRows][vocab]
};

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_FORWARD_H_
