#include "services/kv_store/extents/file_system.h"

#include <numeric>
#include <utility>

#include "common/base/check.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kPageBytes = 4096;
// Times in a row that a piece may move no whole page before it counts as failed.
constexpr int kMaxIdleRounds = 3;

absl::Status Stalled(IoKind kind) {
  if (kind == IoKind::kRead) return absl::DataLossError("an extent file ends early");
  return absl::UnavailableError("an extent file does not take what is written");
}

}  // namespace

absl::Status TransferWhole(FileSystem* files, IoKind kind, std::vector<IoPiece> pieces,
                           const std::function<absl::Status(size_t piece)>& ended) {
  std::vector<size_t> left(pieces.size());  // indices of the pieces that are not whole yet
  std::iota(left.begin(), left.end(), size_t{0});
  int idle_rounds = 0;
  absl::Status result;
  while (!left.empty()) {
    std::vector<IoPiece> round;
    for (const size_t piece : left) round.push_back(pieces[piece]);
    std::vector<size_t> is_short;
    bool moved = false;
    files->Transfer(kind, round, [&](size_t index, absl::StatusOr<uint64_t> bytes) {
      IoPiece& piece = pieces[left[index]];
      if (!bytes.ok()) {
        result = bytes.status();
      } else if (*bytes >= piece.bytes.size()) {
        moved = true;
        piece.bytes = {};
        result = ended(left[index]);
      } else {
        // Whole pages only: what is left begins at one again.
        const uint64_t pages = *bytes / kPageBytes * kPageBytes;
        moved = moved || pages > 0;
        piece.offset += pages;
        piece.bytes = piece.bytes.subspan(pages);
        is_short.push_back(left[index]);
      }
      return result.ok();
    });
    if (!result.ok()) return result;
    idle_rounds = moved ? 0 : idle_rounds + 1;
    if (idle_rounds == kMaxIdleRounds) return Stalled(kind);
    left = std::move(is_short);
  }
  return absl::OkStatus();
}

}  // namespace epic::kv_store
