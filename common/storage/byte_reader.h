// Bounded reading of our stored formats: each Take fails for good once a field does not fit, and the caller
// asks ok() before it believes anything. Bytes may be hostile. One thread at a time.
#ifndef EPIC_COMMON_STORAGE_BYTE_READER_H_
#define EPIC_COMMON_STORAGE_BYTE_READER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/bytes.h"
#include "common/base/digest.h"

namespace epic {

class ByteReader {
 public:
  explicit ByteReader(ByteSpan bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  // Everything was read and nothing was missing.
  bool AtEnd() const { return ok_ && bytes_.empty(); }

  // A field of a fixed size; zero after a failure.
  template <typename T>
  T Take() {
    const ByteSpan field = TakeBytes(sizeof(T));
    return ok_ ? LoadLittle<T>(field) : T{};
  }
  // The next `size` bytes, a view of the input; empty after a failure.
  ByteSpan TakeBytes(uint64_t size) {
    if (!ok_ || size > bytes_.size()) {
      ok_ = false;
      return {};
    }
    const ByteSpan field = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return field;
  }
  // A u32 length of at most `max_bytes`, then that many bytes.
  std::string TakeText(uint32_t max_bytes) {
    const uint32_t size = Take<uint32_t>();
    if (size > max_bytes) ok_ = false;
    return std::string(AsText(TakeBytes(size)));
  }
  // A u8 flag, 0 or 1, then the value (zero when the flag is 0).
  template <typename T>
  std::optional<T> TakeOptional() {
    const bool present = TakeBool();
    const T value = Take<T>();
    if (!present && value != T{}) Fail();
    return present ? std::optional<T>(value) : std::nullopt;
  }
  bool TakeBool() { return TakeUpTo<uint8_t>(1) == 1; }
  // A field whose value must not exceed `max`; also for enums, by their largest value.
  template <typename T>
  T TakeUpTo(T max) {
    const T value = Take<T>();
    if (value > max) ok_ = false;
    return ok_ ? value : T{};
  }
  Digest TakeDigest() {
    Digest digest;
    const ByteSpan field = TakeBytes(digest.bytes.size());
    if (ok_) std::memcpy(digest.bytes.data(), field.data(), field.size());
    return digest;
  }
  void Fail() { ok_ = false; }

 private:
  ByteSpan bytes_;
  bool ok_ = true;
};

}  // namespace epic

#endif  // EPIC_COMMON_STORAGE_BYTE_READER_H_
