#include "loadgen/datasets/filler.h"

#include "common/base/check.h"
#include "loadgen/datasets/shuffle.h"

namespace epic::loadgen {
namespace {

constexpr std::string_view kWho[] = {"old baker",      "young farmer",  "village teacher", "tired sailor",
                                     "careful nurse",  "quiet painter", "retired judge",   "kind gardener",
                                     "busy carpenter", "shy librarian", "local fisherman", "patient tailor"};
constexpr std::string_view kDid[] = {
    "walked slowly along",     "waited for hours near", "often returned to",    "swept the leaves from",
    "told a long story about", "looked back at",        "sat down beside",      "carried a basket past",
    "sang quietly in",         "drew a picture of",     "fed the birds behind", "met two friends at"};
constexpr std::string_view kWhere[] = {"the market square", "the stone bridge", "the empty orchard",
                                       "the north road",    "the small chapel", "the river bank",
                                       "the wooden pier",   "the school yard",  "the railway station",
                                       "the wheat fields",  "the town hall",    "the narrow street"};
constexpr std::string_view kWhen[] = {"before the rain began",        "on a cold morning",
                                      "while the bells were ringing", "late in the evening",
                                      "after the long harvest",       "at the end of the week",
                                      "as the fog was lifting",       "during the spring holidays",
                                      "when the shops had closed",    "once the guests were gone"};
constexpr std::string_view kAdjectives[] = {
    "silver", "crimson", "cobalt", "golden", "purple", "frozen",  "marble", "copper", "velvet", "emerald",
    "broken", "hidden",  "paper",  "iron",   "amber",  "striped", "hollow", "glass",  "ivory",  "scarlet"};
constexpr std::string_view kNouns[] = {"lantern", "compass", "violin", "dragon", "castle", "rocket", "parrot",
                                       "anchor",  "saddle",  "mirror", "helmet", "candle", "puzzle", "ladder",
                                       "trumpet", "turtle",  "crown",  "kettle", "pillow", "hammer"};
static_assert(std::size(kAdjectives) * std::size(kNouns) == kMostThings);

}  // namespace

std::string_view Draw(Rng* rng, std::span<const std::string_view> words) {
  return words[rng->Below(words.size())];
}

std::string FillerSentence(Rng* rng) {
  std::string sentence = "The ";
  sentence += Draw(rng, kWho);
  for (const std::span<const std::string_view> part :
       {std::span<const std::string_view>(kDid), std::span<const std::string_view>(kWhere),
        std::span<const std::string_view>(kWhen)}) {
    sentence += ' ';
    sentence += Draw(rng, part);
  }
  return sentence + ".";
}

std::vector<std::string> FillerSentences(Rng* rng, size_t count) {
  std::vector<std::string> sentences(count);
  for (std::string& sentence : sentences) sentence = FillerSentence(rng);
  return sentences;
}

std::vector<std::string> DrawThings(Rng* rng, size_t count) {
  EPIC_CHECK(count <= kMostThings);
  std::vector<uint32_t> numbers = ShuffledIndices(rng, kMostThings);
  std::vector<std::string> things;
  for (size_t i = 0; i < count; ++i) {
    things.push_back(std::string(kAdjectives[numbers[i] / std::size(kNouns)]) + " " +
                     std::string(kNouns[numbers[i] % std::size(kNouns)]));
  }
  return things;
}

std::string DrawNumber(Rng* rng, int digits) {
  std::string number;
  for (int i = 0; i < digits; ++i) {
    number += static_cast<char>(i == 0 ? '1' + static_cast<char>(rng->Below(9))
                                       : '0' + static_cast<char>(rng->Below(10)));
  }
  return number;
}

std::string Join(const std::vector<std::string>& parts, std::string_view between) {
  std::string joined;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) joined += between;
    joined += parts[i];
  }
  return joined;
}

}  // namespace epic::loadgen
