// Keys of rows as people read them. A free function.
#ifndef EPIC_SERVICES_KV_STORE_TOOLS_HEX_H_
#define EPIC_SERVICES_KV_STORE_TOOLS_HEX_H_

#include <string>
#include <string_view>

namespace epic::kv_store {

// Two lower-case digits a byte.
inline std::string Hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    hex.push_back(kDigits[static_cast<unsigned char>(byte) >> 4]);
    hex.push_back(kDigits[static_cast<unsigned char>(byte) & 15]);
  }
  return hex;
}

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TOOLS_HEX_H_
