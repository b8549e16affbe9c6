// Memory that is registered with a network device: arenas once and for good, buffers of fetches for as long
// as they are used and, after that, until room is needed (least recently used first).
//
// Registering pins pages: an owner calls Forget before it gives memory back to the system, or a later mapping
// at the same address would be taken for the old one. One thread only (the loop's). What registering means is
// the Registrar's affair: UcxFabric has the real one, tests a counting one.
#ifndef EPIC_COMMON_TRANSPORT_UCX_REGISTRATION_CACHE_H_
#define EPIC_COMMON_TRANSPORT_UCX_REGISTRATION_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/transport/ucx/lane.h"

namespace epic::transport {

class Registrar {
 public:
  virtual ~Registrar() = default;
  virtual absl::StatusOr<void*> Register(ByteSpan memory, MemoryKind kind) = 0;
  virtual void Unregister(void* handle) = 0;
};

class RegistrationCache {
 private:
  struct Entry;

 public:
  // Keeps its memory registered while it lives. Not beyond the cache.
  class Use {
   public:
    Use() = default;
    Use(Use&& other) noexcept;
    Use& operator=(Use&& other) noexcept;
    ~Use() { Drop(); }
    void* handle() const;

   private:
    friend class RegistrationCache;
    Use(RegistrationCache* cache, Entry* entry) : cache_(cache), entry_(entry) {}
    void Drop();
    RegistrationCache* cache_ = nullptr;
    Entry* entry_ = nullptr;
  };

  // REQUIRES: `registrar` outlives this.
  RegistrationCache(Registrar* registrar, uint64_t max_bytes, size_t max_entries);
  // REQUIRES: no Use lives.
  ~RegistrationCache();
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  // Registers `memory` until Forget, outside the bounds. Idempotent. Errors: the registrar's.
  absl::StatusOr<void*> Pin(ByteSpan memory, MemoryKind kind);
  // A registration that contains `memory`. What is in use is never dropped, so the bounds may be exceeded by
  // it. Errors: the registrar's, once everything unused was dropped and did not help.
  absl::StatusOr<Use> Acquire(ByteSpan memory, MemoryKind kind);
  // Drops every registration that touches `memory`; those in use at the end of their use, and nobody new gets
  // them.
  void Forget(ByteSpan memory);

  size_t entries() const { return by_begin_.size(); }
  uint64_t unpinned_bytes() const { return bytes_; }

 private:
  struct Entry {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    void* handle = nullptr;
    uint32_t uses = 0;
    bool pinned = false;
    bool forgotten = false;
    std::list<Entry*>::iterator idle;  // its place in idle_; idle_.end() when in use or pinned
  };
  using Entries = std::multimap<uintptr_t, std::unique_ptr<Entry>>;

  Entry* Find(uintptr_t begin, uintptr_t end) const;
  absl::StatusOr<Entry*> Add(ByteSpan memory, MemoryKind kind);
  void Release(Entry* entry);
  void Erase(Entry* entry);
  void ShrinkTo(uint64_t bytes, size_t entries);

  Registrar* const registrar_;
  const uint64_t max_bytes_;
  const size_t max_entries_;
  Entries by_begin_;
  std::list<Entry*> idle_;  // least recently used first
  uint64_t bytes_ = 0;      // of entries that are not pinned
  size_t unpinned_ = 0;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_REGISTRATION_CACHE_H_
