// Passages joined to the texts of contexts. Pure.
#ifndef EPIC_LOADGEN_DATASETS_PASSAGES_H_
#define EPIC_LOADGEN_DATASETS_PASSAGES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace epic::loadgen {

// `per_chunk` passages after one another, in order, each followed by an empty line. A rest at the end is left
// out. REQUIRES: per_chunk >= 1.
inline std::vector<std::string> ToChunks(std::vector<std::string> passages, uint32_t per_chunk) {
  std::vector<std::string> chunks;
  for (size_t first = 0; first + per_chunk <= passages.size(); first += per_chunk) {
    std::string& chunk = chunks.emplace_back();
    for (size_t i = first; i < first + per_chunk; ++i) chunk += passages[i] + "\n\n";
  }
  return chunks;
}

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_DATASETS_PASSAGES_H_
