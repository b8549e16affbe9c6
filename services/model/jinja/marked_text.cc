#include "services/model/jinja/marked_text.h"

#include <algorithm>

#include "services/model/utf8.h"

namespace epic::jinja {

MarkedText::MarkedText(std::string_view text, Origin origin) { Add(text, origin, 0); }

MarkedText MarkedText::Context(uint32_t context) {
  MarkedText text;
  text.Add(std::string_view(&kPlaceholder, 1), Origin::kContext, context);
  return text;
}

void MarkedText::Add(std::string_view text, Origin origin, uint32_t context) {
  if (text.empty()) return;
  const size_t before = bytes_.size();
  bytes_.append(text);
  if (spans_.empty()) {
    if (origin == Origin::kTemplate) return;
    if (before > 0) spans_.push_back({before, Origin::kTemplate, 0});
  }
  if (!spans_.empty() && spans_.back().origin == origin && origin != Origin::kContext) {
    spans_.back().end = bytes_.size();
  } else {
    spans_.push_back({bytes_.size(), origin, context});
  }
}

const MarkedText::Span* MarkedText::SpanAt(size_t at) const {
  if (spans_.empty()) return nullptr;
  const auto it = std::upper_bound(spans_.begin(), spans_.end(), at,
                                   [](size_t position, const Span& span) { return position < span.end; });
  return &*it;
}

void MarkedText::Append(const MarkedText& other, size_t begin, size_t end) {
  if (begin >= end) return;
  const std::string_view bytes = other.bytes_;
  if (other.spans_.empty()) {
    Add(bytes.substr(begin, end - begin), Origin::kTemplate, 0);
    return;
  }
  const Span* span = other.SpanAt(begin);
  while (begin < end) {
    const size_t stop = std::min(end, span->end);
    Add(bytes.substr(begin, stop - begin), span->origin, span->context);
    begin = stop;
    ++span;
  }
}

void MarkedText::AppendLike(std::string_view text, const MarkedText& model, size_t at) {
  const Span* span = model.SpanAt(at);
  if (span == nullptr) {
    Add(text, Origin::kTemplate, 0);
  } else if (span->origin == Origin::kContext) {
    Add(std::string_view(&kPlaceholder, 1), Origin::kContext, span->context);
  } else {
    Add(text, span->origin, 0);
  }
}

MarkedText MarkedText::Slice(size_t begin, size_t end) const {
  MarkedText out;
  out.Append(*this, begin, end);
  return out;
}

size_t MarkedText::CharacterEnd(size_t begin) const {
  return bytes_[begin] == kPlaceholder ? begin + 1 : begin + Utf8Length(bytes_[begin]);
}

size_t MarkedText::CountCharacters() const {
  size_t count = 0;
  for (const char byte : bytes_) count += (static_cast<unsigned char>(byte) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

bool MarkedText::operator==(const MarkedText& other) const {
  if (bytes_ != other.bytes_) return false;
  if (bytes_.find(kPlaceholder) == std::string::npos) return true;
  std::vector<uint32_t> mine;
  std::vector<uint32_t> theirs;
  for (const Span& span : spans_) {
    if (span.origin == Origin::kContext) mine.push_back(span.context);
  }
  for (const Span& span : other.spans_) {
    if (span.origin == Origin::kContext) theirs.push_back(span.context);
  }
  return mine == theirs;
}

}  // namespace epic::jinja
