// Turns the tokens of one choice into text that a client may see: whole characters, no stop string and no
// head of one, with the log-probabilities of the tokens whose text ended.
//
// One per choice, one thread at a time. Knows no engine and no sink.
#ifndef EPIC_SERVICES_LINK_WORKER_CORE_TEXT_STREAM_H_
#define EPIC_SERVICES_LINK_WORKER_CORE_TEXT_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/model/utf8_stream.h"
#include "services/worker_api/linker.h"

namespace epic {

// Finds stop strings in a stream, however it is cut. The match that ends first counts; of those that end
// together, the longest. Holds back at most the longest stop string less one byte.
class StopMatcher {
 public:
  // REQUIRES: no stop string is empty; each is well-formed UTF-8.
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Takes text and returns what is certainly before any stop string. After a match: nothing, for ever.
  std::string Push(std::string_view text);
  // The end: what is still held back. Nothing after a match.
  std::string Flush();
  bool matched() const { return matched_; }

 private:
  const std::vector<std::string> stops_;
  std::string held_;
  bool matched_ = false;
};

// REQUIRES of both calls: not stopped().
class ChoiceText {
 public:
  struct Piece {
    std::string text;
    std::vector<LinkLogprob> logprobs;
    bool empty() const { return text.empty() && logprobs.empty(); }
  };

  explicit ChoiceText(const std::vector<std::string>& stops) : matcher_(stops) {}
  // Takes a token's raw bytes and, if they were asked for, its log-probabilities.
  Piece Push(std::string_view bytes, std::optional<LinkLogprob> logprob);
  // The end of the choice: all that was held.
  Piece Flush();
  // A stop string was matched: the choice is over.
  bool stopped() const { return matcher_.matched(); }

 private:
  // Places are offsets in the decoded text. A token begins at `start` and its text is out once `end` bytes
  // are.
  struct Pending {
    uint64_t start = 0;
    uint64_t end = 0;
    LinkLogprob logprob;
  };
  Piece Release(std::string text);

  Utf8Stream utf8_;
  StopMatcher matcher_;
  uint64_t decoded_ = 0;
  uint64_t released_ = 0;
  std::deque<Pending> pending_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_LINK_WORKER_CORE_TEXT_STREAM_H_
