#include "services/kv_store/testing/faulty_file_system.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include "common/base/check.h"
#include "common/status/errno_status.h"
#include "common/status/status_macros.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kSector = 512;

bool InPages(const IoPiece& piece) {
  return piece.offset % kPage == 0 && piece.bytes.size() % kPage == 0 && !piece.bytes.empty() &&
         reinterpret_cast<uintptr_t>(piece.bytes.data()) % kPage == 0;
}

}  // namespace

class FaultyFileSystem::OpenFile final : public File {
 public:
  OpenFile(FaultyFileSystem* files, std::shared_ptr<Content> content)
      : files_(files), content_(std::move(content)) {}
  Content* content() const { return content_.get(); }

  absl::StatusOr<uint64_t> Size() override {
    MutexLock lock(&files_->mu_);
    return content_->bytes.size();
  }
  absl::StatusOr<uint64_t> AllocatedBytes() override {
    MutexLock lock(&files_->mu_);
    return content_->allocated.size() * kPage;
  }
  absl::Status Allocate(uint64_t offset, uint64_t bytes) override {
    files_->power_->Pass(0);
    MutexLock lock(&files_->mu_);
    EPIC_RETURN_IF_ERROR(files_->Step());
    return files_->Take(content_.get(), offset, bytes);
  }
  absl::Status Punch(uint64_t offset, uint64_t bytes) override {
    files_->power_->Pass(0);
    MutexLock lock(&files_->mu_);
    EPIC_RETURN_IF_ERROR(files_->Step());
    if (files_->Strikes(files_->faults_.write_error)) return FromErrno(EIO, "injected");
    for (uint64_t page = offset / kPage; page < (offset + bytes) / kPage; ++page) {
      if ((page + 1) * kPage > content_->bytes.size()) break;
      std::memset(content_->bytes.data() + page * kPage, 0, kPage);
      content_->allocated.erase(page);
      content_->unsynced.insert(page);
    }
    return absl::OkStatus();
  }
  absl::Status Sync() override {
    files_->power_->Pass(0);
    MutexLock lock(&files_->mu_);
    EPIC_RETURN_IF_ERROR(files_->Step());
    if (files_->Strikes(files_->faults_.sync_error)) return FromErrno(EIO, "injected");
    ++files_->syncs_;
    if (files_->loses_syncs_) return absl::OkStatus();
    content_->durable.resize(content_->bytes.size(), '\0');
    for (const uint64_t page : content_->unsynced) {
      std::memcpy(content_->durable.data() + page * kPage, content_->bytes.data() + page * kPage, kPage);
    }
    content_->unsynced.clear();
    return absl::OkStatus();
  }

 private:
  FaultyFileSystem* const files_;
  const std::shared_ptr<Content> content_;
};

void FaultyFileSystem::SetFaults(const FileFaults& faults) {
  MutexLock lock(&mu_);
  faults_ = faults;
}

void FaultyFileSystem::SetCapacity(uint64_t bytes) {
  MutexLock lock(&mu_);
  capacity_bytes_ = bytes;
}

void FaultyFileSystem::SetLosesSyncs(bool loses) {
  MutexLock lock(&mu_);
  loses_syncs_ = loses;
}

void FaultyFileSystem::SetGate(bool open) {
  MutexLock lock(&mu_);
  gate_open_ = open;
  gate_changed_.SignalAll();
}

void FaultyFileSystem::AwaitHeld(uint64_t transfers) {
  MutexLock lock(&mu_);
  while (held_ < transfers) gate_changed_.Wait(&mu_);
}

bool FaultyFileSystem::Contains(const std::string& bytes) {
  MutexLock lock(&mu_);
  return std::any_of(contents_.begin(), contents_.end(), [&](const auto& file) {
    return file.second->bytes.find(bytes) != std::string::npos ||
           file.second->durable.find(bytes) != std::string::npos;
  });
}

uint64_t FaultyFileSystem::syncs() {
  MutexLock lock(&mu_);
  return syncs_;
}

bool FaultyFileSystem::Damage(const std::string& path, uint64_t offset) {
  MutexLock lock(&mu_);
  const auto file = contents_.find(path);
  if (file == contents_.end() || offset >= file->second->bytes.size()) return false;
  file->second->bytes[offset] ^= 1;
  file->second->durable.resize(file->second->bytes.size(), '\0');
  file->second->durable[offset] = file->second->bytes[offset];
  return true;
}

void FaultyFileSystem::Remove(const std::string& path) {
  MutexLock lock(&mu_);
  contents_.erase(path);
}

void FaultyFileSystem::Crash(Rng* rng) {
  MutexLock lock(&mu_);
  for (auto file = contents_.begin(); file != contents_.end();) {
    Content& content = *file->second;
    EPIC_CHECK(file->second.use_count() == 1);
    if (!content.named && rng->Below(2) == 0) {
      file = contents_.erase(file);
      continue;
    }
    // The new length may have come through, and each sector of what was written.
    if (content.bytes.size() > content.durable.size() && rng->Below(2) == 0) {
      content.durable.resize(content.bytes.size(), '\0');
    }
    for (const uint64_t page : content.unsynced) {
      for (uint64_t at = page * kPage; at < (page + 1) * kPage; at += kSector) {
        if (at + kSector > content.durable.size() || rng->Below(2) == 0) continue;
        std::memcpy(content.durable.data() + at, content.bytes.data() + at, kSector);
      }
    }
    content.unsynced.clear();
    content.bytes = content.durable;
    const uint64_t pages = content.bytes.size() / kPage;
    content.allocated.erase(content.allocated.lower_bound(pages), content.allocated.end());
    content.named = true;
    ++file;
  }
  power_->Restore();
  gate_open_ = true;
  faults_ = {};
}

bool FaultyFileSystem::Strikes(int chance) {
  return chance > 0 && rng_.Below(100) < static_cast<uint64_t>(chance);
}

absl::Status FaultyFileSystem::Step() {
  switch (power_->Step()) {
    case Power::Outcome::kDone:
      return absl::OkStatus();
    case Power::Outcome::kFails:
      return FromErrno(EIO, "injected");
    case Power::Outcome::kCut:
      break;
  }
  return FromErrno(ENODEV, "the power is cut");
}

uint64_t FaultyFileSystem::UsedPages() {
  return std::accumulate(contents_.begin(), contents_.end(), uint64_t{0},
                         [](uint64_t sum, const auto& file) { return sum + file.second->allocated.size(); });
}

absl::Status FaultyFileSystem::Take(Content* content, uint64_t offset, uint64_t bytes) {
  EPIC_CHECK(offset % kPage == 0 && bytes % kPage == 0);
  if (Strikes(faults_.disk_full)) return FromErrno(ENOSPC, "injected");
  uint64_t missing = 0;
  for (uint64_t page = offset / kPage; page < (offset + bytes) / kPage; ++page) {
    if (!content->allocated.contains(page)) ++missing;
  }
  const uint64_t used = UsedPages();
  if (missing > 0 && used + missing > capacity_bytes_ / kPage) return FromErrno(ENOSPC, "the disk is full");
  for (uint64_t page = offset / kPage; page < (offset + bytes) / kPage; ++page)
    content->allocated.insert(page);
  if (content->bytes.size() < offset + bytes) content->bytes.resize(offset + bytes, '\0');
  return absl::OkStatus();
}

absl::Status FaultyFileSystem::MakeFolder(const std::string& /*folder*/) {
  power_->Pass(0);
  MutexLock lock(&mu_);
  return Step();
}

absl::StatusOr<std::vector<std::string>> FaultyFileSystem::List(const std::string& folder) {
  MutexLock lock(&mu_);
  std::vector<std::string> names;
  for (const auto& [path, content] : contents_) {
    if (path.starts_with(folder + "/")) names.push_back(path.substr(folder.size() + 1));
  }
  return names;
}

absl::StatusOr<std::unique_ptr<File>> FaultyFileSystem::Open(const std::string& path) {
  power_->Pass(0);
  MutexLock lock(&mu_);
  EPIC_RETURN_IF_ERROR(Step());
  auto& content = contents_[path];
  if (content == nullptr) content = std::make_shared<Content>();
  return std::make_unique<OpenFile>(this, content);
}

absl::Status FaultyFileSystem::SyncFolder(const std::string& folder) {
  power_->Pass(0);
  MutexLock lock(&mu_);
  EPIC_RETURN_IF_ERROR(Step());
  for (auto& [path, content] : contents_) {
    if (path.starts_with(folder + "/")) content->named = true;
  }
  return absl::OkStatus();
}

uint64_t FaultyFileSystem::FreeBytes(const std::string& /*folder*/) {
  MutexLock lock(&mu_);
  const uint64_t used = UsedPages() * kPage;
  return capacity_bytes_ > used ? capacity_bytes_ - used : 0;
}

absl::StatusOr<uint64_t> FaultyFileSystem::ReadPiece(Content* content, const IoPiece& piece) {
  if (power_->is_cut()) return FromErrno(ENODEV, "the power is cut");
  if (Strikes(faults_.read_error)) return FromErrno(EIO, "injected");
  const uint64_t size = content->bytes.size();
  uint64_t bytes = piece.offset >= size ? 0 : std::min<uint64_t>(piece.bytes.size(), size - piece.offset);
  if (bytes > 0 && Strikes(faults_.short_read)) bytes = rng_.Below(bytes);
  if (bytes > 0) std::memcpy(piece.bytes.data(), content->bytes.data() + piece.offset, bytes);
  if (bytes > 0 && Strikes(faults_.bit_flip)) piece.bytes[rng_.Below(bytes)] ^= std::byte(1 << rng_.Below(8));
  return bytes;
}

absl::StatusOr<uint64_t> FaultyFileSystem::WritePiece(Content* content, const IoPiece& piece) {
  EPIC_RETURN_IF_ERROR(Step());
  if (Strikes(faults_.write_error)) return FromErrno(EIO, "injected");
  EPIC_RETURN_IF_ERROR(Take(content, piece.offset, piece.bytes.size()));
  uint64_t bytes = piece.bytes.size();
  const bool torn = Strikes(faults_.torn_write);
  if (torn || Strikes(faults_.short_write)) bytes = rng_.Below(bytes / kSector) * kSector;
  if (bytes > 0) std::memcpy(content->bytes.data() + piece.offset, piece.bytes.data(), bytes);
  for (uint64_t at = 0; at < piece.bytes.size(); at += kPage)
    content->unsynced.insert((piece.offset + at) / kPage);
  if (torn) return FromErrno(EIO, "injected: torn");
  return bytes;
}

void FaultyFileSystem::Transfer(IoKind kind, std::span<const IoPiece> pieces, const IoDone& done) {
  // Pieces end in any order, as far as the window lets them.
  for (size_t begin = 0; begin < pieces.size(); begin += kIoWindow) {
    std::vector<size_t> order(std::min(kIoWindow, pieces.size() - begin));
    std::iota(order.begin(), order.end(), begin);
    std::vector<std::pair<size_t, absl::StatusOr<uint64_t>>> results;
    uint64_t bytes_of_all = 0;
    for (const size_t index : order) bytes_of_all += pieces[index].bytes.size();
    power_->Pass(bytes_of_all);
    {
      MutexLock lock(&mu_);
      ++held_;
      gate_changed_.SignalAll();
      while (!gate_open_) gate_changed_.Wait(&mu_);
      --held_;
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng_.Below(i)]);
      for (const size_t index : order) {
        const IoPiece& piece = pieces[index];
        if (!InPages(piece)) {
          results.emplace_back(index, FromErrno(EINVAL, "not in pages"));
          continue;
        }
        auto* const content = static_cast<OpenFile*>(piece.file)->content();
        results.emplace_back(index,
                             kind == IoKind::kRead ? ReadPiece(content, piece) : WritePiece(content, piece));
      }
    }
    for (auto& [index, bytes] : results) {
      if (!done(index, std::move(bytes))) return;
    }
  }
}

}  // namespace epic::kv_store
