#include "common/rpc/context_enums.h"

#include <string>

#include "common/status/error.h"

namespace epic {

v1::ContextState ToProto(ContextState state) {
  switch (state) {
    case ContextState::kCompiling:
      return v1::CONTEXT_STATE_COMPILING;
    case ContextState::kReady:
      return v1::CONTEXT_STATE_READY;
    case ContextState::kFailed:
      return v1::CONTEXT_STATE_FAILED;
  }
  return v1::CONTEXT_STATE_UNSPECIFIED;
}

v1::Pin ToProto(Pin pin) {
  switch (pin) {
    case Pin::kNone:
      return v1::PIN_NONE;
    case Pin::kSoft:
      return v1::PIN_SOFT;
    case Pin::kHard:
      return v1::PIN_HARD;
  }
  return v1::PIN_UNSPECIFIED;
}

v1::Durability ToProto(Durability durability) {
  switch (durability) {
    case Durability::kOne:
      return v1::DURABILITY_ONE;
    case Durability::kReplicas:
      return v1::DURABILITY_REPLICAS;
    case Durability::kObject:
      return v1::DURABILITY_OBJECT;
  }
  return v1::DURABILITY_UNSPECIFIED;
}

v1::CompilePrefixType ToProto(CompilePrefixKind kind) {
  switch (kind) {
    case CompilePrefixKind::kNone:
      return v1::COMPILE_PREFIX_TYPE_NONE;
    case CompilePrefixKind::kBos:
      return v1::COMPILE_PREFIX_TYPE_BOS;
    case CompilePrefixKind::kBos4:
      return v1::COMPILE_PREFIX_TYPE_BOS4;
    case CompilePrefixKind::kSystem:
      return v1::COMPILE_PREFIX_TYPE_SYSTEM;
  }
  return v1::COMPILE_PREFIX_TYPE_UNSPECIFIED;
}

absl::StatusOr<CompilePrefixKind> CompilePrefixFromProto(v1::CompilePrefixType type, std::string_view field) {
  switch (type) {
    case v1::COMPILE_PREFIX_TYPE_UNSPECIFIED:
    case v1::COMPILE_PREFIX_TYPE_NONE:
      return CompilePrefixKind::kNone;
    case v1::COMPILE_PREFIX_TYPE_BOS:
      return CompilePrefixKind::kBos;
    case v1::COMPILE_PREFIX_TYPE_BOS4:
      return CompilePrefixKind::kBos4;
    case v1::COMPILE_PREFIX_TYPE_SYSTEM:
      return CompilePrefixKind::kSystem;
    default:
      return UnknownValue(field);
  }
}

absl::Status UnknownValue(std::string_view field) {
  return Error(ErrorCode::kInvalidRequest,
               std::string(field) + " has a value that this version does not know; use one of epic.v1",
               field);
}

}  // namespace epic
