#include "common/rpc/pull/pulled_objects.h"

#include <string>
#include <utility>

#include "common/status/status_macros.h"
#include "common/storage/object_codec.h"

namespace epic {
namespace {

constexpr int64_t kAttachMs = 500;

}  // namespace

PulledObjects::PulledObjects(const ObjectReaderParts& parts, std::unique_ptr<transport::Path> path,
                             transport::ObjectFetcher* fetcher, int64_t lease_ms, const Clock* clock)
    : parts_(parts),
      fetcher_(fetcher),
      lease_ms_(lease_ms),
      clock_(clock),
      leases_(parts.objects, lease_ms, clock),
      path_(std::move(path)) {}

// Fetches that end tell the keeper.
PulledObjects::~PulledObjects() { path_->Stop(); }

absl::StatusOr<AcquireResult> PulledObjects::Read(std::string_view tenant, const ObjectKey& key,
                                                  const KvLayout& layout) {
  EPIC_RETURN_IF_ERROR(ValidateLayout(layout));
  EPIC_ASSIGN_OR_RETURN(const auto acquired,
                        parts_.objects->Acquire(tenant, {&key, 1}, {&layout, 1}, lease_ms_,
                                                /*streaming=*/true, /*with_checksums=*/true));
  const ObjectClient::Acquired& item = acquired.front();
  EPIC_RETURN_IF_ERROR(item.status);
  if (!item.hit) return AcquireResult{.object = nullptr, .cause = item.cause};
  leases_.Keep(item.lease);
  // Some paths go by what the node says of itself there.
  parts_.attachment->AwaitLife(item.lease.incarnation, kAttachMs);
  auto region = std::make_shared<const transport::Region>(
      transport::Region{.tenant = std::string(tenant),
                        .key = key,
                        .layout = layout,
                        .lease = {.incarnation = item.lease.incarnation,
                                  .holder = parts_.objects->peer(),
                                  .number = item.lease.number},
                        .generation = item.generation,
                        .build = item.build,
                        .block_crcs = item.block_crcs,
                        .on_its_way = item.on_its_way});
  const int64_t deadline_ns =
      clock_->SteadyNs() + parts_.channel->TransferMs(layout.TotalBytes()) * 1'000'000;
  auto object = fetcher_->Get(path_.get(), std::move(region), transport::TrafficClass::kFetch, deadline_ns);
  if (!object.ok()) {
    leases_.LetGo(item.lease);
    if (absl::IsResourceExhausted(object.status())) {
      return AcquireResult{.object = nullptr, .cause = MissCause::kNoMemory};
    }
    return object.status();
  }
  (*object)->OnLayer(layout.layers - 1, [this, lease = item.lease] { leases_.LetGo(lease); });
  return AcquireResult{.object = *std::move(object)};
}

}  // namespace epic
