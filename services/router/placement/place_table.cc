#include "services/router/placement/place_table.h"

#include <algorithm>

#include "common/base/check.h"

namespace epic::router {

size_t PlaceTable::SlotOf(const PlaceKey& key) const {
  const size_t mask = slots_.size() - 1;
  const uint32_t hash = HashOf(key);
  size_t at = hash & mask;
  while (slots_[at] != 0) {
    if (static_cast<uint32_t>(slots_[at] >> 32) == hash &&
        entries_[static_cast<uint32_t>(slots_[at]) - 1].key == key) {
      break;
    }
    at = (at + 1) & mask;
  }
  return at;
}

void PlaceTable::Grow() {
  std::vector<uint64_t> old(std::max<size_t>(64, slots_.size() * 2), 0);
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const uint64_t slot : old) {
    if (slot == 0) continue;
    size_t at = (slot >> 32) & mask;
    while (slots_[at] != 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

// Moves back what stands behind and would not be found any more.
void PlaceTable::EmptySlot(size_t hole) {
  const size_t mask = slots_.size() - 1;
  for (size_t at = (hole + 1) & mask; slots_[at] != 0; at = (at + 1) & mask) {
    const size_t home = (slots_[at] >> 32) & mask;
    if (((at - home) & mask) < ((at - hole) & mask)) continue;
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = 0;
}

uint32_t PlaceTable::NewEntry(const PlaceKey& key) {
  if ((live_entries_ + 1) * 10 > slots_.size() * 7) Grow();
  uint32_t entry = free_entry_;
  if (entry != kNone) {
    free_entry_ = entries_[entry].next_free;
  } else {
    entry = entries_.Add();
  }
  entries_[entry] = Entry{.key = key, .heat = 1};
  ++live_entries_;
  slots_[SlotOf(key)] = uint64_t{HashOf(key)} << 32 | (entry + 1);
  return entry;
}

void PlaceTable::FreeEntry(uint32_t entry) {
  EmptySlot(SlotOf(entries_[entry].key));
  for (uint32_t at = entries_[entry].chunk; at != kNone;) {
    const uint32_t next = chunks_[at].next;
    FreeChunk(at);
    at = next;
  }
  entries_[entry] = Entry{.next_free = free_entry_};
  free_entry_ = entry;
  --live_entries_;
}

void PlaceTable::FreeChunk(uint32_t chunk) {
  chunks_[chunk] = Chunk{.next = free_chunk_};
  free_chunk_ = chunk;
  --live_chunks_;
}

uint32_t PlaceTable::NewChunk() {
  uint32_t chunk = free_chunk_;
  if (chunk != kNone) {
    free_chunk_ = chunks_[chunk].next;
  } else {
    chunk = chunks_.Add();
  }
  chunks_[chunk] = Chunk{};
  ++live_chunks_;
  return chunk;
}

template <typename Visit>
bool PlaceTable::EachPlace(Entry* entry, Visit visit) {
  for (PackedHolder& holder : entry->inside) {
    if (visit(&holder)) return true;
  }
  for (uint32_t at = entry->chunk; at != kNone; at = chunks_[at].next) {
    for (PackedHolder& holder : chunks_[at].holders) {
      if (visit(&holder)) return true;
    }
  }
  return false;
}

void PlaceTable::SetHolder(Entry* entry, NodeSlot node, PackedHolder holder) {
  PackedHolder* unused = nullptr;
  PackedHolder* lesser = nullptr;  // a copy that no other node can pull, which makes way for one that can be
  uint32_t alive = 0;
  const bool found = EachPlace(entry, [&](PackedHolder* place) {
    if (*place != 0 && NodeOf(*place) == node) {
      *place = holder;
      return true;
    }
    if (IsAlive(*place)) {
      ++alive;
      if (TiersOf(*place) == kDeviceTier) lesser = place;
    } else if (unused == nullptr) {
      unused = place;
    }
    return false;
  });
  if (found) return;
  if (alive >= options_.max_holders) {
    ++holders_not_kept_;
    if (lesser != nullptr && TiersOf(holder) != kDeviceTier) *lesser = holder;
  } else if (unused != nullptr) {
    *unused = holder;
  } else {
    const uint32_t chunk = NewChunk();
    chunks_[chunk].holders[0] = holder;
    chunks_[chunk].next = entry->chunk;
    entry->chunk = chunk;
  }
}

bool PlaceTable::Reclaim(uint32_t at) {
  bool held = false;
  EachPlace(&entries_[at], [&](PackedHolder* place) {
    if (IsAlive(*place)) {
      held = true;
    } else {
      *place = 0;
    }
    return false;
  });
  if (held) {
    FreeEmptyChunks(&entries_[at]);
    return false;
  }
  FreeEntry(at);
  ++reclaimed_;
  return true;
}

void PlaceTable::FreeEmptyChunks(Entry* entry) {
  for (uint32_t* link = &entry->chunk; *link != kNone;) {
    Chunk& chunk = chunks_[*link];
    if (std::any_of(chunk.holders.begin(), chunk.holders.end(), [](PackedHolder h) { return h != 0; })) {
      link = &chunk.next;
      continue;
    }
    const uint32_t freed = *link;
    *link = chunk.next;
    FreeChunk(freed);
  }
}

void PlaceTable::Put(const PlaceItem& item, NodeSlot node, uint16_t life) {
  if (slots_.empty()) Grow();
  const uint64_t slot = slots_[SlotOf(item.key)];
  if (item.tiers == kNowhere) {
    if (slot == 0) return;
    const uint32_t at = static_cast<uint32_t>(slot) - 1;
    EachPlace(&entries_[at], [&](PackedHolder* place) {
      if (*place == 0 || NodeOf(*place) != node) return false;
      *place = 0;
      return true;
    });
    Reclaim(at);
    return;
  }
  const uint32_t at = slot != 0 ? static_cast<uint32_t>(slot) - 1 : NewEntry(item.key);
  Entry& entry = entries_[at];
  entry.extent = item.facts.extent;
  entry.rows = item.facts.rows;
  entry.model = item.facts.model;
  entry.state = item.facts.state;
  SetHolder(&entry, node, Pack(node, item.tiers & kAllTiers, life));
  if (Charge() > options_.max_bytes) EvictDownTo(options_.max_bytes, at);
}

void PlaceTable::Prefetch(const PlaceKey& key) const {
  if (!slots_.empty()) __builtin_prefetch(&slots_[HashOf(key) & (slots_.size() - 1)]);
}

void PlaceTable::Find(const PlaceKey& key, PlaceAnswers* answers) {
  PlaceAnswers::Found found{.first = static_cast<uint32_t>(answers->holders.size())};
  const uint64_t slot = slots_.empty() ? 0 : slots_[SlotOf(key)];
  if (slot != 0) {
    Entry& entry = entries_[static_cast<uint32_t>(slot) - 1];
    EachPlace(&entry, [&](const PackedHolder* place) {
      if (IsAlive(*place)) answers->holders.push_back({NodeOf(*place), TiersOf(*place)});
      return false;
    });
    found.count = static_cast<uint32_t>(answers->holders.size()) - found.first;
    if (found.count > 0) {
      found.facts = {entry.extent, entry.rows, entry.model, entry.state};
      entry.heat = std::min<uint8_t>(kHottest, entry.heat + 1);
    }
  }
  answers->found.push_back(found);
}

// A clock: every entry it passes cools down, and goes if it was cold. So an entry that is used more than the
// others stays, and one that was only ever announced goes in its second round.
void PlaceTable::EvictDownTo(uint64_t bytes, uint32_t spared) {
  while (Charge() > bytes && live_entries_ > 1) {
    hand_ = hand_ + 1 < entries_.size() ? hand_ + 1 : 0;
    if (hand_ == spared || !IsUsed(hand_) || Reclaim(hand_)) continue;
    if (entries_[hand_].heat > 0) {
      --entries_[hand_].heat;
      continue;
    }
    FreeEntry(hand_);
    ++evicted_;
  }
}

bool PlaceTable::Sweep(uint32_t entries) {
  for (uint32_t looked = 0; looked < entries; ++looked) {
    if (sweep_ >= entries_.size()) {
      sweep_ = 0;
      return true;
    }
    if (IsUsed(sweep_)) Reclaim(sweep_);
    ++sweep_;
  }
  return false;
}

PlaceTable::Counts PlaceTable::counts() const {
  return {.entries = live_entries_,
          .evicted = evicted_,
          .reclaimed = reclaimed_,
          .holders_not_kept = holders_not_kept_,
          .memory_bytes = slots_.capacity() * sizeof(uint64_t) + entries_.bytes() + chunks_.bytes()};
}

}  // namespace epic::router
