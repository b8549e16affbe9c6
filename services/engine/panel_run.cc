#include "services/engine/panel_run.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace epic {

uint32_t PanelRun::Runnable() const { return FindReady().rows; }

PanelRun::Ready PanelRun::FindReady() const {
  const auto total = static_cast<uint32_t>(tokens.size());
  const uint32_t open = gate.open();
  if (entries_.empty()) return {done_, open > 0 ? remaining() : 0};
  // Suspended rows stand at or behind the first closed layer.
  Ready ready{.first = done_};
  while (ready.first < total && entries_[ready.first] >= open) ++ready.first;
  while (ready.first + ready.rows < total && entries_[ready.first + ready.rows] < open) ++ready.rows;
  return ready;
}

void PanelRun::Next(uint32_t rows, std::vector<RowGroup>* groups) {
  const Ready ready = FindReady();
  EPIC_CHECK(rows > 0 && rows <= ready.rows);
  running_ = rows;
  end_layer_ = ready.first > done_ ? entries_[ready.first - 1] : kAllLayers;
  const auto total = static_cast<uint32_t>(tokens.size());
  const uint32_t first_with_logits = total - logits_rows;
  const uint32_t end = ready.first + rows;
  for (uint32_t begin = ready.first; begin < end;) {
    const uint32_t entry = EntryOf(begin);
    uint32_t row = begin + 1;
    while (row < end && EntryOf(row) == entry) ++row;
    RowGroup group{.tokens = std::span<const TokenId>(tokens).subspan(begin, row - begin),
                   .block = block.get(),
                   .first_row = begin,
                   .bands = bands,
                   .logits_rows = row <= first_with_logits ? 0 : row - std::max(begin, first_with_logits),
                   .kind = kind,
                   .last_layer = last_layer,
                   .observer = observer};
    if (entry > 0) {
      group.first_layer = entry;
      group.hidden = residuals_.data() + begin * (residuals_.size() / total);
    }
    groups->push_back(group);
    begin = row;
  }
}

void PanelRun::Suspend(const RowGroup& group, uint32_t layer, std::span<const float> residual) {
  EPIC_CHECK(layer > group.first_layer);
  Keep(group.first_row, static_cast<uint32_t>(group.tokens.size()), layer, residual);
  running_ = 0;
}

bool PanelRun::EndStep() {
  const uint32_t through = std::exchange(running_, 0);
  done_ += through;
  return through > 0;
}

void PanelRun::DropKept() {
  EPIC_CHECK(remaining() == 0);
  std::vector<uint32_t>().swap(entries_);
  std::vector<float>().swap(residuals_);
}

void PanelRun::Keep(uint32_t row, uint32_t rows, uint32_t layer, std::span<const float> residual) {
  EPIC_CHECK(row + rows <= tokens.size() && residual.size() % rows == 0);
  const size_t hidden = residual.size() / rows;
  if (entries_.empty()) {
    entries_.resize(tokens.size());
    residuals_.resize(tokens.size() * hidden);
  }
  std::fill_n(entries_.begin() + row, rows, layer);
  std::copy(residual.begin(), residual.end(), residuals_.begin() + static_cast<ptrdiff_t>(row * hidden));
}

}  // namespace epic
