// The container of GGUF v2 and v3: metadata and the table of tensors, over the bytes of a file.
//
// Parse checks everything that needs no knowledge of models: every count, length, offset and product against
// the size of the file. It keeps views into the bytes, which must outlive the GgufFile, and allocates no more
// than a small multiple of the table's own size. Immutable after Parse and thread-safe. What the keys mean
// stands in gguf_model.h.
#ifndef EPIC_SERVICES_MODEL_GGUF_READER_H_
#define EPIC_SERVICES_MODEL_GGUF_READER_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "services/model/model.h"

namespace epic {

enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// A value of the metadata, checked but not decoded.
struct GgufValue {
  GgufType type = GgufType::kU8;
  GgufType element = GgufType::kU8;  // of an array; else as `type`
  uint64_t count = 1;                // elements of an array
  ByteSpan bytes;                    // the scalar, the string's text, or the array's encoded elements
};

struct GgufTensor {
  std::string name;
  TensorType type = TensorType::kF32;
  uint32_t n_dims = 0;                       // 1..4
  std::array<uint64_t, 4> dims{1, 1, 1, 1};  // dims[0] is contiguous
  ByteSpan data;
};

class GgufFile {
 public:
  // `file` is the name for messages. Errors: InvalidArgument naming the file and the field.
  static absl::StatusOr<GgufFile> Parse(std::string file, ByteSpan bytes);

  const std::string& file() const { return file_; }
  uint32_t version() const { return version_; }
  // In the order of the file.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  // Values by key. nullopt where the key is absent; InvalidArgument naming the key where it has another type
  // or is out of range. Integers of every width are accepted when they are not negative.
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  absl::StatusOr<std::optional<uint64_t>> Uint(std::string_view key) const;
  // As Uint; also an array of equal integers, as newer files hold one value per layer.
  absl::StatusOr<std::optional<uint64_t>> UniformUint(std::string_view key) const;
  absl::StatusOr<std::optional<double>> Float(std::string_view key) const;
  absl::StatusOr<std::optional<bool>> Bool(std::string_view key) const;
  absl::StatusOr<std::optional<std::string>> String(std::string_view key) const;
  absl::StatusOr<std::optional<std::vector<std::string>>> Strings(std::string_view key) const;
  absl::StatusOr<std::optional<std::vector<float>>> Floats(std::string_view key) const;
  absl::StatusOr<std::optional<std::vector<uint64_t>>> Uints(std::string_view key) const;

 private:
  class Parser;
  GgufFile() = default;
  const GgufValue* Find(std::string_view key) const;
  absl::Status WrongType(std::string_view key, const GgufValue& value, std::string_view wanted) const;

  std::string file_;
  uint32_t version_ = 0;
  std::map<std::string, GgufValue, std::less<>> values_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_GGUF_READER_H_
