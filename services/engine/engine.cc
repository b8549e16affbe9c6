#include "services/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <iterator>
#include <thread>
#include <utility>

#include "common/base/mutex.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "kernels/api/thread_pool.h"
#include "kernels/matmul/matmul.h"
#include "services/engine/forward.h"
#include "services/engine/job.h"
#include "services/engine/layer_gate.h"
#include "services/engine/prefix_cache.h"
#include "services/engine/rope_frequencies.h"
#include "services/engine/step_builder.h"
#include "services/engine/validate.h"
#include "services/engine/weights.h"

namespace epic {
namespace {

// Advice for Retry-After: about one short answer.
constexpr int64_t kQueueRetryMs = 1000;
// How often a loop whose requests all wait for layers looks for cancelled ones.
constexpr int64_t kStalledLookMs = 10;

absl::Status Draining() {
  return Error(ErrorCode::kDraining,
               "the server is stopping: send the request again to another one, or later");
}

class EngineImpl final : public Engine {
 public:
  struct Parts {
    ModelConfig config;
    std::unique_ptr<ThreadPool> pool;
    std::unique_ptr<const Weights> weights;
    std::unique_ptr<const RopeTable> rope;
    ComputeFormat compute = ComputeFormat::kF32;
    uint64_t scratch_bytes = 0;  // with the rotary table: what all requests share
  };

  EngineImpl(Parts parts, const EngineOptions& options, const Clock* clock)
      : parts_(std::move(parts)),
        options_(options),
        clock_(clock),
        shape_{.layers = config().layers,
               .kv_heads = config().kv_heads,
               .head_dim = config().head_dim,
               .dtype = options.kv_dtype},
        limits_{.config = &config(), .shape = shape_, .max_sequences = options.max_sequences},
        prefix_cache_(options.prefix_cache_bytes),
        builder_(options.panel_tokens),
        forward_(&parts_.config, parts_.weights.get(), parts_.rope.get(), shape_,
                 options.panel_tokens + options.max_sequences, parts_.pool.get()),
        context_{.shape = shape_,
                 .config = &config(),
                 .clock = clock,
                 .prefix_cache = &prefix_cache_,
                 .sampling_scratch = &sampling_scratch_},
        signal_(std::make_shared<LayerSignal>([this] { OnLayer(); })),
        loop_([this] { Loop(); }) {}

  ~EngineImpl() override {
    Stop();
    signal_->Close();
  }

  const ModelConfig& config() const override { return parts_.config; }
  ComputeFormat compute() const override { return parts_.compute; }
  KvDtype kv_dtype() const override { return options_.kv_dtype; }

  KvLayout LayoutOf(uint32_t tokens, uint32_t first_position) const override {
    return {.layers = shape_.layers,
            .kv_heads = shape_.kv_heads,
            .head_dim = shape_.head_dim,
            .tokens = tokens,
            .dtype = shape_.dtype,
            .first_position = first_position};
  }

  absl::Status SubmitLink(LinkRequest request, std::shared_ptr<LinkSink> sink) override {
    EPIC_RETURN_IF_ERROR(ValidateLink(limits_, request));
    return Enqueue(MakeLinkJob(context_, std::move(request), std::move(sink)));
  }
  absl::Status SubmitCompile(CompileRequest request, std::shared_ptr<CompileSink> sink) override {
    EPIC_RETURN_IF_ERROR(ValidateCompile(limits_, request));
    return Enqueue(MakeCompileJob(context_, std::move(request), std::move(sink)));
  }
  absl::Status SubmitScore(ScoreRequest request, std::shared_ptr<ScoreSink> sink) override {
    EPIC_RETURN_IF_ERROR(ValidateScore(limits_, request));
    return Enqueue(MakeScoreJob(context_, std::move(request), std::move(sink)));
  }

  EngineGauges Gauges() const override {
    MutexLock lock(&mu_);
    EngineGauges gauges = gauges_;
    gauges.waiting = static_cast<uint32_t>(queue_.size());
    gauges.busy = !idle_ || !queue_.empty();
    gauges.last_progress_steady_ns = progress_ns_.load(std::memory_order_relaxed);
    for (const auto& job : queue_) gauges.held_objects += job->objects();
    return gauges;
  }

  void Stop() override {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
    }
    abandon_ = true;
    changed_.SignalAll();
    MutexLock lock(&join_mu_);
    if (loop_.joinable()) loop_.join();
  }

 private:
  // --- any thread
  absl::Status Enqueue(std::unique_ptr<Job> job) {
    const uint64_t room = options_.memory_bytes - parts_.scratch_bytes;
    if (job->bytes() > room) {
      return Error(ErrorCode::kInvalidRequest,
                   "the request needs " + std::to_string(job->bytes()) +
                       " bytes of keys and values and the engine has " + std::to_string(room) +
                       ": ask for fewer tokens or choices, or raise the engine's memory",
                   "max_tokens");
    }
    {
      MutexLock lock(&mu_);
      if (stopping_) return Draining();
      if (queue_.size() >= options_.max_queue) {
        return RetryLater(ErrorCode::kQueueFull,
                          std::to_string(queue_.size()) + " requests are waiting already: try again later",
                          kQueueRetryMs);
      }
      if (idle_ && queue_.empty()) Progress();  // the time without work is none without progress
      queue_.push_back(std::move(job));
      has_news_ = true;
    }
    changed_.Signal();
    return absl::OkStatus();
  }

  // A layer has come that a suspended request waits for.
  void OnLayer() {
    {
      MutexLock lock(&mu_);
      has_news_ = true;
    }
    changed_.Signal();
  }

  void Progress() { progress_ns_.store(clock_->SteadyNs(), std::memory_order_relaxed); }

  // --- the engine's thread
  void Loop() {
    while (WaitForWork()) {
      DropCancelled();
      Admit();
      WatchLayers();
      RunStep();
    }
    FinishAll();
    MutexLock lock(&mu_);
    idle_ = true;
  }

  // False when the engine stops.
  bool WaitForWork() {
    MutexLock lock(&mu_);
    while (!stopping_ && queue_.empty() && running_.empty()) {
      idle_ = true;
      changed_.Wait(&mu_);
    }
    // Nobody tells of cancellations: they are looked for.
    if (!stopping_ && !has_news_ && is_stalled_) changed_.WaitForMs(&mu_, kStalledLookMs);
    has_news_ = false;
    idle_ = false;
    Progress();
    return !stopping_;
  }

  // `step` is the one that runs, or null: owners whose job goes are set to null.
  void DropCancelled(Step* step = nullptr) {
    std::vector<std::unique_ptr<Job>> gone;
    {
      MutexLock lock(&mu_);
      for (auto job = queue_.begin(); job != queue_.end();) {
        if ((*job)->cancelled()) {
          gone.push_back(std::move(*job));
          job = queue_.erase(job);
        } else {
          ++job;
        }
      }
    }
    for (auto job = running_.begin(); job != running_.end();) {
      if ((*job)->cancelled()) {
        if (step != nullptr) Disown(step, job->get());
        gone.push_back(std::move(*job));
        job = running_.erase(job);
      } else {
        ++job;
      }
    }
    if (!gone.empty()) Retire(std::move(gone), CancelledError());
  }

  static void Disown(Step* step, const Job* job) {
    for (GroupOwner& owner : step->owners) {
      if (owner.job == job) owner.job = nullptr;
    }
  }

  // In order of arrival: what does not fit yet waits, and so does all behind it.
  void Admit() {
    while (true) {
      std::unique_ptr<Job> job;
      {
        MutexLock lock(&mu_);
        if (queue_.empty() || !Fits(*queue_.front())) break;
        job = std::move(queue_.front());
        queue_.pop_front();
      }
      job->Admit(context_);
      running_.push_back(std::move(job));
    }
    UpdateGauges();
  }

  bool Fits(const Job& job) const {
    uint64_t bytes = parts_.scratch_bytes + job.bytes();
    uint32_t sequences = job.sequences();
    uint32_t compiles = 0;
    uint64_t compile_rows = job.compile_rows();
    for (const auto& other : running_) {
      bytes += other->bytes();
      sequences += other->sequences();
      if (other->compile_rows() == 0) continue;
      ++compiles;
      compile_rows += other->panels().remaining();
    }
    if (bytes > options_.memory_bytes) return false;
    if (job.compile_rows() == 0) return sequences <= options_.max_sequences;
    // However many there are, short chunks that one step computes together run together.
    return compiles < options_.max_sequences || compile_rows <= options_.panel_tokens;
  }

  // Asks for the layers that suspended requests wait for, and ends those of which an object is lost.
  void WatchLayers() {
    uint32_t suspended = 0;
    bool is_one_lost = false;
    for (const auto& job : running_) {
      job->WatchLayers(context_, signal_);
      suspended += job->suspended() ? 1 : 0;
      is_one_lost = is_one_lost || !job->status().ok();
    }
    if (std::exchange(suspended_, suspended) != suspended) UpdateGauges();
    if (is_one_lost) RetireEnded();
  }

  // Has panels leave the step that come to a layer which is not there yet. A request's groups stay together.
  static void SuspendPanels(uint32_t layer, const Forward::ResidualFunction& residual, Step* step) {
    const Job* asked = nullptr;
    bool must_wait = false;
    for (size_t i = 0; i < step->owners.size(); ++i) {
      GroupOwner& owner = step->owners[i];
      if (owner.job == nullptr || owner.panel_rows == 0 || owner.suspended) continue;
      PanelRun& panels = owner.job->panels();
      if (std::exchange(asked, owner.job) != owner.job) must_wait = panels.MustWait(layer);
      if (!must_wait) continue;
      panels.Suspend(step->groups[i], layer, residual(i));
      owner.suspended = true;
    }
  }

  void RunStep() {
    Step step = builder_.Build(running_);
    is_stalled_ = step.groups.empty() && !running_.empty();
    if (step.groups.empty()) return;
    // A cancelled request is let go between two layers, as one is suspended; its neighbours' rows go on.
    const auto leave = [&](uint32_t layer, const Forward::ResidualFunction& residual,
                           std::vector<bool>* left) {
      Progress();
      DropCancelled(&step);
      SuspendPanels(layer, residual, &step);
      const bool all = abandon_.load(std::memory_order_relaxed);
      for (size_t i = 0; i < step.owners.size(); ++i) {
        (*left)[i] = all || step.owners[i].job == nullptr || step.owners[i].suspended;
      }
    };
    const bool ran = forward_.Run(step.groups, leave, [&](size_t group, uint32_t, std::span<float> logits) {
      Progress();
      const GroupOwner& owner = step.owners[group];
      if (owner.panel_rows > 0) {
        owner.job->OnPanelLogits(context_, logits);
      } else {
        owner.job->OnDecodeLogits(context_, owner.choice, logits);
      }
    });
    ++steps_;
    Progress();
    if (!ran) return;
    for (const GroupOwner& owner : step.owners) {
      if (!owner.ends_panel || owner.job == nullptr) continue;
      if (owner.job->panels().EndStep()) owner.job->OnPanel(context_);
    }
    RetireEnded();
  }

  void RetireEnded() {
    std::vector<std::unique_ptr<Job>> ended;
    for (auto job = running_.begin(); job != running_.end();) {
      if ((*job)->complete() || !(*job)->status().ok()) {
        ended.push_back(std::move(*job));
        job = running_.erase(job);
      } else {
        ++job;
      }
    }
    Retire(std::move(ended), absl::OkStatus());
  }

  // Frees each job's memory, then tells its sink. `status` where the job has no error of its own.
  void Retire(std::vector<std::unique_ptr<Job>> jobs, const absl::Status& status) {
    for (const auto& job : jobs) {
      job->Release();
      if (job->not_finite()) ++(job->compile_rows() > 0 ? not_finite_compiles_ : not_finite_outputs_);
    }
    UpdateGauges();
    for (const auto& job : jobs) {
      job->Finish(job->status().ok() ? status : job->status());
      Progress();
    }
  }

  void FinishAll() {
    std::vector<std::unique_ptr<Job>> jobs = std::move(running_);
    running_.clear();
    {
      MutexLock lock(&mu_);
      std::move(queue_.begin(), queue_.end(), std::back_inserter(jobs));
      queue_.clear();
    }
    Retire(std::move(jobs), Draining());
  }

  void UpdateGauges() {
    EngineGauges gauges;
    gauges.running = static_cast<uint32_t>(running_.size());
    for (const auto& job : running_) {
      gauges.private_rows += job->held_rows();
      gauges.private_bytes += job->held_bytes();
      gauges.held_objects += job->objects();
    }
    gauges.suspended = suspended_;
    gauges.prefix_cache_bytes = prefix_cache_.bytes();
    gauges.steps = steps_;
    gauges.not_finite_outputs = not_finite_outputs_;
    gauges.not_finite_compiles = not_finite_compiles_;
    MutexLock lock(&mu_);
    gauges_ = gauges;
  }

  // Constant after construction.
  const Parts parts_;
  const EngineOptions options_;
  const Clock* const clock_;
  const KvShape shape_;
  const RequestLimits limits_;

  // Synchronise themselves.
  std::atomic<bool> abandon_{false};
  std::atomic<int64_t> progress_ns_{0};
  mutable Mutex mu_;
  Mutex join_mu_;  // held while joining, so that Stop waits whoever calls it
  CondVar changed_;

  // Guarded by mu_.
  std::deque<std::unique_ptr<Job>> queue_ ABSL_GUARDED_BY(mu_);
  EngineGauges gauges_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool idle_ ABSL_GUARDED_BY(mu_) = true;       // the loop waits for work, or has ended
  bool has_news_ ABSL_GUARDED_BY(mu_) = false;  // a request or a layer, since the loop last looked

  // The engine's thread only.
  PrefixCache prefix_cache_;
  std::vector<float> sampling_scratch_;
  StepBuilder builder_;
  Forward forward_;
  const JobContext context_;
  std::vector<std::unique_ptr<Job>> running_;
  uint64_t steps_ = 0;
  uint64_t not_finite_outputs_ = 0;
  uint64_t not_finite_compiles_ = 0;
  bool is_stalled_ = false;  // all that runs waits for layers
  uint32_t suspended_ = 0;

  const std::shared_ptr<LayerSignal> signal_;
  std::thread loop_;  // last: it uses all of the above
};

absl::Status CheckOptions(const EngineOptions& options) {
  if (options.panel_tokens == 0 || options.max_sequences == 0 || options.max_queue == 0) {
    return Error(ErrorCode::kInvalidRequest,
                 "engine: panel_tokens, max_sequences and max_queue must be at least 1");
  }
  return absl::OkStatus();
}

// A query turns by its place behind the chunk plus the length of the chunk's compile prefix: below twice the
// context.
uint32_t RopePositions(const ModelConfig& config) { return 2 * config.context_length; }

absl::StatusOr<std::unique_ptr<const RopeTable>> MakeRope(const ModelConfig& config) {
  EPIC_ASSIGN_OR_RETURN(const std::vector<double> frequencies, RopeFrequencies(config.rope, config.head_dim));
  return std::make_unique<const RopeTable>(PairsOf(config.rope.pairing), frequencies, RopePositions(config),
                                           RopeScale(config.rope));
}

// The context length is a number of the model file that no bytes of the file back: the table that it asks for
// must fit before it is made.
absl::StatusOr<uint64_t> SharedBytes(const ModelConfig& config, const EngineOptions& options) {
  const uint64_t scratch = Forward::ScratchBytes(config, options.panel_tokens + options.max_sequences);
  const uint64_t table = RopeTable::BytesOf(config.head_dim / 2, RopePositions(config));
  if (scratch + table < options.memory_bytes) return scratch + table;
  return Error(ErrorCode::kInvalidRequest,
               "engine: memory of " + std::to_string(options.memory_bytes) + " bytes is not above the " +
                   std::to_string(scratch) + " bytes of a step's scratch and the " + std::to_string(table) +
                   " bytes of rotary embedding for a context of " + std::to_string(config.context_length) +
                   " tokens: raise it, or lower panel_tokens",
               "engine.memory_bytes");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(std::shared_ptr<const Model> model,
                                                       const EngineOptions& options, const Clock* clock,
                                                       PackProgress* progress) {
  EPIC_RETURN_IF_ERROR(CheckOptions(options));
  EngineImpl::Parts parts;
  const uint32_t threads =
      options.threads > 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  parts.pool = std::make_unique<ThreadPool>(threads);
  const DType best = BestMatMulFormat();
  parts.compute = options.compute.value_or(best == DType::kBf16 ? ComputeFormat::kBf16 : ComputeFormat::kF32);
  EPIC_ASSIGN_OR_RETURN(parts.scratch_bytes, SharedBytes(model->config(), options));
  EPIC_ASSIGN_OR_RETURN(parts.rope, MakeRope(model->config()));
  const DType format = parts.compute == ComputeFormat::kBf16 ? DType::kBf16 : DType::kF32;
  EPIC_ASSIGN_OR_RETURN(parts.weights,
                        PackWeights(*model, format, options.decode_weights, parts.pool.get(), progress));
  parts.config = model->config();
  return std::make_unique<EngineImpl>(std::move(parts), options, clock);
}

}  // namespace epic
