#include "services/engine/job.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/status/error.h"

namespace epic {

absl::Status CancelledError() { return absl::CancelledError("the client went away"); }

void PanelRun::Next(uint32_t rows, std::vector<RowGroup>* groups) {
  EPIC_CHECK(rows > 0 && rows <= remaining());
  running = rows;
  const auto total = static_cast<uint32_t>(tokens.size());
  const uint32_t first_with_logits = total - logits_rows;
  const uint32_t end = done + rows;
  size_t next = static_cast<size_t>(std::lower_bound(resumed.begin(), resumed.end(), done) - resumed.begin());
  for (uint32_t begin = done; begin < end;) {
    const bool resumes = next < resumed.size() && resumed[next] == begin;
    const size_t first = next;
    uint32_t row = begin;
    while (row < end && (next < resumed.size() && resumed[next] == row) == resumes) {
      ++row;
      next += resumes ? 1 : 0;
    }
    RowGroup group{.tokens = std::span<const TokenId>(tokens).subspan(begin, row - begin),
                   .block = block.get(),
                   .first_row = begin,
                   .bands = bands,
                   .logits_rows = row <= first_with_logits ? 0 : row - std::max(begin, first_with_logits),
                   .kind = kind,
                   .last_layer = last_layer,
                   .observer = observer};
    if (resumes) {
      group.first_layer = resume_layer;
      group.hidden = hidden.data() + first * (hidden.size() / resumed.size());
    }
    groups->push_back(group);
    begin = row;
  }
}

bool Job::CheckFinite(const KvShape& shape, const KvBlock& block, uint32_t first, uint32_t rows,
                      std::span<const float> logits) {
  // An infinite key may weigh nothing in these logits and spoil later ones.
  if (AllFinite(std::as_bytes(logits), KvDtype::kF32) && AreRowsFinite(shape, block, first, rows))
    return true;
  FailNotFinite(
      "the model's output is not a number for this prompt, and nothing of it was kept: check the model "
      "file if this happens again");
  return false;
}

void Job::FailNotFinite(std::string_view message) {
  not_finite_ = true;
  status_ = FinalError(ErrorCode::kInternal, message);  // the same weights compute the same again
}

}  // namespace epic
