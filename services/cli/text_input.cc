#include "services/cli/text_input.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <set>

#include <utf8proc.h>

#include "common/status/status_macros.h"

namespace epic {
namespace {

absl::StatusOr<std::string> ReadStream(std::istream& in, const std::string& name) {
  std::string text;
  char piece[64 << 10];
  while (in.read(piece, sizeof(piece)) || in.gcount() > 0) {
    text.append(piece, static_cast<size_t>(in.gcount()));
    if (text.size() > kMaxInputBytes) {
      return absl::InvalidArgumentError(name + " is longer than 64 MiB; split it into several texts");
    }
  }
  return text;
}

// The longest prefix of `text` of at most `max_bytes` that ends at a good border.
size_t CutAt(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text.size();
  const std::string_view window = text.substr(0, max_bytes);
  for (const std::string_view border : {"\n\n", "\n", " "}) {
    const size_t found = window.rfind(border);
    if (found != std::string_view::npos && found >= max_bytes / 4) return found + border.size();
  }
  size_t cut = max_bytes;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) --cut;
  return cut;
}

std::string_view Strip(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\f\v";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::set<std::string> WordsOf(std::string_view text) {
  std::set<std::string> words;
  std::string word;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || byte >= 0x80) {
      word += static_cast<char>(std::tolower(byte));
    } else if (!word.empty()) {
      words.insert(std::move(word));
      word.clear();
    }
  }
  if (!word.empty()) words.insert(std::move(word));
  return words;
}

}  // namespace

size_t FirstInvalidUtf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    utf8proc_int32_t codepoint = 0;
    const auto* data = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at;
    const utf8proc_ssize_t size =
        utf8proc_iterate(data, static_cast<utf8proc_ssize_t>(text.size() - at), &codepoint);
    if (size <= 0) return at;
    at += static_cast<size_t>(size);
  }
  return std::string_view::npos;
}

std::string InputName(const std::string& path) { return path == "-" ? "standard input" : path; }

absl::StatusOr<std::string> ReadText(const std::string& path, std::istream& standard_input) {
  const std::string name = InputName(path);
  std::string text;
  if (path == "-") {
    EPIC_ASSIGN_OR_RETURN(text, ReadStream(standard_input, name));
  } else {
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) {
      return absl::InvalidArgumentError(path + " is a folder; name the files in it");
    }
    std::ifstream file(path, std::ios::binary);
    if (!file) return absl::NotFoundError("cannot read " + path + "; does it exist and may you read it?");
    EPIC_ASSIGN_OR_RETURN(text, ReadStream(file, name));
  }
  if (Strip(text).empty()) return absl::InvalidArgumentError(name + " is empty");
  if (const size_t bad = FirstInvalidUtf8(text); bad != std::string_view::npos) {
    return absl::InvalidArgumentError(name + " is not UTF-8 text at byte " + std::to_string(bad) +
                                      "; convert it first, for example with iconv");
  }
  return text;
}

std::vector<std::string> SplitIntoChunks(std::string_view text, size_t max_bytes) {
  std::vector<std::string> chunks;
  while (!text.empty()) {
    const size_t cut = CutAt(text, max_bytes);
    const std::string_view chunk = Strip(text.substr(0, cut));
    if (!chunk.empty()) chunks.emplace_back(chunk);
    text.remove_prefix(cut);
  }
  return chunks;
}

std::vector<TextChunk> PickRelevant(std::vector<TextChunk> chunks, std::string_view question, size_t count) {
  std::set<std::string> seen;
  std::erase_if(chunks, [&](const TextChunk& chunk) { return !seen.insert(chunk.text).second; });
  if (chunks.size() <= count) return chunks;
  std::vector<std::set<std::string>> words;
  std::map<std::string, size_t> chunks_with;
  for (const TextChunk& chunk : chunks) {
    // The name of its file says what a chunk is about as well.
    words.push_back(WordsOf(std::filesystem::path(chunk.source).filename().string() + ' ' + chunk.text));
    for (const std::string& word : words.back()) ++chunks_with[word];
  }
  std::vector<double> score(chunks.size(), 0);
  for (const std::string& word : WordsOf(question)) {
    const auto found = chunks_with.find(word);
    if (found == chunks_with.end()) continue;
    // Inverse document frequency; words that half of the chunks have say nothing.
    const double with = static_cast<double>(found->second) + 0.5;
    const double without = static_cast<double>(chunks.size() - found->second) + 0.5;
    const double weight = std::max(0.0, std::log(without / with));
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (words[i].contains(word)) score[i] += weight;
    }
  }
  std::vector<size_t> order(chunks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return score[a] > score[b]; });
  order.resize(count);
  std::sort(order.begin(), order.end());
  std::vector<TextChunk> picked;
  for (const size_t index : order) picked.push_back(std::move(chunks[index]));
  return picked;
}

}  // namespace epic
