// Where tests find things: the source tree, the default model, the evaluation data, a folder of their own.
// Test binaries live in build/<preset>/test, and the source tree is found from there. Tests only.
#ifndef EPIC_COMMON_TESTING_PATHS_H_
#define EPIC_COMMON_TESTING_PATHS_H_

#include <optional>
#include <string>

namespace epic::testing {

// The top of the source tree, without a trailing slash.
std::string SourceDir();
// The build folder of the running binary: build/<preset>.
std::string BuildDir();
// The default model's file if it is in the cache folder of the user (deploy/fetch_model.sh puts it there).
std::optional<std::string> DefaultModelPath();
// The folder of evaluation data, from the setting EPIC_DATA_DIR; nullopt when it is not set.
std::optional<std::string> DataDir();
// The whole file. Aborts the test when it cannot be read.
std::string ReadFileOrDie(const std::string& path);

// A new folder under the system's temporary folder, removed with all it holds at the end of its life.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace epic::testing

#endif  // EPIC_COMMON_TESTING_PATHS_H_
