// What tests of a store's directory share: what is in its files, and damage to them. Tests only.
#ifndef EPIC_SERVICES_KV_STORE_TESTING_STORE_DIRECTORY_H_
#define EPIC_SERVICES_KV_STORE_TESTING_STORE_DIRECTORY_H_

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

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
