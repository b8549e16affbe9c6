#include "services/kv_store/extents/posix_file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "common/base/check.h"
#include "common/status/errno_status.h"
#include "common/status/status_macros.h"
#include "services/kv_store/extents/thread_engine.h"
#include "services/kv_store/extents/uring_engine.h"

namespace epic::kv_store {
namespace {

constexpr size_t kThreads = 8;
constexpr uint64_t kZeroBytes = uint64_t{1} << 20;

// Opens with `flags`, again when a signal comes between.
int OpenFd(const std::string& path, int flags) {
  int fd = -1;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC, 0600);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

absl::Status SyncFd(int fd, const char* what) {
  while (fdatasync(fd) != 0) {
    if (errno != EINTR) return FromErrno(errno, what);
  }
  return absl::OkStatus();
}

class PosixFile final : public File {
 public:
  explicit PosixFile(int fd) : fd_(fd) {}
  ~PosixFile() override { close(fd_); }
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;

  int fd() const { return fd_; }

  absl::StatusOr<uint64_t> Size() override {
    EPIC_ASSIGN_OR_RETURN(const struct stat info, Stat());
    return static_cast<uint64_t>(info.st_size);
  }
  absl::StatusOr<uint64_t> AllocatedBytes() override {
    EPIC_ASSIGN_OR_RETURN(const struct stat info, Stat());
    return static_cast<uint64_t>(info.st_blocks) * 512;
  }
  absl::Status Allocate(uint64_t offset, uint64_t bytes) override {
    EPIC_RETURN_IF_ERROR(Fallocate(0, offset, bytes, "taking space for extents"));
    return absl::OkStatus();
  }
  absl::Status Punch(uint64_t offset, uint64_t bytes) override {
    absl::Status status =
        Fallocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes, "giving back space of extents");
    // Where holes cannot be made the bytes are overwritten: they must be gone.
    return status.code() == absl::StatusCode::kUnimplemented ? Overwrite(offset, bytes) : status;
  }
  absl::Status Sync() override { return SyncFd(fd_, "syncing an extent file"); }

 private:
  absl::StatusOr<struct stat> Stat() const {
    struct stat info = {};
    if (fstat(fd_, &info) != 0) return FromErrno(errno, "looking at an extent file");
    return info;
  }
  absl::Status Fallocate(int mode, uint64_t offset, uint64_t bytes, const char* what) const {
    while (fallocate(fd_, mode, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
      if (errno == EOPNOTSUPP && mode == 0) return Grow(offset + bytes, what);
      if (errno != EINTR) return FromErrno(errno, what);
    }
    return absl::OkStatus();
  }
  // Where space cannot be taken ahead the file only gets its length.
  absl::Status Grow(uint64_t size, const char* what) const {
    struct stat info = {};
    if (fstat(fd_, &info) != 0) return FromErrno(errno, what);
    if (static_cast<uint64_t>(info.st_size) >= size) return absl::OkStatus();
    if (ftruncate(fd_, static_cast<off_t>(size)) != 0) return FromErrno(errno, what);
    return absl::OkStatus();
  }
  absl::Status Overwrite(uint64_t offset, uint64_t bytes) const {
    const std::unique_ptr<void, void (*)(void*)> zeros(std::aligned_alloc(4096, kZeroBytes), &std::free);
    if (zeros == nullptr) return absl::UnavailableError("no memory to overwrite extents");
    std::memset(zeros.get(), 0, kZeroBytes);
    while (bytes > 0) {
      const ssize_t written =
          pwrite(fd_, zeros.get(), std::min(bytes, kZeroBytes), static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return FromErrno(written == 0 ? EIO : errno, "overwriting extents");
      offset += static_cast<uint64_t>(written);
      bytes -= static_cast<uint64_t>(written);
    }
    return absl::OkStatus();
  }

  const int fd_;
};

class PosixFileSystem final : public FileSystem {
 public:
  explicit PosixFileSystem(std::unique_ptr<IoEngine> engine) : engine_(std::move(engine)) {}

  std::string_view io_name() const override { return engine_->name(); }

  absl::Status MakeFolder(const std::string& folder) override {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) return FromErrno(error.value(), "making the folder " + folder);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    std::vector<std::string> names;
    std::error_code error;
    std::filesystem::directory_iterator entry(folder, error);
    while (!error && entry != std::filesystem::directory_iterator()) {
      names.push_back(entry->path().filename().string());
      entry.increment(error);
    }
    if (error) return FromErrno(error.value(), "listing the folder " + folder);
    return names;
  }

  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path) override {
    int fd = OpenFd(path, O_RDWR | O_CREAT | O_DIRECT);
    if (fd < 0 && errno == EINVAL) fd = OpenFd(path, O_RDWR | O_CREAT);
    if (fd < 0) return FromErrno(errno, "opening " + path);
    return std::make_unique<PosixFile>(fd);
  }

  absl::Status SyncFolder(const std::string& folder) override {
    const int fd = OpenFd(folder, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return FromErrno(errno, "opening the folder " + folder);
    absl::Status status =
        fsync(fd) == 0 ? absl::OkStatus() : FromErrno(errno, "syncing the folder " + folder);
    close(fd);
    return status;
  }

  uint64_t FreeBytes(const std::string& folder) override {
    struct statvfs info = {};
    if (statvfs(folder.c_str(), &info) != 0) return std::numeric_limits<uint64_t>::max();
    return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  }

  void Transfer(IoKind kind, std::span<const IoPiece> pieces, const IoDone& done) override {
    std::vector<EnginePiece> raw;
    raw.reserve(pieces.size());
    for (const IoPiece& piece : pieces) {
      raw.push_back({static_cast<PosixFile*>(piece.file)->fd(), piece.offset, piece.bytes});
    }
    engine_->Run(kind, raw, done);
  }

 private:
  const std::unique_ptr<IoEngine> engine_;
};

}  // namespace

std::unique_ptr<FileSystem> MakePosixFileSystem(std::unique_ptr<IoEngine> engine) {
  return std::make_unique<PosixFileSystem>(std::move(engine));
}

std::unique_ptr<FileSystem> MakePosixFileSystem() {
  if (auto engine = MakeUringEngine(); engine.ok()) return MakePosixFileSystem(*std::move(engine));
  return MakePosixFileSystem(std::make_unique<ThreadEngine>(kThreads));
}

}  // namespace epic::kv_store
