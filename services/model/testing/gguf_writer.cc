#include "services/model/testing/gguf_writer.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace epic::testing {
namespace {

// Appends to a file and records the place of what it appends.
class Recorder {
 public:
  explicit Recorder(std::vector<GgufWriter::Field>* fields) : fields_(fields) {}

  template <typename T>
  void Put(std::string name, T value) {
    std::string bytes;
    AppendLittle<T>(&bytes, value);
    PutBytes(std::move(name), bytes);
  }
  void PutBytes(std::string name, std::string_view bytes) {
    if (fields_ != nullptr) fields_->push_back({std::move(name), out_.size(), bytes.size()});
    out_.append(bytes);
  }
  void PutString(const std::string& name, std::string_view text) {
    Put<uint64_t>(name + " length", text.size());
    PutBytes(name, text);
  }
  void Pad(uint64_t alignment) { out_.append((alignment - out_.size() % alignment) % alignment, '\0'); }
  std::string& out() { return out_; }

 private:
  std::vector<GgufWriter::Field>* const fields_;
  std::string out_;
};

void PutValue(Recorder* recorder, const std::string& key, uint32_t type, const std::string& bytes) {
  const ByteSpan span = AsBytes(bytes);
  if (type == 8) {
    recorder->PutBytes(key + " value length", std::string_view(bytes).substr(0, 8));
    recorder->PutBytes(key + " value", std::string_view(bytes).substr(8));
  } else if (type == 9 && bytes.size() >= 12) {
    recorder->Put(key + " element type", LoadLittle<uint32_t>(span, 0));
    recorder->Put(key + " element count", LoadLittle<uint64_t>(span, 4));
    recorder->PutBytes(key + " elements", std::string_view(bytes).substr(12));
  } else {
    recorder->PutBytes(key + " value", bytes);
  }
}

}  // namespace

void GgufWriter::SetRaw(std::string_view key, uint32_t type, std::string bytes) {
  for (Value& value : values_) {
    if (value.key != key) continue;
    value.type = type;
    value.bytes = std::move(bytes);
    return;
  }
  values_.push_back({std::string(key), type, std::move(bytes)});
}

void GgufWriter::SetString(std::string_view key, std::string_view value) {
  std::string bytes;
  AppendField(&bytes, value);
  SetRaw(key, 8, std::move(bytes));
}

void GgufWriter::SetStrings(std::string_view key, std::span<const std::string> values) {
  std::string bytes;
  AppendLittle<uint32_t>(&bytes, 8);
  AppendLittle<uint64_t>(&bytes, values.size());
  for (const std::string& value : values) AppendField(&bytes, value);
  SetRaw(key, 9, std::move(bytes));
}

void GgufWriter::Remove(std::string_view name) {
  const size_t removed = std::erase_if(values_, [&](const Value& value) { return value.key == name; }) +
                         std::erase_if(tensors_, [&](const TensorEntry& t) { return t.name == name; });
  EPIC_CHECK(removed == 1);
}

void GgufWriter::AddTensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type,
                           std::string bytes) {
  tensors_.push_back({std::string(name), std::move(dims), type, std::move(bytes)});
}

void GgufWriter::Overwrite(std::string_view tensor, uint64_t at, std::string_view bytes) {
  for (TensorEntry& entry : tensors_) {
    if (entry.name != tensor) continue;
    EPIC_CHECK(at + bytes.size() <= entry.bytes.size());
    entry.bytes.replace(at, bytes.size(), bytes);
    return;
  }
  EPIC_CHECK(false);
}

std::string GgufWriter::Finish(std::vector<Field>* fields) const {
  Recorder recorder(fields);
  std::vector<Value> values = values_;
  if (alignment_ != 32) {
    Value alignment{"general.alignment", 4, {}};
    AppendLittle<uint32_t>(&alignment.bytes, alignment_);
    values.push_back(std::move(alignment));
  }
  recorder.PutBytes("magic", "GGUF");
  recorder.Put<uint32_t>("version", version_);
  recorder.Put<uint64_t>("tensor_count", tensors_.size());
  recorder.Put<uint64_t>("metadata_kv_count", values.size());
  for (const Value& value : values) {
    recorder.PutString(value.key + " key", value.key);
    recorder.Put<uint32_t>(value.key + " type", value.type);
    PutValue(&recorder, value.key, value.type, value.bytes);
  }
  uint64_t offset = 0;
  for (const TensorEntry& tensor : tensors_) {
    recorder.PutString(tensor.name + " name", tensor.name);
    recorder.Put<uint32_t>(tensor.name + " n_dims", static_cast<uint32_t>(tensor.dims.size()));
    for (size_t d = 0; d < tensor.dims.size(); ++d) {
      recorder.Put<uint64_t>(tensor.name + " dim " + std::to_string(d), tensor.dims[d]);
    }
    recorder.Put<uint32_t>(tensor.name + " type", tensor.type);
    recorder.Put<uint64_t>(tensor.name + " offset", offset);
    offset = (offset + tensor.bytes.size() + alignment_ - 1) / alignment_ * alignment_;
  }
  recorder.Pad(alignment_);
  const uint64_t data_start = recorder.out().size();
  for (const TensorEntry& tensor : tensors_) {
    recorder.out().append(tensor.bytes);
    recorder.Pad(alignment_);
  }
  if (fields != nullptr) fields->push_back({"data", data_start, recorder.out().size() - data_start});
  return std::move(recorder.out());
}

}  // namespace epic::testing
