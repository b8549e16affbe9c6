// `epic context create|get|list|delete`.
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

#include "common/status/status_macros.h"
#include "services/cli/api_client.h"
#include "services/cli/command.h"
#include "services/cli/text_input.h"

namespace epic {
namespace {

using nlohmann::json;

struct ContextFlags {
  std::vector<std::string> inputs;  // files of create, ids of get and delete
  std::string model, name, pin, state, tag;
  std::vector<std::string> tags;
  std::optional<int64_t> ttl;
  int64_t limit = 20;
  bool wait_for_erasure = false;
};

absl::StatusOr<ApiClient> Client(const CommonFlags& common) {
  EPIC_ASSIGN_OR_RETURN(const Config config, LoadCommandConfig(common));
  return ApiClient(config.listen.http.ToString());
}

void PrintRow(std::ostream& out, const json& record) {
  out << record.value("id", "") << "  " << std::left << std::setw(9) << record.value("state", "")
      << std::right << std::setw(8) << record.value("tokens", 0) << " tokens";
  const json name = record.value("name", json());
  if (name.is_string() && !name.get<std::string>().empty()) out << "  " << name.get<std::string>();
  out << '\n';
}

void Print(const Console& console, const CommonFlags& common, const std::vector<json>& records) {
  if (common.json) {
    *console.out
        << (records.size() == 1 ? records.front() : json{{"object", "list"}, {"data", records}}).dump(2)
        << '\n';
    return;
  }
  for (const json& record : records) PrintRow(*console.out, record);
}

absl::Status Create(const Console& console, const CommonFlags& common, const ContextFlags& flags) {
  EPIC_ASSIGN_OR_RETURN(const ApiClient client, Client(common));
  if (!flags.name.empty() && flags.inputs.size() > 1) {
    return absl::InvalidArgumentError("--name names one context; give one file, or tags");
  }
  std::vector<json> records;
  for (const std::string& input : flags.inputs) {
    EPIC_ASSIGN_OR_RETURN(std::string text, ReadText(input, *console.in));
    json body = {{"text", std::move(text)}};
    if (!flags.model.empty()) body["model"] = flags.model;
    if (!flags.name.empty()) body["name"] = flags.name;
    if (!flags.pin.empty()) body["pin"] = flags.pin;
    if (!flags.tags.empty()) body["tags"] = flags.tags;
    if (flags.ttl.has_value()) body["ttl"] = *flags.ttl;
    *console.err << "compiling " << InputName(input) << " …" << std::flush;
    bool created = false;
    absl::StatusOr<json> record = client.CreateContext(body, &created);
    *console.err << (record.ok() ? (created ? " done\n" : " known already\n") : " failed\n");
    if (!record.ok()) return record.status();
    records.push_back(std::move(record).value());
  }
  Print(console, common, records);
  return absl::OkStatus();
}

absl::Status Get(const Console& console, const CommonFlags& common, const ContextFlags& flags) {
  EPIC_ASSIGN_OR_RETURN(const ApiClient client, Client(common));
  std::vector<json> records;
  for (const std::string& input : flags.inputs) {
    EPIC_ASSIGN_OR_RETURN(const std::string id, client.ContextId(input));
    EPIC_ASSIGN_OR_RETURN(json record, client.Call("GET", "/v1/contexts/" + UrlEncode(id)));
    records.push_back(std::move(record));
  }
  Print(console, common, records);
  return absl::OkStatus();
}

absl::Status List(const Console& console, const CommonFlags& common, const ContextFlags& flags) {
  EPIC_ASSIGN_OR_RETURN(const ApiClient client, Client(common));
  std::string target = "/v1/contexts?limit=" + std::to_string(flags.limit);
  const std::pair<const char*, const std::string*> filters[] = {
      {"tag", &flags.tag}, {"model", &flags.model}, {"state", &flags.state}, {"name", &flags.name}};
  for (const auto& [key, value] : filters) {
    if (!value->empty()) target += std::string("&") + key + "=" + UrlEncode(*value);
  }
  EPIC_ASSIGN_OR_RETURN(const json page, client.Call("GET", target));
  if (common.json) {
    *console.out << page.dump(2) << '\n';
    return absl::OkStatus();
  }
  const json records = page.value("data", json::array());
  if (records.empty()) *console.err << "there are none; `epic context create FILE` makes one\n";
  for (const json& record : records) PrintRow(*console.out, record);
  if (page.value("has_more", false)) *console.err << "more: raise --limit\n";
  return absl::OkStatus();
}

absl::Status Delete(const Console& console, const CommonFlags& common, const ContextFlags& flags) {
  EPIC_ASSIGN_OR_RETURN(const ApiClient client, Client(common));
  json results = json::array();
  for (const std::string& input : flags.inputs) {
    EPIC_ASSIGN_OR_RETURN(const std::string id, client.ContextId(input));
    const std::string path = "/v1/contexts/" + UrlEncode(id) + (flags.wait_for_erasure ? "?erase=wait" : "");
    EPIC_ASSIGN_OR_RETURN(json result, client.Call("DELETE", path));
    if (!common.json) {
      const bool erased = flags.wait_for_erasure && !result.contains("pending");
      *console.out << id << (erased ? "  deleted and erased\n" : "  deleted\n");
      for (const json& node : result.value("pending", json::array())) {
        *console.out << "  its bytes are not yet erased on " << node.get<std::string>()
                     << "; it goes on by itself\n";
      }
    }
    results.push_back(std::move(result));
  }
  if (common.json) *console.out << (results.size() == 1 ? results.front() : results).dump(2) << '\n';
  return absl::OkStatus();
}

using Handler = absl::Status (*)(const Console&, const CommonFlags&, const ContextFlags&);

CLI::App* AddOne(CLI::App* parent, CommonFlags* common, Action* chosen, const std::string& name,
                 const std::string& help, const std::shared_ptr<ContextFlags>& flags, Handler handler) {
  CLI::App* command = parent->add_subcommand(name, help);
  AddServerFlag(command, common);
  command->callback([chosen, flags, handler] {
    *chosen = [flags, handler](const Console& console, const CommonFlags& common) {
      return handler(console, common, *flags);
    };
  });
  return command;
}

}  // namespace

void AddContextCommands(CLI::App* app, CommonFlags* common, Action* chosen) {
  CLI::App* context = app->add_subcommand("context", "Compile, look up, list and delete contexts");
  context->require_subcommand(1);
  const auto flags = std::make_shared<ContextFlags>();

  CLI::App* create =
      AddOne(context, common, chosen, "create", "Compile texts and print their Cache IDs", flags, Create);
  create->add_option("FILE", flags->inputs, "Text files; - is standard input")->required();
  create->add_option("--model", flags->model, "The model, when several are served");
  create->add_option("--name", flags->name, "A name of its own, for use in place of the Cache ID");
  AddRepeatedOption(create, "--tag", &flags->tags, "A tag");
  create->add_option("--ttl", flags->ttl, "Seconds until it expires");
  create->add_option("--pin", flags->pin, "none, soft or hard");

  CLI::App* get = AddOne(context, common, chosen, "get", "Show contexts", flags, Get);
  get->add_option("ID", flags->inputs, "Cache IDs or names")->required();

  CLI::App* list = AddOne(context, common, chosen, "list", "List contexts, the newest first", flags, List);
  list->add_option("--limit", flags->limit, "How many, 1 to 1000");
  list->add_option("--tag", flags->tag, "Only those with this tag");
  list->add_option("--model", flags->model, "Only those of this model");
  list->add_option("--state", flags->state, "Only those that are compiling, ready or failed");
  list->add_option("--name", flags->name, "Only the one with this name");

  CLI::App* erase =
      AddOne(context, common, chosen, "delete", "Delete contexts; running readers finish", flags, Delete);
  erase->add_option("ID", flags->inputs, "Cache IDs or names")->required();
  erase->add_flag("--wait-for-erasure", flags->wait_for_erasure,
                  "Answer when their bytes are in no file any more");
}

}  // namespace epic
