// The extent files of a store that is stopped, for reading only: what is there, and the bytes of runs of
// pages. Makes and changes no file. One thread at a time. The files are told in extents/extent_files.h.
#ifndef EPIC_SERVICES_KV_STORE_TOOLS_EXTENT_FOLDER_H_
#define EPIC_SERVICES_KV_STORE_TOOLS_EXTENT_FOLDER_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "services/kv_store/core/slab_store.h"

namespace epic::kv_store {

class ExtentFolder {
 public:
  struct FileInfo {
    int fd = -1;
    uint64_t pages = 0;   // whole ones, the header's included
    absl::Status header;  // what is wrong with it
  };

  // A folder that is not there has no files. Errors: those of FromErrno.
  static absl::StatusOr<ExtentFolder> Open(const std::string& folder);
  ExtentFolder(ExtentFolder&& other) noexcept = default;
  ExtentFolder& operator=(ExtentFolder&&) = delete;
  ~ExtentFolder();

  static std::string NameOf(uint32_t file);
  const std::map<uint32_t, FileInfo>& files() const { return files_; }
  // Whether the run has pages, all of them behind the header and within its file.
  bool Contains(const SlabExtent& extent) const;
  // Bytes from `offset` on of the image that lies in these runs. REQUIRES: Contains() each; they have the
  // bytes. Errors: DataLoss (a file ends before), or those of FromErrno.
  absl::Status Read(const SlabExtents& extents, uint64_t offset, MutableByteSpan out) const;

 private:
  ExtentFolder() = default;
  std::map<uint32_t, FileInfo> files_;  // by number
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TOOLS_EXTENT_FOLDER_H_
