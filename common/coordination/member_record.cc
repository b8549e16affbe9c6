#include "common/coordination/member_record.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/check.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, kNodeKinds> kKindNames = {"router", "compile_worker", "link_worker",
                                                                 "kv_store"};
constexpr std::array<std::string_view, kNodeStates> kStateNames = {"joining", "serving", "draining"};
constexpr int kFormat = 1;
constexpr size_t kMaxRecordBytes = 64 * 1024;

template <typename Enum, size_t kCount>
std::optional<Enum> Parse(const std::array<std::string_view, kCount>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

bool IsIdCharacter(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
         std::string_view("._:-").find(c) != std::string_view::npos;
}
bool IsPlain(std::string_view text) {
  return text.size() <= NodeInfo::kTextBytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

absl::Status NoRecord(const std::string& why) {
  return Error(ErrorCode::kInvalidRequest, "not the record of a member: " + why);
}

// Throws what nlohmann throws.
absl::StatusOr<NodeInfo> FromJson(const Json& json) {
  NodeInfo node;
  const auto kind = ParseNodeKind(json.at("kind").get<std::string>());
  const auto state = ParseNodeState(json.at("state").get<std::string>());
  if (!kind.has_value() || !state.has_value()) return NoRecord("a kind or state that is not known");
  node.kind = *kind;
  node.state = *state;
  const Json& incarnation = json.at("incarnation");
  const Json& lease_ms = json.at("lease_ms");
  // A fraction, or a number below 0, has no value of these types.
  for (const Json* number : {&incarnation.at("boot"), &incarnation.at("random"), &lease_ms}) {
    if (!number->is_number_unsigned()) return NoRecord("a number that is none of 64 bits without a sign");
  }
  node.id = json.at("id").get<std::string>();
  node.incarnation.boot = incarnation.at("boot").get<uint64_t>();
  node.incarnation.random = incarnation.at("random").get<uint64_t>();
  node.lease_ms = lease_ms.get<int64_t>();
  node.zone = json.value("zone", std::string());
  for (const auto& [door, address] : json.at("addresses").items()) {
    node.addresses[door] = address.get<std::string>();
  }
  for (const Json& model : json.value("models", Json::array())) {
    node.models.push_back({model.at("identity").get<std::string>(), model.value("alias", std::string())});
  }
  EPIC_RETURN_IF_ERROR(ValidateNode(node));
  return node;
}

}  // namespace

std::string_view NameOf(NodeKind kind) { return kKindNames.at(static_cast<size_t>(kind)); }
std::string_view NameOf(NodeState state) { return kStateNames.at(static_cast<size_t>(state)); }
std::optional<NodeKind> ParseNodeKind(std::string_view name) { return Parse<NodeKind>(kKindNames, name); }
std::optional<NodeState> ParseNodeState(std::string_view name) { return Parse<NodeState>(kStateNames, name); }

absl::Status ValidateNode(const NodeInfo& node) {
  std::string faults;
  const auto check = [&](bool good, std::string_view what) {
    if (!good) faults += std::string(faults.empty() ? "" : "; ") + std::string(what);
  };
  check(!node.id.empty() && node.id.size() <= NodeInfo::kIdBytes &&
            std::all_of(node.id.begin(), node.id.end(), IsIdCharacter),
        "a node's id has 1 to 128 of A-Z a-z 0-9 . _ : -");
  check(IsPlain(node.zone), "a zone has at most 256 printable characters");
  check(node.addresses.size() <= NodeInfo::kAddresses, "a node has at most 16 addresses");
  for (const auto& [door, address] : node.addresses) {
    check(IsPlain(door) && IsPlain(address) && !door.empty() && !address.empty(),
          "an address has at most 256 printable characters");
  }
  check(node.models.size() <= NodeInfo::kModels, "a node serves at most 64 models");
  for (const ServedModel& model : node.models) {
    check(IsPlain(model.identity) && IsPlain(model.alias) && !model.identity.empty(),
          "a model has an identity, and at most 256 printable characters");
  }
  check(node.lease_ms >= 0, "a lease is not below 0");
  return faults.empty() ? absl::OkStatus() : Error(ErrorCode::kInvalidRequest, faults, "node");
}

std::string EncodeMember(const NodeInfo& node) {
  EPIC_CHECK(ValidateNode(node).ok());
  Json json;
  json["format"] = kFormat;
  json["kind"] = NameOf(node.kind);
  json["id"] = node.id;
  json["incarnation"] = {{"boot", node.incarnation.boot}, {"random", node.incarnation.random}};
  json["state"] = NameOf(node.state);
  json["addresses"] = node.addresses;
  json["zone"] = node.zone;
  json["models"] = Json::array();
  for (const ServedModel& model : node.models) {
    json["models"].push_back({{"identity", model.identity}, {"alias", model.alias}});
  }
  json["lease_ms"] = node.lease_ms;
  return json.dump();
}

absl::StatusOr<NodeInfo> DecodeMember(std::string_view text) {
  if (text.size() > kMaxRecordBytes) return NoRecord("too long");
  try {
    return FromJson(Json::parse(text));
  } catch (const Json::exception& error) {
    return NoRecord(error.what());
  }
}

}  // namespace epic
