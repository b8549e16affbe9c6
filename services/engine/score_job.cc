// Links a prompt and runs a continuation teacher-forced: logits of many rows through the path of prompts.
#include <span>
#include <utility>

#include "services/engine/prompt_job.h"

namespace epic {
namespace {

class ScoreJob final : public PromptJob {
 public:
  ScoreJob(const JobContext& context, ScoreRequest request, std::shared_ptr<ScoreSink> sink)
      : PromptJob(context, std::move(request.tenant), request.cancel, std::move(request.pieces),
                  request.strategy,
                  std::span<const TokenId>(request.continuation).first(request.continuation.size() - 1)),
        expected_(static_cast<uint32_t>(request.continuation.size())),
        sink_(std::move(sink)) {}

  void OnPanelLogits(const JobContext& context, std::span<float> logits) override {
    if (!status_.ok() || !CheckPanel(context, logits)) return;
    if (next_ == 0) MarkLinked(context);
    sink_->OnLogits(next_++, logits);
  }

  bool complete() const override { return next_ == expected_; }
  void Finish(const absl::Status& status) override { sink_->OnDone(status, stats_); }

 private:
  const uint32_t expected_;
  uint32_t next_ = 0;
  const std::shared_ptr<ScoreSink> sink_;
};

}  // namespace

std::unique_ptr<Job> MakeScoreJob(const JobContext& context, ScoreRequest request,
                                  std::shared_ptr<ScoreSink> sink) {
  return std::make_unique<ScoreJob>(context, std::move(request), std::move(sink));
}

}  // namespace epic
