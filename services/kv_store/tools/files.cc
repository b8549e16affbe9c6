#include "services/kv_store/tools/files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/absl_std.h"
#include "common/status/errno_status.h"
#include "common/status/status_macros.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kBufferBytes = uint64_t{1} << 20;

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status IsThere(const std::string& path) {
  return absl::AlreadyExistsError(
      ToAbsl(path + " exists; choose another name, or say --force to replace it"));
}

bool Exists(const std::string& path) {
  struct stat info = {};
  return lstat(path.c_str(), &info) == 0;
}

absl::Status WriteWhole(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FromErrno(errno, "writing " + path);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FromErrno(errno, "opening " + folder);
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  return error == 0 ? absl::OkStatus() : FromErrno(error, "syncing " + folder);
}

class PosixOutputFile final : public OutputFile {
 public:
  PosixOutputFile(std::string path, std::string temporary, int fd, bool overwrite)
      : path_(std::move(path)), temporary_(std::move(temporary)), overwrite_(overwrite), fd_(fd) {}
  ~PosixOutputFile() override {
    if (fd_ >= 0) close(fd_);
    if (!published_) unlink(temporary_.c_str());
  }

  absl::Status Append(std::string_view bytes) override {
    if (buffer_.size() + bytes.size() <= kBufferBytes) {
      buffer_.append(bytes);
      return absl::OkStatus();
    }
    EPIC_RETURN_IF_ERROR(Flush());
    return WriteWhole(fd_, bytes, path_);
  }

  absl::Status Publish() override {
    EPIC_RETURN_IF_ERROR(Flush());
    if (fsync(fd_) != 0) return FromErrno(errno, "syncing " + path_);
    if (close(std::exchange(fd_, -1)) != 0) return FromErrno(errno, "closing " + path_);
    if (const int error = Rename(); error == EEXIST) {
      return IsThere(path_);
    } else if (error != 0) {
      return FromErrno(error, "naming " + path_);
    }
    published_ = true;
    return SyncFolder(FolderOf(path_));
  }

 private:
  absl::Status Flush() {
    const std::string bytes = std::exchange(buffer_, std::string());
    return WriteWhole(fd_, bytes, path_);
  }
  // An errno.
  int Rename() {
    const unsigned flags = overwrite_ ? 0 : RENAME_NOREPLACE;
    if (renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), flags) == 0) return 0;
    if (overwrite_ || (errno != EINVAL && errno != ENOSYS)) return errno;
    // A file system that cannot promise it: as good as it goes.
    if (Exists(path_)) return EEXIST;
    return rename(temporary_.c_str(), path_.c_str()) == 0 ? 0 : errno;
  }

  const std::string path_;
  const std::string temporary_;
  const bool overwrite_;
  int fd_;
  std::string buffer_;
  bool published_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<OutputFile>> CreateOutputFile(const std::string& path, bool overwrite) {
  if (!overwrite && Exists(path)) return IsThere(path);
  std::string temporary = path + ".partial-XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);  // of mode 0600
  if (fd < 0) return FromErrno(errno, "making " + path);
  return std::make_unique<PosixOutputFile>(path, std::move(temporary), fd, overwrite);
}

absl::StatusOr<std::unique_ptr<InputFile>> InputFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait for its writer
  if (fd < 0) return FromErrno(errno, "opening " + path);
  struct stat info = {};
  const int error = fstat(fd, &info) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(info.st_mode)) {
    return std::unique_ptr<InputFile>(new InputFile(path, fd, static_cast<uint64_t>(info.st_size)));
  }
  close(fd);
  if (error != 0) return FromErrno(error, "reading " + path);
  return absl::InvalidArgumentError(
      ToAbsl(path + " is not a file; name one that `epic backup create` wrote"));
}

InputFile::~InputFile() { close(fd_); }

absl::Status InputFile::ReadWhole(char* to, uint64_t bytes) {
  while (bytes > 0) {
    if (used_ == buffer_.size()) {
      buffer_.resize(std::clamp<uint64_t>(size_, 1, kBufferBytes));
      used_ = 0;
      const ssize_t got = read(fd_, buffer_.data(), buffer_.size());
      const int error = errno;
      buffer_.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
      if (got < 0 && error == EINTR) continue;
      if (got < 0) return FromErrno(error, "reading " + path_);
      if (got == 0) return absl::DataLossError(ToAbsl(path_ + " became shorter while it was read"));
    }
    const uint64_t piece = std::min<uint64_t>(bytes, buffer_.size() - used_);
    std::memcpy(to, buffer_.data() + used_, piece);
    used_ += piece;
    to += piece;
    bytes -= piece;
  }
  return absl::OkStatus();
}

}  // namespace epic::kv_store
