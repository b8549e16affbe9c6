// Plain sentences made up from word lists, and words for the facts that tasks hide among them. Pure: what a
// generator draws, it draws from the Rng that it is given.
#ifndef EPIC_LOADGEN_DATASETS_FILLER_H_
#define EPIC_LOADGEN_DATASETS_FILLER_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/random.h"

namespace epic::loadgen {

// A sentence of 9 to 14 words, without digits.
std::string FillerSentence(Rng* rng);

// `count` sentences, to be joined by spaces.
std::vector<std::string> FillerSentences(Rng* rng, size_t count);

// "ADJECTIVE NOUN", such as "silver lantern"; the words do not occur in filler. `count` different ones.
// REQUIRES: count <= kMostThings.
inline constexpr size_t kMostThings = 400;
std::vector<std::string> DrawThings(Rng* rng, size_t count);

// One of `words`. REQUIRES: not empty.
std::string_view Draw(Rng* rng, std::span<const std::string_view> words);

// `digits` decimal digits, the first not 0.
std::string DrawNumber(Rng* rng, int digits);

std::string Join(const std::vector<std::string>& parts, std::string_view between);

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_DATASETS_FILLER_H_
