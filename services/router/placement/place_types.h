// What the placement index is told and what it answers: keys, places, facts. Value types of plain bits, so
// that tens of millions of them fit in memory. Not here: the index (placement_index.h).
#ifndef EPIC_SERVICES_ROUTER_PLACEMENT_PLACE_TYPES_H_
#define EPIC_SERVICES_ROUTER_PLACEMENT_PLACE_TYPES_H_

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/digest.h"
#include "common/storage/cache_id.h"

namespace epic::router {

// 128 bits that stand for the record of a context, or for one object of it. Cache IDs are digests over
// tenant, model and tokens, so these bits are as good as random; two keys that are the same by chance would
// cost a detour, not a wrong byte: whoever reads an object names it in full.
struct PlaceKey {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const PlaceKey&) const = default;

  static PlaceKey OfContext(const CacheId& id) { return OfObject(id, Digest{}); }
  // `variant` as ObjectVariant::ToDigest gives it. REQUIRES: id is not empty.
  static PlaceKey OfObject(const CacheId& id, const Digest& variant);
};

// Where a node has something: a sum of bits.
using Tiers = uint8_t;
inline constexpr Tiers kNowhere = 0;
inline constexpr Tiers kDeviceTier = 1;  // of a link worker
inline constexpr Tiers kHostTier = 2;    // memory of a store, or of a link worker's host
inline constexpr Tiers kDiskTier = 4;
inline constexpr Tiers kRecordTier = 8;  // the record of a context and its token ids
inline constexpr Tiers kAllTiers = 15;

// What is the same wherever it lies.
struct PlaceFacts {
  uint64_t extent = 0;  // of an object its bytes; of a context the Unix time in ms when it expires, 0: never
  uint32_t rows = 0;    // tokens
  uint16_t model = 0;   // the router's number of the model
  uint8_t state = 0;    // of a context, as the caller numbers states
  bool operator==(const PlaceFacts&) const = default;
};

// The state that a key is in at one node from then on. kNowhere: it is gone there.
struct PlaceItem {
  PlaceKey key;
  Tiers tiers = kNowhere;
  PlaceFacts facts;
};

struct PlaceEvent {
  uint64_t sequence = 0;
  PlaceItem item;
};

// A node by its place in the index. Not used for another node before it is removed.
using NodeSlot = uint16_t;

struct Holder {
  NodeSlot node = 0;
  Tiers tiers = kNowhere;
  auto operator<=>(const Holder&) const = default;
};

// The answers to a batch, in the order of its keys. Reuse one: it keeps its memory.
struct PlaceAnswers {
  struct Found {
    PlaceFacts facts;
    uint32_t first = 0;  // its holders, in `holders`
    uint32_t count = 0;  // 0: not known to be anywhere
  };
  std::vector<Found> found;
  std::vector<Holder> holders;

  std::span<const Holder> HoldersOf(size_t at) const {
    return std::span(holders).subspan(found[at].first, found[at].count);
  }
};

}  // namespace epic::router

#endif  // EPIC_SERVICES_ROUTER_PLACEMENT_PLACE_TYPES_H_
