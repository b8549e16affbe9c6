#include "services/kv_store/core/object_io.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "common/base/absl_std.h"
#include "common/status/status_macros.h"
#include "services/kv_store/core/aligned_buffer.h"

namespace epic::kv_store {
namespace {

absl::StatusOr<ObjectHead> ReadHead(TableStore* tables, const TenantObjectKey& key,
                                    const Digest& model_identity, const DiskCopy& copy) {
  EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> row, tables->Get(Table::kObjects, RowKey(key)));
  if (!row.has_value()) return absl::NotFoundError("object entry is gone");
  EPIC_ASSIGN_OR_RETURN(ObjectEntry entry, DecodeObjectEntry(AsBytes(*row)));
  if (entry.number != copy.number) return absl::NotFoundError("object entry names another copy");
  if (entry.head.id != key.context.id || entry.variant != key.variant || entry.head.layout != copy.layout) {
    return absl::DataLossError("object entry is that of another object");
  }
  if (CacheId::Of(key.context.tenant, model_identity, entry.head.tokens) != key.context.id) {
    return absl::DataLossError("object holds the rows of other tokens");
  }
  return std::move(entry.head);
}

}  // namespace

std::vector<ByteSpan> SlabsOf(const HostObject& object) {
  std::vector<ByteSpan> slabs;
  for (uint32_t layer = 0; layer < object.layout().layers; ++layer) slabs.push_back(object.Layer(layer));
  return slabs;
}

absl::StatusOr<OpenedObject> OpenObject(TableStore* tables, const TenantObjectKey& key,
                                        const Digest& model_identity, const DiskCopy& copy,
                                        std::unique_ptr<ArenaRegion> region) {
  EPIC_ASSIGN_OR_RETURN(ObjectHead head, ReadHead(tables, key, model_identity, copy));
  OpenedObject opened;
  opened.progress = std::make_shared<LoadProgress>();
  opened.runs = SlabRunsIn(region.get(), head.layout);
  opened.object = std::make_shared<const HostObject>(std::move(head), std::move(region), opened.progress);
  return opened;
}

absl::Status FillObject(SlabStore* slabs, const DiskCopy& copy, const OpenedObject& opened,
                        const std::function<bool()>& go_on) {
  const ObjectHead& head = opened.object->head();
  const auto verify = [&](uint32_t layer, ByteSpan slab) -> absl::Status {
    if (!SlabMatches(head, layer, slab)) {
      return absl::DataLossError(ToAbsl("wrong checksum in layer " + std::to_string(layer)));
    }
    opened.progress->SetReady(layer);
    if (opened.progress->HasFailed()) return absl::CancelledError("it came too late");
    const bool is_last = layer + 1 == head.layout.layers;
    return is_last || go_on() ? absl::OkStatus() : absl::CancelledError("told to stop");
  };
  const SlabShape shape = SlabShapeOf(head.layout);
  for (const SlabRun& run : opened.runs) {
    EPIC_RETURN_IF_ERROR(slabs->Read(copy.number, shape, run.layers, run.bytes, verify));
  }
  return absl::OkStatus();
}

absl::StatusOr<ObjectPtr> ReadObject(TableStore* tables, SlabStore* slabs, const TenantObjectKey& key,
                                     const Digest& model_identity, const DiskCopy& copy,
                                     std::unique_ptr<ArenaRegion> region) {
  EPIC_ASSIGN_OR_RETURN(const OpenedObject opened,
                        OpenObject(tables, key, model_identity, copy, std::move(region)));
  EPIC_RETURN_IF_ERROR(FillObject(slabs, copy, opened, [] { return true; }));
  return opened.object;
}

absl::Status VerifyObject(TableStore* tables, SlabStore* slabs, const TenantObjectKey& key,
                          const Digest& model_identity, const DiskCopy& copy,
                          const std::function<bool(uint64_t bytes)>& pace) {
  EPIC_ASSIGN_OR_RETURN(const ObjectHead head, ReadHead(tables, key, model_identity, copy));
  const SlabShape shape = SlabShapeOf(head.layout);
  uint64_t bytes = 0;  // that reading any one layer needs
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    bytes = std::max(bytes, shape.ReadBytes({layer, layer + 1}));
  }
  AlignedBuffer buffer(bytes);
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    const auto verify = [&head](uint32_t which, ByteSpan slab) {
      return SlabMatches(head, which, slab) ? absl::OkStatus() : absl::DataLossError("wrong checksum");
    };
    EPIC_RETURN_IF_ERROR(slabs->Read(copy.number, shape, {layer, layer + 1}, buffer.bytes(), verify));
    if (!pace(shape.layer_bytes)) return absl::CancelledError("told to stop");
  }
  return absl::OkStatus();
}

MissCause CauseOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInvalidArgument:
      return MissCause::kChecksum;
    case absl::StatusCode::kUnimplemented:
      return MissCause::kOldFormat;
    default:
      return MissCause::kIoError;
  }
}

}  // namespace epic::kv_store
