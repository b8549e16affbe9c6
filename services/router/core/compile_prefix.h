// A compile prefix that a client asks for, in a create or in a chat, as token ids. May block on the disk (a
// prefix named by a context).
#ifndef EPIC_SERVICES_ROUTER_CORE_COMPILE_PREFIX_H_
#define EPIC_SERVICES_ROUTER_CORE_COMPILE_PREFIX_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/storage/context_record.h"
#include "services/router/core/api.h"
#include "services/router/core/router_parts.h"

namespace epic {

// `param` is the field that holds the prefix: compile_prefix, or linking.compile_prefix.
// REQUIRES: CheckCompilePrefix (checks.h) passed. Errors: those of the store for the context that it names,
// and kContextModelMismatch, at <param>.context_id; kUnsupportedParameter where the model has no token for
// it.
absl::StatusOr<CompilePrefixSpec> ResolveCompilePrefix(const RouterParts& parts, const std::string& tenant,
                                                       const CompilePrefixRequest& prefix,
                                                       std::string_view param);

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_CORE_COMPILE_PREFIX_H_
