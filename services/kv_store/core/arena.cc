#include "services/kv_store/core/arena.h"

#include <fcntl.h>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "common/base/absl_std.h"
#include "common/base/check.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{2} << 20;
constexpr int kSeals = F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;

absl::Status Unavailable(std::string_view what) {
  return absl::UnavailableError(ToAbsl("host memory of the store: cannot " + std::string(what) + ": " +
                                       std::strerror(errno) +
                                       "; lower the store's memory, or use Linux 5.1 or "
                                       "later with /proc"));
}

uint64_t RoundedCapacity(uint64_t bytes) {
  const uint64_t granule = ArenaAllocator::kGranuleBytes;
  return std::max(bytes / granule * granule, granule);
}

// Closes on every way out.
class ScopedFd {
 public:
  explicit ScopedFd(int fd) : fd_(fd) {}
  ~ScopedFd() {
    if (fd_ >= 0) close(fd_);
  }
  ScopedFd(const ScopedFd&) = delete;
  ScopedFd& operator=(const ScopedFd&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

class Arena::Hold {
 public:
  Hold(std::shared_ptr<Arena> arena, std::shared_ptr<State> state)
      : arena_(std::move(arena)), state_(std::move(state)) {}
  ~Hold() { arena_->DropHold(state_.get()); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  const std::shared_ptr<Arena> arena_;
  const std::shared_ptr<State> state_;
};

absl::StatusOr<std::shared_ptr<Arena>> Arena::Create(const Options& options) {
  const uint64_t capacity = RoundedCapacity(options.capacity_bytes);
  const ScopedFd file(memfd_create("epic-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0) return Unavailable("make a memfd");
  if (ftruncate(file.get(), static_cast<off_t>(capacity)) != 0) return Unavailable("size its memfd");
  void* pages = mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (pages == MAP_FAILED) return Unavailable("map its memfd");
  const MutableByteSpan memory(static_cast<std::byte*>(pages), capacity);
  const std::string self = "/proc/self/fd/" + std::to_string(file.get());
  int read_only_fd = -1;
  if (fcntl(file.get(), F_ADD_SEALS, kSeals) == 0) read_only_fd = open(self.c_str(), O_RDONLY | O_CLOEXEC);
  if (read_only_fd < 0) {
    absl::Status status = Unavailable("seal its memfd");
    munmap(pages, capacity);
    return status;
  }
  // Advice only: a forked child has no business here, and big pages save page faults where the system has
  // them.
  madvise(pages, capacity, MADV_DONTFORK);
  madvise(pages, capacity, MADV_HUGEPAGE);
  return std::shared_ptr<Arena>(new Arena(options, memory, read_only_fd));
}

Arena::Arena(const Options& options, MutableByteSpan memory, int read_only_fd)
    : capacity_bytes_(memory.size()),
      held_bytes_max_(memory.size() / ArenaAllocator::kGranuleBytes *
                      std::min(options.held_percent_max, 100u) / 100 * ArenaAllocator::kGranuleBytes),
      memory_(memory),
      read_only_fd_(read_only_fd),
      allocator_(memory.size()),
      resident_((memory.size() + kChunkBytes - 1) / kChunkBytes, false) {}

Arena::~Arena() {
  ASAN_UNPOISON_MEMORY_REGION(memory_.data(), memory_.size());
  EPIC_CHECK(munmap(memory_.data(), memory_.size()) == 0);
  close(read_only_fd_);
}

std::unique_ptr<ArenaRegion> Arena::Allocate(uint64_t piece_bytes, uint64_t pieces) {
  auto state = std::make_shared<State>();
  state->piece_bytes = piece_bytes;
  {
    MutexLock lock(&mu_);
    state->extents = allocator_.Allocate(piece_bytes, pieces);
    if (state->extents.empty()) return nullptr;
    state->generation = next_generation_++;
    ++regions_;
    for (const ArenaAllocator::Extent& extent : state->extents) {
      state->footprint_bytes += extent.bytes;
      ASAN_UNPOISON_MEMORY_REGION(memory_.data() + extent.offset, extent.bytes);
    }
  }
  std::unique_ptr<ArenaRegion> region(new ArenaRegion(shared_from_this(), state));
  return MakeResident(state->extents) ? std::move(region) : nullptr;
}

MutableByteSpan Arena::Chunk(uint64_t chunk) const {
  const uint64_t offset = chunk * kChunkBytes;
  return memory_.subspan(offset, std::min(kChunkBytes, capacity_bytes_ - offset));
}

std::vector<uint64_t> Arena::AbsentChunks(const Extents& extents) const {
  std::vector<uint64_t> absent;
  MutexLock lock(&mu_);
  for (const ArenaAllocator::Extent& extent : extents) {
    const uint64_t last = (extent.offset + extent.bytes - 1) / kChunkBytes;
    for (uint64_t chunk = extent.offset / kChunkBytes; chunk <= last; ++chunk) {
      if (!resident_[chunk]) absent.push_back(chunk);
    }
  }
  return absent;
}

// Pages that are first met by a write would end the process where the system has none left; asked for, that
// is an error. Outside of the lock: two regions may ask for the same chunk, which does no harm.
bool Arena::MakeResident(const Extents& extents) {
  const std::vector<uint64_t> absent = AbsentChunks(extents);
  for (const uint64_t chunk : absent) {
    const MutableByteSpan bytes = Chunk(chunk);
    // EINVAL: the kernel is older than 5.14 and takes the pages one by one.
    if (madvise(bytes.data(), bytes.size(), MADV_POPULATE_WRITE) != 0 && errno != EINVAL) return false;
  }
  if (absent.empty()) return true;
  MutexLock lock(&mu_);
  for (const uint64_t chunk : absent) {
    if (!resident_[chunk]) resident_bytes_ += Chunk(chunk).size();
    resident_[chunk] = true;
  }
  return true;
}

void Arena::Free(const Extents& extents) {
  for (const ArenaAllocator::Extent& extent : extents) {
    ASAN_POISON_MEMORY_REGION(memory_.data() + extent.offset, extent.bytes);
  }
  allocator_.Free(extents);
}

void Arena::ReleaseRegion(State* state) {
  MutexLock lock(&mu_);
  --regions_;
  if (state->holds.load() == 0) {
    Free(state->extents);
    return;
  }
  quarantined_bytes_ += state->footprint_bytes;
  ++quarantined_regions_;
  state->quarantined = true;
}

bool Arena::AddHold(State* state) {
  MutexLock lock(&mu_);
  if (state->holds.load() == 0) {
    if (state->footprint_bytes > held_bytes_max_ - held_bytes_) {
      ++holds_refused_;
      return false;
    }
    held_bytes_ += state->footprint_bytes;
  }
  ++state->holds;
  return true;
}

void Arena::DropHold(State* state) {
  MutexLock lock(&mu_);
  if (--state->holds > 0) return;
  held_bytes_ -= state->footprint_bytes;
  if (!state->quarantined) return;
  quarantined_bytes_ -= state->footprint_bytes;
  --quarantined_regions_;
  Free(state->extents);
}

Arena::Numbers Arena::numbers() const {
  MutexLock lock(&mu_);
  const ArenaAllocator::Numbers places = allocator_.numbers();
  Numbers numbers;
  numbers.used_bytes = places.capacity_bytes - places.free_bytes;
  numbers.free_bytes = places.free_bytes;
  numbers.largest_hole_bytes = places.largest_hole_bytes;
  numbers.holes = places.holes;
  numbers.regions = regions_;
  numbers.resident_bytes = resident_bytes_;
  numbers.held_bytes = held_bytes_;
  numbers.held_bytes_max = held_bytes_max_;
  numbers.quarantined_bytes = quarantined_bytes_;
  numbers.quarantined_regions = quarantined_regions_;
  numbers.holds_refused = holds_refused_;
  return numbers;
}

ArenaRegion::~ArenaRegion() { arena_->ReleaseRegion(state_.get()); }

uint64_t ArenaRegion::piece_offset(uint64_t index) const {
  for (const ArenaAllocator::Extent& extent : state_->extents) {
    if (index < extent.pieces) return extent.offset + index * state_->piece_bytes;
    index -= extent.pieces;
  }
  EPIC_CHECK(false);
  return 0;
}

std::shared_ptr<const void> ArenaRegion::TryHold() const {
  if (!arena_->AddHold(state_.get())) return nullptr;
  return std::make_shared<const Arena::Hold>(arena_, state_);
}

}  // namespace epic::kv_store
