// Question answering from a data file, in either of two shapes, told apart by the first record:
//  - several contexts in each record (MuSiQue as the CacheBlend authors prepared it): a prompt takes as many
//  of
//    them as the options ask for, among them one that holds an answer where there is one;
//  - one gold passage in each record (Natural Questions, "oracle"): the other passages of a prompt are gold
//    passages of other questions.
// Fields of a record: `question`, `answers` (texts), `ctxs` (objects with `text` and perhaps `title`).
// Owns the open file; in the second shape also a bounded pool of passages.
#ifndef EPIC_LOADGEN_DATASETS_QA_FILE_H_
#define EPIC_LOADGEN_DATASETS_QA_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadgen/datasets/dataset.h"
#include "loadgen/datasets/record_reader.h"

namespace epic::loadgen {

struct QaRecord {
  std::string question;
  std::vector<std::string> answers;   // not empty
  std::vector<std::string> passages;  // not empty; title, line break and text where there is a title
};

// Errors: InvalidArgument "FILE line N: FIELD …".
absl::StatusOr<QaRecord> ParseQaRecord(const std::string& path, const DataRecord& record);

absl::StatusOr<std::unique_ptr<Dataset>> OpenQaFile(const DatasetOptions& options);

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_DATASETS_QA_FILE_H_
