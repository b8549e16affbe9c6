#include "services/router/http/chat_sinks.h"

#include "common/http/error_answer.h"
#include "common/status/error.h"

namespace epic {
namespace {

absl::Status EndedBeforeStart() {
  return Error(ErrorCode::kInternal, "the answer ended before it began; this is our fault, please report it");
}

}  // namespace

// --- whole

void WholeChatSink::OnStart(const ChatStart& start) {
  start_ = start;
  choices_.resize(start.choices);
}

bool WholeChatSink::OnDelta(ChatDelta delta) {
  if (delta.choice < choices_.size()) {
    ChatChoice& choice = choices_[delta.choice];
    choice.text += delta.text;
    for (ChatLogprob& logprob : delta.logprobs) choice.logprobs.push_back(std::move(logprob));
  }
  return !exchange_->cancel_token().cancelled();
}

void WholeChatSink::OnFinish(uint32_t choice, const std::string& reason) {
  if (choice < choices_.size()) choices_[choice].finish_reason = reason;
}

void WholeChatSink::OnDone(const absl::Status& status, const ChatUsage& usage, const ChatTimings& timings) {
  if (!status.ok()) return exchange_->Answer(ErrorAnswer(status, options_.retry_after_ms));
  if (!start_.has_value()) return exchange_->Answer(ErrorAnswer(EndedBeforeStart()));
  HttpAnswer answer;
  answer.body = PrintCompletion(*start_, choices_, options_.logprobs, usage, timings);
  answer.headers.emplace_back("x-epic-linking", PrintLinkingHeader(start_->linking, usage.recomputed_tokens));
  exchange_->Answer(std::move(answer));
}

// --- stream

bool StreamChatSink::Send(const std::string& data) { return exchange_->Write("data: " + data + "\n\n"); }

void StreamChatSink::OnStart(const ChatStart& start) {
  start_ = start;
  HttpAnswer head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = {{"Cache-Control", "no-cache"},
                  {"X-Accel-Buffering", "no"},
                  {"x-epic-linking", PrintLinkingHeader(start.linking, start.planned_recomputed)}};
  exchange_->StartStream(std::move(head));
  for (uint32_t choice = 0; choice < start.choices; ++choice) {
    Send(PrintRoleChunk(start, choice, options_.include_usage));
  }
}

bool StreamChatSink::OnDelta(ChatDelta delta) {
  if (!start_.has_value()) return false;
  return Send(PrintDeltaChunk(*start_, delta, options_.logprobs, options_.include_usage));
}

void StreamChatSink::OnFinish(uint32_t choice, const std::string& reason) {
  if (!start_.has_value()) return;
  if (++finished_ < start_->choices) {
    Send(PrintFinishChunk(*start_, choice, reason, std::nullopt, options_.include_usage));
  } else {
    held_finish_.emplace(choice, reason);
  }
}

void StreamChatSink::OnDone(const absl::Status& status, const ChatUsage& usage, const ChatTimings& timings) {
  if (!start_.has_value()) {
    const absl::Status why = status.ok() ? EndedBeforeStart() : status;
    return exchange_->Answer(ErrorAnswer(why, options_.retry_after_ms));
  }
  if (!status.ok()) {
    Send(ErrorBody(status));
  } else {
    if (held_finish_.has_value()) {
      Send(PrintFinishChunk(*start_, held_finish_->first, held_finish_->second, timings,
                            options_.include_usage));
    }
    if (options_.include_usage) Send(PrintUsageChunk(*start_, usage, timings));
  }
  exchange_->Write("data: [DONE]\n\n");
  if (status.ok()) return exchange_->EndStream();
  exchange_->EndStream(InfoOf(CodeOf(status)).name, IsUnexpected(status) ? MessageOf(status) : std::string());
}

}  // namespace epic
