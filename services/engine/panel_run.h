// Rows of one request that run through the layers in ascending panels: a phase of a linked prompt, or a chunk
// behind its prefix.
//
// Rows that come to a layer which is not there yet leave their step before it and are suspended: their
// residual stream is kept, and they enter that layer in a later step. No row overtakes one before it. Engine
// thread only.
#ifndef EPIC_SERVICES_ENGINE_PANEL_RUN_H_
#define EPIC_SERVICES_ENGINE_PANEL_RUN_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "services/engine/forward.h"
#include "services/engine/kv_block.h"
#include "services/engine/layer_gate.h"

namespace epic {

class PanelRun {
 public:
  std::vector<TokenId> tokens;  // one for each row of `block`
  std::shared_ptr<KvBlock> block;
  std::vector<LayerBand> bands = {LayerBand{}};
  uint32_t logits_rows = 0;  // how many of the last rows need logits
  uint32_t last_layer = kAllLayers;
  RowKind kind = RowKind::kPrompt;
  GroupObserver* observer = nullptr;
  bool is_shallow = false;  // few layers: its panels need not shrink beside decode rows
  LayerGate gate;           // what the bands and the observer read

  // Has a row enter at `layer`, with its residual stream, and not at the embedding; its keys and values of
  // the layers below are in the block. Few runs of such rows make few groups. Shape: [hidden]. REQUIRES:
  // `row` is not above the rows of tokens, no step has begun.
  void Resume(uint32_t row, uint32_t layer, std::span<const float> residual) {
    Keep(row, 1, layer, residual);
  }

  // Rows that have not been through all their layers.
  uint32_t remaining() const { return static_cast<uint32_t>(tokens.size()) - done_; }
  // How many of them the next step can run, from the first that it can run on.
  uint32_t Runnable() const;
  // Adds the groups of the next `rows` rows, for the step that begins. REQUIRES: 0 < rows <= Runnable().
  void Next(uint32_t rows, std::vector<RowGroup>* groups);
  // Whether the rows of the step that runs must leave it before `layer`.
  bool MustWait(uint32_t layer) const {
    return layer <= last_layer && (layer >= end_layer_ || layer >= gate.open());
  }
  // A group of that step leaves it before `layer`; its rows go on there in a later step.
  // Shape: [group's rows][hidden].
  void Suspend(const RowGroup& group, uint32_t layer, std::span<const float> residual);
  // That step has ended. True when its rows are through.
  bool EndStep();

  // Rows of the block that are through all layers, those among them whose logits are just being told.
  uint32_t through() const { return done_ + running_; }
  // What is kept so that rows can enter above the embedding.
  uint64_t kept_bytes() const {
    return sizeof(uint32_t) * entries_.size() + sizeof(float) * residuals_.size();
  }
  // That of one row.
  static uint64_t KeptBytes(uint32_t hidden) { return sizeof(uint32_t) + sizeof(float) * uint64_t{hidden}; }
  // Lets go of it. REQUIRES: remaining() == 0.
  void DropKept();

 private:
  // Where a step can begin, and how many rows from there it can run.
  struct Ready {
    uint32_t first = 0;
    uint32_t rows = 0;
  };
  Ready FindReady() const;
  uint32_t EntryOf(uint32_t row) const { return entries_.empty() ? 0 : entries_[row]; }
  void Keep(uint32_t row, uint32_t rows, uint32_t layer, std::span<const float> residual);

  std::vector<uint32_t> entries_;    // the layer that each row enters next; none: all at the embedding
  std::vector<float> residuals_;     // [rows][hidden], of rows that enter above it; or none
  uint32_t done_ = 0;                // rows that are through, from the first row on
  uint32_t running_ = 0;             // rows of the step that runs, until they are suspended
  uint32_t end_layer_ = kAllLayers;  // of that step: rows before them have not been there
};

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_PANEL_RUN_H_
