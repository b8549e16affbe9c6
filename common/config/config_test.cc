#include "common/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "common/config/settings.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"

namespace epic {
namespace {

using ::epic::testing::StatusIs;
using ::epic::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::map<std::string, std::string> kHome = {{"HOME", "/home/someone"}};

ConfigSources Sets(std::vector<std::string> sets) {
  return ConfigSources{.file = {}, .environment = kHome, .sets = std::move(sets), .flags = {}};
}

std::string WriteFile(const TempDir& dir, const std::string& text) {
  const std::string path = dir.path() + "/epic.yaml";
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

absl::StatusOr<Config> LoadYaml(const std::string& text) {
  const TempDir dir;
  return LoadConfig({.file = WriteFile(dir, text), .environment = kHome, .sets = {}, .flags = {}});
}

std::string SourceOf(const Config& config, std::string_view name) {
  for (const SettingOrigin& origin : config.origins) {
    if (origin.name == name) return origin.source;
  }
  return "";
}

TEST(ConfigTest, DefaultsAreThoseOfTheTable) {
  ASSERT_OK_AND_ASSIGN(const Config config,
                       LoadConfig({.file = {}, .environment = kHome, .sets = {}, .flags = {}}));
  EXPECT_EQ(config.listen.http, (HostPort{"127.0.0.1", 8080}));
  EXPECT_EQ(config.listen.admin_grpc, (HostPort{"127.0.0.1", 8083}));
  EXPECT_EQ(config.store.data_dir, "/home/someone/.local/share/epic");
  EXPECT_EQ(config.model.path, "/home/someone/.cache/epic/models/smollm2-135m-instruct-q4_1.gguf");
  EXPECT_EQ(config.store.memory_bytes, int64_t{1} << 30);
  EXPECT_EQ(config.store.eviction, "s3fifo");
  EXPECT_EQ(config.store.slabs, "extents");
  EXPECT_EQ(config.limits.write_timeout_ms, 20000);
  EXPECT_EQ(config.limits.default_max_tokens, 4096);
  EXPECT_EQ(config.limits.tags, 32);
  EXPECT_EQ(config.limits.tag_bytes, 128);
  EXPECT_EQ(config.limits.name_bytes, 256);
  EXPECT_EQ(config.compile.max_running, 4);
  EXPECT_EQ(config.compile.max_queue, 64);
  EXPECT_EQ(config.linking.strategy, "legolink-16");
  EXPECT_FALSE(config.insecure);
  EXPECT_EQ(config.origins.size(), SettingTable().size());
  EXPECT_EQ(SourceOf(config, "log.level"), "default");
  EXPECT_THAT(config.warnings, ElementsAre());
}

TEST(ConfigTest, TheCacheFolderOfTheUserIsHonoured) {
  ASSERT_OK_AND_ASSIGN(
      const Config config,
      LoadConfig(
          {.file = {}, .environment = {{"HOME", "/h"}, {"XDG_CACHE_HOME", "/c"}}, .sets = {}, .flags = {}}));
  EXPECT_EQ(config.model.path, "/c/epic/models/smollm2-135m-instruct-q4_1.gguf");
}

TEST(ConfigTest, WithoutHomeTheErrorNamesBothPathsUnlessTheyAreGiven) {
  EXPECT_THAT(LoadConfig({}), StatusIs(absl::StatusCode::kInvalidArgument,
                                       AllOf(HasSubstr("model.path"), HasSubstr("store.data_dir"),
                                             HasSubstr("HOME is not set"))));
  ASSERT_OK_AND_ASSIGN(
      const Config config,
      LoadConfig(
          {.file = {}, .environment = {}, .sets = {"model.path=/m.gguf", "store.data_dir=/d"}, .flags = {}}));
  EXPECT_EQ(config.store.data_dir, "/d");
}

TEST(ConfigTest, LaterSourcesWinInTheStatedOrder) {
  const TempDir dir;
  ConfigSources sources;
  sources.file = WriteFile(dir, "log: {level: warn, format: json}\nengine.threads: 1\nlimits:\n  n: 2\n");
  sources.environment = {
      {"HOME", "/h"}, {"EPIC_ENGINE_THREADS", "2"}, {"EPIC_LIMITS_N", "3"}, {"EPIC_LOG_FORMAT", "text"}};
  sources.sets = {"engine.threads=3", "engine.threads=4", "limits.n=5"};
  sources.flags = {{"limits.n", "6", "--n"}};
  ASSERT_OK_AND_ASSIGN(const Config config, LoadConfig(sources));
  EXPECT_EQ(config.log.level, "warn");
  EXPECT_EQ(config.log.format, "text");
  EXPECT_EQ(config.engine.threads, 4);
  EXPECT_EQ(config.limits.n, 6);
  EXPECT_EQ(SourceOf(config, "log.level"), "file " + *sources.file + ":1");
  EXPECT_EQ(SourceOf(config, "log.format"), "environment EPIC_LOG_FORMAT");
  EXPECT_EQ(SourceOf(config, "engine.threads"), "--set");
  EXPECT_EQ(SourceOf(config, "limits.n"), "--n");
}

TEST(ConfigTest, EveryProblemIsReportedInOneError) {
  const TempDir dir;
  ConfigSources sources;
  sources.file = WriteFile(dir, "engine:\n  threads: many\n  thread: 3\nlog: [1, 2]\n");
  sources.environment = {{"HOME", "/h"}, {"EPIC_STORE_MEMORY_BYTES", "12 apples"}};
  sources.sets = {"limits.n=0", "nonsense"};
  sources.flags = {{"listen.http", "8080", "--http"}};
  const auto result = LoadConfig(sources);
  EXPECT_THAT(result,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("7 settings are wrong"), HasSubstr(":2: engine.threads is 'many'"),
                             HasSubstr("did you mean engine.threads?"), HasSubstr("log is a group"),
                             HasSubstr("EPIC_STORE_MEMORY_BYTES: store.memory_bytes"),
                             HasSubstr("limits.n is 0; must be 1 to 128 answers"), HasSubstr("'nonsense'"),
                             HasSubstr("--http: listen.http is '8080'; write HOST:PORT"))));
}

TEST(ConfigTest, AYamlFileIsRejectedWithItsLine) {
  EXPECT_THAT(LoadYaml("log: {level: info}\nlog.level: warn\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(":2: log.level is given twice")));
  EXPECT_THAT(LoadYaml("log: {level: info, level: warn}\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("given twice")));
  EXPECT_THAT(LoadYaml("engine: {threads: [1]}"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("must be a single value")));
  EXPECT_THAT(LoadYaml("engine:\n  threads:\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(":2: engine.threads has no value")));
  EXPECT_THAT(LoadYaml("? [a, b]\n: 1\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a name")));
  EXPECT_THAT(LoadYaml("just words"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("must be a map")));
  EXPECT_THAT(LoadYaml("a: [unclosed"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not valid YAML")));
  EXPECT_THAT(LoadYaml(std::string(20000, '[')), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(LoadYaml("# " + std::string(2 << 20, 'x')),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("over 1 MiB")));
  EXPECT_THAT(LoadYaml("&a a: &b {b: *b}\n"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(LoadYaml(""));
  EXPECT_OK(LoadYaml("# nothing\n"));
}

TEST(ConfigTest, AFileThatCannotBeReadIsAnError) {
  EXPECT_THAT(LoadConfig({.file = "/nowhere/epic.yaml", .environment = kHome, .sets = {}, .flags = {}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("/nowhere/epic.yaml: cannot be read")));
}

TEST(ConfigTest, NumbersAreWholeBoundedAndMayHaveUnits) {
  ASSERT_OK_AND_ASSIGN(
      const Config config,
      LoadConfig(Sets({"store.memory_bytes=64MiB", "limits.body_bytes=4096", "deadlines.drain_ms=2min",
                       "limits.heartbeat_ms=250ms", "limits.idle_timeout_ms=90s"})));
  EXPECT_EQ(config.store.memory_bytes, int64_t{64} << 20);
  EXPECT_EQ(config.limits.body_bytes, 4096);
  EXPECT_EQ(config.deadlines.drain_ms, 120000);
  EXPECT_EQ(config.limits.heartbeat_ms, 250);
  EXPECT_EQ(config.limits.idle_timeout_ms, 90000);
  for (const char* bad :
       {"engine.threads=", "engine.threads=-1", "engine.threads=1.5", "engine.threads= 1",
        "engine.threads=0x10", "engine.threads=1KiB", "engine.threads=+1",
        "engine.threads=99999999999999999999", "store.memory_bytes=9999999999TiB", "store.memory_bytes=MiB",
        "store.memory_bytes=1", "limits.heartbeat_ms=1h", "limits.heartbeat_ms=nan"}) {
    EXPECT_THAT(LoadConfig(Sets({bad})), StatusIs(absl::StatusCode::kInvalidArgument)) << bad;
  }
}

TEST(ConfigTest, TextsAreCheckedAgainstWhatIsAllowed) {
  for (const char* good :
       {"linking.strategy=full", "linking.strategy=prefix", "linking.strategy=naive",
        "linking.strategy=legolink-0", "linking.strategy=legolink-64", "linking.strategy=cacheblend-0.15",
        "linking.strategy=cacheblend-1", "linking.strategy=cacheblend-1.0:paper",
        "linking.strategy=cacheblend-0.015625:attention", "linking.strategy=query-guided-16", "insecure=true",
        "engine.compute=bf16", "linking.compile_prefix=bos4", "model.alias=x"}) {
    EXPECT_OK(LoadConfig(Sets({good}))) << good;
  }
  for (const char* bad : {"linking.strategy=legolink",
                          "linking.strategy=legolink-",
                          "linking.strategy=legolink-07",
                          "linking.strategy=legolink-123456",
                          "linking.strategy=legolink--1",
                          "linking.strategy=cacheblend",
                          "linking.strategy=cacheblend-1.5",
                          "linking.strategy=cacheblend-.5",
                          "linking.strategy=cacheblend-0.",
                          "linking.strategy=cacheblend-0.1234567",
                          "linking.strategy=cacheblend-0.1:plain",
                          "linking.strategy=cacheblend-0.1:attention:paper",
                          "linking.strategy=query-guided",
                          "linking.strategy=query-guided-0",
                          "linking.strategy=query-guided-16:first=4",
                          "linking.strategy=",
                          "insecure=yes",
                          "engine.compute=",
                          "engine.compute=f32|bf16",
                          "engine.compute=f64",
                          "model.path=",
                          "model.alias=two\nlines"}) {
    EXPECT_THAT(LoadConfig(Sets({bad})), StatusIs(absl::StatusCode::kInvalidArgument)) << bad;
  }
}

TEST(ConfigTest, DoorsElsewhereThanOnLoopbackNeedTheInsecureSetting) {
  for (const char* address : {"0.0.0.0:8080", "[::]:8080", "192.168.1.4:8080", "example.internal:8080"}) {
    const std::string set = std::string("listen.http=") + address;
    EXPECT_THAT(LoadConfig(Sets({set})),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("insecure: true")))
        << address;
    EXPECT_OK(LoadConfig(Sets({set, "insecure=true"}))) << address;
  }
  for (const char* address : {"127.0.0.1:0", "127.9.9.9:8080", "[::1]:8080", "localhost:8080"}) {
    EXPECT_OK(LoadConfig(Sets({std::string("listen.http=") + address}))) << address;
  }
}

TEST(ConfigTest, DoorsThatKnowTheirClientsByCertificatesMayBeReachedFromElsewhere) {
  const std::vector<std::string> tls = {"tls.cert_file=/c", "tls.key_file=/k", "tls.ca_file=/a"};
  const auto with = [&tls](std::initializer_list<std::string> more) {
    std::vector<std::string> sets = tls;
    sets.insert(sets.end(), more);
    return LoadConfig(Sets(sets));
  };
  EXPECT_OK(with({"listen.grpc=0.0.0.0:1"}));
  EXPECT_OK(with({"listen.admin_grpc=0.0.0.0:1"}));
  EXPECT_THAT(with({"listen.http=0.0.0.0:1"}), StatusIs(absl::StatusCode::kInvalidArgument))
      << "HTTP is plain";
  EXPECT_THAT(with({"listen.admin=0.0.0.0:1"}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(with({"listen.grpc=0.0.0.0:1", "tls.client_certs=none"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tls.client_certs: required")));
  EXPECT_OK(with({"listen.grpc=0.0.0.0:1", "tls.client_certs=none", "insecure=true"}));
  EXPECT_THAT(LoadConfig(Sets({"listen.grpc=0.0.0.0:1"})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("set tls.cert_file")));
}

TEST(ConfigTest, SettingsOfTlsThatSayHalfAreRefused) {
  for (const std::vector<std::string>& sets :
       std::vector<std::vector<std::string>>{{"tls.cert_file=/c", "tls.ca_file=/a"},
                                             {"tls.key_file=/k"},
                                             {"tls.ca_file=/a"},
                                             {"tls.cert_file=/c", "tls.key_file=/k"},
                                             {"tls.client_certs=maybe"}}) {
    EXPECT_THAT(LoadConfig(Sets(sets)), StatusIs(absl::StatusCode::kInvalidArgument)) << sets.front();
  }
  EXPECT_OK(LoadConfig(Sets({"tls.cert_file=/c", "tls.key_file=/k", "tls.client_certs=none"})));
}

TEST(ConfigTest, TwoDoorsCannotShareAnAddressButMayBothTakeAFreePort) {
  EXPECT_THAT(
      LoadConfig(Sets({"listen.grpc=127.0.0.1:8080"})),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("listen.grpc and listen.http are both")));
  EXPECT_OK(LoadConfig(Sets({"listen.grpc=127.0.0.1:0", "listen.http=127.0.0.1:0"})));
}

TEST(ConfigTest, ListsOfAddressesAreParsedStrictly) {
  EXPECT_THAT(*ParseAddresses(""), ElementsAre());
  EXPECT_THAT(*ParseAddresses("a:1,[::1]:2"), ElementsAre("a:1", "[::1]:2"));
  for (const char* bad : {",", "a", "a:1 b:2", "a:0", "a:1,,b:2"}) {
    EXPECT_THAT(LoadConfig(Sets({std::string("cluster.stores=") + bad})),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << bad;
  }
}

TEST(ConfigTest, PathsOfTransfersAreAListOfThree) {
  EXPECT_THAT(*ParseNames(DefaultConfig().transport.paths), ElementsAre("shm", "ucx", "grpc"));
  EXPECT_OK(LoadConfig(Sets({"transport.paths=grpc"})));
  for (const char* bad : {"", "grpc,", "grpc,grpc", "tcp", "shm, grpc", "inproc"}) {
    EXPECT_THAT(LoadConfig(Sets({std::string("transport.paths=") + bad})),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("transport.paths")))
        << bad;
  }
}

TEST(ConfigTest, UcxBeyondThisHostAsksForATrustedNetworkAndForKnownCallers) {
  for (const char* beyond : {"transport.ucx_devices=eth0", "transport.ucx_devices=lo,eth0",
                             "transport.ucx_listen=10.0.0.7", "transport.ucx_listen=0.0.0.0"}) {
    EXPECT_THAT(LoadConfig(Sets({beyond})),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("transport.trusted_network: true"), HasSubstr("client_certs"))));
    EXPECT_THAT(LoadConfig(Sets({beyond, "transport.trusted_network=true"})),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("client_certs")));
    EXPECT_THAT(LoadConfig(Sets({beyond, "insecure=true"})),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("trusted_network")));
    EXPECT_OK(LoadConfig(Sets({beyond, "transport.trusted_network=true", "insecure=true"})));
    EXPECT_OK(LoadConfig(Sets({beyond, "transport.trusted_network=true", "tls.cert_file=/c",
                               "tls.key_file=/k", "tls.ca_file=/a"})));
  }
  EXPECT_OK(LoadConfig(Sets({"transport.ucx_listen=::1"})));
  for (const char* bad : {"localhost", "eth0", "10.0.0.7:1", ""}) {
    EXPECT_THAT(LoadConfig(Sets({std::string("transport.ucx_listen=") + bad})),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("numeric address")));
  }
}

TEST(ConfigTest, AddressesAreParsedStrictly) {
  ASSERT_OK_AND_ASSIGN(const HostPort v6, ParseHostPort("[::1]:80"));
  EXPECT_EQ(v6, (HostPort{"::1", 80}));
  EXPECT_EQ(v6.ToString(), "[::1]:80");
  for (const char* bad : {"", ":", ":80", "80", "h:", "h:x", "h:65536", "h:-1", "h:80 ", "::1:80", "[::1]",
                          "[x]:80", "[]:80", "a b:80", "http://h:80"}) {
    EXPECT_THAT(ParseHostPort(bad), StatusIs(absl::StatusCode::kInvalidArgument)) << bad;
  }
}

TEST(ConfigTest, AVariableThatNamesNoSettingIsAWarning) {
  ASSERT_OK_AND_ASSIGN(const Config config,
                       LoadConfig({.file = {},
                                   .environment = {{"HOME", "/h"}, {"EPIC_ENGINE_THREDS", "2"}},
                                   .sets = {},
                                   .flags = {}}));
  EXPECT_THAT(config.warnings, ElementsAre(HasSubstr("EPIC_ENGINE_THREDS")));
}

TEST(ConfigTest, TheTableIsWellFormed) {
  std::set<std::string_view> names;
  std::set<std::string_view> flags;
  Config config;
  for (const Setting& setting : SettingTable()) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
    if (!setting.flag.empty()) {
      EXPECT_TRUE(flags.insert(setting.flag).second) << setting.flag;
    }
    EXPECT_OK(ApplySetting(setting, setting.default_text, kHome, config)) << setting.name;
    EXPECT_FALSE(setting.help.empty()) << setting.name;
    EXPECT_THAT(std::string(setting.help), Not(HasSubstr("|"))) << setting.name;
    const bool is_number = std::holds_alternative<int64_t* (*)(Config&)>(setting.field);
    EXPECT_EQ(is_number, !setting.unit.empty()) << setting.name;
    if (setting.type == SettingType::kBytes) {
      EXPECT_TRUE(setting.name.ends_with("_bytes")) << setting.name;
    }
    if (setting.type == SettingType::kMillis) {
      EXPECT_TRUE(setting.name.ends_with("_ms")) << setting.name;
    }
  }
}

// Each row must fill a field of its own: two rows on one field would show the same value after one is set.
TEST(ConfigTest, EverySettingHasAFieldOfItsOwn) {
  std::set<const void*> fields;
  Config config;
  for (const Setting& setting : SettingTable()) {
    const void* field =
        std::visit([&](auto accessor) -> const void* { return accessor(config); }, setting.field);
    EXPECT_TRUE(fields.insert(field).second) << setting.name;
  }
}

TEST(ConfigTest, TheProcessEnvironmentHoldsOnlyWhatSettingsNeed) {
  for (const auto& [name, value] : ProcessEnvironment()) {
    EXPECT_TRUE(name == "HOME" || name == "XDG_CACHE_HOME" || name.starts_with("EPIC_")) << name;
  }
}

}  // namespace
}  // namespace epic
