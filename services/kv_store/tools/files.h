// The files that the tools write and read as streams. One thread at a time. Not here: extents and tables.
#ifndef EPIC_SERVICES_KV_STORE_TOOLS_FILES_H_
#define EPIC_SERVICES_KV_STORE_TOOLS_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace epic::kv_store {

// A file that is there whole or not at all: it gets its name when it is published. Destroying one that was
// not removes what was written.
class OutputFile {
 public:
  // Errors of every call: those of FromErrno (common/status/errno_status.h), with the file's name.
  virtual ~OutputFile() = default;
  virtual absl::Status Append(std::string_view bytes) = 0;
  // Syncs the bytes, gives them their name and syncs the folder.
  virtual absl::Status Publish() = 0;
};

// Begins a file of mode 0600 under a temporary name in the folder of `path`. Errors: AlreadyExists, also of
// Publish(), when there is such a file and `overwrite` is false.
absl::StatusOr<std::unique_ptr<OutputFile>> CreateOutputFile(const std::string& path, bool overwrite);

class InputFile {
 public:
  // Errors: those of FromErrno; InvalidArgument when it is not a regular file.
  static absl::StatusOr<std::unique_ptr<InputFile>> Open(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // As it was when it was opened.
  uint64_t size() const { return size_; }
  // The next `bytes` bytes. Errors: those of FromErrno; DataLoss when the file ends before.
  absl::Status ReadWhole(char* to, uint64_t bytes);

 private:
  InputFile(std::string path, int fd, uint64_t size) : path_(std::move(path)), fd_(fd), size_(size) {}

  const std::string path_;
  const int fd_;
  const uint64_t size_;
  std::string buffer_;  // read ahead
  uint64_t used_ = 0;   // of the buffer
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TOOLS_FILES_H_
