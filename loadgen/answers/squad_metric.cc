#include "loadgen/answers/squad_metric.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include <utf8proc.h>

#include "common/base/check.h"

namespace epic::loadgen {
namespace {

constexpr std::string_view kPunctuation = R"(!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~)";

// One character, or one byte that belongs to none.
struct Character {
  utf8proc_int32_t code_point = -1;
  std::string_view bytes;
};

Character Next(std::string_view text) {
  utf8proc_int32_t code_point = -1;
  const utf8proc_ssize_t length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                                   static_cast<utf8proc_ssize_t>(text.size()), &code_point);
  if (length <= 0) return {-1, text.substr(0, 1)};
  return {code_point, text.substr(0, static_cast<size_t>(length))};
}

bool IsSpace(utf8proc_int32_t code_point) {
  if (code_point < 0) return false;
  if (code_point < 0x80) {
    return code_point == ' ' || (code_point >= 0x09 && code_point <= 0x0d) ||
           (code_point >= 0x1c && code_point <= 0x1f);
  }
  const utf8proc_category_t category = utf8proc_category(code_point);
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP || code_point == 0x85;
}

void AppendLowered(const Character& character, std::string* out) {
  if (character.code_point < 0) {
    out->append(character.bytes);
    return;
  }
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length = utf8proc_encode_char(utf8proc_tolower(character.code_point), bytes);
  out->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

bool IsArticle(std::string_view word) { return word == "a" || word == "an" || word == "the"; }

double F1(std::span<const std::string> answer, std::span<const std::string> gold) {
  if (answer.empty() || gold.empty()) return answer.empty() == gold.empty() ? 1 : 0;
  std::map<std::string_view, int64_t> left;
  for (const std::string& word : gold) ++left[word];
  double common = 0;
  for (const std::string& word : answer) {
    if (left[word]-- > 0) ++common;
  }
  return 2 * common / static_cast<double>(answer.size() + gold.size());
}

bool Contains(std::span<const std::string> answer, std::span<const std::string> gold) {
  if (gold.empty()) return answer.empty();
  return std::search(answer.begin(), answer.end(), gold.begin(), gold.end()) != answer.end();
}

}  // namespace

std::vector<std::string> NormalizedWords(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty() && !IsArticle(word)) words.push_back(word);
    word.clear();
  };
  while (!text.empty()) {
    const Character character = Next(text);
    text.remove_prefix(character.bytes.size());
    if (IsSpace(character.code_point)) {
      end_word();
    } else if (character.bytes.size() > 1 || kPunctuation.find(character.bytes) == std::string_view::npos) {
      AppendLowered(character, &word);
    }
  }
  end_word();
  return words;
}

AnswerScore ScoreAnswer(std::string_view answer, std::span<const std::string> gold) {
  EPIC_CHECK(!gold.empty());
  const std::vector<std::string> words = NormalizedWords(answer);
  AnswerScore best;
  for (const std::string& one : gold) {
    const std::vector<std::string> wanted = NormalizedWords(one);
    best.f1 = std::max(best.f1, F1(words, wanted));
    best.exact_match = std::max(best.exact_match, words == wanted ? 1.0 : 0.0);
    best.contained = std::max(best.contained, Contains(words, wanted) ? 1.0 : 0.0);
  }
  return best;
}

}  // namespace epic::loadgen
