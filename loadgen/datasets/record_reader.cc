#include "loadgen/datasets/record_reader.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <utility>

#include <zlib.h>

#include "common/base/bytes.h"
#include "common/status/status_macros.h"

namespace epic::loadgen {
namespace {

using nlohmann::json;

constexpr size_t kBufferBytes = 64 << 10;
constexpr int kEnd = -1;

bool IsSpace(int c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// Characters of a plain or gzip file, with the number of the line.
class CharSource {
 public:
  CharSource(gzFile file, uint64_t limit) : file_(file), limit_(limit) {}
  ~CharSource() { gzclose_r(file_); }
  CharSource(const CharSource&) = delete;
  CharSource& operator=(const CharSource&) = delete;

  // kEnd at the end and after an error.
  int Get() {
    if (next_ == size_ && !Fill()) return kEnd;
    const char c = buffer_[next_++];
    if (c == '\n') ++line_;
    return static_cast<unsigned char>(c);
  }
  int Peek() { return next_ == size_ && !Fill() ? kEnd : static_cast<unsigned char>(buffer_[next_]); }
  uint64_t line() const { return line_; }
  // Why there was no more to read; empty at a proper end.
  const std::string& error() const { return error_; }

 private:
  bool Fill() {
    if (!error_.empty()) return false;
    const int got = gzread(file_, buffer_.data(), static_cast<unsigned>(buffer_.size()));
    next_ = size_ = 0;
    int code = Z_OK;
    const char* reason = gzerror(file_, &code);
    if (got < 0 || (got == 0 && code != Z_OK && code != Z_STREAM_END)) {
      error_ = code == Z_BUF_ERROR ? "the compressed file is cut off" : std::string("cannot read: ") + reason;
      return false;
    }
    size_ = static_cast<size_t>(got);
    total_ += size_;
    if (total_ > limit_) {
      error_ = "the file has more than " + std::to_string(limit_) + " bytes";
      size_ = 0;
    }
    return size_ > 0;
  }

  const gzFile file_;
  const uint64_t limit_;
  std::array<char, kBufferBytes> buffer_;
  size_t next_ = 0, size_ = 0;
  uint64_t total_ = 0;
  uint64_t line_ = 1;
  std::string error_;
};

class RecordReaderImpl final : public RecordReader {
 public:
  RecordReaderImpl(std::string path, gzFile file, const RecordLimits& limits)
      : path_(std::move(path)), limits_(limits), source_(file, limits.total_bytes) {}

  absl::StatusOr<std::optional<DataRecord>> Next() override {
    if (!failed_.ok()) return failed_;
    absl::StatusOr<std::optional<DataRecord>> record = Read();
    if (!record.ok()) failed_ = record.status();
    return record;
  }

 private:
  enum class Form { kUnknown, kLines, kFirstElement, kNextElement, kOver };

  absl::Status Bad(uint64_t line, const std::string& what) const {
    return absl::InvalidArgumentError(path_ + " line " + std::to_string(line) + ": " + what);
  }

  void SkipSpace() {
    while (IsSpace(source_.Peek())) source_.Get();
  }

  absl::StatusOr<std::optional<DataRecord>> Read() {
    SkipSpace();
    if (form_ == Form::kUnknown) {
      if (source_.Peek() == '[') {
        source_.Get();
        form_ = Form::kFirstElement;
        SkipSpace();
      } else {
        form_ = Form::kLines;
      }
    }
    if (form_ != Form::kLines) {
      EPIC_RETURN_IF_ERROR(EnterElement());
    }
    const uint64_t line = source_.line();
    if (source_.Peek() == kEnd) {
      if (!source_.error().empty()) return Bad(line, source_.error());
      return std::optional<DataRecord>();
    }
    if (source_.Peek() != '{') return Bad(line, "a record must be a JSON object in { and }");
    std::string text;
    EPIC_RETURN_IF_ERROR(form_ == Form::kLines ? TakeLine(line, &text) : TakeObject(line, &text));
    return Parse(line, text);
  }

  // Inside the array: past the comma, or past the closing bracket to the end of the file.
  absl::Status EnterElement() {
    if (form_ == Form::kOver) return absl::OkStatus();
    const uint64_t line = source_.line();
    const int c = source_.Peek();
    if (c == ']') {
      source_.Get();
      SkipSpace();
      form_ = Form::kOver;
      if (source_.Peek() != kEnd) return Bad(source_.line(), "there is more behind the end of the array");
      return absl::OkStatus();
    }
    if (form_ == Form::kNextElement) {
      if (c == kEnd) return Bad(line, CutOff());
      if (c != ',') return Bad(line, "a comma or the end of the array must follow a record");
      source_.Get();
      SkipSpace();
    }
    if (source_.Peek() == kEnd) return Bad(source_.line(), CutOff());
    form_ = Form::kNextElement;
    return absl::OkStatus();
  }

  std::string CutOff() const { return source_.error().empty() ? "the file is cut off" : source_.error(); }

  absl::Status TooLong(uint64_t line) const {
    return Bad(line, "a record has more than " + std::to_string(limits_.record_bytes) + " bytes");
  }

  absl::Status TakeLine(uint64_t line, std::string* text) {
    for (int c = source_.Get(); c != '\n' && c != kEnd; c = source_.Get()) {
      if (text->size() >= limits_.record_bytes) return TooLong(line);
      text->push_back(static_cast<char>(c));
    }
    return source_.error().empty() ? absl::OkStatus() : Bad(line, source_.error());
  }

  absl::Status TakeObject(uint64_t line, std::string* text) {
    int depth = 0;
    bool in_string = false, escaped = false;
    do {
      const int c = source_.Get();
      if (c == kEnd) return Bad(line, CutOff());
      if (text->size() >= limits_.record_bytes) return TooLong(line);
      text->push_back(static_cast<char>(c));
      if (in_string) {
        in_string = c != '"' || escaped;
        escaped = c == '\\' && !escaped;
      } else if (c == '"') {
        in_string = true;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        --depth;
      }
    } while (depth > 0);
    return absl::OkStatus();
  }

  // The JSON library's exceptions end here. Its parser does not recurse.
  absl::StatusOr<std::optional<DataRecord>> Parse(uint64_t line, const std::string& text) const {
    try {
      DataRecord record{line, json::parse(text)};
      if (!record.value.is_object()) return Bad(line, "a record must be a JSON object");
      return std::optional<DataRecord>(std::move(record));
    } catch (const json::exception& error) {
      return Bad(line, std::string("no valid JSON: ") + error.what());
    }
  }

  const std::string path_;
  const RecordLimits limits_;
  CharSource source_;
  Form form_ = Form::kUnknown;
  absl::Status failed_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RecordReader>> RecordReader::Open(const std::string& path,
                                                                 const RecordLimits& limits) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::NotFoundError("there is no data file '" + path + "'");
  }
  if (!std::filesystem::is_regular_file(path, error)) {
    return absl::InvalidArgumentError("'" + path + "' is no file");
  }
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return absl::InvalidArgumentError("cannot read the data file '" + path + "'");
  return std::make_unique<RecordReaderImpl>(path, file, limits);
}

absl::StatusOr<Digest> FileDigest(const std::string& path) {
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Closer> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return absl::NotFoundError("cannot read the data file '" + path + "'");
  Sha256 sha;
  std::array<char, kBufferBytes> buffer;
  size_t got = 0;
  while ((got = std::fread(buffer.data(), 1, buffer.size(), file.get())) > 0) {
    sha.Update(std::string_view(buffer.data(), got));
  }
  if (std::ferror(file.get()) != 0) {
    return absl::InvalidArgumentError("cannot read the data file '" + path + "'");
  }
  return sha.Finish();
}

}  // namespace epic::loadgen
