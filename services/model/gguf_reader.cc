#include "services/model/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/status/status_macros.h"
#include "services/model/model_error.h"
#include "services/model/quantization.h"

namespace epic {
namespace {

constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = 1ull << 24;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxTensorNameBytes = 63;
// The smallest encodings: {u64 length, 1 byte key, u32 type, 1 byte value}; {u64 length, 1 byte name, u32
// n_dims, u64 dim, u32 type, u64 offset}.
constexpr uint64_t kMinValueBytes = 14;
constexpr uint64_t kMinTensorBytes = 33;

// Bytes of a scalar; 0 for strings, arrays and unknown types.
uint64_t ScalarBytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

bool IsKnown(uint32_t type) { return type <= static_cast<uint32_t>(GgufType::kF64); }

std::string_view NameOf(GgufType type) {
  constexpr std::array<std::string_view, 13> kNames = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                       "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

// The scalar as a non-negative integer; nullopt when it is negative or no integer.
std::optional<uint64_t> UintOf(GgufType type, ByteSpan bytes) {
  const auto not_negative = [](int64_t value) {
    return value < 0 ? std::nullopt : std::optional<uint64_t>(static_cast<uint64_t>(value));
  };
  switch (type) {
    case GgufType::kU8:
      return LoadLittle<uint8_t>(bytes);
    case GgufType::kU16:
      return LoadLittle<uint16_t>(bytes);
    case GgufType::kU32:
      return LoadLittle<uint32_t>(bytes);
    case GgufType::kU64:
      return LoadLittle<uint64_t>(bytes);
    case GgufType::kI8:
      return not_negative(LoadLittle<int8_t>(bytes));
    case GgufType::kI16:
      return not_negative(LoadLittle<int16_t>(bytes));
    case GgufType::kI32:
      return not_negative(LoadLittle<int32_t>(bytes));
    case GgufType::kI64:
      return not_negative(LoadLittle<int64_t>(bytes));
    default:
      return std::nullopt;
  }
}

}  // namespace

class GgufFile::Parser {
 public:
  Parser(GgufFile* out, ByteSpan bytes) : out_(*out), bytes_(bytes) {}

  absl::Status Run() {
    uint64_t n_tensors = 0;
    uint64_t n_values = 0;
    EPIC_RETURN_IF_ERROR(ReadHeader(&n_tensors, &n_values));
    for (uint64_t i = 0; i < n_values; ++i) EPIC_RETURN_IF_ERROR(ReadKeyAndValue(i));
    std::vector<Extent> extents;
    extents.reserve(n_tensors);
    out_.tensors_.reserve(n_tensors);
    for (uint64_t i = 0; i < n_tensors; ++i) EPIC_RETURN_IF_ERROR(ReadTensor(i, &extents));
    return PlaceTensors(std::move(extents));
  }

 private:
  // Where a tensor lies, relative to the data section, before the section's start is known.
  struct Extent {
    uint64_t offset;
    uint64_t size;
    size_t index;
  };

  absl::Status Bad(std::string_view field, std::string_view what) const {
    return BadModelFile(out_.file_, field, what);
  }
  uint64_t remaining() const { return bytes_.size() - position_; }

  template <typename T>
  absl::Status Read(std::string_view field, T* value) {
    if (remaining() < sizeof(T)) return Bad(field, "the file ends inside it");
    *value = LoadLittle<T>(bytes_, position_);
    position_ += sizeof(T);
    return absl::OkStatus();
  }

  absl::Status ReadBytes(std::string_view field, uint64_t size, ByteSpan* bytes) {
    if (size > remaining()) {
      return Bad(field, absl::StrCat("needs ", size, " bytes and the file has ", remaining(), " left"));
    }
    *bytes = bytes_.subspan(position_, size);
    position_ += size;
    return absl::OkStatus();
  }

  absl::Status ReadString(std::string_view field, ByteSpan* text) {
    uint64_t size = 0;
    EPIC_RETURN_IF_ERROR(Read(field, &size));
    return ReadBytes(field, size, text);
  }

  absl::Status ReadHeader(uint64_t* n_tensors, uint64_t* n_values) {
    ByteSpan magic;
    if (bytes_.size() < 4) return Bad("magic", "the file is too short for a GGUF header");
    EPIC_RETURN_IF_ERROR(ReadBytes("magic", 4, &magic));
    if (AsText(magic) != "GGUF") return Bad("magic", "is not 'GGUF': this is no GGUF file");
    uint32_t version = 0;
    EPIC_RETURN_IF_ERROR(Read("version", &version));
    if (version != 0 && (version & 0xFFFFu) == 0) {
      return Bad("version", "the file is big-endian; convert it to a little-endian GGUF file");
    }
    if (version != 2 && version != 3) {
      return Bad("version", absl::StrCat("is ", version, "; EPIC reads versions 2 and 3, convert it again"));
    }
    out_.version_ = version;
    EPIC_RETURN_IF_ERROR(Read("tensor_count", n_tensors));
    EPIC_RETURN_IF_ERROR(Read("metadata_kv_count", n_values));
    if (*n_values > remaining() / kMinValueBytes) {
      return Bad("metadata_kv_count", absl::StrCat("is ", *n_values, ", more than the file can hold"));
    }
    if (*n_tensors > (remaining() - *n_values * kMinValueBytes) / kMinTensorBytes) {
      return Bad("tensor_count", absl::StrCat("is ", *n_tensors, ", more than the file can hold"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadKeyAndValue(uint64_t index) {
    ByteSpan key_bytes;
    EPIC_RETURN_IF_ERROR(ReadString(absl::StrCat("metadata key ", index), &key_bytes));
    const std::string_view key = AsText(key_bytes);
    if (key.empty() || key.size() > kMaxKeyBytes) {
      return Bad(absl::StrCat("metadata key ", index), "must have 1 to 65535 bytes");
    }
    const std::string field = Quoted(key);
    uint32_t type = 0;
    EPIC_RETURN_IF_ERROR(Read(field, &type));
    if (!IsKnown(type)) return Bad(field, absl::StrCat("has the unknown value type ", type));
    GgufValue value;
    value.type = value.element = static_cast<GgufType>(type);
    EPIC_RETURN_IF_ERROR(ReadValue(field, &value));
    if (!out_.values_.emplace(std::string(key), value).second) return Bad(field, "stands in the file twice");
    return absl::OkStatus();
  }

  absl::Status ReadValue(std::string_view field, GgufValue* value) {
    switch (value->type) {
      case GgufType::kString:
        return ReadString(field, &value->bytes);
      case GgufType::kArray:
        return ReadArray(field, value);
      case GgufType::kBool: {
        EPIC_RETURN_IF_ERROR(ReadBytes(field, 1, &value->bytes));
        if (LoadLittle<uint8_t>(value->bytes) > 1) return Bad(field, "is a bool that is neither 0 nor 1");
        return absl::OkStatus();
      }
      default:
        return ReadBytes(field, ScalarBytes(value->type), &value->bytes);
    }
  }

  absl::Status ReadArray(std::string_view field, GgufValue* value) {
    uint32_t element = 0;
    EPIC_RETURN_IF_ERROR(Read(field, &element));
    EPIC_RETURN_IF_ERROR(Read(field, &value->count));
    if (!IsKnown(element)) return Bad(field, absl::StrCat("has the unknown element type ", element));
    value->element = static_cast<GgufType>(element);
    if (value->element == GgufType::kArray) return Bad(field, "is an array of arrays, which EPIC refuses");
    const bool strings = value->element == GgufType::kString;
    const uint64_t element_bytes = strings ? sizeof(uint64_t) : ScalarBytes(value->element);
    if (value->count > remaining() / element_bytes) {
      return Bad(field, absl::StrCat("has ", value->count, " elements, more than the file can hold"));
    }
    if (!strings) return ReadBytes(field, value->count * element_bytes, &value->bytes);
    const uint64_t start = position_;
    for (uint64_t i = 0; i < value->count; ++i) {
      ByteSpan text;
      EPIC_RETURN_IF_ERROR(ReadString(field, &text));
    }
    value->bytes = bytes_.subspan(start, position_ - start);
    return absl::OkStatus();
  }

  absl::Status ReadTensor(uint64_t index, std::vector<Extent>* extents) {
    ByteSpan name;
    EPIC_RETURN_IF_ERROR(ReadString(absl::StrCat("name of tensor ", index), &name));
    if (name.empty() || name.size() > kMaxTensorNameBytes) {
      return Bad(absl::StrCat("name of tensor ", index), "must have 1 to 63 bytes");
    }
    GgufTensor tensor;
    tensor.name = std::string(AsText(name));
    const std::string field = absl::StrCat("tensor ", Quoted(tensor.name));
    EPIC_RETURN_IF_ERROR(Read(absl::StrCat(field, " n_dims"), &tensor.n_dims));
    if (tensor.n_dims < 1 || tensor.n_dims > tensor.dims.size()) {
      return Bad(absl::StrCat(field, " n_dims"), absl::StrCat("is ", tensor.n_dims, "; 1 to 4 are allowed"));
    }
    for (uint32_t d = 0; d < tensor.n_dims; ++d) {
      EPIC_RETURN_IF_ERROR(Read(absl::StrCat(field, " dims"), &tensor.dims[d]));
    }
    uint32_t type_id = 0;
    EPIC_RETURN_IF_ERROR(Read(absl::StrCat(field, " type"), &type_id));
    const std::optional<TensorType> type = SupportedTensorType(type_id);
    if (!type.has_value()) {
      return Bad(absl::StrCat(field, " type"),
                 absl::StrCat("is ", NameOfTypeId(type_id), ", which EPIC does not read; it reads ",
                              SupportedTypeNames()));
    }
    tensor.type = *type;
    Extent extent{0, 0, out_.tensors_.size()};
    EPIC_RETURN_IF_ERROR(SizeOf(field, tensor, &extent.size));
    EPIC_RETURN_IF_ERROR(Read(absl::StrCat(field, " offset"), &extent.offset));
    extents->push_back(extent);
    if (!names_.insert(tensor.name).second) return Bad(field, "stands in the file twice");
    out_.tensors_.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  // Bytes of the tensor, which are at most the size of the file.
  absl::Status SizeOf(std::string_view field, const GgufTensor& tensor, uint64_t* size) const {
    const std::string dims_field = absl::StrCat(ToAbsl(field), " dims");
    const BlockShape block = BlockShapeOf(tensor.type);
    if (tensor.dims[0] % block.values != 0) {
      return Bad(dims_field, absl::StrCat("a row of ", tensor.dims[0], " values is no multiple of the ",
                                          block.values, " values of a block"));
    }
    const uint64_t row_blocks = tensor.dims[0] / block.values;
    uint64_t blocks = 1;
    const uint64_t max_blocks = bytes_.size() / block.bytes;
    for (uint32_t d = 0; d < tensor.n_dims; ++d) {
      const uint64_t factor = d == 0 ? row_blocks : tensor.dims[d];
      if (factor == 0) return Bad(dims_field, "has a dimension of 0");
      if (factor > max_blocks / blocks) return Bad(dims_field, "the tensor is larger than the file");
      blocks *= factor;
    }
    *size = blocks * block.bytes;
    return absl::OkStatus();
  }

  absl::Status PlaceTensors(std::vector<Extent> extents) {
    EPIC_ASSIGN_OR_RETURN(const std::optional<uint64_t> stated, out_.Uint("general.alignment"));
    const uint64_t alignment = stated.value_or(kDefaultAlignment);
    if (!std::has_single_bit(alignment) || alignment > kMaxAlignment) {
      return Bad("general.alignment", absl::StrCat("is ", alignment, "; it must be a power of two"));
    }
    const uint64_t data_start = (position_ + alignment - 1) / alignment * alignment;
    const uint64_t data_size = data_start < bytes_.size() ? bytes_.size() - data_start : 0;
    std::sort(extents.begin(), extents.end(),
              [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
    uint64_t end = 0;
    for (const Extent& extent : extents) {
      GgufTensor& tensor = out_.tensors_[extent.index];
      const std::string field = absl::StrCat("tensor ", Quoted(tensor.name), " offset");
      if (extent.offset % alignment != 0) {
        return Bad(field, absl::StrCat("is ", extent.offset, ", no multiple of the alignment ", alignment));
      }
      if (extent.offset > data_size || extent.size > data_size - extent.offset) {
        return Bad(field, absl::StrCat("the tensor's ", extent.size, " bytes at ", extent.offset,
                                       " pass the end of the data section of ", data_size, " bytes"));
      }
      if (extent.offset < end) return Bad(field, "the tensor overlaps another one");
      end = extent.offset + extent.size;
      tensor.data = bytes_.subspan(data_start + extent.offset, extent.size);
    }
    return absl::OkStatus();
  }

  GgufFile& out_;
  const ByteSpan bytes_;
  uint64_t position_ = 0;
  std::set<std::string> names_;
};

absl::StatusOr<GgufFile> GgufFile::Parse(std::string file, ByteSpan bytes) {
  GgufFile out;
  out.file_ = std::move(file);
  EPIC_RETURN_IF_ERROR(Parser(&out, bytes).Run());
  return out;
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

absl::Status GgufFile::WrongType(std::string_view key, const GgufValue& value,
                                 std::string_view wanted) const {
  std::string has(NameOf(value.type));
  if (value.type == GgufType::kArray) absl::StrAppend(&has, " of ", ToAbsl(NameOf(value.element)));
  return BadModelFile(file_, key, absl::StrCat("must be ", ToAbsl(wanted), " and is ", has));
}

absl::StatusOr<std::optional<uint64_t>> GgufFile::Uint(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<uint64_t>();
  const std::optional<uint64_t> result = UintOf(value->type, value->bytes);
  if (!result.has_value()) return WrongType(key, *value, "an integer that is not negative");
  return result;
}

absl::StatusOr<std::optional<uint64_t>> GgufFile::UniformUint(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr || value->type != GgufType::kArray) return Uint(key);
  EPIC_ASSIGN_OR_RETURN(const std::optional<std::vector<uint64_t>> values, Uints(key));
  if (!values.has_value() || values->empty()) return BadModelFile(file_, key, "is an empty array");
  for (uint64_t each : *values) {
    if (each != values->front()) {
      return BadModelFile(file_, key, "differs between layers; EPIC runs models whose layers are alike");
    }
  }
  return std::optional<uint64_t>(values->front());
}

absl::StatusOr<std::optional<double>> GgufFile::Float(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<double>();
  if (value->type == GgufType::kF32) return std::optional<double>(LoadLittle<float>(value->bytes));
  if (value->type == GgufType::kF64) return std::optional<double>(LoadLittle<double>(value->bytes));
  return WrongType(key, *value, "f32 or f64");
}

absl::StatusOr<std::optional<bool>> GgufFile::Bool(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<bool>();
  if (value->type != GgufType::kBool) return WrongType(key, *value, "bool");
  return std::optional<bool>(LoadLittle<uint8_t>(value->bytes) != 0);
}

absl::StatusOr<std::optional<std::string>> GgufFile::String(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (value->type != GgufType::kString) return WrongType(key, *value, "a string");
  return std::optional<std::string>(std::string(AsText(value->bytes)));
}

absl::StatusOr<std::optional<std::vector<std::string>>> GgufFile::Strings(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<std::string>>();
  if (value->type != GgufType::kArray || value->element != GgufType::kString) {
    return WrongType(key, *value, "an array of strings");
  }
  std::vector<std::string> texts;
  texts.reserve(value->count);
  for (uint64_t i = 0, position = 0; i < value->count; ++i) {
    const uint64_t size = LoadLittle<uint64_t>(value->bytes, position);
    texts.emplace_back(AsText(value->bytes.subspan(position + sizeof(uint64_t), size)));
    position += sizeof(uint64_t) + size;
  }
  return std::optional<std::vector<std::string>>(std::move(texts));
}

absl::StatusOr<std::optional<std::vector<float>>> GgufFile::Floats(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<float>>();
  if (value->type != GgufType::kArray || value->element != GgufType::kF32) {
    return WrongType(key, *value, "an array of f32");
  }
  std::vector<float> values(value->count);
  if (!values.empty()) std::memcpy(values.data(), value->bytes.data(), value->bytes.size());
  return std::optional<std::vector<float>>(std::move(values));
}

absl::StatusOr<std::optional<std::vector<uint64_t>>> GgufFile::Uints(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<uint64_t>>();
  if (value->type != GgufType::kArray) return WrongType(key, *value, "an array of integers");
  std::vector<uint64_t> values;
  const uint64_t size = ScalarBytes(value->element);
  if (size == 0) return WrongType(key, *value, "an array of integers");
  values.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<uint64_t> element = UintOf(value->element, value->bytes.subspan(i * size, size));
    if (!element.has_value()) return WrongType(key, *value, "an array of integers that are not negative");
    values.push_back(*element);
  }
  return std::optional<std::vector<uint64_t>>(std::move(values));
}

}  // namespace epic
