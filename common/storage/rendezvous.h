// Which nodes hold a key: rendezvous hashing over named nodes with zone labels. Pure functions of values,
// the same on every machine and in every version, so that nodes agree without talking.
//
// A node's score for a key is the first 8 bytes, little-endian, of
//   SHA-256(field("epic.rendezvous.v1") field(node name) field(key)),
// where field(x) is the byte length of x as u64, little-endian, followed by x. The greatest score comes
// first, of equal ones the lesser name. A node that comes or goes changes at most one place among the first n
// of a key.
#ifndef EPIC_COMMON_STORAGE_RENDEZVOUS_H_
#define EPIC_COMMON_STORAGE_RENDEZVOUS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace epic {

struct PlacedNode {
  std::string name;  // unique
  std::string zone;  // empty: not said; such nodes count as one zone
};

uint64_t RendezvousScore(std::string_view node, std::string_view key);

// Indices of all nodes, the one to hold the key first coming first. As long as there are zones that none of
// the nodes before is in, the next node is of such a zone: any first n nodes are in as many zones as can be.
std::vector<size_t> RendezvousOrder(std::span<const PlacedNode> nodes, std::string_view key);

}  // namespace epic

#endif  // EPIC_COMMON_STORAGE_RENDEZVOUS_H_
