// Reads the records of a data file one by one: JSON Lines or one JSON array of objects, plain or gzip.
//
// Files are untrusted: records, lines and the whole are bounded, and an error names the file and the line.
// Memory: one record and one buffer. One thread at a time.
#ifndef EPIC_LOADGEN_DATASETS_RECORD_READER_H_
#define EPIC_LOADGEN_DATASETS_RECORD_READER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "common/base/digest.h"

namespace epic::loadgen {

struct RecordLimits {
  uint64_t record_bytes = 8ull << 20;
  uint64_t total_bytes = 4ull << 30;  // after decompression
};

// A JSON object and where it begins.
struct DataRecord {
  uint64_t line = 0;  // from 1
  nlohmann::json value;
};

class RecordReader {
 public:
  virtual ~RecordReader() = default;
  // Errors: NotFound; InvalidArgument for a folder or an unreadable file.
  static absl::StatusOr<std::unique_ptr<RecordReader>> Open(const std::string& path,
                                                            const RecordLimits& limits = {});
  // nullopt at the end. Empty lines are skipped. Errors, the same again at each later call: InvalidArgument
  // "FILE line N: …" for what is no JSON object, is cut off, or passes a limit.
  virtual absl::StatusOr<std::optional<DataRecord>> Next() = 0;
};

// SHA-256 of the file's bytes as they are on disk.
absl::StatusOr<Digest> FileDigest(const std::string& path);

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_DATASETS_RECORD_READER_H_
