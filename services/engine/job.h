// One request inside the engine: what it still has to compute, and what to do with its logits.
//
// A job is made by the submitting thread, waits in the queue, and from Admit on belongs to the engine's
// thread. The scheduler (engine.cc) decides when its rows run; the job decides which rows they are.
#ifndef EPIC_SERVICES_ENGINE_JOB_H_
#define EPIC_SERVICES_ENGINE_JOB_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/cancel.h"
#include "common/base/clock.h"
#include "services/engine/engine.h"
#include "services/engine/forward.h"
#include "services/engine/kv_block.h"
#include "services/engine/prefix_cache.h"
#include "services/engine/row_plan.h"

namespace epic {

// What jobs use of the engine. Engine thread only, but for `clock`, `shape` and `config`.
struct JobContext {
  KvShape shape;
  const ModelConfig* config = nullptr;
  const Clock* clock = nullptr;
  PrefixCache* prefix_cache = nullptr;
  std::vector<float>* sampling_scratch = nullptr;
};

// Rows that run in ascending panels: a phase of a linked prompt, or a chunk behind its prefix.
struct PanelRun {
  std::vector<TokenId> tokens;  // one for each row of `block`
  std::shared_ptr<KvBlock> block;
  std::vector<LayerBand> bands = {LayerBand{}};
  uint32_t logits_rows = 0;  // how many of the last rows need logits
  uint32_t last_layer = kAllLayers;
  RowKind kind = RowKind::kPrompt;
  GroupObserver* observer = nullptr;
  bool is_shallow = false;  // few layers: its panels need not shrink beside decode rows
  // Rows that enter at resume_layer, with their residual stream: at most two runs of them, so that a panel
  // has few groups. Their keys and values of the layers below are in the block.
  uint32_t resume_layer = 0;
  std::vector<uint32_t> resumed;  // ascending
  std::vector<float> hidden;      // [resumed][hidden]
  uint32_t done = 0;              // rows of steps that have ended
  uint32_t running = 0;           // rows of the step that runs, behind those

  uint32_t remaining() const { return static_cast<uint32_t>(tokens.size()) - done; }
  // Adds the groups of the next `rows` rows, for the step that begins. REQUIRES: 0 < rows <= remaining().
  void Next(uint32_t rows, std::vector<RowGroup>* groups);
  // That step has ended.
  void EndStep() { done += std::exchange(running, 0); }
};

class Job {
 public:
  virtual ~Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Upper bounds, constant from the submission on.
  uint64_t bytes() const { return bytes_; }
  uint32_t sequences() const { return sequences_; }
  // Of a compile, its rows; of all else 0.
  uint32_t compile_rows() const { return compile_rows_; }
  uint32_t objects() const { return objects_; }
  bool cancelled() const { return cancel_.cancelled(); }

  // Plans the rows and allocates their memory.
  virtual void Admit(const JobContext& context) = 0;
  PanelRun& panels() { return panels_; }
  // Adds the decode rows of this step, and for each the number by which OnDecodeLogits will name it.
  virtual void AddDecodeRows(std::vector<RowGroup>* groups, std::vector<uint32_t>* choices) {}
  // Logits of panel rows, ascending; each row once.
  virtual void OnPanelLogits(const JobContext& context, std::span<float> logits) {}
  virtual void OnDecodeLogits(const JobContext& context, uint32_t choice, std::span<float> logits) {}
  // After every step in which panel rows of this job ran.
  virtual void OnPanel(const JobContext& context) {}
  virtual bool complete() const = 0;
  // Rows and bytes of private memory held now.
  virtual uint64_t held_rows() const { return panels_.block == nullptr ? 0 : panels_.block->capacity(); }
  virtual uint64_t held_bytes() const { return panels_.block == nullptr ? 0 : panels_.block->bytes(); }

  const absl::Status& status() const { return status_; }
  // True when the job failed for NaN or infinity.
  bool not_finite() const { return not_finite_; }
  // Lets go of all memory and objects.
  virtual void Release() { panels_ = {}; }
  // Tells the sink; the last call on a job.
  virtual void Finish(const absl::Status& status) = 0;

 protected:
  Job(CancelToken cancel, int64_t submitted_ns) : cancel_(std::move(cancel)), submitted_ns_(submitted_ns) {}
  // False when a logit, or a value of rows [first, first + rows) of `block`, is NaN or infinite: the job then
  // fails.
  bool CheckFinite(const KvShape& shape, const KvBlock& block, uint32_t first, uint32_t rows,
                   std::span<const float> logits);
  // Fails the job for values that are no numbers.
  void FailNotFinite(std::string_view message);

  const CancelToken cancel_;
  const int64_t submitted_ns_;
  uint64_t bytes_ = 0;
  uint32_t sequences_ = 1;
  uint32_t compile_rows_ = 0;
  uint32_t objects_ = 0;
  PanelRun panels_;
  absl::Status status_;

 private:
  bool not_finite_ = false;
};

// What the sink of a request hears that its caller cancelled.
absl::Status CancelledError();

std::unique_ptr<Job> MakeLinkJob(const JobContext& context, LinkRequest request,
                                 std::shared_ptr<LinkSink> sink);
std::unique_ptr<Job> MakeScoreJob(const JobContext& context, ScoreRequest request,
                                  std::shared_ptr<ScoreSink> sink);
std::unique_ptr<Job> MakeCompileJob(const JobContext& context, CompileRequest request,
                                    std::shared_ptr<CompileSink> sink);

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_JOB_H_
