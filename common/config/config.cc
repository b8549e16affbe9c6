#include "common/config/config.h"

#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "common/base/absl_std.h"
#include "common/config/settings.h"

namespace epic {
namespace {

constexpr uint64_t kFileLimitBytes = 1 << 20;

// The setting whose name needs the fewest edits from `name`; empty when none is near.
std::string NearestName(std::string_view name) {
  std::string best;
  size_t best_distance = name.size() / 2 + 1;
  for (const Setting& setting : SettingTable()) {
    std::vector<size_t> row(setting.name.size() + 1);
    for (size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= name.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j < row.size(); ++j) {
        const size_t substituted = diagonal + (name[i - 1] == setting.name[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = std::string(setting.name);
    }
  }
  return best;
}

std::string UnknownName(std::string_view name) {
  const std::string near = name.size() <= 100 ? NearestName(name) : "";
  return "there is no setting '" + std::string(name.substr(0, 100)) + "'" +
         (near.empty() ? "; `epic config show` lists them" : "; did you mean " + near + "?");
}

// Merges sources into a Config and collects what is wrong.
class Loader {
 public:
  explicit Loader(const EnvironmentMap& environment) : environment_(environment) {}

  void Defaults() {
    for (const Setting& setting : SettingTable()) {
      // A path that needs HOME may be set by a later source: only the final value must be right.
      const absl::Status status = ApplySetting(setting, setting.default_text, environment_, config_);
      if (!status.ok()) unresolved_[std::string(setting.name)] = std::string(ToStd(status.message()));
      sources_[std::string(setting.name)] = "default";
    }
  }

  void Set(std::string_view name, std::string_view value, const std::string& source) {
    const Setting* setting = FindSetting(name);
    if (setting == nullptr) return Problem(source, UnknownName(name));
    const absl::Status status = ApplySetting(*setting, value, environment_, config_);
    unresolved_.erase(std::string(name));
    if (!status.ok()) return Problem(source, std::string(name) + " " + std::string(ToStd(status.message())));
    sources_[std::string(name)] = source;
  }

  void File(const std::string& path);

  void Environment() {
    std::set<std::string> known;
    for (const Setting& setting : SettingTable()) {
      const std::string variable = EnvironmentName(setting);
      known.insert(variable);
      const auto found = environment_.find(variable);
      if (found != environment_.end()) Set(setting.name, found->second, "environment " + variable);
    }
    for (const auto& [variable, value] : environment_) {
      if (variable.starts_with("EPIC_") && !known.contains(variable)) {
        config_.warnings.push_back("the environment variable " + variable +
                                   " names no setting and is ignored");
      }
    }
  }

  void Problem(const std::string& source, const std::string& what) {
    problems_.push_back(source + ": " + what);
  }

  void CheckTogether();
  void CheckTls();
  void CheckTransport();
  void CheckReach(const std::string& door, const HostPort& address);

  absl::StatusOr<Config> Finish() {
    for (const auto& [name, what] : unresolved_) Problem("default", name + " " + what);
    if (problems_.empty()) CheckTogether();
    if (!problems_.empty()) {
      std::string message = problems_.size() == 1 ? "a setting is wrong"
                                                  : std::to_string(problems_.size()) + " settings are wrong";
      for (const std::string& problem : problems_) message += "\n  " + problem;
      return absl::InvalidArgumentError(message);
    }
    return Take();
  }

  Config Take() {
    for (const Setting& setting : SettingTable()) {
      std::string name(setting.name);
      config_.origins.push_back({name, SettingValueText(setting, config_), sources_[name]});
    }
    return std::move(config_);
  }

 private:
  void Node(const std::string& prefix, const YAML::Node& node, const std::string& source);

  const EnvironmentMap& environment_;
  Config config_;
  std::map<std::string, std::string> sources_;
  std::map<std::string, std::string> unresolved_;  // defaults that could not be expanded
  std::set<std::string> in_file_;
  std::vector<std::string> problems_;
};

void Loader::File(const std::string& path) {
  const std::string source = "file " + path;
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return Problem(source, "cannot be read: " + error.message());
  if (size > kFileLimitBytes) return Problem(source, "is over 1 MiB; a configuration file is smaller");
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return Problem(source, "cannot be read");
  try {
    const YAML::Node root = YAML::Load(text.str());
    if (root.IsNull()) return;
    if (!root.IsMap()) return Problem(source, "must be a map of settings, such as 'log: {level: info}'");
    Node("", root, source);
  } catch (const YAML::Exception& exception) {
    Problem(source, std::string("is not valid YAML: ") + exception.what());
  }
}

// Names may be nested or dotted. Only maps below a known group are entered, so the depth is bounded.
void Loader::Node(const std::string& prefix, const YAML::Node& node, const std::string& source) {
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) {
      Problem(source, "has a key that is not a name");
      continue;
    }
    const std::string name = prefix + entry.first.Scalar();
    const std::string where = source + ":" + std::to_string(entry.first.Mark().line + 1);
    const auto table = SettingTable();
    const bool is_group = std::any_of(table.begin(), table.end(),
                                      [&](const Setting& s) { return s.name.starts_with(name + "."); });
    if (is_group && entry.second.IsMap()) {
      Node(name + ".", entry.second, source);
    } else if (FindSetting(name) == nullptr) {
      Problem(where, is_group ? name + " is a group of settings; write a map" : UnknownName(name));
    } else if (!entry.second.IsScalar()) {
      Problem(where, name + (entry.second.IsNull() ? " has no value" : " must be a single value"));
    } else if (!in_file_.insert(name).second) {
      Problem(where, name + " is given twice");
    } else {
      Set(name, entry.second.Scalar(), where);
    }
  }
}

// What no single setting shows.
void Loader::CheckTogether() {
  CheckTls();
  CheckTransport();
  const std::vector<std::pair<std::string, HostPort>> doors = {
      {"listen.http", config_.listen.http},
      {"listen.grpc", config_.listen.grpc},
      {"listen.admin", config_.listen.admin},
      {"listen.admin_grpc", config_.listen.admin_grpc}};
  for (size_t i = 0; i < doors.size(); ++i) {
    const auto& [name, address] = doors[i];
    CheckReach(name, address);
    for (size_t j = 0; j < i; ++j) {
      if (address.port != 0 && doors[j].second == address) {
        Problem(sources_[name], name + " and " + doors[j].first + " are both " + address.ToString());
      }
    }
  }
}

void Loader::CheckTls() {
  const TlsSettings& tls = config_.tls;
  if (tls.cert_file.empty() != tls.key_file.empty()) {
    const std::string given = tls.cert_file.empty() ? "tls.key_file" : "tls.cert_file";
    Problem(sources_[given], "tls.cert_file and tls.key_file go together: set both or none");
  }
  if (!tls.cert_file.empty() && tls.ca_file.empty() && tls.client_certs == "required") {
    Problem(sources_["tls.cert_file"],
            "name in tls.ca_file who vouches for clients, or say tls.client_certs: none");
  }
  if (tls.cert_file.empty() && !tls.ca_file.empty()) {
    Problem(sources_["tls.ca_file"], "tls.ca_file is of no use without tls.cert_file and tls.key_file");
  }
}

// UCX encrypts nothing and knows nobody: networks are named by hand, and lanes opened by tickets out of calls
// that know who asks.
void Loader::CheckTransport() {
  const TransportSettings& transport = config_.transport;
  const bool beyond = transport.ucx_devices != "lo" || !HostPort{transport.ucx_listen, 1}.IsLoopback();
  if (!beyond) return;
  const std::string name = transport.ucx_devices != "lo" ? "transport.ucx_devices" : "transport.ucx_listen";
  if (!transport.trusted_network) {
    Problem(sources_[name],
            name +
                " is beyond this host, and UCX encrypts nothing; say "
                "transport.trusted_network: true where nobody else listens, or leave KV objects "
                "to grpc");
  }
  const bool knows_clients = !config_.tls.cert_file.empty() && config_.tls.client_certs == "required";
  if (!knows_clients && !config_.insecure) {
    Problem(sources_[name], name +
                                " is beyond this host: whoever gets a ticket from the gRPC door reads all KV "
                                "objects; set tls.cert_file, tls.key_file and tls.ca_file with "
                                "tls.client_certs: required, or say insecure: true");
  }
}

// Who may be reached from elsewhere must know whom it talks to.
void Loader::CheckReach(const std::string& door, const HostPort& address) {
  const bool is_grpc = door == "listen.grpc" || door == "listen.admin_grpc";
  const bool knows_clients =
      is_grpc && !config_.tls.cert_file.empty() && config_.tls.client_certs == "required";
  if (address.IsLoopback() || knows_clients || config_.insecure) return;
  Problem(sources_[door],
          door + " is " + address.ToString() + ", which others may reach; listen on 127.0.0.1" +
              (is_grpc ? ", set tls.cert_file, tls.key_file and tls.ca_file with tls.client_certs: required"
                       : "") +
              ", or say insecure: true");
}

}  // namespace

std::map<std::string, std::string> ProcessEnvironment() {
  std::map<std::string, std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    if (equals == std::string_view::npos) continue;
    if (name.starts_with("EPIC_") || name == "HOME" || name == "XDG_CACHE_HOME") {
      out[std::string(name)] = std::string(text.substr(equals + 1));
    }
  }
  return out;
}

absl::StatusOr<Config> LoadConfig(const ConfigSources& sources) {
  Loader loader(sources.environment);
  loader.Defaults();
  if (sources.file) loader.File(*sources.file);
  loader.Environment();
  for (const std::string& set : sources.sets) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos) {
      loader.Problem("--set", "'" + set + "' must be name=value, such as log.level=debug");
    } else {
      loader.Set(set.substr(0, equals), set.substr(equals + 1), "--set");
    }
  }
  for (const FlagValue& flag : sources.flags) loader.Set(flag.name, flag.value, flag.flag);
  return loader.Finish();
}

Config DefaultConfig(const std::map<std::string, std::string>& environment) {
  Loader loader(environment);
  loader.Defaults();
  return loader.Take();
}

}  // namespace epic
