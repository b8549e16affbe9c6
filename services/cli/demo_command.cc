// `epic demo`: compile documents, ask one question with every row computed and once linked, and show the
// difference with its quality beside it.
#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "common/base/clock.h"
#include "common/status/status_macros.h"
#include "services/cli/api_client.h"
#include "services/cli/command.h"
#include "services/cli/text_input.h"

namespace epic {
namespace {

using nlohmann::json;

constexpr char kLicences[] = "/usr/share/common-licenses";
constexpr char kLicenceQuestion[] =
    "What must you give any other recipients of the Work when you redistribute copies of it under the Apache "
    "License?";
constexpr char kAnyQuestion[] = "In two sentences: what do these texts say?";

struct DemoFlags {
  std::vector<std::string> files;
  std::string question;
  std::string strategy = "legolink-16";
  size_t contexts = 8;
  size_t chunk_bytes = 2200;  // about 512 tokens of English
  int64_t max_tokens = 48;
  int repeat = 1;
};

struct Compiled {
  std::string id, source;
  uint64_t tokens = 0;
};

absl::StatusOr<std::vector<std::string>> DefaultFiles() {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(kLicences, error)) {
    if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path().string());
  }
  if (files.empty()) {
    return absl::NotFoundError(std::string("no texts under ") + kLicences +
                               "; name files on the command line");
  }
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<std::vector<TextChunk>> Chunks(const Console& console, const DemoFlags& flags,
                                              const std::string& question) {
  std::vector<std::string> files = flags.files;
  if (files.empty()) {
    EPIC_ASSIGN_OR_RETURN(files, DefaultFiles());
  }
  std::vector<TextChunk> chunks;
  for (const std::string& file : files) {
    EPIC_ASSIGN_OR_RETURN(const std::string text, ReadText(file, *console.in));
    for (std::string& chunk : SplitIntoChunks(text, flags.chunk_bytes))
      chunks.push_back({file, std::move(chunk)});
  }
  *console.err << files.size() << " documents, " << chunks.size() << " chunks; the " << flags.contexts
               << " that fit the question best are used\n";
  return PickRelevant(std::move(chunks), question, flags.contexts);
}

absl::StatusOr<std::vector<Compiled>> Compile(const Console& console, const ApiClient& client,
                                              const std::vector<TextChunk>& chunks) {
  std::vector<Compiled> compiled;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const std::string source = std::filesystem::path(chunks[i].source).filename().string();
    *console.err << "  compiling " << i + 1 << "/" << chunks.size() << " " << source << " …" << std::flush;
    bool created = false;
    absl::StatusOr<json> record =
        client.CreateContext({{"text", chunks[i].text}, {"tags", {"demo"}}}, &created);
    if (!record.ok()) {
      *console.err << " failed\n";
      return record.status();
    }
    const uint64_t tokens = record->value("tokens", uint64_t{0});
    *console.err << (created ? " done, " : " known already, ") << tokens << " tokens\n";
    compiled.push_back({record->value("id", ""), source, tokens});
  }
  return compiled;
}

json Question(const DemoFlags& flags, const std::string& question, const std::vector<Compiled>& contexts,
              const std::string& strategy) {
  json ids = json::array();
  for (const Compiled& context : contexts) ids.push_back(context.id);
  return {{"messages", {{{"role", "user"}, {"content", "\n\nQuestion: " + question}}}},
          {"context_ids", std::move(ids)},
          {"linking", {{"strategy", strategy}}},
          {"max_tokens", flags.max_tokens},
          {"temperature", 0}};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Side {
  ChatOutcome last;
  std::vector<double> ttft_ms;
};

// Asks both ways in turn, so that whatever else the machine does falls on both.
absl::Status AskBoth(const Console& console, const ApiClient& client, const DemoFlags& flags,
                     const std::string& question, const std::vector<Compiled>& contexts, Side* full,
                     Side* linked) {
  const auto quiet = [](std::string_view) {};
  for (int round = 0; round < flags.repeat; ++round) {
    for (const auto& [side, strategy] :
         {std::pair{full, std::string("full")}, std::pair{linked, flags.strategy}}) {
      *console.err << "  asking, round " << round + 1 << "/" << flags.repeat << ", " << strategy << " …"
                   << std::flush;
      absl::StatusOr<ChatOutcome> outcome = client.Chat(Question(flags, question, contexts, strategy), quiet);
      if (!outcome.ok()) {
        *console.err << " failed\n";
        return outcome.status();
      }
      *console.err << std::fixed << std::setprecision(0) << " first token after " << outcome->first_token_ms
                   << " ms\n";
      side->ttft_ms.push_back(outcome->first_token_ms);
      side->last = std::move(outcome).value();
    }
  }
  return absl::OkStatus();
}

json SideReport(const Side& side) {
  return {{"answer", side.last.text},
          {"ttft_ms",
           {{"median", Median(side.ttft_ms)},
            {"min", *std::min_element(side.ttft_ms.begin(), side.ttft_ms.end())},
            {"max", *std::max_element(side.ttft_ms.begin(), side.ttft_ms.end())}}},
          {"prompt_tokens", side.last.prompt_tokens},
          {"cached_tokens", side.last.cached_tokens},
          {"recomputed_tokens", side.last.recomputed_tokens},
          {"fresh_tokens", side.last.fresh_tokens}};
}

void PrintSide(std::ostream& out, const std::string& name, const Side& side) {
  const double ms = Median(side.ttft_ms);
  out << "\n--- " << name << ": first token after " << std::fixed << std::setprecision(0) << ms
      << " ms; prompt " << side.last.prompt_tokens << " tokens = cached " << side.last.cached_tokens
      << " + recomputed " << side.last.recomputed_tokens << " + fresh " << side.last.fresh_tokens << " ("
      << static_cast<double>(side.last.prompt_tokens) * 1000.0 / ms << " prompt tokens/s)\n"
      << side.last.text << '\n';
}

void PrintReport(const Console& console, const DemoFlags& flags, const Side& full, const Side& linked,
                 const json& quality, const std::string& http, const std::vector<Compiled>& contexts) {
  std::ostream& out = *console.out;
  PrintSide(out, "every row computed", full);
  PrintSide(out, "linked by " + flags.strategy, linked);
  out << "\nTTFT ratio " << std::setprecision(1) << Median(full.ttft_ms) / Median(linked.ttft_ms) << "x ("
      << flags.repeat
      << (flags.repeat == 1 ? " round; --repeat 5 gives medians" : " rounds, medians, interleaved")
      << "); rows computed " << linked.last.recomputed_tokens + linked.last.fresh_tokens << " of "
      << linked.last.prompt_tokens << '\n';
  if (quality.is_object()) {
    out << std::setprecision(3) << "quality over the " << quality.value("tokens", 0)
        << " tokens of the full answer: KL " << quality.value("kl_mean", 0.0) << " nats (median "
        << quality.value("kl_median", 0.0) << ", first token " << quality.value("kl_first", 0.0)
        << "), same likeliest token " << std::setprecision(0) << 100 * quality.value("top1", 0.0) << " %\n";
  }
  out << "\nGo on with:\n"
      << "  curl -s http://" << http
      << "/v1/contexts -H 'Content-Type: application/json' -d '{\"text\": \"Some text "
         "to use again and again.\"}'\n"
      << "  curl -s http://" << http
      << "/v1/chat/completions -H 'Content-Type: application/json' -d '{\"context_ids\": "
         "[\""
      << contexts.front().id
      << "\"], \"messages\": [{\"role\": \"user\", \"content\": \"What is this "
         "about?\"}], \"max_tokens\": 40}'\n"
      << "  curl -s http://" << http << "/v1/contexts?tag=demo\n";
}

absl::Status Demo(const Console& console, const CommonFlags& common, const DemoFlags& flags) {
  if (flags.repeat < 1 || flags.contexts < 1 || flags.chunk_bytes < 64) {
    return absl::InvalidArgumentError("--repeat and --contexts are at least 1, --chunk-bytes at least 64");
  }
  EPIC_ASSIGN_OR_RETURN(const Config config, LoadCommandConfig(common));
  const std::string http = config.listen.http.ToString();
  const ApiClient client(http);
  const std::string question =
      !flags.question.empty() ? flags.question : (flags.files.empty() ? kLicenceQuestion : kAnyQuestion);
  EPIC_ASSIGN_OR_RETURN(const std::vector<TextChunk> chunks, Chunks(console, flags, question));
  EPIC_ASSIGN_OR_RETURN(const std::vector<Compiled> contexts, Compile(console, client, chunks));
  Side full, linked;
  *console.err << "question: " << question << '\n';
  EPIC_RETURN_IF_ERROR(AskBoth(console, client, flags, question, contexts, &full, &linked));
  *console.err << "  scoring the linked prompt against the full one …" << std::flush;
  json request = Question(flags, question, contexts, flags.strategy);
  request["max_tokens"] = std::min<int64_t>(flags.max_tokens, 32);
  absl::StatusOr<json> quality =
      ApiClient(config.listen.admin.ToString()).Call("POST", "/debug/quality", request);
  *console.err << (quality.ok() ? " done\n"
                                : " not possible: " + std::string(quality.status().message()) + "\n");
  if (!quality.ok()) return quality.status();
  if (common.json) {
    const json report = {
        {"question", question},         {"strategy", flags.strategy},
        {"repeat", flags.repeat},       {"full", SideReport(full)},
        {"linked", SideReport(linked)}, {"ttft_ratio", Median(full.ttft_ms) / Median(linked.ttft_ms)},
        {"quality", *quality}};
    *console.out << report.dump(2, ' ', false, json::error_handler_t::replace) << '\n';
  } else {
    PrintReport(console, flags, full, linked, *quality, http, contexts);
  }
  return absl::OkStatus();
}

}  // namespace

void AddDemoCommand(CLI::App* app, CommonFlags* common, Action* chosen) {
  CLI::App* demo =
      app->add_subcommand("demo", "Compile documents, ask with every row computed and linked, compare");
  const auto flags = std::make_shared<DemoFlags>();
  AddServerFlag(demo, common);
  AddSettingFlag(demo, common, "--admin", "listen.admin", "HOST:PORT of the server's admin door");
  demo->add_option("FILE", flags->files, "Text files; default: the licence texts that every Debian has");
  demo->add_option("--question", flags->question, "What to ask");
  demo->add_option("--strategy", flags->strategy,
                   "How to link: legolink-K, cacheblend-R, query-guided-B, naive, prefix");
  demo->add_option("--contexts", flags->contexts, "How many chunks the question gets");
  demo->add_option("--chunk-bytes", flags->chunk_bytes, "Longest chunk, in bytes");
  demo->add_option("--max-tokens", flags->max_tokens, "Longest answer, in tokens");
  demo->add_option("--repeat", flags->repeat, "Rounds of asking each way in turn; the medians are shown");
  demo->callback([chosen, flags] {
    *chosen = [flags](const Console& console, const CommonFlags& common) {
      return Demo(console, common, *flags);
    };
  });
}

}  // namespace epic
