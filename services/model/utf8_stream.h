// Cuts a stream of token bytes at character borders, so that no client ever sees half a character.
//
// One per output stream, one thread at a time. Holds back at most three bytes. Ill-formed bytes become
// U+FFFD, one per maximal subpart, as browsers and Python do.
#ifndef EPIC_SERVICES_MODEL_UTF8_STREAM_H_
#define EPIC_SERVICES_MODEL_UTF8_STREAM_H_

#include <string>
#include <string_view>

namespace epic {

class Utf8Stream {
 public:
  // Takes the next bytes and returns the text that is complete now: always well-formed UTF-8, maybe empty.
  std::string Append(std::string_view bytes);
  // The end: what is still held back, as U+FFFD (nothing when nothing is). The stream is empty again.
  std::string Flush();
  // Bytes held back: 0 to 3.
  size_t pending() const { return held_.size(); }

 private:
  std::string held_;
};

// The whole of `bytes` with every maximal ill-formed subpart replaced by U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view bytes);

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_UTF8_STREAM_H_
