// Who a node of a cluster is, as all others read it: the record that it keeps in the coordination store under
// its lease. Values and free functions; any thread.
//
// As text it is JSON, for people who look into the store. Readers pass over fields that they do not know, so
// that nodes of two versions see each other. No secrets, no texts of users.
#ifndef EPIC_COMMON_COORDINATION_MEMBER_RECORD_H_
#define EPIC_COMMON_COORDINATION_MEMBER_RECORD_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace epic {

enum class NodeKind : uint8_t { kRouter, kCompileWorker, kLinkWorker, kKvStore };
enum class NodeState : uint8_t { kJoining, kServing, kDraining };
inline constexpr size_t kNodeKinds = 4;
inline constexpr size_t kNodeStates = 3;
// router | compile_worker | link_worker | kv_store; joining | serving | draining.
std::string_view NameOf(NodeKind kind);
std::string_view NameOf(NodeState state);
std::optional<NodeKind> ParseNodeKind(std::string_view name);
std::optional<NodeState> ParseNodeState(std::string_view name);

// One life of the process that bears a node's id. Of two the one with the higher boot is the newer.
struct Incarnation {
  uint64_t boot = 0;    // counts starts on the node's disk; without a disk: Unix milliseconds of the start
  uint64_t random = 0;  // tells apart what has the same boot
  auto operator<=>(const Incarnation&) const = default;
};

struct ServedModel {
  std::string identity;  // in hexadecimal
  std::string alias;
  bool operator==(const ServedModel&) const = default;
};

struct NodeInfo {
  static constexpr size_t kIdBytes = 128;  // of A-Z a-z 0-9 . _ : -
  static constexpr size_t kTextBytes = 256;
  static constexpr size_t kAddresses = 16;
  static constexpr size_t kModels = 64;

  NodeKind kind = NodeKind::kRouter;
  std::string id;  // unique in the cluster, over all kinds; the same after a restart
  Incarnation incarnation;
  std::map<std::string, std::string> addresses;  // door ("grpc", "http", …) -> HOST:PORT
  std::string zone;                              // empty: none
  std::vector<ServedModel> models;
  NodeState state = NodeState::kJoining;
  int64_t lease_ms = 0;  // of the record
  bool operator==(const NodeInfo&) const = default;
};

// Errors: InvalidArgument that names every field that is not as said above.
absl::Status ValidateNode(const NodeInfo& node);
// REQUIRES: ValidateNode(node).ok().
std::string EncodeMember(const NodeInfo& node);
// Errors: InvalidArgument for what is no valid record.
absl::StatusOr<NodeInfo> DecodeMember(std::string_view text);

}  // namespace epic

#endif  // EPIC_COMMON_COORDINATION_MEMBER_RECORD_H_
