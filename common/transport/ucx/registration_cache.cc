#include "common/transport/ucx/registration_cache.h"

#include <utility>

#include "common/base/check.h"
#include "common/status/status_macros.h"

namespace epic::transport {
namespace {

uintptr_t Begin(ByteSpan memory) { return reinterpret_cast<uintptr_t>(memory.data()); }
uintptr_t End(ByteSpan memory) { return Begin(memory) + memory.size(); }

}  // namespace

RegistrationCache::Use::Use(Use&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)), entry_(std::exchange(other.entry_, nullptr)) {}

RegistrationCache::Use& RegistrationCache::Use::operator=(Use&& other) noexcept {
  if (this != &other) {
    Drop();
    cache_ = std::exchange(other.cache_, nullptr);
    entry_ = std::exchange(other.entry_, nullptr);
  }
  return *this;
}

void* RegistrationCache::Use::handle() const { return entry_ == nullptr ? nullptr : entry_->handle; }

void RegistrationCache::Use::Drop() {
  if (cache_ != nullptr) cache_->Release(entry_);
  cache_ = nullptr;
  entry_ = nullptr;
}

RegistrationCache::RegistrationCache(Registrar* registrar, uint64_t max_bytes, size_t max_entries)
    : registrar_(registrar), max_bytes_(max_bytes), max_entries_(max_entries) {}

RegistrationCache::~RegistrationCache() {
  for (const auto& [begin, entry] : by_begin_) {
    EPIC_CHECK(entry->uses == 0);
    registrar_->Unregister(entry->handle);
  }
}

RegistrationCache::Entry* RegistrationCache::Find(uintptr_t begin, uintptr_t end) const {
  for (auto it = by_begin_.upper_bound(begin); it != by_begin_.begin();) {
    --it;
    Entry* entry = it->second.get();
    if (!entry->forgotten && entry->end >= end) return entry;
  }
  return nullptr;
}

absl::StatusOr<RegistrationCache::Entry*> RegistrationCache::Add(ByteSpan memory, MemoryKind kind) {
  absl::StatusOr<void*> handle = registrar_->Register(memory, kind);
  if (!handle.ok() && !idle_.empty()) {
    ShrinkTo(0, 0);
    handle = registrar_->Register(memory, kind);
  }
  if (!handle.ok()) return handle.status();
  auto entry = std::make_unique<Entry>();
  entry->begin = Begin(memory);
  entry->end = End(memory);
  entry->handle = *handle;
  entry->idle = idle_.end();
  Entry* added = entry.get();
  by_begin_.emplace(added->begin, std::move(entry));
  return added;
}

absl::StatusOr<void*> RegistrationCache::Pin(ByteSpan memory, MemoryKind kind) {
  for (auto [it, last] = by_begin_.equal_range(Begin(memory)); it != last; ++it) {
    const Entry& entry = *it->second;
    if (entry.pinned && !entry.forgotten && entry.end == End(memory)) return entry.handle;
  }
  EPIC_ASSIGN_OR_RETURN(Entry* const entry, Add(memory, kind));
  entry->pinned = true;
  return entry->handle;
}

absl::StatusOr<RegistrationCache::Use> RegistrationCache::Acquire(ByteSpan memory, MemoryKind kind) {
  Entry* entry = Find(Begin(memory), End(memory));
  if (entry == nullptr) {
    EPIC_ASSIGN_OR_RETURN(entry, Add(memory, kind));
    bytes_ += memory.size();
    unpinned_ += 1;
  }
  if (entry->idle != idle_.end()) {
    idle_.erase(entry->idle);
    entry->idle = idle_.end();
  }
  entry->uses += 1;
  ShrinkTo(max_bytes_, max_entries_);
  return Use(this, entry);
}

void RegistrationCache::Release(Entry* entry) {
  EPIC_CHECK(entry->uses > 0);
  entry->uses -= 1;
  if (entry->uses > 0) return;
  if (entry->forgotten) {
    Erase(entry);
  } else if (!entry->pinned) {
    entry->idle = idle_.insert(idle_.end(), entry);
    ShrinkTo(max_bytes_, max_entries_);
  }
}

void RegistrationCache::Forget(ByteSpan memory) {
  for (auto it = by_begin_.begin(); it != by_begin_.end();) {
    Entry* entry = it->second.get();
    ++it;
    if (entry->end <= Begin(memory) || End(memory) <= entry->begin) continue;
    entry->forgotten = true;
    if (entry->uses == 0) Erase(entry);
  }
}

void RegistrationCache::Erase(Entry* entry) {
  registrar_->Unregister(entry->handle);
  if (entry->idle != idle_.end()) idle_.erase(entry->idle);
  if (!entry->pinned) {
    bytes_ -= entry->end - entry->begin;
    unpinned_ -= 1;
  }
  for (auto [it, last] = by_begin_.equal_range(entry->begin); it != last; ++it) {
    if (it->second.get() != entry) continue;
    by_begin_.erase(it);
    return;
  }
}

void RegistrationCache::ShrinkTo(uint64_t bytes, size_t entries) {
  while (!idle_.empty() && (bytes_ > bytes || unpinned_ > entries)) Erase(idle_.front());
}

}  // namespace epic::transport
