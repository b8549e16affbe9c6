// `epic status`: is the server up, what does it serve, what is it doing.
#include <memory>
#include <string>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "common/status/status_macros.h"
#include "services/cli/api_client.h"
#include "services/cli/command.h"

namespace epic {
namespace {

using nlohmann::json;

constexpr int64_t kTimeoutMs = 10'000;

// /health answers 503 with a body worth showing.
absl::StatusOr<json> Health(const std::string& address) {
  EPIC_ASSIGN_OR_RETURN(const HttpReply answer, HttpClient(address).Call("GET", "/health", {}, kTimeoutMs));
  json body = json::parse(answer.body, nullptr, false);
  if (body.is_discarded())
    return absl::InternalError("the answer to /health is not JSON; is this an EPIC server?");
  return body;
}

absl::Status Status(const Console& console, const CommonFlags& common) {
  EPIC_ASSIGN_OR_RETURN(const Config config, LoadCommandConfig(common));
  const std::string address = config.listen.http.ToString();
  EPIC_ASSIGN_OR_RETURN(const json health, Health(address));
  json report = {{"http", address}, {"health", health}};
  if (auto models = ApiClient(address).Call("GET", "/v1/models"); models.ok())
    report["models"] = (*models)["data"];
  const std::string admin = config.listen.admin.ToString();
  if (auto requests = ApiClient(admin).Call("GET", "/debug/requests"); requests.ok())
    report["requests"] = *requests;
  else
    *console.err << "requests are not shown: " << requests.status().message() << " (admin door: --admin)\n";
  if (common.json) {
    *console.out << report.dump(2) << '\n';
    return absl::OkStatus();
  }
  *console.out << address << ": " << health.value("status", "unknown") << '\n';
  for (const json& cause : health.value("causes", json::array())) {
    *console.out << "  " << (cause.is_string() ? cause.get<std::string>() : cause.dump()) << '\n';
  }
  for (const json& model : report.value("models", json::array())) {
    *console.out << "model " << model.value("id", "") << ", up to " << model.value("max_model_len", 0)
                 << " tokens\n";
  }
  if (report.contains("requests")) {
    const json requests = report["requests"].value("data", json::array());
    *console.out << requests.size() << " requests in flight\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddStatusCommand(CLI::App* app, CommonFlags* common, Action* chosen) {
  CLI::App* status = app->add_subcommand("status", "Show whether the server is up and what it is doing");
  AddServerFlag(status, common);
  AddSettingFlag(status, common, "--admin", "listen.admin", "HOST:PORT of the server's admin door");
  status->callback([chosen] { *chosen = Status; });
}

}  // namespace epic
