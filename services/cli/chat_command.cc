// `epic chat`: one question over contexts, streamed to the terminal.
#include <iomanip>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "common/status/status_macros.h"
#include "services/cli/api_client.h"
#include "services/cli/command.h"
#include "services/cli/text_input.h"

namespace epic {
namespace {

using nlohmann::json;

struct ChatFlags {
  std::string question = "-";
  std::vector<std::string> contexts, files;
  std::string system, strategy, model;
  int64_t max_tokens = 256;
  double temperature = 0;
  std::optional<int64_t> seed, k, budget;
  std::optional<double> ratio;
};

absl::StatusOr<std::vector<std::string>> CompileFiles(const Console& console, const ApiClient& client,
                                                      const std::vector<std::string>& files) {
  std::vector<std::string> ids;
  for (const std::string& file : files) {
    EPIC_ASSIGN_OR_RETURN(std::string text, ReadText(file, *console.in));
    *console.err << "compiling " << InputName(file) << " …" << std::flush;
    bool created = false;
    absl::StatusOr<json> record = client.CreateContext({{"text", std::move(text)}}, &created);
    *console.err << (record.ok() ? (created ? " done\n" : " known already\n") : " failed\n");
    if (!record.ok()) return record.status();
    ids.push_back(record->value("id", ""));
  }
  return ids;
}

json Request(const ChatFlags& flags, const std::vector<std::string>& ids, const std::string& question) {
  json messages = json::array();
  if (!flags.system.empty()) messages.push_back({{"role", "system"}, {"content", flags.system}});
  messages.push_back({{"role", "user"}, {"content", question}});
  json body = {{"messages", std::move(messages)},
               {"max_tokens", flags.max_tokens},
               {"temperature", flags.temperature}};
  if (!ids.empty()) body["context_ids"] = ids;
  json linking = json::object();
  if (!flags.strategy.empty()) linking["strategy"] = flags.strategy;
  if (flags.k.has_value()) linking["k"] = *flags.k;
  if (flags.ratio.has_value()) linking["ratio"] = *flags.ratio;
  if (flags.budget.has_value()) linking["budget"] = *flags.budget;
  if (!linking.empty()) body["linking"] = std::move(linking);
  if (!flags.model.empty()) body["model"] = flags.model;
  if (flags.seed.has_value()) body["seed"] = *flags.seed;
  return body;
}

json Report(const ChatOutcome& outcome) {
  return {{"text", outcome.text},
          {"finish_reason", outcome.finish_reason},
          {"linking", outcome.linking},
          {"ttft_ms", outcome.first_token_ms},
          {"total_ms", outcome.total_ms},
          {"prompt_tokens", outcome.prompt_tokens},
          {"completion_tokens", outcome.completion_tokens},
          {"cached_tokens", outcome.cached_tokens},
          {"recomputed_tokens", outcome.recomputed_tokens},
          {"fresh_tokens", outcome.fresh_tokens}};
}

absl::Status Chat(const Console& console, const CommonFlags& common, const ChatFlags& flags) {
  EPIC_ASSIGN_OR_RETURN(const Config config, LoadCommandConfig(common));
  const ApiClient client(config.listen.http.ToString());
  EPIC_ASSIGN_OR_RETURN(std::vector<std::string> ids, CompileFiles(console, client, flags.files));
  for (size_t i = 0; i < flags.contexts.size(); ++i) {
    EPIC_ASSIGN_OR_RETURN(std::string id, client.ContextId(flags.contexts[i]));
    ids.insert(ids.begin() + static_cast<ptrdiff_t>(i), std::move(id));
  }
  std::string question = flags.question;
  if (question == "-") {
    if (isatty(STDIN_FILENO) != 0) *console.err << "type the question, then Ctrl-D\n";
    EPIC_ASSIGN_OR_RETURN(question, ReadText("-", *console.in));
  }
  const auto print = [&](std::string_view text) {
    if (!common.json) *console.out << text << std::flush;
  };
  EPIC_ASSIGN_OR_RETURN(const ChatOutcome outcome, client.Chat(Request(flags, ids, question), print));
  if (common.json) {
    *console.out << Report(outcome).dump(2, ' ', false, json::error_handler_t::replace) << '\n';
    return absl::OkStatus();
  }
  *console.out << '\n';
  *console.err << std::fixed << std::setprecision(0) << "[" << outcome.linking << "; first token after "
               << outcome.first_token_ms << " ms; prompt " << outcome.prompt_tokens << " = cached "
               << outcome.cached_tokens << " + recomputed " << outcome.recomputed_tokens << " + fresh "
               << outcome.fresh_tokens << "]\n";
  return absl::OkStatus();
}

}  // namespace

void AddChatCommand(CLI::App* app, CommonFlags* common, Action* chosen) {
  CLI::App* chat = app->add_subcommand("chat", "Ask a question about contexts or files");
  const auto flags = std::make_shared<ChatFlags>();
  AddServerFlag(chat, common);
  chat->add_option("QUESTION", flags->question, "The question; - (the default) reads standard input");
  AddRepeatedOption(chat, "--context,-c", &flags->contexts,
                    "A Cache ID or a context's name, in the order of the prompt");
  AddRepeatedOption(chat, "--file,-f", &flags->files, "A text file to compile and use");
  chat->add_option("--system", flags->system, "System message");
  chat->add_option("--strategy", flags->strategy,
                   "full, prefix, naive, legolink-K, cacheblend-R, query-guided-B; default: the server's");
  chat->add_option("--k", flags->k, "Rows of legolink: the first K of each context are recomputed");
  chat->add_option("--ratio", flags->ratio, "Share of the rows, 0 to 1, that cacheblend recomputes");
  chat->add_option("--budget", flags->budget, "Rows of each context that query-guided recomputes");
  chat->add_option("--model", flags->model, "The model, when several are served");
  chat->add_option("--max-tokens", flags->max_tokens, "Longest answer, in tokens");
  chat->add_option("--temperature", flags->temperature, "0 (the default) always takes the likeliest token");
  chat->add_option("--seed", flags->seed, "Makes a sampled answer repeatable");
  chat->callback([chosen, flags] {
    *chosen = [flags](const Console& console, const CommonFlags& common) {
      return Chat(console, common, *flags);
    };
  });
}

}  // namespace epic
