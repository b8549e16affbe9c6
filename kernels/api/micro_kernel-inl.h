// The register tile under products and attention: c = a · b over rows of `a` (plain, row by row) and panels
// of `b` (32 columns wide, one K step after another). Included once per SIMD target by Highway's
// foreach_target.
//
// Every output is one chain of fused multiply-adds over k in ascending order, so its bytes do not depend on
// the number of rows or panels that a tile holds.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(EPIC_KERNELS_API_MICRO_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPIC_KERNELS_API_MICRO_KERNEL_INL_H_
#undef EPIC_KERNELS_API_MICRO_KERNEL_INL_H_
#else
#define EPIC_KERNELS_API_MICRO_KERNEL_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
constexpr size_t kLanes = hn::MaxLanes(DF());

// Columns of a panel. Vector h of a panel's left half pairs with vector h of its right half, at +16.
constexpr size_t kPanelColumns = 32;
constexpr size_t kHalfPanel = 16;
// Rows of the largest tile: 24 accumulators of 32 registers, or 8 of 16; the baseline only has to be right.
constexpr size_t kTileRows = kLanes == 16 ? 12 : kLanes == 8 ? 4 : 1;

// A panel of f32 is [k][32]. A panel of bf16 is [k][16] words: column i in the low half, column i + 16 in the
// high half, so that one load, one shift and one mask give two vectors.
HWY_INLINE void LoadPair(const float* panel, VF& left, VF& right) {
  left = hn::LoadU(DF(), panel);
  right = hn::LoadU(DF(), panel + kHalfPanel);
}
HWY_INLINE void LoadPair(const uint32_t* panel, VF& left, VF& right) {
  const auto both = hn::LoadU(DU(), panel);
  left = hn::BitCast(DF(), hn::ShiftLeft<16>(both));
  right = hn::BitCast(DF(), hn::And(both, hn::Set(DU(), 0xffff0000u)));
}
constexpr size_t PanelStep(const float*) { return kPanelColumns; }
constexpr size_t PanelStep(const uint32_t*) { return kHalfPanel; }

// Sums kRows x kPanels panels, from zero, and hands each vector to sink.Finish(row, panel, column, sum).
// Shape: a [kRows][lda], panels [kPanels][panel_stride].
template <size_t kRows, size_t kPanels, class Element, class Sink>
HWY_NOINLINE void MicroTile(const float* HWY_RESTRICT a, size_t lda, const Element* HWY_RESTRICT panels,
                            size_t panel_stride, size_t k_count, const Sink& result) {
  const Sink sink = result;  // a copy, so that stores through it cannot change it
  for (size_t h = 0; h < kHalfPanel; h += kLanes) {
    VF left[kRows][kPanels];
    VF right[kRows][kPanels];
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t p = 0; p < kPanels; ++p) {
        left[r][p] = hn::Zero(DF());
        right[r][p] = hn::Zero(DF());
      }
    }
    const Element* HWY_RESTRICT at = panels + h;
    for (size_t k = 0; k < k_count; ++k, at += PanelStep(at)) {
      VF b_left[kPanels];
      VF b_right[kPanels];
      for (size_t p = 0; p < kPanels; ++p) LoadPair(at + p * panel_stride, b_left[p], b_right[p]);
      for (size_t r = 0; r < kRows; ++r) {
        const VF value = hn::Set(DF(), a[r * lda + k]);
        for (size_t p = 0; p < kPanels; ++p) {
          left[r][p] = hn::MulAdd(value, b_left[p], left[r][p]);
          right[r][p] = hn::MulAdd(value, b_right[p], right[r][p]);
        }
      }
    }
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t p = 0; p < kPanels; ++p) {
        sink.Finish(r, p, h, left[r][p]);
        sink.Finish(r, p, h + kHalfPanel, right[r][p]);
      }
    }
  }
}

// The largest tile height of {12, 8, 4, 2, 1} that this target has and that fits into `rows`.
HWY_INLINE size_t TileRowsFor(size_t rows) {
  for (const size_t height : {size_t{12}, size_t{8}, size_t{4}, size_t{2}}) {
    if (height <= kTileRows && height <= rows) return height;
  }
  return 1;
}

// How many panels a tile of that height takes at once: enough sums in flight, not too many registers.
constexpr size_t PanelsFor(size_t height) {
  if (kTileRows == 1) return 1;
  const size_t tiles = (kTileRows == 12 ? 8 : 4) / height;
  return tiles == 0 ? 1 : tiles > 4 ? 4 : tiles;
}

template <size_t kHeight, class Element, class Sink>
HWY_INLINE void PanelGroup(const float* a, size_t lda, const Element* panels, size_t panel_stride,
                           size_t panel_count, size_t k_count, const Sink& sink) {
  if constexpr (kHeight <= kTileRows) {
    constexpr size_t kPanels = PanelsFor(kHeight);
    size_t panel = 0;
    if constexpr (kHeight == 12 && std::is_same_v<Element, float>) {
      // As many sums with fewer loads. Panels of bf16 would be widened twice.
      for (; panel + 2 <= panel_count; panel += 2) {
        for (const size_t row : {0, 6}) {
          MicroTile<6, 2>(a + row * lda, lda, panels + panel * panel_stride, panel_stride, k_count,
                          sink.AtPanel(panel).AtRow(row));
        }
      }
    }
    for (; panel + kPanels <= panel_count; panel += kPanels) {
      MicroTile<kHeight, kPanels>(a, lda, panels + panel * panel_stride, panel_stride, k_count,
                                  sink.AtPanel(panel));
    }
    if constexpr (kPanels > 1) {
      for (; panel < panel_count; ++panel) {
        MicroTile<kHeight, 1>(a, lda, panels + panel * panel_stride, panel_stride, k_count,
                              sink.AtPanel(panel));
      }
    }
  }
}

// `rows` rows times `panel_count` panels, tile by tile. A sink also has AtPanel(panel) and AtRow(row): the
// sink of the tile that begins there.
template <class Element, class Sink>
HWY_INLINE void MicroBlock(size_t rows, const float* a, size_t lda, const Element* panels,
                           size_t panel_stride, size_t panel_count, size_t k_count, const Sink& sink) {
  for (size_t row = 0; row < rows;) {
    const size_t height = TileRowsFor(rows - row);
    const float* from = a + row * lda;
    const Sink to = sink.AtRow(row);
    switch (height) {
      case 12:
        PanelGroup<12>(from, lda, panels, panel_stride, panel_count, k_count, to);
        break;
      case 8:
        PanelGroup<8>(from, lda, panels, panel_stride, panel_count, k_count, to);
        break;
      case 4:
        PanelGroup<4>(from, lda, panels, panel_stride, panel_count, k_count, to);
        break;
      case 2:
        PanelGroup<2>(from, lda, panels, panel_stride, panel_count, k_count, to);
        break;
      default:
        PanelGroup<1>(from, lda, panels, panel_stride, panel_count, k_count, to);
        break;
    }
    row += height;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#endif  // EPIC_KERNELS_API_MICRO_KERNEL_INL_H_
