#include "loadgen/quality/quality_run.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "loadgen/quality/timing_run.h"
#include "services/engine/testing/engine_harness.h"
#include "services/model/testing/tiny_model.h"

namespace epic::loadgen {
namespace {

using ::epic::testing::StatusIs;
using ::testing::HasSubstr;

class ListDataset final : public Dataset {
 public:
  explicit ListDataset(std::vector<Question> questions) : questions_(std::move(questions)) {}
  absl::StatusOr<std::optional<Question>> Next() override {
    if (next_ == questions_.size()) return std::optional<Question>();
    return std::optional<Question>(questions_[next_++]);
  }
  const std::string& name() const override { return name_; }
  const Digest& digest() const override { return digest_; }

 private:
  const std::vector<Question> questions_;
  size_t next_ = 0;
  const std::string name_ = "list";
  const Digest digest_;
};

// Three contexts each; the first is the same in all.
std::vector<Question> Questions(size_t count) {
  std::vector<Question> questions(count);
  for (size_t i = 0; i < count; ++i) {
    const std::string n = std::to_string(i);
    questions[i].index = i;
    questions[i].text = "Which of them is number " + n + "?";
    questions[i].answers = {"the " + n};
    questions[i].chunks = {"A fact that all of these share, and some words more.\n\n",
                           "Only question " + n + " is told this about a lantern.\n\n",
                           "And a third text for question " + n + ", of the same kind.\n\n"};
  }
  return questions;
}

class QualityRunTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const testing::TempDir dir;
    testing::TinyModelSpec spec;
    spec.context_length = 1024;
    const std::string path = dir.path() + "/tiny.gguf";
    testing::TinyModel(spec).WriteGguf(path);
    auto bench = Workbench::Open({path, 2, ComputeFormat::kF32}, SystemClock::Get(), nullptr);
    ASSERT_OK(bench);
    bench_ = bench->release();
  }
  static void TearDownTestSuite() { delete std::exchange(bench_, nullptr); }

  QualityRunTest() : objects_(bench_->engine.get(), bench_->clock, 64 << 20) {}

  QualityRunOptions Options(const std::vector<std::string>& spellings, uint64_t questions = 3) {
    return {.strategies = *ParseStrategies(spellings), .skip = 0, .questions = questions, .max_tokens = 6};
  }
  absl::StatusOr<std::vector<uint64_t>> Run(const QualityRunOptions& options, ResultsLog* log,
                                            std::vector<Question> questions = Questions(3)) {
    ListDataset dataset(std::move(questions));
    return QualityRun(bench_, &objects_, &options, log).Run(&dataset, [](const QualityProgress&) {});
  }
  std::unique_ptr<ResultsLog> Log(const std::string& path = "") {
    return *ResultsLog::Open(path, {{"pin", 1}});
  }

  static Workbench* bench_;
  ObjectCache objects_;
};

Workbench* QualityRunTest::bench_ = nullptr;

TEST_F(QualityRunTest, APromptIsHeadContextsAndTail) {
  const Question question = Questions(1)[0];
  ASSERT_OK_AND_ASSIGN(const ChatPrompt prompt,
                       MakePrompt(*bench_->tokenizer, *bench_->chat_template, question));
  ASSERT_EQ(prompt.chunks.size(), 3u);
  const auto text = [](const std::vector<TokenId>& ids) { return bench_->tokenizer->Decode(ids, true); };
  EXPECT_EQ(text(prompt.head), "<|im_start|>user\n");
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(text(prompt.chunks[i]), question.chunks[i]);
  EXPECT_EQ(text(prompt.tail), question.text + "<|im_end|>\n<|im_start|>assistant\n");
  ASSERT_OK_AND_ASSIGN(const PromptObjects objects,
                       ObjectsFor(*bench_, &objects_, prompt, CompilePrefixKind::kBos4));
  const std::vector<uint32_t> order = {2, 0, 1};
  const std::vector<PromptPiece> pieces = PiecesOf(prompt, order, objects);
  ASSERT_EQ(pieces.size(), 5u);
  EXPECT_FALSE(pieces[0].is_context);
  EXPECT_TRUE(pieces[0].prefix_tokens.empty());
  EXPECT_EQ(pieces[1].tokens, prompt.chunks[2]);
  EXPECT_EQ(pieces[1].prefix_tokens.size(), 4u);
  EXPECT_EQ(pieces[1].object->layout().first_position, 4u);
  EXPECT_EQ(pieces[4].object, nullptr);
}

TEST_F(QualityRunTest, RecomputingEveryRowEqualsFullAndRecomputingNoneDoesNot) {
  const auto log = Log();
  ASSERT_OK_AND_ASSIGN(
      const std::vector<uint64_t> asked,
      Run(Options({"full", "legolink-9999", "naive", "prefix", "legolink-0", "legolink-4"}), log.get()));
  EXPECT_EQ(asked, (std::vector<uint64_t>{0, 1, 2}));
  for (const uint64_t question : asked) {
    const PromptResult& full = *log->Find(question, "full");
    const PromptResult& all = *log->Find(question, "legolink-9999");
    const PromptResult& naive = *log->Find(question, "naive");
    // The logits of a tiny random model are nearly flat: what counts is how far the two are apart.
    EXPECT_LT(all.KlMean(), naive.KlMean() / 100);
    EXPECT_LT(log->Find(question, "prefix")->KlMean(), naive.KlMean() / 100);
    EXPECT_EQ(all.Top1(), 1);
    EXPECT_EQ(all.answer_tokens, full.answer_tokens);
    EXPECT_GT(naive.KlMean(), 0);
    EXPECT_EQ(all.kl.size(), full.kl.size());
    EXPECT_LE(full.kl.size(), 6u);
    EXPECT_EQ(naive.recomputed, 0u);
    EXPECT_EQ(log->Find(question, "legolink-0")->recomputed, 0u);
    EXPECT_EQ(log->Find(question, "legolink-4")->recomputed, 12u);
    EXPECT_EQ(full.cached, 0u);
    EXPECT_EQ(full.prompt_tokens, naive.prompt_tokens);
    EXPECT_EQ(naive.cached + naive.fresh, naive.prompt_tokens);
  }
}

// The same numbers from requests made one by one, and KL by the tests' own formula.
TEST_F(QualityRunTest, ResultsAreThoseOfSingleRequests) {
  const auto log = Log();
  ASSERT_OK(Run(Options({"naive", "legolink-4", "legolink-2"}, 1), log.get()));
  const Question question = Questions(1)[0];
  ASSERT_OK_AND_ASSIGN(const ChatPrompt prompt,
                       MakePrompt(*bench_->tokenizer, *bench_->chat_template, question));
  ASSERT_OK_AND_ASSIGN(const PromptObjects objects,
                       ObjectsFor(*bench_, &objects_, prompt, CompilePrefixKind::kNone));
  const std::vector<uint32_t> order = {0, 1, 2};
  const std::vector<PromptPiece> pieces = PiecesOf(prompt, order, objects);
  std::vector<TokenId> continuation = log->Find(0, "full")->answer_tokens;
  if (continuation.size() < 6) continuation.push_back(bench_->end_tokens.front());
  const LinkStrategy full{.kind = StrategyKind::kFull}, lego{.kind = StrategyKind::kLegoLink, .k = 4};
  ASSERT_OK_AND_ASSIGN(const auto exact, testing::Score(bench_->engine.get(), pieces, full, continuation));
  ASSERT_OK_AND_ASSIGN(const auto linked, testing::Score(bench_->engine.get(), pieces, lego, continuation));
  const PromptResult& result = *log->Find(0, "legolink-4");
  ASSERT_EQ(result.kl.size(), continuation.size());
  for (size_t row = 0; row < continuation.size(); ++row) {
    EXPECT_NEAR(result.kl[row], testing::KlDivergence(exact->logits[row], linked->logits[row]), 1e-12);
  }
  LinkRequest greedy;
  greedy.pieces = pieces;
  greedy.strategy = lego;
  greedy.sampling.temperature = 0;
  greedy.max_tokens = 6;
  greedy.stop_tokens = bench_->end_tokens;
  ASSERT_OK_AND_ASSIGN(const auto answer, testing::Link(bench_->engine.get(), std::move(greedy)));
  EXPECT_EQ(result.answer_tokens, answer->Ids(0));
}

TEST_F(QualityRunTest, ContextsAreCompiledOnceForAllStrategiesOfAVariant) {
  const auto log = Log();
  ASSERT_OK(Run(Options({"naive", "legolink-1", "legolink-2", "legolink-3", "legolink-4"}), log.get()));
  EXPECT_EQ(objects_.totals().objects, 1u + 1 + 3 * 2) << "head, the shared context, two of each question";
  ASSERT_OK(Run(Options({"naive", "legolink-1", "legolink-0"}), log.get()));
  EXPECT_EQ(objects_.totals().objects, 8u + 7) << "the same behind four tokens; the head stays plain";
}

TEST_F(QualityRunTest, ARunGoesOnWhereAnotherEnded) {
  const std::vector<std::string> spellings = {"naive", "legolink-4", "legolink-0"};
  const auto whole = Log();
  ASSERT_OK(Run(Options(spellings), whole.get()));
  // Every state in which a run can be killed: the first n results in the order in which they are written.
  std::vector<PromptResult> written;
  for (uint64_t question = 0; question < 3; ++question) {
    written.push_back(*whole->Find(question, "full"));
    for (const std::string& spelling : spellings) written.push_back(*whole->Find(question, spelling));
  }
  for (size_t kept = 0; kept <= written.size(); ++kept) {
    SCOPED_TRACE(kept);
    const auto log = Log();
    for (size_t i = 0; i < kept; ++i) ASSERT_OK(log->Add(written[i]));
    ASSERT_OK_AND_ASSIGN(const std::vector<uint64_t> asked, Run(Options(spellings), log.get()));
    EXPECT_EQ(asked.size(), 3u);
    for (const PromptResult& result : written) {
      ASSERT_NE(log->Find(result.question, result.strategy), nullptr);
      EXPECT_EQ(*log->Find(result.question, result.strategy), result);
    }
  }
}

TEST_F(QualityRunTest, AnExactAnswerThatHasChangedIsAnError) {
  const auto first = Log();
  ASSERT_OK(Run(Options({"naive"}, 1), first.get()));
  PromptResult other = *first->Find(0, "full");
  other.answer_tokens.push_back(7);
  const auto log = Log();
  ASSERT_OK(log->Add(other));
  EXPECT_THAT(Run(Options({"naive"}, 1), log.get()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("start a new file")));
}

TEST_F(QualityRunTest, WhatDoesNotFitIsLeftOutWithBothNumbers) {
  std::vector<Question> questions = Questions(3);
  questions[1].chunks[0] = std::string(3000, 'x');
  questions[2].unusable = "no passages";
  const auto log = Log();
  ASSERT_OK_AND_ASSIGN(const std::vector<uint64_t> asked, Run(Options({"naive"}), log.get(), questions));
  EXPECT_EQ(asked.size(), 3u);
  EXPECT_NE(log->Find(0, "naive"), nullptr);
  EXPECT_EQ(log->Find(1, "naive"), nullptr);
  ASSERT_NE(log->FindSkipped(1), nullptr);
  EXPECT_THAT(*log->FindSkipped(1), HasSubstr("model's 1024"));
  EXPECT_EQ(*log->FindSkipped(2), "no passages");
  ASSERT_OK(Run(Options({"naive"}), log.get(), questions)) << "left out once, not again";
}

TEST_F(QualityRunTest, QuestionsBeforeTheFirstAndBehindTheLastAreNotAsked) {
  QualityRunOptions options = Options({"naive"}, 2);
  options.skip = 1;
  const auto log = Log();
  ASSERT_OK_AND_ASSIGN(const std::vector<uint64_t> asked, Run(options, log.get(), Questions(5)));
  EXPECT_EQ(asked, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(log->Find(0, "full"), nullptr);
  EXPECT_EQ(log->Find(3, "full"), nullptr);
  ASSERT_OK_AND_ASSIGN(const std::vector<uint64_t> few, Run(Options({"naive"}, 9), log.get(), Questions(2)));
  EXPECT_EQ(few.size(), 2u) << "a dataset may end early";
}

TEST_F(QualityRunTest, TheCacheForgetsTheLeastRecentlyUsed) {
  const std::vector<TokenId> a(10, 5), b(10, 6), c(10, 7);
  ASSERT_OK_AND_ASSIGN(const auto one, objects_.Get(std::vector<ObjectWish>{{a, {}}}));
  const uint64_t bytes = objects_.bytes();
  ObjectCache small(bench_->engine.get(), bench_->clock, 2 * bytes);
  const auto get = [&](const std::vector<TokenId>& tokens) {
    const auto objects = small.Get(std::vector<ObjectWish>{{tokens, {}}});
    EXPECT_OK(objects);
    EXPECT_EQ((*objects)[0]->layout().tokens, 10u);
  };
  get(a);
  get(b);
  get(a);
  get(c);  // b goes
  EXPECT_EQ(small.bytes(), 2 * bytes);
  EXPECT_EQ(small.totals().objects, 3u);
  get(a);
  EXPECT_EQ(small.totals().objects, 3u);
  get(b);
  EXPECT_EQ(small.totals().objects, 4u);
  // The same wish twice is one compile; a prefix makes another object.
  ASSERT_OK_AND_ASSIGN(const auto three, small.Get(std::vector<ObjectWish>{{c, a}, {c, a}, {c, {}}}));
  EXPECT_EQ(three[0], three[1]);
  EXPECT_NE(three[0], three[2]);
  EXPECT_EQ(three[0]->layout().first_position, 10u);
}

TEST_F(QualityRunTest, TimingMeasuresEveryStrategyInEveryRound) {
  std::vector<TimedPrompt> prompts;
  for (const Question& question : Questions(2)) {
    prompts.push_back({question.index, *MakePrompt(*bench_->tokenizer, *bench_->chat_template, question)});
  }
  TimingOptions options;
  options.strategies = *ParseStrategies({"full", "naive", "legolink-4", "prefix", "legolink-0"});
  options.rounds = 5;
  uint32_t rounds = 0;
  ASSERT_OK_AND_ASSIGN(const std::vector<StrategyTiming> timings,
                       RunTiming(*bench_, &objects_, prompts, options,
                                 [&](uint32_t, uint32_t total) { rounds += total == 10 ? 1 : 0; }));
  EXPECT_EQ(rounds, 10u);
  ASSERT_EQ(timings.size(), 5u);
  for (const StrategyTiming& timing : timings) {
    SCOPED_TRACE(timing.strategy);
    ASSERT_EQ(timing.samples.size(), 10u);
    for (size_t i = 0; i < timing.samples.size(); ++i) {
      const TimingSample& sample = timing.samples[i];
      EXPECT_EQ(sample.question, i / 5);
      EXPECT_GT(sample.ttft, 0);
      EXPECT_GT(sample.link, 0);
      EXPECT_LE(sample.link, sample.ttft);
      EXPECT_GE(sample.decide, 0);
      EXPECT_EQ(sample.stats.prompt_tokens, prompts[sample.question].prompt.tokens());
    }
  }
  EXPECT_EQ(timings[0].samples[0].stats.cached_tokens, 0u);
  EXPECT_EQ(timings[2].samples[0].stats.recomputed_tokens, 12u);
}

}  // namespace
}  // namespace epic::loadgen
