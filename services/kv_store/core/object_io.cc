#include "services/kv_store/core/object_io.h"

#include <algorithm>
#include <optional>

#include "common/base/absl_std.h"
#include "common/status/status_macros.h"

namespace epic::kv_store {
namespace {

// Calls fn(row key, offset in the slab, bytes) for each row of a slab until one fails.
template <typename Fn>
absl::Status ForEachPiece(uint64_t number, uint32_t layer, uint64_t slab_bytes, Fn fn) {
  uint32_t piece = 0;
  for (uint64_t at = 0; at < slab_bytes; at += kSlabPieceBytes) {
    EPIC_RETURN_IF_ERROR(
        fn(SlabRowKey(number, layer, piece++), at, std::min(kSlabPieceBytes, slab_bytes - at)));
  }
  return absl::OkStatus();
}

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

void AddSlabs(uint64_t number, const HostObject& object, WriteBatch* batch) {
  for (uint32_t layer = 0; layer < object.layout().layers; ++layer) {
    const ByteSpan slab = object.Layer(layer);
    const auto add = [&](std::string row, uint64_t at, uint64_t bytes) {
      batch->Put(Table::kSlabs, std::move(row), std::string(AsText(slab.subspan(at, bytes))));
      return absl::OkStatus();
    };
    ForEachPiece(number, layer, slab.size(), add).IgnoreError();  // adding cannot fail
  }
}

absl::Status WriteSlabs(TableStore* tables, uint64_t number, const HostObject& object) {
  for (uint32_t layer = 0; layer < object.layout().layers; ++layer) {
    const ByteSpan slab = object.Layer(layer);
    const auto put = [&](const std::string& row, uint64_t at, uint64_t bytes) {
      return tables->PutUnlogged(Table::kSlabs, row, slab.subspan(at, bytes));
    };
    EPIC_RETURN_IF_ERROR(ForEachPiece(number, layer, slab.size(), put));
  }
  return tables->Flush(Table::kSlabs);
}

absl::StatusOr<ObjectPtr> ReadObject(TableStore* tables, const TenantObjectKey& key,
                                     const Digest& model_identity, const DiskCopy& copy,
                                     std::unique_ptr<HostBuffer> buffer) {
  EPIC_ASSIGN_OR_RETURN(ObjectHead head, ReadHead(tables, key, model_identity, copy));
  const KvLayout& layout = head.layout;
  for (uint32_t layer = 0; layer < layout.layers; ++layer) {
    const MutableByteSpan slab =
        buffer->bytes().subspan(HostObject::Offset(layout, layer), layout.LayerBytes());
    const auto get = [&](const std::string& row, uint64_t at, uint64_t bytes) -> absl::Status {
      EPIC_ASSIGN_OR_RETURN(const std::optional<uint64_t> size,
                            tables->ReadInto(Table::kSlabs, row, slab.subspan(at, bytes)));
      if (!size.has_value()) return absl::NotFoundError("a slab is gone");
      if (*size != bytes) return absl::DataLossError("a slab is short or long");
      return absl::OkStatus();
    };
    EPIC_RETURN_IF_ERROR(ForEachPiece(copy.number, layer, slab.size(), get));
    if (!SlabMatches(head, layer, slab)) {
      return absl::DataLossError(ToAbsl("wrong checksum in layer " + std::to_string(layer)));
    }
  }
  return std::make_shared<const HostObject>(std::move(head), std::move(buffer));
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
