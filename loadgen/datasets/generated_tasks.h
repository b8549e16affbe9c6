// Tasks made up from a seed, with exact answers, after the kinds of RULER:
//  - needle: one sentence gives a code; everything else is filler;
//  - keys: every passage gives a code for another thing; one is asked for;
//  - classification: passages are labelled examples with made-up labels; a new text is to be labelled;
//  - tracking: variables get their values from each other, one step to a passage; the last one's is asked
//  for.
// A task never ends, and question i depends on task, seed, shape and i alone. Owns nothing; one thread at a
// time.
#ifndef EPIC_LOADGEN_DATASETS_GENERATED_TASKS_H_
#define EPIC_LOADGEN_DATASETS_GENERATED_TASKS_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "loadgen/datasets/dataset.h"

namespace epic::loadgen {

// A passage has about 100 tokens, a chunk options.passages_per_chunk of them. Errors: InvalidArgument naming
// the tasks that there are.
absl::StatusOr<std::unique_ptr<Dataset>> OpenGeneratedTask(std::string_view task,
                                                           const DatasetOptions& options);

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_DATASETS_GENERATED_TASKS_H_
