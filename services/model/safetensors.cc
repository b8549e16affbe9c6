#include "services/model/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/status/status_macros.h"
#include "services/model/json_file.h"
#include "services/model/model_error.h"

namespace epic {
namespace {

constexpr uint64_t kMaxHeaderBytes = 32ull << 20;
constexpr size_t kMaxDims = 8;

struct Dtype {
  std::string_view name;
  uint32_t bytes;
  std::optional<TensorType> type;  // those that weights may have
};
constexpr std::array kDtypes = {
    Dtype{"F32", 4, TensorType::kF32}, Dtype{"F16", 2, TensorType::kF16}, Dtype{"BF16", 2, TensorType::kBf16},
    Dtype{"F64", 8, std::nullopt},     Dtype{"I64", 8, std::nullopt},     Dtype{"U64", 8, std::nullopt},
    Dtype{"I32", 4, std::nullopt},     Dtype{"U32", 4, std::nullopt},     Dtype{"I16", 2, std::nullopt},
    Dtype{"U16", 2, std::nullopt},     Dtype{"I8", 1, std::nullopt},      Dtype{"U8", 1, std::nullopt},
    Dtype{"BOOL", 1, std::nullopt},    Dtype{"F8_E4M3", 1, std::nullopt}, Dtype{"F8_E5M2", 1, std::nullopt},
};

struct Entry {
  NamedTensor tensor;
  uint64_t begin = 0;
  uint64_t end = 0;
  bool wanted = true;
};

class Parser {
 public:
  Parser(const std::string& file, ByteSpan bytes, const std::vector<std::string_view>& ignorable)
      : file_(file), bytes_(bytes), ignorable_(ignorable) {}

  absl::StatusOr<std::vector<NamedTensor>> Run() {
    if (bytes_.size() < sizeof(uint64_t)) return Bad("header length", "the file is too short for one");
    const uint64_t header_size = LoadLittle<uint64_t>(bytes_);
    if (header_size > bytes_.size() - sizeof(uint64_t)) {
      return Bad("header length", absl::StrCat("is ", header_size, ", more than the file holds"));
    }
    const std::string_view text = AsText(bytes_.subspan(sizeof(uint64_t), header_size));
    EPIC_ASSIGN_OR_RETURN(const nlohmann::json header,
                          ParseJsonObject(file_, "header", text, kMaxHeaderBytes));
    data_ = bytes_.subspan(sizeof(uint64_t) + header_size);
    std::vector<Entry> entries;
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") continue;
      EPIC_ASSIGN_OR_RETURN(Entry entry, ReadEntry(name, value));
      entries.push_back(std::move(entry));
    }
    return Place(std::move(entries));
  }

 private:
  absl::Status Bad(std::string_view field, std::string_view what) const {
    return BadModelFile(file_, field, what);
  }

  absl::StatusOr<Entry> ReadEntry(const std::string& name, const nlohmann::json& value) const {
    const std::string field = absl::StrCat("tensor ", Quoted(name));
    if (!value.is_object()) return Bad(field, "must be an object");
    const JsonObject object(file_, field + " ", value);
    Entry entry;
    entry.tensor.name = name;
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> dtype_name, object.String("dtype"));
    if (!dtype_name.has_value()) return object.Bad("dtype", "is missing");
    const auto dtype = std::find_if(kDtypes.begin(), kDtypes.end(),
                                    [&](const Dtype& each) { return each.name == *dtype_name; });
    for (std::string_view ignorable : ignorable_) entry.wanted = entry.wanted && !name.ends_with(ignorable);
    if (dtype == kDtypes.end() || (entry.wanted && !dtype->type.has_value())) {
      return object.Bad("dtype", absl::StrCat("is ", Quoted(*dtype_name), "; EPIC reads F32, F16 and BF16"));
    }
    entry.tensor.type = dtype->type.value_or(TensorType::kF32);
    EPIC_RETURN_IF_ERROR(ReadNumbers(object, "shape", kMaxDims, &entry.tensor.dims));
    std::vector<uint64_t> offsets;
    EPIC_RETURN_IF_ERROR(ReadNumbers(object, "data_offsets", 2, &offsets));
    if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_.size()) {
      return object.Bad("data_offsets",
                        absl::StrCat("must be two rising offsets within ", data_.size(), " bytes"));
    }
    entry.begin = offsets[0];
    entry.end = offsets[1];
    EPIC_RETURN_IF_ERROR(CheckSize(object, dtype->bytes, entry));
    return entry;
  }

  absl::Status ReadNumbers(const JsonObject& object, std::string_view key, size_t max_count,
                           std::vector<uint64_t>* out) const {
    const nlohmann::json& array = object.Get(key);
    if (!array.is_array() || array.size() > max_count) {
      return object.Bad(key, absl::StrCat("must be an array of at most ", max_count, " integers"));
    }
    for (const nlohmann::json& value : array) {
      if (!value.is_number_unsigned()) return object.Bad(key, "must hold integers that are not negative");
      out->push_back(value.get<uint64_t>());
    }
    return absl::OkStatus();
  }

  absl::Status CheckSize(const JsonObject& object, uint64_t element_bytes, const Entry& entry) const {
    uint64_t size = element_bytes;
    for (uint64_t dim : entry.tensor.dims) {
      if (dim != 0 && size > std::numeric_limits<uint64_t>::max() / dim)
        return object.Bad("shape", "overflows");
      size *= dim;
    }
    if (size != entry.end - entry.begin) {
      return object.Bad("shape",
                        absl::StrCat("gives ", size, " bytes and data_offsets ", entry.end - entry.begin));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<NamedTensor>> Place(std::vector<Entry> entries) const {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    std::vector<NamedTensor> tensors;
    uint64_t end = 0;
    for (Entry& entry : entries) {
      const std::string field = absl::StrCat("tensor ", Quoted(entry.tensor.name), " data_offsets");
      if (entry.begin < end) return Bad(field, "the tensor overlaps another one");
      if (entry.begin > end) return Bad(field, absl::StrCat("leaves a hole before ", entry.begin));
      end = entry.end;
      entry.tensor.data = data_.subspan(entry.begin, entry.end - entry.begin);
      if (entry.wanted) tensors.push_back(std::move(entry.tensor));
    }
    if (end != data_.size()) {
      return Bad("data", absl::StrCat("has ", data_.size(), " bytes and the tensors ", end));
    }
    return tensors;
  }

  const std::string& file_;
  const ByteSpan bytes_;
  const std::vector<std::string_view>& ignorable_;
  ByteSpan data_;
};

}  // namespace

absl::StatusOr<std::vector<NamedTensor>> ParseSafetensors(const std::string& file, ByteSpan bytes,
                                                          const std::vector<std::string_view>& ignorable) {
  return Parser(file, bytes, ignorable).Run();
}

}  // namespace epic
