#include "loadgen/answers/squad_metric.h"

#include <gtest/gtest.h>

namespace epic::loadgen {
namespace {

TEST(SquadMetricTest, WordsAreLoweredAndLosePunctuationAndArticles) {
  const struct {
    std::string text;
    std::vector<std::string> words;
  } kCases[] = {
      {"", {}},
      {"The", {}},
      {"  the  A an ", {}},
      {"The Eiffel Tower.", {"eiffel", "tower"}},
      {"U.S.A.", {"usa"}},
      {"it's 1,024\t(about)", {"its", "1024", "about"}},
      {"Theatre and an anthem", {"theatre", "and", "anthem"}},
      {"Wilhelm Conrad RÖNTGEN", {"wilhelm", "conrad", "röntgen"}},
      {"ÉMILE\u00a0Zola\u3000\u2028end", {"émile", "zola", "end"}},
      {"snake_case", {"snakecase"}},
      {"a.", {}},  // punctuation goes first: what is left is an article
      {"– dash", {"–", "dash"}},
      {"bad \xff byte", {"bad", "\xff", "byte"}},
  };
  for (const auto& test : kCases) EXPECT_EQ(NormalizedWords(test.text), test.words) << test.text;
}

TEST(SquadMetricTest, ScoresFollowTheTable) {
  const struct {
    std::string answer, gold;
    double f1, exact, contained;
  } kCases[] = {
      {"Paris", "paris", 1, 1, 1},
      {"The answer is Paris.", "Paris", 2.0 * 1 / 4, 0, 1},
      {"London", "Paris", 0, 0, 0},
      {"", "Paris", 0, 0, 0},
      {"the", "an", 1, 1, 1},
      {"word", "the", 0, 0, 0},
      {"new york city", "York New", 2.0 * 2 / 5, 0, 0},
      {"no no no", "no", 2.0 * 1 / 4, 0, 1},
      {"no", "no no no", 2.0 * 1 / 4, 0, 0},
      {"a b c", "b c d", 0.8, 0, 0},  // "a" is an article
      {"12345", "1234", 0, 0, 0},
      {"code 1234 5", "1234", 2.0 * 1 / 4, 0, 1},
  };
  for (const auto& test : kCases) {
    const std::vector<std::string> gold = {test.gold};
    const AnswerScore score = ScoreAnswer(test.answer, gold);
    EXPECT_DOUBLE_EQ(score.f1, test.f1) << test.answer << " | " << test.gold;
    EXPECT_EQ(score.exact_match, test.exact) << test.answer << " | " << test.gold;
    EXPECT_EQ(score.contained, test.contained) << test.answer << " | " << test.gold;
  }
}

TEST(SquadMetricTest, TheBestGoldAnswerCounts) {
  const std::vector<std::string> gold = {"the 1st of May", "1 May", "May Day"};
  EXPECT_EQ(ScoreAnswer("1 May!", gold).exact_match, 1);
  EXPECT_DOUBLE_EQ(ScoreAnswer("May", gold).f1, 2.0 / 3);
  EXPECT_EQ(ScoreAnswer("on 1st of May", gold).contained, 1);
  EXPECT_EQ(ScoreAnswer("on 1st of May", gold).exact_match, 0);
}

}  // namespace
}  // namespace epic::loadgen
