// Writes GGUF files for tests, and says where each field lies so that mutation tests can reach every one.
// One thread at a time. Tests only.
#ifndef EPIC_SERVICES_MODEL_TESTING_GGUF_WRITER_H_
#define EPIC_SERVICES_MODEL_TESTING_GGUF_WRITER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/bytes.h"

namespace epic::testing {

class GgufWriter {
 public:
  // A field of the finished file: "version", "llama.block_count value", "token_embd.weight offset", ...
  struct Field {
    std::string name;
    uint64_t offset = 0;
    uint64_t size = 0;
  };

  void SetU32(std::string_view key, uint32_t value) { SetScalar<uint32_t>(key, 4, value); }
  void SetU64(std::string_view key, uint64_t value) { SetScalar<uint64_t>(key, 10, value); }
  void SetI32(std::string_view key, int32_t value) { SetScalar<int32_t>(key, 5, value); }
  void SetF32(std::string_view key, float value) { SetScalar<float>(key, 6, value); }
  void SetBool(std::string_view key, bool value) { SetScalar<uint8_t>(key, 7, value ? 1 : 0); }
  void SetString(std::string_view key, std::string_view value);
  void SetStrings(std::string_view key, std::span<const std::string> values);
  void SetI32s(std::string_view key, std::span<const int32_t> values) { SetScalars<int32_t>(key, 5, values); }
  void SetU32s(std::string_view key, std::span<const uint32_t> values) {
    SetScalars<uint32_t>(key, 4, values);
  }
  void SetF32s(std::string_view key, std::span<const float> values) { SetScalars<float>(key, 6, values); }
  // A value of any type with its encoding.
  void SetRaw(std::string_view key, uint32_t type, std::string bytes);
  // Removes a key or a tensor. REQUIRES: it is there.
  void Remove(std::string_view name);

  // dims[0] is the contiguous one.
  void AddTensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type, std::string bytes);
  // Writes `bytes` over those of a tensor from `at` on. REQUIRES: they are there.
  void Overwrite(std::string_view tensor, uint64_t at, std::string_view bytes);

  void set_version(uint32_t version) { version_ = version; }
  // Padding of tensors; writes general.alignment when it is not the default 32.
  void set_alignment(uint32_t alignment) { alignment_ = alignment; }

  // The file. `fields`, if not null, gets the place of every field of the header, and "data" for the tensors.
  std::string Finish(std::vector<Field>* fields = nullptr) const;

 private:
  struct Value {
    std::string key;
    uint32_t type;
    std::string bytes;
  };
  struct TensorEntry {
    std::string name;
    std::vector<uint64_t> dims;
    uint32_t type;
    std::string bytes;
  };

  template <typename T>
  void SetScalar(std::string_view key, uint32_t type, T value) {
    std::string bytes;
    AppendLittle<T>(&bytes, value);
    SetRaw(key, type, std::move(bytes));
  }
  template <typename T>
  void SetScalars(std::string_view key, uint32_t type, std::span<const T> values) {
    std::string bytes;
    AppendLittle<uint32_t>(&bytes, type);
    AppendLittle<uint64_t>(&bytes, values.size());
    for (T value : values) AppendLittle<T>(&bytes, value);
    SetRaw(key, 9, std::move(bytes));
  }

  uint32_t version_ = 3;
  uint32_t alignment_ = 32;
  std::vector<Value> values_;
  std::vector<TensorEntry> tensors_;
};

}  // namespace epic::testing

#endif  // EPIC_SERVICES_MODEL_TESTING_GGUF_WRITER_H_
