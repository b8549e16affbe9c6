#include "services/model/utf8.h"

#include <cstring>

#include "common/base/check.h"

namespace epic {
namespace {

// What the second byte may be, and how many bytes follow the first; length 0 for bytes that start nothing.
struct LeadByte {
  uint8_t length;
  uint8_t second_min;
  uint8_t second_max;
};

LeadByte ClassifyLead(uint8_t lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step DecodeUtf8(std::string_view text, size_t position) {
  const auto lead = static_cast<uint8_t>(text[position]);
  if (lead < 0x80) return {lead, 1, true, false};
  const LeadByte shape = ClassifyLead(lead);
  if (shape.length == 0) return {};
  char32_t code_point = lead & (0xFF >> (shape.length + 1));
  for (uint8_t i = 1; i < shape.length; ++i) {
    if (position + i >= text.size()) return {0xFFFD, i, false, true};
    const auto byte = static_cast<uint8_t>(text[position + i]);
    const uint8_t low = i == 1 ? shape.second_min : 0x80;
    const uint8_t high = i == 1 ? shape.second_max : 0xBF;
    if (byte < low || byte > high) return {0xFFFD, i, false, false};
    code_point = (code_point << 6) | (byte & 0x3F);
  }
  return {code_point, shape.length, true, false};
}

std::optional<size_t> FindInvalidUtf8(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    uint64_t eight = 0;
    if (position + sizeof(eight) <= text.size()) {
      std::memcpy(&eight, text.data() + position, sizeof(eight));
      if ((eight & 0x8080808080808080ull) == 0) {
        position += sizeof(eight);
        continue;
      }
    }
    const Utf8Step step = DecodeUtf8(text, position);
    if (!step.valid) return position;
    position += step.length;
  }
  return std::nullopt;
}

void AppendUtf8(char32_t code_point, std::string& out) {
  EPIC_CHECK(code_point <= 0x10FFFF && (code_point < 0xD800 || code_point > 0xDFFF));
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
    return;
  }
  if (code_point < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (code_point >> 6)));
  } else {
    if (code_point < 0x10000) {
      out.push_back(static_cast<char>(0xE0 | (code_point >> 12)));
    } else {
      out.push_back(static_cast<char>(0xF0 | (code_point >> 18)));
      out.push_back(static_cast<char>(0x80 | ((code_point >> 12) & 0x3F)));
    }
    out.push_back(static_cast<char>(0x80 | ((code_point >> 6) & 0x3F)));
  }
  out.push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
}

}  // namespace epic
