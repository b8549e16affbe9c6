#include "common/storage/rendezvous.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/digest.h"

namespace epic {

uint64_t RendezvousScore(std::string_view node, std::string_view key) {
  std::string text;
  AppendField(&text, "epic.rendezvous.v1");
  AppendField(&text, node);
  AppendField(&text, key);
  return LoadLittle<uint64_t>(AsBytes(Sha256Of(AsBytes(text)).view()));
}

std::vector<size_t> RendezvousOrder(std::span<const PlacedNode> nodes, std::string_view key) {
  std::vector<std::pair<uint64_t, size_t>> scores;
  for (size_t at = 0; at < nodes.size(); ++at) scores.emplace_back(RendezvousScore(nodes[at].name, key), at);
  std::sort(scores.begin(), scores.end(), [&](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : nodes[a.second].name < nodes[b.second].name;
  });
  std::vector<size_t> order, rest;
  std::set<std::string_view> zones;
  for (const auto& [score, at] : scores) (zones.insert(nodes[at].zone).second ? order : rest).push_back(at);
  order.insert(order.end(), rest.begin(), rest.end());
  return order;
}

}  // namespace epic
