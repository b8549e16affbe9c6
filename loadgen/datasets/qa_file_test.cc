#include "loadgen/datasets/qa_file.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"

namespace epic::loadgen {
namespace {

using ::epic::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<Question> ReadAll(const DatasetOptions& options, size_t most = 1u << 20) {
  auto dataset = Dataset::Open(options);
  EXPECT_OK(dataset);
  std::vector<Question> questions;
  while (dataset.ok() && questions.size() < most) {
    absl::StatusOr<std::optional<Question>> question = (*dataset)->Next();
    EXPECT_OK(question);
    if (!question.ok() || !question->has_value()) break;
    questions.push_back(**std::move(question));
  }
  return questions;
}

class QaFileTest : public ::testing::Test {
 protected:
  std::string File(std::string_view text) {
    const std::string path = dir_.path() + "/data" + std::to_string(files_++);
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  // Record i asks q<i>, its answer is a<i>, its passage says both.
  std::string SingleFile(int records) {
    std::string text;
    for (int i = 0; i < records; ++i) {
      const std::string n = std::to_string(i);
      text += "{\"question\": \"q" + n + "\", \"answers\": [\"a" + n + "\"], \"ctxs\": [{\"title\": \"T" + n +
              "\", \"text\": \"about q" + n + ": a" + n + "!\", \"isgold\": true}]}\n";
    }
    return File(text);
  }
  // Record i has `passages` of them, the answer in the last.
  std::string MultiFile(int records, int passages) {
    std::string text = "[";
    for (int i = 0; i < records; ++i) {
      const std::string n = std::to_string(i);
      text += std::string(i == 0 ? "" : ",\n") + "{\"question\": \"q" + n + "\", \"answers\": [\"a" + n +
              "\"], \"ctxs\": [";
      for (int j = 0; j < passages; ++j) {
        text += std::string(j == 0 ? "" : ",") + "{\"title\": \"\", \"text\": \"p" + n + "_" +
                std::to_string(j) + (j == passages - 1 ? " A" + n : "") + "\"}";
      }
      text += "]}";
    }
    return File(text + "]");
  }

  testing::TempDir dir_;
  int files_ = 0;
};

TEST_F(QaFileTest, AGoldPassageStandsAmongThoseOfOtherQuestions) {
  const std::vector<Question> questions =
      ReadAll({.source = SingleFile(30), .chunks = 3, .passages_per_chunk = 4, .seed = 5});
  ASSERT_EQ(questions.size(), 30u);
  std::set<size_t> gold_chunks;
  for (size_t i = 0; i < questions.size(); ++i) {
    const Question& question = questions[i];
    const std::string n = std::to_string(i);
    EXPECT_EQ(question.index, i);
    EXPECT_EQ(question.unusable, "");
    EXPECT_EQ(question.answers, std::vector<std::string>{"a" + n});
    EXPECT_THAT(question.text, HasSubstr("Question: q" + n));
    ASSERT_EQ(question.chunks.size(), 3u);
    std::multiset<std::string> passages;
    for (size_t c = 0; c < 3; ++c) {
      std::string rest = question.chunks[c];
      for (size_t end = rest.find("\n\n"); end != std::string::npos; end = rest.find("\n\n")) {
        passages.insert(rest.substr(0, end));
        rest.erase(0, end + 2);
      }
      EXPECT_EQ(rest, "");
      if (question.chunks[c].find("T" + n + "\nabout q" + n + ": a" + n + "!\n\n") != std::string::npos) {
        gold_chunks.insert(c);
      }
    }
    EXPECT_EQ(passages.size(), 12u);
    EXPECT_EQ(std::set<std::string>(passages.begin(), passages.end()).size(), 12u) << "each once";
    EXPECT_EQ(passages.count("T" + n + "\nabout q" + n + ": a" + n + "!"), 1u);
  }
  EXPECT_EQ(gold_chunks.size(), 3u) << "the gold passage is not always in the same place";
}

TEST_F(QaFileTest, AQuestionDependsOnItsIndexAndTheSeedAlone) {
  const std::string path = SingleFile(20);
  const DatasetOptions options{.source = path, .chunks = 4, .passages_per_chunk = 1, .seed = 9};
  const std::vector<Question> once = ReadAll(options), again = ReadAll(options);
  DatasetOptions other = options;
  other.seed = 10;
  const std::vector<Question> reseeded = ReadAll(other);
  size_t different = 0;
  for (size_t i = 0; i < once.size(); ++i) {
    EXPECT_EQ(once[i].chunks, again[i].chunks);
    different += once[i].chunks != reseeded[i].chunks ? 1 : 0;
  }
  EXPECT_GT(different, 15u);
}

TEST_F(QaFileTest, OfSeveralContextsOneThatHoldsTheAnswerIsTaken) {
  const std::string path = MultiFile(20, 10);
  for (const Question& question : ReadAll({.source = path, .chunks = 3, .seed = 1})) {
    ASSERT_EQ(question.chunks.size(), 3u);
    const std::string wanted = " A" + std::to_string(question.index) + "\n\n";
    EXPECT_TRUE(std::any_of(question.chunks.begin(), question.chunks.end(), [&](const std::string& chunk) {
      return chunk.find(wanted) != std::string::npos;
    })) << question.index;
  }
  for (const Question& question :
       ReadAll({.source = path, .chunks = 5, .passages_per_chunk = 2, .seed = 1})) {
    EXPECT_EQ(question.chunks.size(), 5u);
  }
}

TEST_F(QaFileTest, AQuestionWithTooFewPassagesSaysSo) {
  const std::vector<Question> questions = ReadAll({.source = MultiFile(2, 3), .chunks = 4});
  ASSERT_EQ(questions.size(), 2u);
  EXPECT_THAT(questions[0].unusable, AllOf(HasSubstr("3 passages"), HasSubstr("takes 4")));
  EXPECT_THAT(ReadAll({.source = SingleFile(2), .chunks = 4})[0].unusable, HasSubstr("takes 4"));
}

TEST_F(QaFileTest, BadRecordsAreToldWithTheirLine) {
  const std::string good = "{\"question\": \"q\", \"answers\": [\"a\"], \"ctxs\": [{\"text\": \"t\"}]}\n";
  const struct {
    std::string_view line, message;
  } kCases[] = {
      {R"({"answers": ["a"], "ctxs": [{"text": "t"}]})", "question"},
      {R"({"question": 3, "answers": ["a"], "ctxs": [{"text": "t"}]})", "question"},
      {R"({"question": "", "answers": ["a"], "ctxs": [{"text": "t"}]})", "question"},
      {R"({"question": "q", "answers": [], "ctxs": [{"text": "t"}]})", "answers"},
      {R"({"question": "q", "answers": "a", "ctxs": [{"text": "t"}]})", "answers"},
      {R"({"question": "q", "answers": [null], "ctxs": [{"text": "t"}]})", "answers"},
      {R"({"question": "q", "answers": ["a"]})", "ctxs"},
      {R"({"question": "q", "answers": ["a"], "ctxs": {}})", "ctxs"},
      {R"({"question": "q", "answers": ["a"], "ctxs": ["t"]})", "ctxs"},
      {R"({"question": "q", "answers": ["a"], "ctxs": [{"text": ""}]})", "text"},
      {R"({"question": "q", "answers": ["a"], "ctxs": [{"text": "t", "title": 1}]})", "title"},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(std::string(test.line));
    const auto opened = Dataset::Open({.source = File(good + std::string(test.line) + "\n")});
    EXPECT_THAT(opened, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("line 2:"), HasSubstr(test.message))));
  }
}

TEST_F(QaFileTest, AFileHasOneShape) {
  const std::string one = R"({"question": "q", "answers": ["a"], "ctxs": [{"text": "t"}]})";
  const std::string two = R"({"question": "q", "answers": ["a"], "ctxs": [{"text": "t"}, {"text": "u"}]})";
  auto dataset = Dataset::Open({.source = File(two + "\n" + one + "\n")});
  ASSERT_OK(dataset);
  EXPECT_OK((*dataset)->Next());
  EXPECT_THAT((*dataset)->Next(), StatusIs(absl::StatusCode::kInvalidArgument,
                                           AllOf(HasSubstr("line 2:"), HasSubstr("one shape"))));
}

TEST_F(QaFileTest, OptionsOutOfRangeAndMissingFilesAreRefused) {
  EXPECT_THAT(Dataset::Open({.source = SingleFile(2), .chunks = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("chunks")));
  EXPECT_THAT(Dataset::Open({.source = SingleFile(2), .passages_per_chunk = 5000}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("passages")));
  EXPECT_THAT(Dataset::Open({.source = dir_.path() + "/none"}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Dataset::Open({.source = File("")}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no record")));
}

// The files that measurements use.
TEST(QaDataTest, TheEvaluationFilesAreReadWhole) {
  const std::optional<std::string> folder = testing::DataDir();
  if (!folder.has_value()) GTEST_SKIP() << "EPIC_DATA_DIR does not name the folder of evaluation data";
  const std::vector<Question> nq = ReadAll(
      {.source = *folder + "/nq-open-oracle.jsonl.gz", .chunks = 5, .passages_per_chunk = 4, .seed = 1});
  EXPECT_EQ(nq.size(), 2655u);
  for (const Question& question : nq) {
    ASSERT_EQ(question.unusable, "");
    ASSERT_EQ(question.chunks.size(), 5u);
  }
  const std::vector<Question> musique =
      ReadAll({.source = *folder + "/musique.json.gz", .chunks = 10, .seed = 1});
  EXPECT_EQ(musique.size(), 150u);
  for (const Question& question : musique) ASSERT_EQ(question.chunks.size(), 10u);
  EXPECT_EQ(musique[0].answers, std::vector<std::string>{"Exeter College"});
}

}  // namespace
}  // namespace epic::loadgen
