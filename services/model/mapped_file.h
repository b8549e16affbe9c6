// A file mapped read-only into memory.
//
// Shared by whoever reads it and thread-safe. The file must not shrink while it is mapped: reading a page
// that is gone ends the process, as with every memory-mapped model.
#ifndef EPIC_SERVICES_MODEL_MAPPED_FILE_H_
#define EPIC_SERVICES_MODEL_MAPPED_FILE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/bytes.h"

namespace epic {

class MappedFile {
 public:
  // Errors: NotFound; PermissionDenied; InvalidArgument when it is not a regular file or is empty.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  ByteSpan bytes() const { return bytes_; }

 private:
  MappedFile(std::string path, ByteSpan bytes) : path_(std::move(path)), bytes_(bytes) {}

  const std::string path_;
  const ByteSpan bytes_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_MAPPED_FILE_H_
