#include "services/kv_store/core/memory_slab_store.h"

#include <cstring>
#include <optional>

#include "common/base/check.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic::kv_store {

absl::StatusOr<std::vector<uint64_t>> MemorySlabStore::Load(const std::vector<LiveSlabs>& live,
                                                            bool /*entries_lost*/) {
  std::vector<uint64_t> wrong;
  std::set<uint32_t> named;
  MutexLock lock(&mu_);
  MutexLock disk(&disk_->mu_);
  for (const LiveSlabs& slabs : live) {
    const bool known = slabs.extents.size() == 1 && disk_->images_.contains(slabs.extents[0].page) &&
                       named.insert(slabs.extents[0].page).second;
    if (known) {
      live_[slabs.number] = slabs.extents[0];
    } else {
      wrong.push_back(slabs.number);
    }
  }
  for (auto image = disk_->images_.begin(); image != disk_->images_.end();) {
    if (named.contains(image->first)) {
      ++image;
    } else {
      disk_->used_bytes_ -= image->second.size();
      image = disk_->images_.erase(image);
    }
  }
  return wrong;
}

absl::StatusOr<SlabExtents> MemorySlabStore::Write(uint64_t number, const SlabShape& shape,
                                                   std::span<const ByteSpan> slabs) {
  EPIC_CHECK(slabs.size() == shape.layers);
  std::string image(RoundUpToPage(shape.ImageBytes()), '\0');
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    EPIC_CHECK(slabs[layer].size() == shape.layer_bytes);
    std::memcpy(image.data() + layer * shape.stride, slabs[layer].data(), shape.layer_bytes);
  }
  SlabExtent extent;
  {
    MutexLock disk(&disk_->mu_);
    if (image.size() > disk_->capacity_bytes_ - disk_->used_bytes_) {
      return Error(ErrorCode::kStorageFull, "no room for slabs in memory; raise its capacity");
    }
    extent = {.page = disk_->next_page_, .pages = static_cast<uint32_t>(image.size() / kSlabPageBytes)};
    disk_->next_page_ += extent.pages;
    disk_->used_bytes_ += image.size();
    disk_->images_[extent.page] = std::move(image);
  }
  MutexLock lock(&mu_);
  live_[number] = extent;
  return SlabExtents{extent};
}

bool MemorySlabStore::Holds(uint64_t number) {
  MutexLock lock(&mu_);
  return live_.contains(number);
}

absl::Status MemorySlabStore::Read(uint64_t number, const SlabShape& shape, LayerRange layers,
                                   MutableByteSpan out, const LayerReady& ready) {
  EPIC_CHECK(layers.begin < layers.end && layers.end <= shape.layers);
  EPIC_CHECK(out.size() >= shape.ReadBytes(layers));
  {
    MutexLock lock(&mu_);
    const auto found = live_.find(number);
    if (found == live_.end()) return absl::NotFoundError("slabs are gone");
    MutexLock disk(&disk_->mu_);
    const std::string& image = disk_->images_.at(found->second.page);
    if (image.size() != RoundUpToPage(shape.ImageBytes()))
      return absl::DataLossError("slabs of another size");
    std::memcpy(out.data(), image.data() + shape.PageBegin(layers.begin), shape.ReadBytes(layers));
  }
  for (uint32_t layer = layers.begin; layer < layers.end; ++layer) {
    const uint64_t at = layer * shape.stride - shape.PageBegin(layers.begin);
    EPIC_RETURN_IF_ERROR(ready(layer, out.subspan(at, shape.layer_bytes)));
  }
  return absl::OkStatus();
}

void MemorySlabStore::Free(uint64_t number) {
  MutexLock lock(&mu_);
  const auto found = live_.find(number);
  if (found == live_.end()) return;
  MutexLock disk(&disk_->mu_);
  const auto image = disk_->images_.find(found->second.page);
  disk_->used_bytes_ -= image->second.size();
  disk_->images_.erase(image);
  live_.erase(found);
}

uint64_t MemorySlabStore::PhysicalBytes() {
  MutexLock disk(&disk_->mu_);
  return disk_->used_bytes_;
}

}  // namespace epic::kv_store
