#include "loadgen/datasets/dataset.h"

#include <string_view>

#include "loadgen/datasets/generated_tasks.h"
#include "loadgen/datasets/qa_file.h"

namespace epic::loadgen {

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::Open(const DatasetOptions& options) {
  constexpr uint32_t kMost = 4096;
  if (options.chunks < 1 || options.chunks > kMost) {
    return absl::InvalidArgumentError("the number of chunks must be in 1..4096");
  }
  if (options.passages_per_chunk < 1 || options.passages_per_chunk > kMost) {
    return absl::InvalidArgumentError("the passages of a chunk must be in 1..4096");
  }
  constexpr std::string_view kGenerated = "generated:";
  if (options.source.starts_with(kGenerated)) {
    return OpenGeneratedTask(std::string_view(options.source).substr(kGenerated.size()), options);
  }
  return OpenQaFile(options);
}

}  // namespace epic::loadgen
