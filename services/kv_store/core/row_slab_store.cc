#include "services/kv_store/core/row_slab_store.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/status/status_macros.h"
#include "services/kv_store/core/rows.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kLastNumber = std::numeric_limits<uint64_t>::max();

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

}  // namespace

absl::StatusOr<std::vector<uint64_t>> RowSlabStore::Load(const std::vector<LiveSlabs>& live,
                                                         bool entries_lost) {
  std::set<uint64_t> numbers;
  for (const LiveSlabs& slabs : live) numbers.insert(slabs.number);
  WriteBatch batch;
  uint64_t begin = 0;
  for (const uint64_t number : numbers) {
    if (entries_lost && begin < number) {
      batch.DeleteRange(Table::kSlabs, SlabRowKey(begin, 0, 0), SlabRowKey(number, 0, 0));
    }
    begin = number + 1;
  }
  // Slabs of the writes that a crash cut off: their numbers follow the last one that got its entry.
  batch.DeleteRange(Table::kSlabs, SlabRowKey(begin, 0, 0), SlabRowKey(kLastNumber, 0, 0));
  EPIC_RETURN_IF_ERROR(tables_->Write(batch, Sync::kYes));
  return std::vector<uint64_t>();
}

absl::StatusOr<SlabExtents> RowSlabStore::Write(uint64_t number, const SlabShape& shape,
                                                std::span<const ByteSpan> slabs) {
  EPIC_CHECK(slabs.size() == shape.layers);
  absl::Status status;
  for (uint32_t layer = 0; layer < shape.layers && status.ok(); ++layer) {
    const ByteSpan slab = slabs[layer];
    const auto put = [&](const std::string& row, uint64_t at, uint64_t bytes) {
      return tables_->PutUnlogged(Table::kSlabs, row, slab.subspan(at, bytes));
    };
    status = ForEachPiece(number, layer, slab.size(), put);
  }
  if (status.ok()) status = tables_->Flush(Table::kSlabs);
  if (status.ok()) return SlabExtents();
  return status;
}

void RowSlabStore::AddSlabs(uint64_t number, const SlabShape& shape, std::span<const ByteSpan> slabs,
                            WriteBatch* batch) {
  EPIC_CHECK(slabs.size() == shape.layers);
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    const ByteSpan slab = slabs[layer];
    const auto add = [&](std::string row, uint64_t at, uint64_t bytes) {
      batch->Put(Table::kSlabs, std::move(row), std::string(AsText(slab.subspan(at, bytes))));
      return absl::OkStatus();
    };
    ForEachPiece(number, layer, slab.size(), add).IgnoreError();  // adding cannot fail
  }
}

bool RowSlabStore::Holds(uint64_t number) {
  const auto row = tables_->ReadInto(Table::kSlabs, SlabRowKey(number, 0, 0), {});
  return row.ok() && row->has_value();
}

absl::Status RowSlabStore::Read(uint64_t number, const SlabShape& shape, LayerRange layers,
                                MutableByteSpan out, const LayerReady& ready) {
  EPIC_CHECK(layers.begin < layers.end && layers.end <= shape.layers);
  EPIC_CHECK(out.size() >= shape.ReadBytes(layers));
  for (uint32_t layer = layers.begin; layer < layers.end; ++layer) {
    const MutableByteSpan slab =
        out.subspan(layer * shape.stride - shape.PageBegin(layers.begin), shape.layer_bytes);
    const auto get = [&](const std::string& row, uint64_t at, uint64_t bytes) -> absl::Status {
      EPIC_ASSIGN_OR_RETURN(const std::optional<uint64_t> size,
                            tables_->ReadInto(Table::kSlabs, row, slab.subspan(at, bytes)));
      if (!size.has_value()) return absl::NotFoundError("a slab is gone");
      if (*size != bytes) return absl::DataLossError("a slab is short or long");
      return absl::OkStatus();
    };
    EPIC_RETURN_IF_ERROR(ForEachPiece(number, layer, slab.size(), get));
    EPIC_RETURN_IF_ERROR(ready(layer, slab));
  }
  return absl::OkStatus();
}

void RowSlabStore::AddRemoval(uint64_t number, WriteBatch* batch) {
  batch->DeleteRange(Table::kSlabs, SlabRowKey(number, 0, 0), SlabEndKey(number));
}

}  // namespace epic::kv_store
