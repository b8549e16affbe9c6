#include "services/kv_store/extents/extent_files.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/base/absl_std.h"
#include "common/base/check.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/kv_store/core/aligned_buffer.h"
#include "services/kv_store/extents/extent_header.h"

namespace epic::kv_store {
namespace {

// A disk with less free space than this many steps grows by what is wanted only.
constexpr uint64_t kStepsForSteps = 16;
constexpr uint32_t kMaxFiles = uint32_t{1} << 20;

// The number in a file's name; kMaxFiles: not a name of ours.
uint32_t NumberOf(const std::string& name) {
  unsigned number = 0;
  int end = 0;
  const bool matches = std::sscanf(name.c_str(), "extents-%6u.dat%n", &number, &end) == 1 &&
                       end == static_cast<int>(name.size());
  return matches ? std::min<uint32_t>(number, kMaxFiles) : kMaxFiles;
}

}  // namespace

ExtentFiles::ExtentFiles(std::shared_ptr<FileSystem> files, std::string folder, uint32_t file_pages,
                         uint64_t grow_pages)
    : files_(std::move(files)), folder_(std::move(folder)), file_pages_(file_pages), grow_pages_(grow_pages) {
  EPIC_CHECK(file_pages >= 2 && grow_pages > 0);
}

std::string ExtentFiles::PathOf(uint32_t file) const {
  char name[32];
  std::snprintf(name, sizeof name, "/extents-%06u.dat", file);
  return folder_ + name;
}

absl::StatusOr<bool> ExtentFiles::HasHeader(File* file, uint32_t number, uint32_t* max_pages) {
  AlignedBuffer page(kSlabPageBytes);
  const absl::Status read = TransferWhole(files_.get(), IoKind::kRead, {{file, 0, page.bytes()}},
                                          [](size_t) { return absl::OkStatus(); });
  if (absl::IsDataLoss(read)) return false;
  EPIC_RETURN_IF_ERROR(read);
  const auto header = DecodeExtentHeader(page.bytes());
  if (absl::IsUnimplemented(header.status())) {
    return absl::UnimplementedError(ToAbsl(PathOf(number) +
                                           " was written by a newer EPIC: use that one, or delete the file "
                                           "(its objects are compiled again)"));
  }
  if (!header.ok() || header->file != number) return false;
  *max_pages = header->pages;
  return true;
}

absl::Status ExtentFiles::WriteHeader(File* file, uint32_t number) {
  AlignedBuffer page(kSlabPageBytes);
  const std::string header = EncodeExtentHeader({.file = number, .pages = file_pages_});
  std::memcpy(page.bytes().data(), header.data(), header.size());
  EPIC_RETURN_IF_ERROR(file->Allocate(0, kSlabPageBytes));
  EPIC_RETURN_IF_ERROR(TransferWhole(files_.get(), IoKind::kWrite, {{file, 0, page.bytes()}},
                                     [](size_t) { return absl::OkStatus(); }));
  return file->Sync();
}

absl::StatusOr<ExtentFiles::OpenFile> ExtentFiles::OpenOne(uint32_t number) {
  OpenFile opened;
  EPIC_ASSIGN_OR_RETURN(opened.file, files_->Open(PathOf(number)));
  opened.max_pages = file_pages_;
  EPIC_ASSIGN_OR_RETURN(const bool has_header, HasHeader(opened.file.get(), number, &opened.max_pages));
  if (!has_header) EPIC_RETURN_IF_ERROR(WriteHeader(opened.file.get(), number));
  EPIC_ASSIGN_OR_RETURN(const uint64_t size, opened.file->Size());
  opened.pages = std::min<uint64_t>(size / kSlabPageBytes, opened.max_pages);
  return opened;
}

absl::Status ExtentFiles::Open() {
  EPIC_RETURN_IF_ERROR(files_->MakeFolder(folder_));
  EPIC_ASSIGN_OR_RETURN(const std::vector<std::string> names, files_->List(folder_));
  uint32_t count = 0;
  for (const std::string& name : names) {
    if (const uint32_t number = NumberOf(name); number < kMaxFiles) count = std::max(count, number + 1);
  }
  std::vector<OpenFile> opened;
  for (uint32_t number = 0; number < count; ++number) {
    EPIC_ASSIGN_OR_RETURN(OpenFile file, OpenOne(number));
    opened.push_back(std::move(file));
  }
  // A process that died, or a sync that failed, may have left names that no sync has made certain.
  if (count > 0) EPIC_RETURN_IF_ERROR(files_->SyncFolder(folder_));
  MutexLock lock(&mu_);
  open_ = std::move(opened);
  return absl::OkStatus();
}

std::vector<SlabExtent> ExtentFiles::Space() const {
  std::vector<SlabExtent> space;
  MutexLock lock(&mu_);
  for (uint32_t number = 0; number < open_.size(); ++number) {
    const uint64_t pages = open_[number].pages;
    if (pages > 1) space.push_back({number, 1, static_cast<uint32_t>(pages - 1)});
  }
  return space;
}

absl::StatusOr<SlabExtent> ExtentFiles::Grow(uint64_t wanted_pages, uint64_t max_pages) {
  EPIC_CHECK(wanted_pages > 0 && max_pages > 0);
  uint32_t number = 0;
  uint64_t begin = 1;
  uint64_t end = 0;  // of the file, once grown to its most
  File* file = nullptr;
  {
    MutexLock lock(&mu_);
    while (number < open_.size() && open_[number].pages >= open_[number].max_pages) ++number;
    if (number < open_.size()) {
      file = open_[number].file.get();
      begin = open_[number].pages;
      end = open_[number].max_pages;
    }
  }
  if (file == nullptr) {
    if (number == kMaxFiles) return Error(ErrorCode::kStorageFull, "the store has too many extent files");
    EPIC_ASSIGN_OR_RETURN(OpenFile opened, OpenOne(number));
    EPIC_RETURN_IF_ERROR(files_->SyncFolder(folder_));
    file = opened.file.get();
    begin = opened.pages;
    end = opened.max_pages;
    MutexLock lock(&mu_);
    open_.push_back(std::move(opened));
  }
  const bool roomy = files_->FreeBytes(folder_) / kSlabPageBytes / kStepsForSteps >= grow_pages_;
  const uint64_t step = std::min(roomy ? std::max(wanted_pages, grow_pages_) : wanted_pages, max_pages);
  const uint64_t pages = std::min(step, end - begin);
  EPIC_RETURN_IF_ERROR(file->Allocate(begin * kSlabPageBytes, pages * kSlabPageBytes));
  EPIC_RETURN_IF_ERROR(file->Sync());
  MutexLock lock(&mu_);
  open_[number].pages = begin + pages;
  return SlabExtent{number, static_cast<uint32_t>(begin), static_cast<uint32_t>(pages)};
}

File* ExtentFiles::Get(uint32_t file) const {
  MutexLock lock(&mu_);
  EPIC_CHECK(file < open_.size());
  return open_[file].file.get();
}

uint64_t ExtentFiles::PhysicalBytes() const {
  std::vector<File*> files;
  {
    MutexLock lock(&mu_);
    for (const OpenFile& open : open_) files.push_back(open.file.get());
  }
  uint64_t bytes = 0;
  for (File* const file : files) bytes += file->AllocatedBytes().value_or(0);
  return bytes;
}

}  // namespace epic::kv_store
