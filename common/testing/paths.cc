#include "common/testing/paths.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/check.h"

namespace epic::testing {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> Environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

}  // namespace

std::string BuildDir() { return fs::read_symlink("/proc/self/exe").parent_path().parent_path().string(); }

std::string SourceDir() { return fs::path(BuildDir()).parent_path().parent_path().string(); }

std::optional<std::string> DefaultModelPath() {
  fs::path cache;
  if (const auto xdg = Environment("XDG_CACHE_HOME")) {
    cache = *xdg;
  } else if (const auto home = Environment("HOME")) {
    cache = fs::path(*home) / ".cache";
  } else {
    return std::nullopt;
  }
  const fs::path file = cache / "epic" / "models" / "smollm2-135m-instruct-q4_1.gguf";
  if (!fs::exists(file)) return std::nullopt;
  return file.string();
}

std::optional<std::string> DataDir() { return Environment("EPIC_DATA_DIR"); }

std::string ReadFileOrDie(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) std::fprintf(stderr, "cannot read %s\n", path.c_str());
  EPIC_CHECK(static_cast<bool>(in));
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

TempDir::TempDir() {
  std::string pattern = (fs::temp_directory_path() / "epic_test_XXXXXX").string();
  EPIC_CHECK(mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace epic::testing
