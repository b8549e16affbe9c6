// Scores of an answer against gold answers, as question answering counts them (SQuAD): lower case, no
// punctuation, no articles, words by white space. Pure; any thread.
#ifndef EPIC_LOADGEN_ANSWERS_SQUAD_METRIC_H_
#define EPIC_LOADGEN_ANSWERS_SQUAD_METRIC_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace epic::loadgen {

// Lower case by Unicode's simple mapping; ASCII punctuation goes away without leaving a space; "a", "an" and
// "the" as whole words go; then split at Unicode white space. Bytes that are not UTF-8 stay as they are.
std::vector<std::string> NormalizedWords(std::string_view text);

struct AnswerScore {
  double f1 = 0;           // 0..1, harmonic mean of the precision and recall of words
  double exact_match = 0;  // 1: the same words
  double contained = 0;    // 1: the gold words stand in the answer, one after another
};

// Each number is the best over all gold answers. Two sides without a word agree; one without disagrees.
// REQUIRES: gold is not empty.
AnswerScore ScoreAnswer(std::string_view answer, std::span<const std::string> gold);

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_ANSWERS_SQUAD_METRIC_H_
