// `epic status`: is the server up, what does it serve, what is it doing.
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/cli/api_client.h"
#include "services/cli/command.h"

namespace epic {
namespace {

using nlohmann::json;

constexpr int64_t kTimeoutMs = 10'000;

// What /health said. A 503 has a body worth showing too.
struct HealthAnswer {
  bool able = false;
  json body;
  std::string state;  // ok, degraded, loading, draining, stuck
  std::vector<std::string> causes;
};

std::string TextOf(const json& object, const char* key, const std::string& absent) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : absent;
}

absl::StatusOr<HealthAnswer> AskHealth(const std::string& address) {
  EPIC_ASSIGN_OR_RETURN(const HttpReply answer, HttpClient(address).Call("GET", "/health", {}, kTimeoutMs));
  HealthAnswer health{.able = answer.status == 200, .body = json::parse(answer.body, nullptr, false)};
  if (!health.body.is_object())
    return absl::InternalError("the answer to /health is no JSON object; is this an EPIC server?");
  health.state = TextOf(health.body, "status", "unknown");
  if (const auto causes = health.body.find("causes"); causes != health.body.end() && causes->is_array()) {
    for (const json& cause : *causes) {
      health.causes.push_back(cause.is_string() ? cause.get<std::string>() : cause.dump());
    }
  }
  return health;
}

void Print(std::ostream& out, const std::string& address, const HealthAnswer& health, const json& report) {
  out << address << ": " << health.state << (health.able ? "" : " (requests are refused or wait)") << '\n';
  for (const std::string& cause : health.causes) out << "  " << cause << '\n';
  for (const json& model : report.value("models", json::array())) {
    out << "model " << model.value("id", "") << ", up to " << model.value("max_model_len", 0) << " tokens\n";
  }
  if (report.contains("requests")) {
    out << report["requests"].value("data", json::array()).size() << " requests in flight\n";
  }
}

absl::Status Status(const Console& console, const CommonFlags& common) {
  EPIC_ASSIGN_OR_RETURN(const Config config, LoadCommandConfig(common));
  const std::string address = config.listen.http.ToString();
  EPIC_ASSIGN_OR_RETURN(const HealthAnswer health, AskHealth(address));
  json report = {{"http", address}, {"able", health.able}, {"health", health.body}};
  if (auto models = ApiClient(address).Call("GET", "/v1/models"); models.ok())
    report["models"] = (*models)["data"];
  const std::string admin = config.listen.admin.ToString();
  if (auto requests = ApiClient(admin).Call("GET", "/debug/requests"); requests.ok())
    report["requests"] = *requests;
  else
    *console.err << "requests are not shown: " << requests.status().message() << " (admin door: --admin)\n";
  if (common.json) {
    *console.out << report.dump(2) << '\n';
  } else {
    Print(*console.out, address, health, report);
  }
  if (health.able) return absl::OkStatus();
  return Error(ErrorCode::kDraining,
               "the server at " + address + " is " + health.state + " and serves nothing");
}

}  // namespace

void AddStatusCommand(CLI::App* app, CommonFlags* common, Action* chosen) {
  CLI::App* status = app->add_subcommand("status", "Show whether the server is up and what it is doing");
  AddServerFlag(status, common);
  AddSettingFlag(status, common, "--admin", "listen.admin", "HOST:PORT of the server's admin door");
  status->callback([chosen] { *chosen = Status; });
}

}  // namespace epic
