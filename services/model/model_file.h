// A file of a model, read whole into memory, and what tells whether files changed meanwhile.
//
// Read, not mapped: a mapping follows a file that somebody changes, and a page that is gone ends the process.
// What is parsed, digested and packed are the very bytes read here, whatever happens to the file afterwards.
// Shared by whoever reads it; immutable and thread-safe.
#ifndef EPIC_SERVICES_MODEL_MODEL_FILE_H_
#define EPIC_SERVICES_MODEL_MODEL_FILE_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/bytes.h"

namespace epic {

class ModelFile {
 public:
  // Errors: NotFound; PermissionDenied; InvalidArgument when it is not a regular file, is empty, has more
  // than `max_bytes`, or yields fewer bytes than it has (somebody cut it); ResourceExhausted when it does not
  // fit into memory.
  static absl::StatusOr<std::shared_ptr<const ModelFile>> Read(
      const std::string& path, uint64_t max_bytes = std::numeric_limits<uint64_t>::max());
  ~ModelFile();
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  const std::string& path() const { return path_; }
  // Aligned to a page.
  ByteSpan bytes() const { return bytes_; }

 private:
  ModelFile(std::string path, ByteSpan bytes) : path_(std::move(path)), bytes_(bytes) {}

  const std::string path_;
  const ByteSpan bytes_;
};

// Which files a model path names, and their state: inode, size, times of change. Of a folder, those of its
// files that models are read from (.json, .safetensors, .jinja).
class FileStamps {
 public:
  static FileStamps Of(const std::string& path);
  // InvalidArgument naming the file when one was changed, replaced, added or removed since.
  absl::Status CheckUnchanged() const;

 private:
  struct Stamp {
    std::string path;
    uint64_t device = 0, inode = 0, bytes = 0;
    int64_t modified_ns = 0, changed_ns = 0;
    bool operator==(const Stamp&) const = default;
  };
  static bool Take(const std::string& path, std::vector<Stamp>* stamps);

  std::string path_;
  std::vector<Stamp> stamps_;  // ascending by path
};

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_MODEL_FILE_H_
