// Text whose every character knows where it came from: the template, a user, or a context's place.
//
// A plain value, one thread at a time. A context is one character (the byte 0xFF, which UTF-8 never uses)
// that no operation regards as white space. All text but the placeholders is UTF-8.
#ifndef EPIC_SERVICES_MODEL_JINJA_MARKED_TEXT_H_
#define EPIC_SERVICES_MODEL_JINJA_MARKED_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace epic::jinja {

enum class Origin : uint8_t { kTemplate, kUser, kContext };

class MarkedText {
 public:
  // A stretch of equal origin that ends (exclusive) at byte `end`. Every context is a span of its own.
  struct Span {
    size_t end = 0;
    Origin origin = Origin::kTemplate;
    uint32_t context = 0;
  };
  static constexpr char kPlaceholder = '\xFF';

  MarkedText() = default;
  // REQUIRES: `text` is UTF-8 and `origin` is not kContext.
  explicit MarkedText(std::string_view text, Origin origin = Origin::kTemplate);
  static MarkedText Context(uint32_t context);

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Memory of a copy: what making one is paid with. Text of alternating origins takes more than its bytes.
  uint64_t cost() const { return bytes_.size() + spans_.size() * sizeof(Span); }
  // Empty when all is the template's.
  const std::vector<Span>& spans() const { return spans_; }

  void Append(const MarkedText& other) { Append(other, 0, other.size()); }
  // Appends bytes [begin, end) of `other`. REQUIRES: both on borders of characters.
  void Append(const MarkedText& other, size_t begin, size_t end);
  void Append(std::string_view text, Origin origin = Origin::kTemplate) { Add(text, origin, 0); }
  // Appends `text` with the origin that byte `at` of `model` has; a context is copied as it is.
  void AppendLike(std::string_view text, const MarkedText& model, size_t at);

  MarkedText Slice(size_t begin, size_t end) const;
  // The end of the character that starts at `begin`.
  size_t CharacterEnd(size_t begin) const;
  size_t CountCharacters() const;

  bool operator==(const MarkedText& other) const;

 private:
  void Add(std::string_view text, Origin origin, uint32_t context);
  const Span* SpanAt(size_t at) const;

  std::string bytes_;
  std::vector<Span> spans_;
};

}  // namespace epic::jinja

#endif  // EPIC_SERVICES_MODEL_JINJA_MARKED_TEXT_H_
