#include "services/engine/kv_block.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace epic {
namespace {

constexpr size_t kAlignment = 64;

// One row of every head, from `in` to `out`.
void CopyRow(const KvShape& shape, const KvSegment& in, uint32_t row, uint32_t layer, uint32_t out_row,
             KvBlock* out) {
  const size_t row_bytes = size_t{shape.head_dim} * SizeOf(shape.dtype);
  const size_t in_stride = in.head_stride * SizeOf(shape.dtype);
  const size_t out_stride = out->head_stride() * SizeOf(shape.dtype);
  for (uint32_t head = 0; head < shape.kv_heads; ++head) {
    const size_t from = head * in_stride + row * row_bytes;
    const size_t to = head * out_stride + out_row * row_bytes;
    std::memcpy(out->k(layer) + to, static_cast<const std::byte*>(in.k) + from, row_bytes);
    std::memcpy(out->v(layer) + to, static_cast<const std::byte*>(in.v) + from, row_bytes);
  }
}

}  // namespace

bool AreRowsFinite(const KvShape& shape, const KvBlock& block, uint32_t first, uint32_t rows) {
  EPIC_CHECK(first + rows <= block.capacity());
  const size_t row_bytes = size_t{shape.head_dim} * SizeOf(shape.dtype);
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    const ByteSpan slab = block.Layer(layer);
    for (uint32_t plane = 0; plane < 2 * shape.kv_heads; ++plane) {
      const size_t at = (size_t{plane} * block.capacity() + first) * row_bytes;
      if (!AllFinite(slab.subspan(at, rows * row_bytes), shape.dtype)) return false;
    }
  }
  return true;
}

KvBlock::KvBlock(const KvShape& shape, std::vector<uint32_t> positions)
    : shape_(shape), positions_(std::move(positions)) {
  EPIC_CHECK(std::is_sorted(positions_.begin(), positions_.end()));
  const size_t size = std::max<size_t>(bytes(), 1);
  const size_t rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
  EPIC_CHECK(data_ != nullptr);
}

KvSegment KvBlock::PrivateView(uint32_t layer, uint32_t rows) const {
  EPIC_CHECK(rows <= capacity());
  const ByteSpan slab = Layer(layer);
  KvSegment view;
  view.k = slab.data();
  view.v = slab.data() + slab.size() / 2;
  view.head_stride = head_stride();
  view.dtype = DTypeOf(shape_.dtype);
  view.rows = rows;
  view.row_positions = positions_.data();
  return view;
}

KvSegment SharedSegment::View(const KvShape& shape, uint32_t layer) const {
  KvSegment view;
  const ByteSpan slab = object != nullptr ? object->Layer(layer) : block->Layer(layer);
  const uint32_t stored_rows = object != nullptr ? object->layout().tokens : block->capacity();
  view.k = slab.data();
  view.v = slab.data() + slab.size() / 2;
  view.head_stride = size_t{stored_rows} * shape.head_dim;
  view.dtype = DTypeOf(shape.dtype);
  view.rows = rows;
  view.first_row = first_row;
  view.replaced = replaced.empty() ? nullptr : replaced.data();
  view.replaced_count = static_cast<uint32_t>(replaced.size());
  view.position = position;
  view.stored_position = stored_position;
  return view;
}

void CopyRow(const KvShape& shape, const KvBlock& in, uint32_t from, uint32_t layer, uint32_t to,
             KvBlock* out) {
  CopyRow(shape, in.PrivateView(layer, from + 1), from, layer, to, out);
}

void CopyRows(const KvShape& shape, const SharedSegment& segment, KvBlock* out) {
  EPIC_CHECK(segment.position == segment.stored_position);
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    const KvSegment view = segment.View(shape, layer);
    for (uint32_t row = segment.first_row; row < segment.rows; ++row) {
      CopyRow(shape, view, row, layer, segment.position + row, out);
    }
  }
}

void CopyRows(const KvShape& shape, const KvBlock& in, uint32_t rows, KvBlock* out) {
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    const KvSegment view = in.PrivateView(layer, rows);
    for (uint32_t row = 0; row < rows; ++row) {
      CopyRow(shape, view, row, layer, in.positions()[row], out);
    }
  }
}

}  // namespace epic
