#include "services/kv_store/tools/extent_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "common/base/absl_std.h"
#include "common/status/errno_status.h"
#include "common/status/status_macros.h"
#include "services/kv_store/extents/extent_header.h"

namespace epic::kv_store {
namespace {

namespace fs = std::filesystem;

absl::Status ReadAt(int fd, uint64_t offset, MutableByteSpan out) {
  while (!out.empty()) {
    const ssize_t got = pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FromErrno(errno, "reading an extent file");
    if (got == 0) return absl::DataLossError("the extent file is too short");
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

absl::Status CheckHeader(int fd, uint32_t number) {
  std::string page(kSlabPageBytes, '\0');
  EPIC_RETURN_IF_ERROR(ReadAt(fd, 0, std::as_writable_bytes(std::span<char>(page.data(), page.size()))));
  EPIC_ASSIGN_OR_RETURN(const ExtentHeader header, DecodeExtentHeader(AsBytes(page)));
  if (header.file == number) return absl::OkStatus();
  return absl::InvalidArgumentError(ToAbsl("its header is that of file " + std::to_string(header.file)));
}

// False: not a name of ours.
bool NumberOf(const std::string& name, uint32_t* number) {
  unsigned value = 0;
  int end = 0;
  if (std::sscanf(name.c_str(), "extents-%6u.dat%n", &value, &end) != 1 ||
      end != static_cast<int>(name.size())) {
    return false;
  }
  *number = value;
  return name == ExtentFolder::NameOf(value);
}

}  // namespace

std::string ExtentFolder::NameOf(uint32_t file) {
  char name[32];
  std::snprintf(name, sizeof name, "extents-%06u.dat", file);
  return name;
}

absl::StatusOr<ExtentFolder> ExtentFolder::Open(const std::string& folder) {
  ExtentFolder opened;
  std::error_code error;
  fs::directory_iterator names(folder, error);
  if (error == std::errc::no_such_file_or_directory) return opened;
  for (; !error && names != fs::directory_iterator(); names.increment(error)) {
    uint32_t number = 0;
    if (!NumberOf(names->path().filename().string(), &number)) continue;
    const int fd = open(names->path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return FromErrno(errno, "opening " + names->path().string());
    FileInfo& file = opened.files_[number];
    file.fd = fd;
    struct stat info = {};
    if (fstat(fd, &info) != 0) return FromErrno(errno, "reading " + names->path().string());
    if (S_ISREG(info.st_mode)) file.pages = static_cast<uint64_t>(info.st_size) / kSlabPageBytes;
    file.header = CheckHeader(fd, number);
  }
  if (error) return FromErrno(error.value(), "reading " + folder);
  return opened;
}

ExtentFolder::~ExtentFolder() {
  for (const auto& [number, file] : files_) close(file.fd);
}

bool ExtentFolder::Contains(const SlabExtent& extent) const {
  const auto file = files_.find(extent.file);
  return file != files_.end() && extent.pages > 0 && extent.page > 0 &&
         uint64_t{extent.page} + extent.pages <= file->second.pages;
}

absl::Status ExtentFolder::Read(const SlabExtents& extents, uint64_t offset, MutableByteSpan out) const {
  for (const SlabExtent& extent : extents) {
    if (out.empty()) break;
    const uint64_t bytes = extent.pages * kSlabPageBytes;
    if (offset >= bytes) {
      offset -= bytes;
      continue;
    }
    const MutableByteSpan piece = out.first(std::min<uint64_t>(out.size(), bytes - offset));
    EPIC_RETURN_IF_ERROR(ReadAt(files_.at(extent.file).fd, extent.page * kSlabPageBytes + offset, piece));
    out = out.subspan(piece.size());
    offset = 0;
  }
  return out.empty() ? absl::OkStatus() : absl::DataLossError("the extents end before the image");
}

}  // namespace epic::kv_store
