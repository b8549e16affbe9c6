#include "loadgen/datasets/qa_file.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "common/base/random.h"
#include "common/status/status_macros.h"
#include "loadgen/answers/squad_metric.h"
#include "loadgen/datasets/passages.h"
#include "loadgen/datasets/shuffle.h"

namespace epic::loadgen {
namespace {

using nlohmann::json;

// Of the pool that other questions' passages are drawn from; what a file has beyond is not drawn.
constexpr size_t kPoolPassages = 20'000;
constexpr size_t kPoolBytes = 64 << 20;

absl::Status Bad(const std::string& path, uint64_t line, const std::string& what) {
  return absl::InvalidArgumentError(path + " line " + std::to_string(line) + ": " + what);
}

// The texts of `key`, a text that is not empty in each object.
const std::string* TextOf(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return nullptr;
  return &found->get_ref<const std::string&>();
}

absl::StatusOr<std::string> ParsePassage(const std::string& path, uint64_t line, const json& context) {
  if (!context.is_object()) return Bad(path, line, "ctxs must hold objects");
  const std::string* text = TextOf(context, "text");
  if (text == nullptr || text->empty()) return Bad(path, line, "ctxs: text must be a text that is not empty");
  if (!context.contains("title")) return *text;
  const std::string* title = TextOf(context, "title");
  if (title == nullptr) return Bad(path, line, "ctxs: title must be a text");
  return title->empty() ? *text : *title + "\n" + *text;
}

bool HoldsAnswer(const std::string& passage, const QaRecord& record) {
  return ScoreAnswer(passage, record.answers).contained > 0;
}

class QaFile final : public Dataset {
 public:
  QaFile(const DatasetOptions& options, Digest digest)
      : options_(options),
        name_(std::filesystem::path(options.source).filename().string()),
        digest_(std::move(digest)) {}

  absl::Status Start() {
    EPIC_ASSIGN_OR_RETURN(reader_, RecordReader::Open(options_.source));
    EPIC_ASSIGN_OR_RETURN(const std::optional<DataRecord> first, reader_->Next());
    if (!first.has_value()) return absl::InvalidArgumentError(options_.source + " holds no record");
    EPIC_ASSIGN_OR_RETURN(const QaRecord record, ParseQaRecord(options_.source, *first));
    single_ = record.passages.size() == 1;
    if (single_) {
      EPIC_RETURN_IF_ERROR(FillPool());
    }
    EPIC_ASSIGN_OR_RETURN(reader_, RecordReader::Open(options_.source));
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<Question>> Next() override {
    EPIC_ASSIGN_OR_RETURN(const std::optional<DataRecord> next, reader_->Next());
    if (!next.has_value()) return std::optional<Question>();
    EPIC_ASSIGN_OR_RETURN(QaRecord record, ParseQaRecord(options_.source, *next));
    if (single_ != (record.passages.size() == 1)) {
      return Bad(options_.source, next->line,
                 single_ ? "ctxs holds several passages, but the first record one: a file has one shape"
                         : "ctxs holds one passage, but the first record several: a file has one shape");
    }
    Question question;
    question.index = index_++;
    question.text =
        "Use the texts above to answer the question in at most five words.\nQuestion: " + record.question;
    Rng rng(MixSeed(options_.seed, {question.index}));
    std::vector<std::string> passages = single_ ? WithOthers(record, &rng) : Chosen(record, &rng);
    const size_t wanted = Wanted();
    if (passages.size() < wanted) {
      question.unusable = "it has " + std::to_string(passages.size()) + " passages and the prompt takes " +
                          std::to_string(wanted);
    } else {
      question.chunks = ToChunks(std::move(passages), options_.passages_per_chunk);
    }
    question.answers = std::move(record.answers);
    return std::optional<Question>(std::move(question));
  }

  const std::string& name() const override { return name_; }
  const Digest& digest() const override { return digest_; }

 private:
  size_t Wanted() const { return size_t{options_.chunks} * options_.passages_per_chunk; }

  absl::Status FillPool() {
    EPIC_ASSIGN_OR_RETURN(const std::unique_ptr<RecordReader> reader, RecordReader::Open(options_.source));
    size_t bytes = 0;
    while (pool_.size() < kPoolPassages) {
      EPIC_ASSIGN_OR_RETURN(const std::optional<DataRecord> record, reader->Next());
      if (!record.has_value()) break;
      EPIC_ASSIGN_OR_RETURN(QaRecord parsed, ParseQaRecord(options_.source, *record));
      bytes += parsed.passages.front().size();
      if (bytes > kPoolBytes) break;
      pool_.push_back(std::move(parsed.passages.front()));
    }
    return absl::OkStatus();
  }

  // The gold passage among others, each once, in a drawn order; fewer than wanted when the pool is too small.
  std::vector<std::string> WithOthers(const QaRecord& record, Rng* rng) const {
    std::vector<std::string> passages = {record.passages.front()};
    std::set<std::string_view> taken = {record.passages.front()};
    // A file of few different passages must not keep this going for ever.
    for (size_t tries = 0; passages.size() < Wanted() && tries < 64 * Wanted(); ++tries) {
      const std::string& other = pool_[rng->Below(pool_.size())];
      if (taken.insert(other).second) passages.push_back(other);
    }
    Shuffle(rng, &passages);
    return passages;
  }

  // As many of the record's own as wanted: one that holds an answer, if any does, and others, in a drawn
  // order.
  std::vector<std::string> Chosen(QaRecord& record, Rng* rng) const {
    std::vector<std::string> passages = std::move(record.passages);
    Shuffle(rng, &passages);
    if (passages.size() > Wanted()) {
      const auto holds = std::find_if(passages.begin(), passages.end(), [&](const std::string& passage) {
        return HoldsAnswer(passage, record);
      });
      if (holds != passages.end() && static_cast<size_t>(holds - passages.begin()) >= Wanted()) {
        std::swap(*holds, passages[rng->Below(Wanted())]);
      }
      passages.resize(Wanted());
    }
    return passages;
  }

  const DatasetOptions options_;
  const std::string name_;
  const Digest digest_;
  std::unique_ptr<RecordReader> reader_;
  bool single_ = false;
  std::vector<std::string> pool_;  // single_ only
  uint64_t index_ = 0;
};

}  // namespace

absl::StatusOr<QaRecord> ParseQaRecord(const std::string& path, const DataRecord& record) {
  const uint64_t line = record.line;
  QaRecord parsed;
  const std::string* question = TextOf(record.value, "question");
  if (question == nullptr || question->empty()) {
    return Bad(path, line, "question must be a text that is not empty");
  }
  parsed.question = *question;
  const auto answers = record.value.find("answers");
  if (answers == record.value.end() || !answers->is_array() || answers->empty()) {
    return Bad(path, line, "answers must be a list of at least one text");
  }
  for (const json& answer : *answers) {
    if (!answer.is_string() || answer.get_ref<const std::string&>().empty()) {
      return Bad(path, line, "answers must hold texts that are not empty");
    }
    parsed.answers.push_back(answer.get<std::string>());
  }
  const auto contexts = record.value.find("ctxs");
  if (contexts == record.value.end() || !contexts->is_array() || contexts->empty()) {
    return Bad(path, line, "ctxs must be a list of at least one passage");
  }
  for (const json& context : *contexts) {
    EPIC_ASSIGN_OR_RETURN(std::string passage, ParsePassage(path, line, context));
    parsed.passages.push_back(std::move(passage));
  }
  return parsed;
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenQaFile(const DatasetOptions& options) {
  EPIC_ASSIGN_OR_RETURN(const Digest digest, FileDigest(options.source));
  auto file = std::make_unique<QaFile>(options, digest);
  EPIC_RETURN_IF_ERROR(file->Start());
  return std::unique_ptr<Dataset>(std::move(file));
}

}  // namespace epic::loadgen
