// Byte spans and little-endian field access. No ownership; every read is bounds-checked by its caller's span.
#ifndef EPIC_COMMON_BASE_BYTES_H_
#define EPIC_COMMON_BASE_BYTES_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/base/check.h"

namespace epic {

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;

static_assert(std::endian::native == std::endian::little,
              "EPIC's formats are little-endian; so are its hosts");

inline ByteSpan AsBytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

template <typename T>
ByteSpan AsBytes(std::span<const T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(values);
}

inline std::string_view AsText(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Reads a T at `offset`. REQUIRES: offset + sizeof(T) <= bytes.size(). Alignment does not matter.
template <typename T>
T LoadLittle(ByteSpan bytes, size_t offset = 0) {
  static_assert(std::is_trivially_copyable_v<T>);
  EPIC_CHECK(offset <= bytes.size() && sizeof(T) <= bytes.size() - offset);
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// Appends the little-endian bytes of `value`.
template <typename T>
void AppendLittle(std::string* out, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  out->append(reinterpret_cast<const char*>(&value), sizeof(T));
}

// Appends a u64 length, then the bytes: the field encoding of every hashed or stored record.
inline void AppendField(std::string* out, std::string_view field) {
  AppendLittle<uint64_t>(out, field.size());
  out->append(field);
}

}  // namespace epic

#endif  // EPIC_COMMON_BASE_BYTES_H_
