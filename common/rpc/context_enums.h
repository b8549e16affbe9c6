// The enums of contexts in epic.v1 (contexts.proto): those of common/storage on the wire, and the refusal of
// values that this version does not know. Pure.
#ifndef EPIC_COMMON_RPC_CONTEXT_ENUMS_H_
#define EPIC_COMMON_RPC_CONTEXT_ENUMS_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/context_record.h"
#include "epic/v1/contexts.pb.h"

namespace epic {

v1::ContextState ToProto(ContextState state);
v1::Pin ToProto(Pin pin);
v1::Durability ToProto(Durability durability);
v1::CompilePrefixType ToProto(CompilePrefixKind kind);

// Absent means none. Errors: those of UnknownValue.
absl::StatusOr<CompilePrefixKind> CompilePrefixFromProto(v1::CompilePrefixType type,
                                                         std::string_view field = "compile_prefix");

// kInvalidRequest with the field as param.
absl::Status UnknownValue(std::string_view field);

}  // namespace epic

#endif  // EPIC_COMMON_RPC_CONTEXT_ENUMS_H_
