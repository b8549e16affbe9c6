// Tickets over the standard streams of a test's processes: hexadecimal text. Tests only.
#ifndef EPIC_COMMON_TRANSPORT_UCX_TESTING_TEXT_DOOR_H_
#define EPIC_COMMON_TRANSPORT_UCX_TESTING_TEXT_DOOR_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace epic::transport {

inline std::string ToHex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += kDigits[static_cast<uint8_t>(byte) >> 4];
    text += kDigits[static_cast<uint8_t>(byte) & 15];
  }
  return text;
}

inline std::string FromHex(std::string_view text) {
  const auto value = [](char digit) { return digit <= '9' ? digit - '0' : digit - 'a' + 10; };
  std::string bytes;
  for (size_t at = 0; at + 1 < text.size(); at += 2) {
    bytes += static_cast<char>(value(text[at]) << 4 | value(text[at + 1]));
  }
  return bytes;
}

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_TESTING_TEXT_DOOR_H_
