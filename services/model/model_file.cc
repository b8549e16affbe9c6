#include "services/model/model_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "services/model/model_error.h"

namespace epic {
namespace {

constexpr size_t kPieceBytes = size_t{16} << 20;
constexpr char kTryAgain[] = "start again when nobody writes to the model's files any more";

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::StatusOr<size_t> CheckedSize(int fd, const std::string& path, uint64_t max_bytes) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read the size of model file ", path));
  }
  if (!S_ISREG(info.st_mode)) return BadModelFile(path, "file", "is not a regular file");
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size == 0) return BadModelFile(path, "file", "is empty");
  if (size > max_bytes) {
    return BadModelFile(path, "file", absl::StrCat("has ", size, " bytes; at most ", max_bytes, " are read"));
  }
  return size;
}

// Fills `out` from the file's beginning.
absl::Status ReadAll(int fd, const std::string& path, MutableByteSpan out) {
  for (size_t at = 0; at < out.size();) {
    const ssize_t got =
        pread(fd, out.data() + at, std::min(kPieceBytes, out.size() - at), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read model file ", path));
    if (got == 0) {
      return BadModelFile(
          path, "file", absl::StrCat("gave ", at, " of its ", out.size(), " bytes: it was cut; ", kTryAgain));
    }
    at += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

int64_t Nanoseconds(const timespec& time) { return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec; }

bool HoldsModelData(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".json" || extension == ".safetensors" || extension == ".jinja";
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ModelFile>> ModelFile::Read(const std::string& path,
                                                                 uint64_t max_bytes) {
  // Without O_NONBLOCK, opening a named pipe would wait for a writer.
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open model file ", path));
  EPIC_ASSIGN_OR_RETURN(const size_t size, CheckedSize(fd.get(), path, max_bytes));
  void* start = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "model file ", path, " needs ", size, " bytes of memory to be read, and there are not so many"));
  }
  std::shared_ptr<const ModelFile> file(
      new ModelFile(path, ByteSpan(static_cast<const std::byte*>(start), size)));
  EPIC_RETURN_IF_ERROR(ReadAll(fd.get(), path, MutableByteSpan(static_cast<std::byte*>(start), size)));
  mprotect(start, size, PROT_READ);  // a stray write is then our own crash, not another model
  return file;
}

ModelFile::~ModelFile() { munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()); }

bool FileStamps::Take(const std::string& path, std::vector<Stamp>* stamps) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return false;
  stamps->push_back({.path = path,
                     .device = info.st_dev,
                     .inode = info.st_ino,
                     .bytes = static_cast<uint64_t>(info.st_size),
                     .modified_ns = Nanoseconds(info.st_mtim),
                     .changed_ns = Nanoseconds(info.st_ctim)});
  return true;
}

FileStamps FileStamps::Of(const std::string& path) {
  FileStamps out;
  out.path_ = path;
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    Take(path, &out.stamps_);
    return out;
  }
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    if (HoldsModelData(entry->path())) Take(entry->path().string(), &out.stamps_);
  }
  std::sort(out.stamps_.begin(), out.stamps_.end(),
            [](const Stamp& a, const Stamp& b) { return a.path < b.path; });
  return out;
}

absl::Status FileStamps::CheckUnchanged() const {
  const std::vector<Stamp> now = Of(path_).stamps_;
  const auto [before, after] = std::mismatch(stamps_.begin(), stamps_.end(), now.begin(), now.end());
  if (before == stamps_.end() && after == now.end()) return absl::OkStatus();
  const std::string& path = before == stamps_.end() ? after->path
                            : after == now.end()    ? before->path
                                                    : std::min(before->path, after->path);
  return BadModelFile(path, "file", absl::StrCat("was changed or replaced while it was read; ", kTryAgain));
}

}  // namespace epic
