// Questions with their contexts, one after another: from a data file of question answering (qa_file.h) or
// from a generated task (generated_tasks.h). Which one, the source says.
//
// Question i is a function of the source, the options and i alone: not of where reading began. One thread at
// a time. What order the contexts of a prompt have: that of Question::chunks, shuffled by the seed.
#ifndef EPIC_LOADGEN_DATASETS_DATASET_H_
#define EPIC_LOADGEN_DATASETS_DATASET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/digest.h"

namespace epic::loadgen {

struct DatasetOptions {
  std::string source;               // a file, or generated:TASK
  uint32_t chunks = 1;              // contexts of a prompt, >= 1
  uint32_t passages_per_chunk = 1;  // >= 1
  uint64_t seed = 1;
};

struct Question {
  uint64_t index = 0;                // in the source, from 0
  std::string text;                  // the user's own text behind the contexts: what to do, and the question
  std::vector<std::string> answers;  // gold, at least one
  std::vector<std::string> chunks;   // texts of the contexts
  // Not empty: the source cannot make the prompt that the options ask for, and this says why.
  std::string unusable;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  // Errors: NotFound, InvalidArgument (options out of range; a task that does not exist; what RecordReader
  // refuses; a record without the fields, with its line).
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(const DatasetOptions& options);

  // The next question; nullopt behind the last one.
  virtual absl::StatusOr<std::optional<Question>> Next() = 0;
  // For reports: the file's name without its folder, or generated:TASK.
  virtual const std::string& name() const = 0;
  // Of the file's bytes, or of the task's name and version.
  virtual const Digest& digest() const = 0;
};

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_DATASETS_DATASET_H_
