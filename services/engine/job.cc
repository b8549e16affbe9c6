#include "services/engine/job.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/status/error.h"

namespace epic {
namespace {

// True when an exponent of all ones occurs among the words: NaN or infinity.
template <typename Word>
bool HasExponent(ByteSpan values, Word exponent) {
  bool found = false;
  for (size_t at = 0; at + sizeof(Word) <= values.size(); at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, values.data() + at, sizeof(Word));
    found |= (word & exponent) == exponent;
  }
  return found;
}

}  // namespace

absl::Status CancelledError() { return absl::CancelledError("the client went away"); }

bool AllFinite(ByteSpan values, KvDtype dtype) {
  return dtype == KvDtype::kF32 ? !HasExponent<uint32_t>(values, 0x7f800000u)
                                : !HasExponent<uint16_t>(values, uint16_t{0x7f80u});
}

RowGroup PanelRun::Next(uint32_t rows) const {
  EPIC_CHECK(rows <= remaining());
  const auto total = static_cast<uint32_t>(tokens.size());
  const uint32_t first_with_logits = total - logits_rows;
  const uint32_t end = done + rows;
  return {.tokens = std::span<const TokenId>(tokens).subspan(done, rows),
          .block = block.get(),
          .first_row = done,
          .shared = shared,
          .logits_rows = end <= first_with_logits ? 0 : std::min(rows, end - first_with_logits)};
}

bool Job::CheckFinite(std::span<const float> logits) {
  if (AllFinite(std::as_bytes(logits), KvDtype::kF32)) return true;
  status_ = Error(ErrorCode::kInternal,
                  "the model's output is not a number for this prompt: nothing of it was kept; compile its "
                  "contexts again, and check the model file if it happens again");
  return false;
}

}  // namespace epic
