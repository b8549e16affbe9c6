#include "common/storage/rendezvous.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace epic {
namespace {

std::vector<PlacedNode> NodesOf(size_t count, size_t zones) {
  std::vector<PlacedNode> nodes;
  for (size_t at = 0; at < count; ++at) {
    nodes.push_back({"node-" + std::to_string(at), zones == 0 ? "" : "zone-" + std::to_string(at % zones)});
  }
  return nodes;
}

std::set<std::string> FirstOf(const std::vector<PlacedNode>& nodes, const std::string& key, size_t n) {
  std::set<std::string> names;
  for (const size_t at : RendezvousOrder(nodes, key)) {
    if (names.size() < n) names.insert(nodes[at].name);
  }
  return names;
}

// Computed by Python's hashlib from the formula in the header.
TEST(RendezvousTest, ScoresAreThoseOfTheFormula) {
  EXPECT_EQ(RendezvousScore("a", "k"), 16964261936141236619u);
  EXPECT_EQ(RendezvousScore("ak", ""), 326808901583715790u);
  EXPECT_EQ(RendezvousScore("node-1", "ctx_\xc3\xa9"), 17295066124861800236u);
}

// By the formula and the rule about zones in the header, computed by Python. A change of these lists would
// move contexts of running clusters.
TEST(RendezvousTest, TheOrdersOfThreeKeysAreGolden) {
  std::vector<PlacedNode> nodes;
  for (size_t at = 0; at < 9; ++at) {
    nodes.push_back({"store-" + std::to_string(at), std::string(1, "abc"[at % 3])});
  }
  const std::vector<std::pair<std::string, std::vector<size_t>>> golden = {
      {"ctx_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", {7, 3, 2, 1, 0, 4, 6, 8, 5}},
      {"ctx_mzxw6ytboi5dgnbvgy3tqojqgezdgnbv", {5, 6, 7, 8, 3, 0, 2, 1, 4}},
      {"k", {4, 8, 3, 7, 0, 1, 6, 5, 2}},
  };
  for (const auto& [key, order] : golden) EXPECT_EQ(RendezvousOrder(nodes, key), order) << key;
}

TEST(RendezvousTest, TheOrderDoesNotDependOnHowNodesAreListed) {
  std::vector<PlacedNode> nodes = NodesOf(7, 3);
  for (int key = 0; key < 50; ++key) {
    const std::string text = std::to_string(key);
    const auto name_at = [&](size_t place) { return nodes[RendezvousOrder(nodes, text)[place]].name; };
    std::vector<std::string> before, after;
    for (size_t place = 0; place < nodes.size(); ++place) before.push_back(name_at(place));
    std::reverse(nodes.begin(), nodes.end());
    for (size_t place = 0; place < nodes.size(); ++place) after.push_back(name_at(place));
    EXPECT_EQ(before, after);
    EXPECT_EQ(std::set<std::string>(before.begin(), before.end()).size(), nodes.size());
  }
}

TEST(RendezvousTest, EveryNodeIsFirstForItsShareOfKeys) {
  constexpr int kKeys = 20'000;
  const std::vector<PlacedNode> nodes = NodesOf(5, 0);
  std::vector<int> firsts(nodes.size());
  for (int key = 0; key < kKeys; ++key) ++firsts[RendezvousOrder(nodes, std::to_string(key))[0]];
  const double mean = double{kKeys} / static_cast<double>(nodes.size());
  for (const int count : firsts) EXPECT_LT(std::abs(count - mean), 5 * std::sqrt(mean));
}

TEST(RendezvousTest, TheFirstNodesAreInAsManyZonesAsCanBe) {
  for (const size_t zones : {1, 2, 3, 5}) {
    const std::vector<PlacedNode> nodes = NodesOf(10, zones);
    for (int key = 0; key < 100; ++key) {
      const auto order = RendezvousOrder(nodes, std::to_string(key));
      std::set<std::string> seen;
      for (size_t place = 0; place < order.size(); ++place) {
        seen.insert(nodes[order[place]].zone);
        EXPECT_EQ(seen.size(), std::min(zones, place + 1));
      }
    }
  }
}

TEST(RendezvousTest, ANodeThatGoesChangesAtMostOnePlace) {
  for (const size_t zones : {0, 1, 2, 4, 8}) {
    const std::vector<PlacedNode> nodes = NodesOf(8, zones);
    for (int key = 0; key < 100; ++key) {
      for (size_t gone = 0; gone < nodes.size(); ++gone) {
        std::vector<PlacedNode> fewer = nodes;
        fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(gone));
        const auto before = FirstOf(nodes, std::to_string(key), 3);
        const auto after = FirstOf(fewer, std::to_string(key), 3);
        std::vector<std::string> stayed;
        std::set_intersection(before.begin(), before.end(), after.begin(), after.end(),
                              std::back_inserter(stayed));
        EXPECT_GE(stayed.size(), before.contains(nodes[gone].name) ? 2u : 3u);
      }
    }
  }
}

}  // namespace
}  // namespace epic
