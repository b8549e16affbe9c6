#include "services/model/utf8_stream.h"

#include <utility>

#include "services/model/utf8.h"

namespace epic {

std::string Utf8Stream::Append(std::string_view bytes) {
  std::string input = std::exchange(held_, {});
  input.append(bytes);
  std::string out;
  out.reserve(input.size());
  size_t position = 0;
  while (position < input.size()) {
    const Utf8Step step = DecodeUtf8(input, position);
    if (step.incomplete) {
      held_ = input.substr(position);
      break;
    }
    if (step.valid) {
      out.append(input, position, step.length);
    } else {
      AppendUtf8(0xFFFD, out);
    }
    position += step.length;
  }
  return out;
}

std::string Utf8Stream::Flush() {
  std::string out;
  // What is held is the well-formed head of one character, so one maximal subpart.
  if (!held_.empty()) AppendUtf8(0xFFFD, out);
  held_.clear();
  return out;
}

std::string ReplaceInvalidUtf8(std::string_view bytes) {
  Utf8Stream stream;
  std::string out = stream.Append(bytes);
  out += stream.Flush();
  return out;
}

}  // namespace epic
