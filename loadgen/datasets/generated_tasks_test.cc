// Solves every task with a few lines that know only its wording: an answer can be had from the texts, and
// only one.
#include "loadgen/datasets/generated_tasks.h"

#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace epic::loadgen {
namespace {

using ::epic::testing::StatusIs;
using ::testing::HasSubstr;

constexpr char const* kTaskNames[] = {"needle", "keys", "classification", "tracking"};

std::vector<Question> Make(const std::string& task, uint32_t chunks, uint32_t passages, uint64_t seed,
                           size_t count) {
  auto dataset = Dataset::Open(
      {.source = "generated:" + task, .chunks = chunks, .passages_per_chunk = passages, .seed = seed});
  EXPECT_OK(dataset);
  std::vector<Question> questions;
  for (size_t i = 0; i < count; ++i) questions.push_back(**(*dataset)->Next());
  return questions;
}

std::string AllText(const Question& question) {
  std::string all;
  for (const std::string& chunk : question.chunks) all += chunk;
  return all;
}

std::vector<std::smatch> Matches(const std::string& text, const std::regex& pattern) {
  std::vector<std::smatch> found;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), pattern); it != std::sregex_iterator();
       ++it) {
    found.push_back(*it);
  }
  return found;
}

std::string SolveCode(const Question& question) {
  const std::string text = AllText(question);
  std::map<std::string, std::string> codes;
  for (const std::smatch& match : Matches(text, std::regex(R"(access code of the (\w+ \w+) is (\d+)\.)"))) {
    EXPECT_TRUE(codes.emplace(match[1], match[2]).second) << "one code for a thing";
  }
  std::smatch asked;
  EXPECT_TRUE(std::regex_search(question.text, asked, std::regex(R"(code of the (\w+ \w+)\?)")));
  return codes[asked[1]];
}

// The words of a text but for those of its frame: what it is about.
std::set<std::string> SubjectsOf(const std::string& text) {
  static const std::set<std::string> kFrame = {
      "We",     "talked", "all",    "day",   "about", "and",      "My",    "cousin", "writes",    "letters",
      "little", "else",   "Nobody", "here",  "had",   "expected", "or",    "She",    "remembers", "the",
      "of",     "last",   "year",   "There", "was",   "at",       "first", "then"};
  std::set<std::string> words;
  for (const std::smatch& match : Matches(text, std::regex(R"(\w+)"))) {
    if (!kFrame.contains(match[0])) words.insert(match[0]);
  }
  return words;
}

// The label whose examples are about the same; no other label's may be.
std::string SolveClassification(const Question& question) {
  const std::string text = AllText(question);
  std::map<std::string, std::set<std::string>> subjects;
  for (const std::smatch& match : Matches(text, std::regex("Text: (.*)\nLabel: (\\w+)\n"))) {
    subjects[match[2]].merge(SubjectsOf(match[1]));
  }
  std::smatch asked;
  EXPECT_TRUE(std::regex_search(question.text, asked, std::regex("Text: (.*)\nLabel:$")));
  EXPECT_TRUE(text.find("Text: " + asked[1].str() + "\n") == std::string::npos) << "the text is new";
  std::set<std::string> labels;
  for (const auto& [label, known] : subjects) {
    for (const std::string& subject : SubjectsOf(asked[1])) {
      if (known.contains(subject)) labels.insert(label);
    }
  }
  EXPECT_EQ(labels.size(), 1u);
  return *labels.begin();
}

std::string SolveTracking(const Question& question) {
  const std::string text = AllText(question);
  std::map<std::string, std::string> value, source;
  for (const std::smatch& match : Matches(text, std::regex(R"(variable (\w+) is (\d+)\.)")))
    value[match[1]] = match[2];
  for (const std::smatch& match :
       Matches(text, std::regex(R"(variable (\w+) equals the variable (\w+)\.)"))) {
    source[match[1]] = match[2];
  }
  std::smatch asked;
  EXPECT_TRUE(std::regex_search(question.text, asked, std::regex(R"(value of the variable (\w+)\?)")));
  std::string name = asked[1];
  for (size_t steps = 0; !value.contains(name) && steps <= source.size(); ++steps) name = source[name];
  EXPECT_EQ(value.size(), 2u) << "another chain distracts";
  return value[name];
}

std::string Solve(const std::string& task, const Question& question) {
  if (task == "classification") return SolveClassification(question);
  if (task == "tracking") return SolveTracking(question);
  return SolveCode(question);
}

TEST(GeneratedTasksTest, EveryTaskIsSolvableInEveryShape) {
  for (const std::string task : kTaskNames) {
    for (const auto& [chunks, passages] : {std::pair{1u, 1u}, {2u, 1u}, {3u, 4u}, {16u, 2u}}) {
      SCOPED_TRACE(task + " " + std::to_string(chunks) + "x" + std::to_string(passages));
      for (const Question& question : Make(task, chunks, passages, 7, 40)) {
        ASSERT_EQ(question.chunks.size(), chunks);
        ASSERT_EQ(question.answers.size(), 1u);
        ASSERT_EQ(Solve(task, question), question.answers[0]) << question.index << "\n"
                                                              << AllText(question) << question.text;
      }
    }
  }
}

TEST(GeneratedTasksTest, NeedleHasOneCodeAndKeysOneToAPassage) {
  const std::regex code("access code of");
  for (const Question& question : Make("needle", 4, 3, 1, 10))
    EXPECT_EQ(Matches(AllText(question), code).size(), 1u);
  for (const Question& question : Make("keys", 4, 3, 1, 10))
    EXPECT_EQ(Matches(AllText(question), code).size(), 12u);
}

TEST(GeneratedTasksTest, StepsOfAChainStandInDifferentPassages) {
  for (const Question& question : Make("tracking", 6, 1, 3, 20)) {
    for (const std::string& chunk : question.chunks) {
      EXPECT_LE(Matches(chunk, std::regex("The variable")).size(), 2u) << "one of each chain";
    }
  }
}

TEST(GeneratedTasksTest, SeedsReproduceAndDiffer) {
  for (const std::string task : kTaskNames) {
    const std::vector<Question> once = Make(task, 3, 2, 5, 20), again = Make(task, 3, 2, 5, 20);
    const std::vector<Question> other = Make(task, 3, 2, 6, 20);
    std::set<std::string> texts, answers;
    for (size_t i = 0; i < once.size(); ++i) {
      EXPECT_EQ(once[i].index, i);
      EXPECT_EQ(once[i].chunks, again[i].chunks);
      EXPECT_EQ(once[i].text, again[i].text);
      EXPECT_EQ(once[i].answers, again[i].answers);
      EXPECT_NE(once[i].chunks, other[i].chunks);
      texts.insert(AllText(once[i]));
      answers.insert(once[i].answers[0]);
    }
    EXPECT_EQ(texts.size(), once.size());
    EXPECT_GT(answers.size(), 3u);
  }
}

// The first question of each task, so that a change of the wording or of a draw is seen: it makes other
// prompts under the same name. Raise kVersion then.
TEST(GeneratedTasksTest, AnswersToFixedSeedsStay) {
  std::map<std::string, std::string> answers;
  for (const std::string task : kTaskNames) answers[task] = Make(task, 2, 1, 1, 1)[0].answers[0];
  EXPECT_EQ(
      answers,
      (std::map<std::string, std::string>{
          {"needle", "750241"}, {"keys", "888143"}, {"classification", "zorp"}, {"tracking", "51107"}}));
}

TEST(GeneratedTasksTest, AnUnknownTaskNamesThoseThatThereAre) {
  EXPECT_THAT(
      Dataset::Open({.source = "generated:poem"}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("needle, keys, classification, tracking")));
}

}  // namespace
}  // namespace epic::loadgen
