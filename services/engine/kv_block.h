// Rows of keys and values that one run computed: a fixed number of rows, one allocation, row by row filled by
// the engine's thread.
//
// A request owns its blocks; a finished prompt's block may go on as a shared one (further choices, the prefix
// cache) and is then never written again. Not synchronised: engine thread only.
#ifndef EPIC_SERVICES_ENGINE_KV_BLOCK_H_
#define EPIC_SERVICES_ENGINE_KV_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "common/base/bytes.h"
#include "common/storage/kv_object.h"
#include "kernels/segment_attention/segment_attention.h"

namespace epic {

// Shape of one row of keys and values over all layers.
struct KvShape {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  KvDtype dtype = KvDtype::kBf16;

  uint64_t RowBytes() const { return uint64_t{2} * layers * kv_heads * head_dim * SizeOf(dtype); }
  bool Matches(const KvLayout& layout) const {
    return layout.layers == layers && layout.kv_heads == kv_heads && layout.head_dim == head_dim &&
           layout.dtype == dtype;
  }
};

constexpr DType DTypeOf(KvDtype dtype) { return dtype == KvDtype::kF32 ? DType::kF32 : DType::kBf16; }

// Per layer [2][kv_heads][capacity][head_dim], K first: the slab of an object when the block holds its rows
// only. Keys are rotated at positions().
class KvBlock {
 public:
  // One row for each position, ascending. Memory is not touched until rows are written.
  KvBlock(const KvShape& shape, std::vector<uint32_t> positions);
  KvBlock(const KvBlock&) = delete;
  KvBlock& operator=(const KvBlock&) = delete;

  uint32_t capacity() const { return static_cast<uint32_t>(positions_.size()); }
  const std::vector<uint32_t>& positions() const { return positions_; }
  uint64_t bytes() const { return shape_.RowBytes() * capacity(); }
  size_t head_stride() const { return size_t{capacity()} * shape_.head_dim; }  // elements

  std::byte* k(uint32_t layer) { return data_.get() + layer * LayerBytes(); }
  std::byte* v(uint32_t layer) { return k(layer) + LayerBytes() / 2; }
  ByteSpan Layer(uint32_t layer) const { return {data_.get() + layer * LayerBytes(), LayerBytes()}; }

  // The first `rows` rows of a layer as a private segment.
  KvSegment PrivateView(uint32_t layer, uint32_t rows) const;

 private:
  size_t LayerBytes() const { return 2 * shape_.kv_heads * head_stride() * SizeOf(shape_.dtype); }
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };

  KvShape shape_;
  std::vector<uint32_t> positions_;
  std::unique_ptr<std::byte[], Free> data_;
};

// Rows that nobody rewrites: of a KV object, or of a block whose row r stands at position r.
struct SharedSegment {
  std::shared_ptr<const KvObject> object;  // exactly one of the two
  std::shared_ptr<const KvBlock> block;
  uint32_t position = 0;  // of row 0 in this prompt
  uint32_t stored_position = 0;
  uint32_t rows = 0;
  uint32_t first_row = 0;
  std::vector<uint32_t> replaced;

  KvSegment View(const KvShape& shape, uint32_t layer) const;
};

// True when no value of rows [first, first + rows) is NaN or infinite, in any layer.
// REQUIRES: first + rows <= block.capacity(), and these rows are written.
bool AreRowsFinite(const KvShape& shape, const KvBlock& block, uint32_t first, uint32_t rows);

// Copies row `from` of `in` to row `to` of `out`, keys and values of one layer.
void CopyRow(const KvShape& shape, const KvBlock& in, uint32_t from, uint32_t layer, uint32_t to,
             KvBlock* out);
// Copies the shown rows of `segment` to the rows of `out` that stand at the same positions.
// REQUIRES: out's row r stands at position r and the segment's keys are rotated where they stand.
void CopyRows(const KvShape& shape, const SharedSegment& segment, KvBlock* out);
// Copies rows [0, rows) of `in`, by position, likewise.
void CopyRows(const KvShape& shape, const KvBlock& in, uint32_t rows, KvBlock* out);

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_KV_BLOCK_H_
