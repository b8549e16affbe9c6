// Links a prompt and decodes its choices. The prompt's rows are one block that all choices read; each choice
// has its own decode rows.
#include <algorithm>
#include <optional>
#include <utility>

#include "services/engine/prompt_job.h"
#include "services/engine/sampler.h"

namespace epic {
namespace {

struct Choice {
  std::optional<Sampler> sampler;
  std::shared_ptr<KvBlock> rows;  // null once finished
  TokenId last = 0;               // sampled, its row not computed yet
  uint32_t tokens = 0;            // sampled so far
  bool finished = false;
};

class LinkJob final : public PromptJob {
 public:
  LinkJob(const JobContext& context, LinkRequest request, std::shared_ptr<LinkSink> sink)
      : PromptJob(context, std::move(request.tenant), request.cancel, std::move(request.pieces),
                  request.strategy, {}),
        sampling_(std::move(request.sampling)),
        max_tokens_(request.max_tokens),
        stop_tokens_(std::move(request.stop_tokens)),
        sink_(std::move(sink)),
        choices_(request.choices) {
    sequences_ = request.choices;
    bytes_ += context.shape.RowBytes() * uint64_t{request.choices} * (max_tokens_ - 1);
    std::sort(stop_tokens_.begin(), stop_tokens_.end());
  }

  void Admit(const JobContext& context) override {
    PromptJob::Admit(context);
    std::vector<uint32_t> positions(max_tokens_ - 1);
    for (uint32_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<uint32_t>(prompt().size()) + i;
    for (uint32_t i = 0; i < choices_.size(); ++i) {
      choices_[i].sampler.emplace(sampling_, i, prompt());
      choices_[i].rows = std::make_shared<KvBlock>(context.shape, positions);
    }
  }

  void AddDecodeRows(std::vector<RowGroup>* groups, std::vector<uint32_t>* numbers) override {
    for (uint32_t i = 0; i < choices_.size(); ++i) {
      const Choice& choice = choices_[i];
      if (choice.finished || choice.tokens == 0) continue;
      groups->push_back({.tokens = {&choice.last, 1},
                         .block = choice.rows.get(),
                         .first_row = choice.tokens - 1,
                         .bands = prompt_bands(),
                         .logits_rows = 1});
      numbers->push_back(i);
    }
  }

  void OnPanelLogits(const JobContext& context, std::span<float> logits) override {
    if (!CheckPanel(context, logits)) return;
    MarkLinked(context);
    sink_->OnLinked(stats_);
    for (uint32_t i = 0; i < choices_.size(); ++i) Take(context, i, logits);
  }

  void OnDecodeLogits(const JobContext& context, uint32_t choice, std::span<float> logits) override {
    const Choice& decoded = choices_[choice];
    if (!status_.ok()) return;
    if (!CheckFinite(context.shape, *decoded.rows, decoded.tokens - 1, 1, logits)) return;
    Take(context, choice, logits);
  }

  bool complete() const override { return finished_ == choices_.size(); }

  uint64_t held_rows() const override {
    uint64_t rows = PromptJob::held_rows();
    for (const Choice& choice : choices_) rows += choice.rows == nullptr ? 0 : choice.rows->capacity();
    return rows;
  }

  uint64_t held_bytes() const override {
    uint64_t bytes = PromptJob::held_bytes();
    for (const Choice& choice : choices_) bytes += choice.rows == nullptr ? 0 : choice.rows->bytes();
    return bytes;
  }

  void Release() override {
    PromptJob::Release();
    for (Choice& choice : choices_) choice.rows.reset();
  }

  void Finish(const absl::Status& status) override {
    if (lost_.has_value()) sink_->OnObjectLost(lost_->piece);
    const FinishReason reason =
        status.code() == absl::StatusCode::kCancelled ? FinishReason::kCancelled : FinishReason::kError;
    for (uint32_t i = 0; i < choices_.size(); ++i) {
      if (!choices_[i].finished) EndChoice(i, reason);
    }
    sink_->OnDone(status);
  }

 private:
  // Samples the next token of a choice and reports it.
  void Take(const JobContext& context, uint32_t index, std::span<const float> logits) {
    Choice& choice = choices_[index];
    const GeneratedToken token = choice.sampler->Next(logits, context.sampling_scratch);
    choice.last = token.token;
    ++choice.tokens;
    if (std::binary_search(stop_tokens_.begin(), stop_tokens_.end(), token.token)) {
      EndChoice(index, FinishReason::kStop);
    } else if (!sink_->OnToken(token)) {
      EndChoice(index, FinishReason::kStop);
    } else if (choice.tokens == max_tokens_) {
      EndChoice(index, FinishReason::kLength);
    }
  }

  void EndChoice(uint32_t index, FinishReason reason) {
    choices_[index].finished = true;
    choices_[index].rows.reset();
    ++finished_;
    sink_->OnFinish(index, reason);
  }

  const SamplingParams sampling_;
  const uint32_t max_tokens_;
  std::vector<TokenId> stop_tokens_;  // ascending
  const std::shared_ptr<LinkSink> sink_;
  std::vector<Choice> choices_;
  uint32_t finished_ = 0;
};

}  // namespace

std::unique_ptr<Job> MakeLinkJob(const JobContext& context, LinkRequest request,
                                 std::shared_ptr<LinkSink> sink) {
  return std::make_unique<LinkJob>(context, std::move(request), std::move(sink));
}

}  // namespace epic
