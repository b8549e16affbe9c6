// What tests of a store's directory share: what is in its files, and damage to them. Tests only.
#ifndef EPIC_SERVICES_KV_STORE_TESTING_STORE_DIRECTORY_H_
#define EPIC_SERVICES_KV_STORE_TESTING_STORE_DIRECTORY_H_

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "common/testing/paths.h"

namespace epic::kv_store {

// The bytes of every file below `dir`, by path.
inline std::map<std::string, std::string> FilesOf(const std::string& dir) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    files[entry.path().string()] =
        entry.is_regular_file() ? epic::testing::ReadFileOrDie(entry.path().string()) : "";
  }
  return files;
}

// The files below `dir` that hold these bytes. Files may come and go meanwhile.
inline std::vector<std::string> FilesWith(const std::string& dir, std::string_view bytes) {
  std::vector<std::string> paths, found;
  std::error_code error;
  for (auto entry = std::filesystem::recursive_directory_iterator(dir, error);
       !error && entry != std::filesystem::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->is_regular_file(error)) paths.push_back(entry->path().string());
    error.clear();
  }
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (content.find(bytes) != std::string::npos) found.push_back(path);
  }
  return found;
}

// Changes one byte of a file.
inline void FlipByte(const std::string& path, uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(~file.get());
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
}

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TESTING_STORE_DIRECTORY_H_
