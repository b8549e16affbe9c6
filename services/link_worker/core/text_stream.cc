#include "services/link_worker/core/text_stream.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace epic {
namespace {

// Length of the longest end of `text` that is the beginning, but not all, of `stop`.
size_t HeldLength(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.ends_with(stop.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

std::string StopMatcher::Push(std::string_view text) {
  if (matched_) return {};
  held_ += text;
  size_t cut = std::string::npos, cut_end = std::string::npos;
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    EPIC_CHECK(!stop.empty());
    const size_t start = held_.find(stop);
    if (start == std::string::npos) {
      keep = std::max(keep, HeldLength(held_, stop));
      continue;
    }
    const size_t end = start + stop.size();
    if (end < cut_end || (end == cut_end && start < cut)) {
      cut = start;
      cut_end = end;
    }
  }
  matched_ = cut != std::string::npos;
  std::string out = held_.substr(0, matched_ ? cut : held_.size() - keep);
  held_.erase(0, matched_ ? held_.size() : out.size());
  return out;
}

std::string StopMatcher::Flush() { return std::exchange(held_, {}); }

ChoiceText::Piece ChoiceText::Push(std::string_view bytes, std::optional<LinkLogprob> logprob) {
  EPIC_CHECK(!stopped());
  const uint64_t start = decoded_;
  const std::string text = utf8_.Append(bytes);
  decoded_ += text.size();
  if (logprob.has_value()) {
    const uint64_t end = decoded_ + (utf8_.pending() > 0 ? 1 : 0);
    pending_.push_back({.start = start, .end = end, .logprob = *std::move(logprob)});
  }
  return Release(matcher_.Push(text));
}

ChoiceText::Piece ChoiceText::Flush() {
  EPIC_CHECK(!stopped());
  const std::string text = utf8_.Flush();
  decoded_ += text.size();
  std::string out = matcher_.Push(text);
  out += matcher_.Flush();
  return Release(std::move(out));
}

ChoiceText::Piece ChoiceText::Release(std::string text) {
  Piece piece;
  piece.text = std::move(text);
  released_ += piece.text.size();
  while (!pending_.empty()) {
    const Pending& first = pending_.front();
    // After a stop string, tokens that gave some of the text are reported and the rest is not.
    const bool out = stopped() ? first.start < released_ : first.end <= released_;
    if (!out) break;
    piece.logprobs.push_back(std::move(pending_.front().logprob));
    pending_.pop_front();
  }
  if (stopped()) pending_.clear();
  return piece;
}

}  // namespace epic
