#include "loadgen/datasets/generated_tasks.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "loadgen/datasets/filler.h"
#include "loadgen/datasets/passages.h"
#include "loadgen/datasets/shuffle.h"

namespace epic::loadgen {
namespace {

// Raise it when a task makes other texts: results of both must not be mixed.
constexpr int kVersion = 1;
constexpr size_t kSentences = 6;  // of a passage of filler
constexpr int kCodeDigits = 6;
constexpr int kValueDigits = 5;
constexpr size_t kExamples = 5;  // of a passage of labelled texts
constexpr size_t kSteps = 4;     // of a chain of variables, at most

struct Task {
  std::vector<std::string> passages;  // in the order of the prompt
  std::string text;
  std::string answer;
};

// Filler with the fact at a drawn place.
std::string Hide(Rng* rng, const std::string& fact) {
  std::vector<std::string> sentences = FillerSentences(rng, kSentences - 1);
  sentences.insert(sentences.begin() + static_cast<ptrdiff_t>(rng->Below(sentences.size() + 1)), fact);
  return Join(sentences, " ");
}

std::string CodeFact(const std::string& thing, const std::string& code) {
  return "The access code of the " + thing + " is " + code + ".";
}

std::string CodeQuestion(const std::string& thing) {
  return "Use the texts above. Answer with the number only.\nQuestion: What is the access code of the " +
         thing + "?";
}

Task MakeNeedle(Rng* rng, size_t passages) {
  Task task;
  const std::string thing = DrawThings(rng, 1).front();
  task.answer = DrawNumber(rng, kCodeDigits);
  for (size_t i = 0; i < passages; ++i) task.passages.push_back(Join(FillerSentences(rng, kSentences), " "));
  task.passages[rng->Below(passages)] = Hide(rng, CodeFact(thing, task.answer));
  task.text = CodeQuestion(thing);
  return task;
}

Task MakeKeys(Rng* rng, size_t passages) {
  Task task;
  // Every passage has a fact while there are things to tell apart.
  const std::vector<std::string> things = DrawThings(rng, std::min(passages, kMostThings));
  const size_t asked = rng->Below(things.size());
  std::set<std::string> codes;
  for (size_t i = 0; i < passages; ++i) {
    if (i >= things.size()) {
      task.passages.push_back(Join(FillerSentences(rng, kSentences), " "));
      continue;
    }
    std::string code = DrawNumber(rng, kCodeDigits);
    while (!codes.insert(code).second) code = DrawNumber(rng, kCodeDigits);
    if (i == asked) task.answer = code;
    task.passages.push_back(Hide(rng, CodeFact(things[i], code)));
  }
  task.text = CodeQuestion(things[asked]);
  Shuffle(rng, &task.passages);
  return task;
}

// Topics whose texts share no noun, and labels that say nothing about them.
struct Topic {
  std::array<std::string_view, 8> nouns;
};
constexpr Topic kTopics[] = {
    {{"thunder", "snow", "hail", "sunshine", "wind", "frost", "drizzle", "storm"}},
    {{"soup", "bread", "cheese", "salad", "pancakes", "rice", "noodles", "pie"}},
    {{"football", "tennis", "rowing", "boxing", "hockey", "fencing", "cycling", "wrestling"}},
    {{"piano", "guitar", "drums", "flute", "choir", "opera", "cello", "harp"}},
};
constexpr std::string_view kLabels[] = {"zorp",  "mivel", "takko",  "brunda",
                                        "quesh", "lopim", "fandar", "weeple"};
constexpr std::string_view kFrames[] = {
    "We talked all day about %1 and %2.", "My cousin writes letters about %1, %2 and little else.",
    "Nobody here had expected %1 or %2.", "She remembers the %1 and the %2 of last year.",
    "There was %1 at first, then %2."};

std::string Fill(std::string_view frame, std::string_view first, std::string_view second) {
  std::string text(frame);
  text.replace(text.find("%1"), 2, first);
  text.replace(text.find("%2"), 2, second);
  return text;
}

Task MakeClassification(Rng* rng, size_t passages) {
  Task task;
  std::vector<std::string_view> labels(std::begin(kLabels), std::end(kLabels));
  Shuffle(rng, &labels);
  std::array<std::vector<std::string_view>, std::size(kTopics)> seen;
  std::set<std::string> texts;
  const auto draw = [&](size_t topic, std::span<const std::string_view> nouns) {
    const std::string_view first = Draw(rng, nouns);
    std::string_view second = Draw(rng, nouns);
    while (second == first) second = Draw(rng, nouns);
    seen[topic].push_back(first);
    seen[topic].push_back(second);
    return Fill(Draw(rng, kFrames), first, second);
  };
  const size_t offset = rng->Below(std::size(kTopics));
  for (size_t i = 0; i < passages; ++i) {
    std::vector<std::string> examples;
    for (size_t j = 0; j < kExamples; ++j) {
      const size_t topic = (offset + i * kExamples + j) % std::size(kTopics);
      const std::string text = draw(topic, kTopics[topic].nouns);
      texts.insert(text);
      examples.push_back("Text: " + text + "\nLabel: " + std::string(labels[topic]));
    }
    Shuffle(rng, &examples);
    task.passages.push_back(Join(examples, "\n"));
  }
  // The new text has words that were seen, in a sentence that was not.
  const size_t asked = rng->Below(std::size(kTopics));
  const std::vector<std::string_view> known = seen[asked];
  std::string text = draw(asked, known);
  for (int tries = 0; texts.contains(text) && tries < 1000; ++tries) text = draw(asked, known);
  task.text =
      "The texts above have labels. Give the label of this one, in one word.\nText: " + text + "\nLabel:";
  task.answer = labels[asked];
  return task;
}

std::string DrawName(Rng* rng, std::set<std::string>* taken) {
  std::string name;
  do {
    name.clear();
    for (int i = 0; i < 3; ++i) name += static_cast<char>('A' + static_cast<char>(rng->Below(26)));
  } while (!taken->insert(name).second);
  return name;
}

Task MakeTracking(Rng* rng, size_t passages) {
  Task task;
  std::set<std::string> names, values;
  std::vector<std::vector<std::string>> facts(passages);
  const size_t steps = std::min(passages, kSteps);
  // Two chains of the same length: one is asked for.
  for (int chain = 0; chain < 2; ++chain) {
    std::string value = DrawNumber(rng, kValueDigits);
    while (!values.insert(value).second) value = DrawNumber(rng, kValueDigits);
    const std::vector<uint32_t> places = ShuffledIndices(rng, static_cast<uint32_t>(passages));
    std::string last = DrawName(rng, &names);
    facts[places[0]].push_back("The variable " + last + " is " + value + ".");
    for (size_t step = 1; step < steps; ++step) {
      const std::string name = DrawName(rng, &names);
      facts[places[step]].push_back("The variable " + name + " equals the variable " + last + ".");
      last = name;
    }
    if (chain == 1) continue;
    task.answer = value;
    task.text =
        "Use the texts above. Answer with the number only.\nQuestion: Which number is the value of the "
        "variable " +
        last + "?";
  }
  for (const std::vector<std::string>& here : facts) {
    std::vector<std::string> sentences = FillerSentences(rng, kSentences - here.size());
    for (const std::string& fact : here) {
      sentences.insert(sentences.begin() + static_cast<ptrdiff_t>(rng->Below(sentences.size() + 1)), fact);
    }
    task.passages.push_back(Join(sentences, " "));
  }
  return task;
}

struct TaskKind {
  std::string_view name;
  Task (*make)(Rng* rng, size_t passages);
};
constexpr TaskKind kTasks[] = {{"needle", MakeNeedle},
                               {"keys", MakeKeys},
                               {"classification", MakeClassification},
                               {"tracking", MakeTracking}};

class GeneratedTask final : public Dataset {
 public:
  GeneratedTask(const TaskKind& kind, size_t number, const DatasetOptions& options)
      : kind_(kind),
        number_(number),
        options_(options),
        name_("generated:" + std::string(kind.name)),
        digest_(Sha256Of(AsBytes(name_ + " version " + std::to_string(kVersion)))) {}

  absl::StatusOr<std::optional<Question>> Next() override {
    Question question;
    question.index = index_++;
    Rng rng(MixSeed(options_.seed, {number_, question.index}));
    Task task = kind_.make(&rng, size_t{options_.chunks} * options_.passages_per_chunk);
    question.text = std::move(task.text);
    question.answers = {std::move(task.answer)};
    question.chunks = ToChunks(std::move(task.passages), options_.passages_per_chunk);
    return std::optional<Question>(std::move(question));
  }
  const std::string& name() const override { return name_; }
  const Digest& digest() const override { return digest_; }

 private:
  const TaskKind& kind_;
  const size_t number_;
  const DatasetOptions options_;
  const std::string name_;
  const Digest digest_;
  uint64_t index_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenGeneratedTask(std::string_view task,
                                                           const DatasetOptions& options) {
  std::string known;
  for (size_t i = 0; i < std::size(kTasks); ++i) {
    if (kTasks[i].name == task) {
      return std::unique_ptr<Dataset>(std::make_unique<GeneratedTask>(kTasks[i], i, options));
    }
    known += (i == 0 ? "" : ", ") + std::string(kTasks[i].name);
  }
  return absl::InvalidArgumentError("there is no generated task '" + std::string(task.substr(0, 64)) +
                                    "'; there are " + known);
}

}  // namespace epic::loadgen
