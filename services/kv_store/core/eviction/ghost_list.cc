#include "services/kv_store/core/eviction/ghost_list.h"

namespace epic::kv_store {

void GhostList::Add(uint64_t fingerprint, uint64_t bytes) {
  Take(fingerprint);
  known_[fingerprint] = {.number = next_number_, .bytes = bytes};
  queue_.push_back({.fingerprint = fingerprint, .bytes = bytes, .number = next_number_++});
  bytes_ += bytes;
  DropVoid();
}

bool GhostList::Take(uint64_t fingerprint) {
  const auto known = known_.find(fingerprint);
  if (known == known_.end()) return false;
  bytes_ -= known->second.bytes;
  known_.erase(known);
  return true;
}

void GhostList::ShrinkTo(uint64_t max_bytes) {
  while (bytes_ > max_bytes) {
    const Ghost& oldest = queue_.front();
    const auto known = known_.find(oldest.fingerprint);
    if (known != known_.end() && known->second.number == oldest.number) {
      bytes_ -= oldest.bytes;
      known_.erase(known);
    }
    queue_.pop_front();
  }
  DropVoid();
}

// Void ghosts are few at the old end; where they are many all over, they are taken out at once.
void GhostList::DropVoid() {
  if (queue_.size() <= 2 * known_.size() + 16) return;
  std::deque<Ghost> left;
  for (const Ghost& ghost : queue_) {
    const auto known = known_.find(ghost.fingerprint);
    if (known != known_.end() && known->second.number == ghost.number) left.push_back(ghost);
  }
  queue_.swap(left);
}

uint64_t GhostList::memory_bytes() const {
  return queue_.size() * sizeof(Ghost) + known_.capacity() * (sizeof(*known_.begin()) + 1);
}

}  // namespace epic::kv_store
