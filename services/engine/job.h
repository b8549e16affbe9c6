// One request inside the engine: what it still has to compute, and what to do with its logits.
//
// A job is made by the submitting thread, waits in the queue, and from Admit on belongs to the engine's
// thread. The scheduler (engine.cc) decides when its rows run; the job decides which rows they are.
#ifndef EPIC_SERVICES_ENGINE_JOB_H_
#define EPIC_SERVICES_ENGINE_JOB_H_

#include <cstdint>
#include <memory>
#include <optional>
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
#include "services/engine/panel_run.h"
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
  virtual uint64_t held_bytes() const {
    return (panels_.block == nullptr ? 0 : panels_.block->bytes()) + panels_.kept_bytes();
  }

  // Before each step: looks for the layers that rows wait for, and fails the job when an object of its prompt
  // is lost. `signal` is raised when there is something to look for.
  void WatchLayers(const JobContext& context, const std::shared_ptr<LayerSignal>& signal);
  // Whether it had rows to run then, and none of them could for want of a layer.
  bool suspended() const { return suspended_since_ns_.has_value(); }
  // How long it was so, up to now.
  int64_t suspended_ns(const Clock& clock) const;

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
  std::optional<LostObject> lost_;  // why the job failed, if that was it

 private:
  bool not_finite_ = false;
  std::optional<int64_t> suspended_since_ns_;
  int64_t suspended_ns_ = 0;  // before that
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
