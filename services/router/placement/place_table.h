// A part of the placement index: keys with their facts and holders, packed, in bounded memory. One thread at
// a time: its owner (placement_index.h) has a lock per table. Not here: what a node is, and which lives of
// nodes are over; a holder of a life that is over is passed over at once and taken out when something comes
// by.
//
//   slots    open addressing over the low 32 bits of a key, u64 each: those bits, then entry + 1; 0: empty
//   entries  blocks of 56-byte entries; the first four holders inside
//   chunks   blocks of 32 bytes: seven more holders and the next chunk
#ifndef EPIC_SERVICES_ROUTER_PLACEMENT_PLACE_TABLE_H_
#define EPIC_SERVICES_ROUTER_PLACEMENT_PLACE_TABLE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "services/router/placement/place_types.h"

namespace epic::router {

// A life of a node, as holders name it: 14 bits that come round, see PlacementIndex. What holders of a node
// count: those of its life `current`, and of `gathered`, the one whose inventory is coming in.
inline constexpr uint32_t kLifeBits = 14;
inline constexpr uint16_t kNoLife = 0xFFFF;
inline constexpr uint32_t kMaxNodes = 1u << 14;

// Per slot of a node: `current` in the low half, `gathered` in the high one.
using NodeLives = std::span<const std::atomic<uint32_t>>;
inline constexpr uint32_t PackLives(uint16_t current, uint16_t gathered) {
  return uint32_t{gathered} << 16 | current;
}

// Freed blocks are used again, not given back.
template <typename T, uint32_t kBlock = 256>
class BlockPool {
 public:
  T& operator[](uint32_t at) { return blocks_[at / kBlock][at % kBlock]; }
  const T& operator[](uint32_t at) const { return blocks_[at / kBlock][at % kBlock]; }
  uint32_t size() const { return size_; }  // of all that ever were at once
  uint32_t Add() {
    if (size_ % kBlock == 0) blocks_.push_back(std::make_unique<T[]>(kBlock));
    return size_++;
  }
  uint64_t bytes() const { return blocks_.size() * sizeof(T) * kBlock + blocks_.capacity() * sizeof(void*); }

 private:
  std::vector<std::unique_ptr<T[]>> blocks_;
  uint32_t size_ = 0;
};

class PlaceTable {
 public:
  struct Options {
    uint64_t max_bytes = 0;     // of what entries and holders are charged
    uint32_t max_holders = 64;  // of one key; further ones are not kept
  };
  struct Counts {
    uint64_t entries = 0;
    uint64_t evicted = 0;           // for want of memory, the coldest first
    uint64_t reclaimed = 0;         // entries that nobody held any more
    uint64_t holders_not_kept = 0;  // of keys that had too many
    uint64_t memory_bytes = 0;      // taken from the heap
  };

  // `lives` outlives this.
  PlaceTable(const Options& options, NodeLives lives) : options_(options), lives_(lives) {}
  PlaceTable(const PlaceTable&) = delete;
  PlaceTable& operator=(const PlaceTable&) = delete;

  // The node's holder of the key becomes this one, of this life. kNowhere takes it out.
  void Put(const PlaceItem& item, NodeSlot node, uint16_t life);
  // Appends one answer. Counts as a use.
  void Find(const PlaceKey& key, PlaceAnswers* answers);
  // Asks for the memory that Find of the key will read first.
  void Prefetch(const PlaceKey& key) const;
  // Looks at the next `entries` entries for holders whose life is over, and takes them out. Returns whether
  // that was the last of a round.
  bool Sweep(uint32_t entries);

  Counts counts() const;

 private:
  static constexpr uint32_t kNone = 0xFFFFFFFF;
  static constexpr uint32_t kInside = 4;
  static constexpr uint8_t kHottest = 3;
  // What an entry is charged: itself and at most 1 / 0.35 slots.
  static constexpr uint64_t kEntryCharge = 56 + 24;
  static constexpr uint64_t kChunkCharge = 32;

  // life 14 bits, tiers 4, node 14. 0: none.
  using PackedHolder = uint32_t;
  struct Entry {
    PlaceKey key;
    uint64_t extent = 0;
    uint32_t rows = 0;
    uint16_t model = 0;
    uint8_t state = 0;
    uint8_t heat = 0;
    std::array<PackedHolder, kInside> inside{};
    uint32_t chunk = kNone;
    uint32_t next_free = kNone;
  };
  static_assert(sizeof(Entry) == 56);
  struct Chunk {
    std::array<PackedHolder, 7> holders{};
    uint32_t next = kNone;
  };
  static_assert(sizeof(Chunk) == 32);

  static PackedHolder Pack(NodeSlot node, Tiers tiers, uint16_t life) {
    return uint32_t{life} << 18 | uint32_t{tiers} << 14 | node;
  }
  static NodeSlot NodeOf(PackedHolder holder) { return holder & (kMaxNodes - 1); }
  static Tiers TiersOf(PackedHolder holder) { return holder >> 14 & kAllTiers; }
  bool IsAlive(PackedHolder holder) const {
    const uint32_t lives = lives_[NodeOf(holder)].load(std::memory_order_relaxed);
    const uint32_t life = holder >> 18;
    return holder != 0 && (life == (lives & 0xFFFF) || life == lives >> 16);
  }

  static uint32_t HashOf(const PlaceKey& key) { return static_cast<uint32_t>(key.low); }
  size_t SlotOf(const PlaceKey& key) const;  // of the key, or the empty one where it would be
  void Grow();
  void EmptySlot(size_t at);
  uint32_t NewEntry(const PlaceKey& key);
  void FreeEntry(uint32_t entry);
  uint32_t NewChunk();
  void FreeChunk(uint32_t chunk);
  void FreeEmptyChunks(Entry* entry);
  // Calls `visit(PackedHolder*)` for every place of a holder until it returns true; whether it did.
  template <typename Visit>
  bool EachPlace(Entry* entry, Visit visit);
  void SetHolder(Entry* entry, NodeSlot node, PackedHolder holder);
  // Takes out what is over. Returns whether the entry went, too.
  bool Reclaim(uint32_t entry);
  bool IsUsed(uint32_t entry) const { return (entries_[entry].key <=> PlaceKey{}) != 0; }
  uint64_t Charge() const { return live_entries_ * kEntryCharge + live_chunks_ * kChunkCharge; }
  void EvictDownTo(uint64_t bytes, uint32_t spared);

  const Options options_;
  const NodeLives lives_;
  std::vector<uint64_t> slots_;
  BlockPool<Entry> entries_;
  BlockPool<Chunk> chunks_;
  uint32_t free_entry_ = kNone;
  uint32_t free_chunk_ = kNone;
  uint64_t live_entries_ = 0;
  uint64_t live_chunks_ = 0;
  uint32_t hand_ = 0;   // of the clock that evicts
  uint32_t sweep_ = 0;  // the next entry to be swept
  uint64_t evicted_ = 0;
  uint64_t reclaimed_ = 0;
  uint64_t holders_not_kept_ = 0;
};

}  // namespace epic::router

#endif  // EPIC_SERVICES_ROUTER_PLACEMENT_PLACE_TABLE_H_
