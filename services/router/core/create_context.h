// What a create asks of the store, checked and tokenised. May block on the disk (a prefix named by a
// context).
#ifndef EPIC_SERVICES_ROUTER_CORE_CREATE_CONTEXT_H_
#define EPIC_SERVICES_ROUTER_CORE_CREATE_CONTEXT_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/kv_store.h"
#include "services/router/core/api.h"
#include "services/router/core/router_parts.h"

namespace epic {

// The checks that need neither tokenizer nor store.
absl::Status CheckCreate(const CreateContextRequest& request, const RouterParts& parts);

// REQUIRES: CheckCreate passed. Errors: kInvalidRequest, kContextLengthExceeded with both numbers,
// kTemplateRefused, and those of the store for the context that a prefix names.
absl::StatusOr<NewContext> MakeNewContext(const RequestScope& scope, const CreateContextRequest& request,
                                          const RouterParts& parts);

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_CORE_CREATE_CONTEXT_H_
