#include "services/kv_store/extents/extent_slab_store.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "common/base/check.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/kv_store/core/aligned_buffer.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kFileSpan = uint64_t{1} << 32;  // pages between the first pages of two files
constexpr uint64_t kStagingBytes = uint64_t{8} << 20;
constexpr uint64_t kPunchPages = uint64_t{16} << 10;  // at most this many are out of reach at a time

absl::Status NoRoom(uint64_t bytes, uint64_t max_bytes) {
  return Error(ErrorCode::kStorageFull, "no room for " + std::to_string(bytes) + " bytes of KV in the " +
                                            std::to_string(max_bytes) +
                                            " bytes that slabs may take; raise the store's disk limit");
}

uint64_t PagesOf(const SlabExtents& extents) {
  uint64_t pages = 0;
  for (const SlabExtent& extent : extents) pages += extent.pages;
  return pages;
}

}  // namespace

ExtentSlabStore::ExtentSlabStore(std::shared_ptr<FileSystem> files, const ExtentOptions& options,
                                 std::function<absl::Status()> sync_index)
    : options_(options),
      sync_index_(std::move(sync_index)),
      space_(std::move(files), options.folder, static_cast<uint32_t>(options.file_bytes / kSlabPageBytes),
             options.grow_bytes / kSlabPageBytes) {
  EPIC_CHECK(options.piece_bytes > 0 && options.piece_bytes % kSlabPageBytes == 0);
}

absl::StatusOr<std::unique_ptr<ExtentSlabStore>> ExtentSlabStore::Open(
    std::shared_ptr<FileSystem> files, const ExtentOptions& options,
    std::function<absl::Status()> sync_index) {
  std::unique_ptr<ExtentSlabStore> store(
      new ExtentSlabStore(std::move(files), options, std::move(sync_index)));
  EPIC_RETURN_IF_ERROR(store->space_.Open());
  return store;
}

PageRun ExtentSlabStore::RunOf(const SlabExtent& extent) {
  return {extent.file * kFileSpan + extent.page, extent.pages};
}

SlabExtent ExtentSlabStore::ExtentOf(const PageRun& run) {
  return {static_cast<uint32_t>(run.begin / kFileSpan), static_cast<uint32_t>(run.begin % kFileSpan),
          static_cast<uint32_t>(run.pages)};
}

// --- what is free ---

bool ExtentSlabStore::TakeLive(const LiveSlabs& slabs) {
  if (slabs.extents.empty() || images_.contains(slabs.number)) return false;
  for (size_t i = 0; i < slabs.extents.size(); ++i) {
    if (slabs.extents[i].pages > 0 && free_.Take(RunOf(slabs.extents[i]))) continue;
    for (size_t taken = 0; taken < i; ++taken) free_.Add(RunOf(slabs.extents[taken]));
    return false;
  }
  images_[slabs.number] = {.extents = slabs.extents};
  used_pages_ += PagesOf(slabs.extents);
  return true;
}

absl::StatusOr<std::vector<uint64_t>> ExtentSlabStore::Load(const std::vector<LiveSlabs>& live,
                                                            bool /*entries_lost*/) {
  std::vector<const LiveSlabs*> newest_first;
  for (const LiveSlabs& slabs : live) newest_first.push_back(&slabs);
  // Where two claim a page, which only damage can bring about, the later one wrote it.
  std::sort(newest_first.begin(), newest_first.end(),
            [](const LiveSlabs* a, const LiveSlabs* b) { return a->number > b->number; });
  std::vector<uint64_t> wrong;
  const SlabExtents space = space_.Space();
  const uint64_t allocated_pages = space_.PhysicalBytes() / kSlabPageBytes;
  MutexLock lock(&mu_);
  for (const SlabExtent& extent : space) free_.Add(RunOf(extent));
  unknown_holes_ = free_.pages() - std::min(free_.pages(), allocated_pages);
  for (const LiveSlabs* slabs : newest_first) {
    if (!TakeLive(*slabs)) wrong.push_back(slabs->number);
  }
  // Nobody knows what is in them.
  for (const PageRun& run : free_.runs()) dirty_.Add(run);
  return wrong;
}

absl::StatusOr<SlabExtents> ExtentSlabStore::TakeSpace(uint64_t pages) {
  const uint64_t max_pages = options_.max_bytes / kSlabPageBytes;
  while (true) {
    bool has_freed = false;
    {
      MutexLock lock(&mu_);
      has_freed = !freed_.empty();
      if (pages <= max_pages && used_pages_ <= max_pages - pages) {
        SlabExtents extents;
        for (const PageRun& run : free_.Allocate(pages, kMaxSlabExtents)) {
          dirty_.Subtract(run);
          extents.push_back(ExtentOf(run));
        }
        if (!extents.empty()) {
          used_pages_ += pages;
          return extents;
        }
      } else if (!has_freed) {
        return NoRoom(pages * kSlabPageBytes, options_.max_bytes);
      }
    }
    EPIC_RETURN_IF_ERROR(has_freed ? ReleaseFreed() : Grow(pages));
  }
}

void ExtentSlabStore::GiveSpace(const SlabExtents& extents) {
  for (const SlabExtent& extent : extents) {
    free_.Add(RunOf(extent));
    dirty_.Add(RunOf(extent));
  }
  used_pages_ -= PagesOf(extents);
}

// One caller grows; others wait and look again.
absl::Status ExtentSlabStore::Grow(uint64_t wanted_pages) {
  const uint64_t max_pages = options_.max_bytes / kSlabPageBytes;
  uint64_t room = 0;
  {
    MutexLock lock(&mu_);
    if (growing_) {
      while (growing_) grown_.Wait(&mu_);
      return absl::OkStatus();
    }
    const uint64_t have = used_pages_ + free_.pages();
    room = max_pages > have ? max_pages - have : 0;
    if (room == 0) return NoRoom(wanted_pages * kSlabPageBytes, options_.max_bytes);
    growing_ = true;
  }
  const auto grown = space_.Grow(wanted_pages, room);
  MutexLock lock(&mu_);
  growing_ = false;
  grown_.SignalAll();
  if (grown.ok()) {
    free_.Add(RunOf(*grown));
    dirty_.Add(RunOf(*grown));
  }
  return grown.status();
}

// Lets the space of freed images be used again once their removal outlives a crash.
absl::Status ExtentSlabStore::ReleaseFreed() {
  std::vector<SlabExtents> released;
  {
    MutexLock lock(&mu_);
    released.swap(freed_);
  }
  absl::Status status = released.empty() ? absl::OkStatus() : sync_index_();
  MutexLock lock(&mu_);
  for (const SlabExtents& extents : released) {
    if (status.ok()) {
      freed_pages_ -= PagesOf(extents);
      GiveSpace(extents);
    } else {
      freed_.push_back(extents);
    }
  }
  return status;
}

bool ExtentSlabStore::Holds(uint64_t number) {
  MutexLock lock(&mu_);
  const auto image = images_.find(number);
  return image != images_.end() && !image->second.freed;
}

void ExtentSlabStore::Free(uint64_t number) {
  MutexLock lock(&mu_);
  const auto image = images_.find(number);
  if (image == images_.end() || image->second.freed) return;
  image->second.freed = true;
  freed_pages_ += PagesOf(image->second.extents);
  if (image->second.readers > 0) return;
  freed_.push_back(std::move(image->second.extents));
  images_.erase(image);
}

// A reader is done.
void ExtentSlabStore::LetGo(uint64_t number) {
  MutexLock lock(&mu_);
  const auto image = images_.find(number);
  EPIC_CHECK(image != images_.end() && image->second.readers > 0);
  if (--image->second.readers > 0 || !image->second.freed) return;
  freed_.push_back(std::move(image->second.extents));
  images_.erase(image);
}

uint64_t ExtentSlabStore::ReusableBytes() {
  MutexLock lock(&mu_);
  const uint64_t max_pages = options_.max_bytes / kSlabPageBytes;
  const uint64_t held = used_pages_ - freed_pages_;
  const uint64_t room = max_pages > held ? max_pages - held : 0;
  const uint64_t ready = dirty_.pages() - std::min(dirty_.pages(), unknown_holes_);
  return std::min(ready + freed_pages_, room) * kSlabPageBytes;
}

ExtentSlabStore::Fragmentation ExtentSlabStore::fragmentation() {
  MutexLock lock(&mu_);
  return {.largest_bytes = free_.largest_run() * kSlabPageBytes,
          .free_bytes = free_.pages() * kSlabPageBytes};
}

// --- bytes ---

std::vector<IoPiece> ExtentSlabStore::Pieces(const SlabExtents& extents, uint64_t begin,
                                             MutableByteSpan bytes) const {
  std::vector<IoPiece> pieces;
  uint64_t at = 0;  // where the extent begins in the image
  for (const SlabExtent& extent : extents) {
    const uint64_t size = extent.pages * kSlabPageBytes;
    const uint64_t end = begin + bytes.size();
    for (uint64_t from = std::max(at, begin); from < std::min(at + size, end);) {
      const uint64_t length = std::min({options_.piece_bytes, at + size - from, end - from});
      pieces.push_back({.file = space_.Get(extent.file),
                        .offset = extent.page * kSlabPageBytes + (from - at),
                        .bytes = bytes.subspan(from - begin, length)});
      from += length;
    }
    at += size;
  }
  return pieces;
}

// Through memory of our own: the caller's need not be aligned, and what lies between slabs is zero.
absl::Status ExtentSlabStore::WriteImage(const SlabExtents& extents, const SlabShape& shape,
                                         std::span<const ByteSpan> slabs) {
  const uint64_t image_bytes = RoundUpToPage(shape.ImageBytes());
  AlignedBuffer staging(std::min(image_bytes, kStagingBytes));
  for (uint64_t begin = 0; begin < image_bytes; begin += staging.bytes().size()) {
    const MutableByteSpan part =
        staging.bytes().first(std::min<uint64_t>(staging.bytes().size(), image_bytes - begin));
    const uint64_t end = begin + part.size();
    uint64_t filled = begin;
    for (uint64_t layer = begin / shape.stride; layer < shape.layers && layer * shape.stride < end; ++layer) {
      const uint64_t from = std::max(layer * shape.stride, begin);
      const uint64_t to = std::min(layer * shape.stride + shape.layer_bytes, end);
      if (from >= to) continue;
      std::memset(part.data() + (filled - begin), 0, from - filled);
      std::memcpy(part.data() + (from - begin), slabs[layer].data() + (from - layer * shape.stride),
                  to - from);
      filled = to;
    }
    std::memset(part.data() + (filled - begin), 0, end - filled);
    EPIC_RETURN_IF_ERROR(TransferWhole(space_.files(), IoKind::kWrite, Pieces(extents, begin, part),
                                       [](size_t) { return absl::OkStatus(); }));
  }
  return absl::OkStatus();
}

absl::Status ExtentSlabStore::SyncFiles(const SlabExtents& extents) {
  std::set<uint32_t> files;
  for (const SlabExtent& extent : extents) files.insert(extent.file);
  for (const uint32_t file : files) EPIC_RETURN_IF_ERROR(space_.Get(file)->Sync());
  return absl::OkStatus();
}

absl::StatusOr<SlabExtents> ExtentSlabStore::Write(uint64_t number, const SlabShape& shape,
                                                   std::span<const ByteSpan> slabs) {
  EPIC_CHECK(slabs.size() == shape.layers && shape.ImageBytes() > 0);
  const UseScope use(&uses_);
  for (const ByteSpan& slab : slabs) EPIC_CHECK(slab.size() == shape.layer_bytes);
  EPIC_ASSIGN_OR_RETURN(const SlabExtents extents,
                        TakeSpace(RoundUpToPage(shape.ImageBytes()) / kSlabPageBytes));
  absl::Status status = WriteImage(extents, shape, slabs);
  if (status.ok()) status = SyncFiles(extents);
  MutexLock lock(&mu_);
  if (!status.ok()) {
    GiveSpace(extents);  // no index has heard of it
    return status;
  }
  EPIC_CHECK(images_.try_emplace(number, Image{.extents = extents}).second);
  return extents;
}

absl::Status ExtentSlabStore::Read(uint64_t number, const SlabShape& shape, LayerRange layers,
                                   MutableByteSpan out, const LayerReady& ready) {
  EPIC_CHECK(layers.begin < layers.end && layers.end <= shape.layers);
  EPIC_CHECK(out.size() >= shape.ReadBytes(layers));
  EPIC_CHECK(reinterpret_cast<uintptr_t>(out.data()) % kSlabPageBytes == 0);
  const UseScope use(&uses_);
  SlabExtents extents;
  {
    MutexLock lock(&mu_);
    const auto image = images_.find(number);
    if (image == images_.end() || image->second.freed) return absl::NotFoundError("slabs are gone");
    extents = image->second.extents;
    ++image->second.readers;
  }
  absl::Status status;
  if (PagesOf(extents) * kSlabPageBytes != RoundUpToPage(shape.ImageBytes())) {
    status = absl::DataLossError("slabs of another size");
  } else {
    const uint64_t begin = shape.PageBegin(layers.begin);
    std::vector<IoPiece> pieces = Pieces(extents, begin, out.first(shape.ReadBytes(layers)));
    std::vector<uint64_t> ends;  // of each piece, in the image
    uint64_t end = begin;
    for (const IoPiece& piece : pieces) ends.push_back(end += piece.bytes.size());
    std::vector<bool> arrived(pieces.size(), false);
    size_t first_missing = 0;
    uint32_t next = layers.begin;
    status =
        TransferWhole(space_.files(), IoKind::kRead, std::move(pieces), [&](size_t piece) -> absl::Status {
          arrived[piece] = true;
          while (first_missing < arrived.size() && arrived[first_missing]) ++first_missing;
          const uint64_t here = first_missing == 0 ? begin : ends[first_missing - 1];
          for (; next < layers.end && shape.PageEnd(next) <= here; ++next) {
            EPIC_RETURN_IF_ERROR(ready(next, out.subspan(next * shape.stride - begin, shape.layer_bytes)));
          }
          return absl::OkStatus();
        });
  }
  LetGo(number);
  return status;
}

// --- giving back ---

absl::Status ExtentSlabStore::PunchRun(const PageRun& run, SlabExtents* punched) {
  std::vector<PageRun> parts;
  {
    MutexLock lock(&mu_);
    // Somebody may have taken a part of it meanwhile: that is written over, or dirty again when freed.
    parts = dirty_.Within(run);
    for (const PageRun& part : parts) EPIC_CHECK(free_.Take(part));
    dirty_.Subtract(run);
  }
  absl::Status status;
  for (const PageRun& part : parts) {
    const SlabExtent extent = ExtentOf(part);
    if (status.ok()) {
      status = space_.Get(extent.file)->Punch(extent.page * kSlabPageBytes, extent.pages * kSlabPageBytes);
    }
    MutexLock lock(&mu_);
    free_.Add(part);
    if (!status.ok()) dirty_.Add(part);
    punched->push_back(extent);
  }
  return status;
}

absl::Status ExtentSlabStore::Reclaim() {
  const UseScope use(&uses_);
  EPIC_RETURN_IF_ERROR(ReleaseFreed());
  std::vector<PageRun> runs;
  {
    MutexLock lock(&mu_);
    runs = dirty_.runs();
  }
  SlabExtents punched;
  for (const PageRun& run : runs) {
    for (uint64_t at = 0; at < run.pages; at += kPunchPages) {
      const PageRun part{run.begin + at, std::min(kPunchPages, run.pages - at)};
      EPIC_RETURN_IF_ERROR(PunchRun(part, &punched));
    }
  }
  EPIC_RETURN_IF_ERROR(SyncFiles(punched));
  MutexLock lock(&mu_);
  unknown_holes_ = 0;
  return absl::OkStatus();
}

}  // namespace epic::kv_store
