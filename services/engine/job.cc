#include "services/engine/job.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/status/error.h"

namespace epic {

absl::Status CancelledError() { return absl::CancelledError("the client went away"); }

RowGroup PanelRun::Next(uint32_t rows) {
  EPIC_CHECK(rows <= remaining());
  running = rows;
  const auto total = static_cast<uint32_t>(tokens.size());
  const uint32_t first_with_logits = total - logits_rows;
  const uint32_t end = done + rows;
  return {.tokens = std::span<const TokenId>(tokens).subspan(done, rows),
          .block = block.get(),
          .first_row = done,
          .shared = shared,
          .logits_rows = end <= first_with_logits ? 0 : std::min(rows, end - first_with_logits)};
}

bool Job::CheckFinite(const KvShape& shape, const KvBlock& block, uint32_t first, uint32_t rows,
                      std::span<const float> logits) {
  // An infinite key may weigh nothing in these logits and spoil later ones.
  if (AllFinite(std::as_bytes(logits), KvDtype::kF32) && AreRowsFinite(shape, block, first, rows))
    return true;
  FailNotFinite(
      "the model's output is not a number for this prompt, and nothing of it was kept: check the model file "
      "if "
      "this happens again");
  return false;
}

void Job::FailNotFinite(std::string_view message) {
  not_finite_ = true;
  status_ = FinalError(ErrorCode::kInternal, message);  // the same weights compute the same again
}

}  // namespace epic
