// Prompts, events and usage of a link worker between epic.v1 (link.proto) and worker_api, as the worker needs
// them. Pure.
#ifndef EPIC_SERVICES_LINK_WORKER_RPC_LINK_CONVERT_H_
#define EPIC_SERVICES_LINK_WORKER_RPC_LINK_CONVERT_H_

#include <optional>

#include "absl/status/statusor.h"
#include "common/base/digest.h"
#include "epic/v1/link.pb.h"
#include "services/worker_api/linker.h"

namespace epic {

// Fully checked: what LinkService requires holds. All but received_steady_ns. Errors: kInvalidRequest with
// the field's name.
absl::StatusOr<LinkJob> JobFromProto(const v1::LinkPromptRequest& request, const Digest& model_identity);

v1::LinkEvent AdmittedEvent(std::optional<uint32_t> planned_recomputed);
v1::LinkEvent ToProto(const LinkDelta& delta);
v1::LinkEvent FinishEvent(uint32_t choice, FinishReason reason);
v1::LinkEvent DoneEvent(const LinkUsage& usage, const LinkTimings& timings);

}  // namespace epic

#endif  // EPIC_SERVICES_LINK_WORKER_RPC_LINK_CONVERT_H_
