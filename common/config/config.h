// The settings of a running EPIC as one typed value, and how it is read.
//
// LoadConfig merges, later ones winning: the defaults of the table in settings.cc, a YAML file, the
// environment (EPIC_ + the name in capitals, dots as underscores), --set name=value, and flags. Everything
// wrong is reported together in one error. A Config is a plain value: made once at the start, then only read.
//
// Only this folder (and common/testing) reads the environment. Settings never hold secrets: keys and
// certificates live in files that a setting names. How settings are printed: config_show.h.
#ifndef EPIC_COMMON_CONFIG_CONFIG_H_
#define EPIC_COMMON_CONFIG_CONFIG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace epic {

// An address to listen on. Port 0 takes a free port.
struct HostPort {
  std::string host;  // without brackets
  uint16_t port = 0;
  bool operator==(const HostPort&) const = default;
  // "host:port", an IPv6 address in brackets.
  std::string ToString() const;
  // 127.0.0.0/8, ::1 or the name localhost.
  bool IsLoopback() const;
};
// Errors: InvalidArgument unless `text` is HOST:PORT with a host and a port of 0..65535.
absl::StatusOr<HostPort> ParseHostPort(std::string_view text);
// HOST:PORT,HOST:PORT,…; none for an empty text. Errors: InvalidArgument for what is none, or has port 0.
absl::StatusOr<std::vector<std::string>> ParseAddresses(std::string_view text);

struct ModelSettings {
  std::string path;   // a GGUF file or a Hugging Face directory
  std::string alias;  // the name that clients use; empty: the model's own
};

struct ListenSettings {
  HostPort http;
  HostPort grpc;
  HostPort admin;
  HostPort admin_grpc;
};

// Of gRPC: its doors, and the calls to other parts. Files are PEM; the key is in a file of its own.
struct TlsSettings {
  std::string cert_file;  // empty: gRPC is plain
  std::string key_file;
  std::string ca_file;       // who vouches for peers
  std::string peer_name;     // that the certificates of peers bear; empty: see settings.cc
  std::string client_certs;  // required | none
  int64_t reload_ms = 0;     // between two looks at the files
};

struct EngineSettings {
  int64_t threads = 0;         // 0: every core
  std::string compute;         // auto | f32 | bf16
  std::string decode_weights;  // quantized | same_as_prompt
  std::string kv_dtype;        // bf16 | f32
  int64_t panel_tokens = 0;    // link and compile rows in one step
  int64_t max_sequences = 0;   // running at once
  int64_t max_queue = 0;       // waiting; beyond it queue_full
  int64_t memory_bytes = 0;    // private segments
  int64_t prefix_cache_bytes = 0;
  int64_t stuck_after_ms = 0;  // busy without progress
};

struct CompileSettings {
  int64_t max_running = 0;  // at once
  int64_t max_queue = 0;    // waiting; beyond it queue_full
};

struct StoreSettings {
  std::string data_dir;
  int64_t memory_bytes = 0;
  int64_t disk_bytes = 0;
  std::string eviction;          // s3fifo | lru
  std::string slabs;             // extents | blob_files
  int64_t evict_to_percent = 0;  // of memory: how full it is left
  std::string quotas;            // tenant=MEMORY/DISK,… (tenant_quotas.h)
  int64_t scrub_bytes = 0;       // a second; 0: what nobody asks for is not checked
  int64_t warm_up_bytes = 0;     // a second
  int64_t disk_wait_ms = 0;      // for how long a call waits for the disk; 0: as long as it takes
  std::string shm_socket;        // of a store process; empty: shm.sock in data_dir
  int64_t workers = 0;           // of a store process: threads for calls that may block
  int64_t streams = 0;           // of a store process: of layers, at a time
};

// The other parts of a cluster, for a worker.
struct ClusterSettings {
  std::string stores;           // HOST:PORT,…
  std::string compile_workers;  // HOST:PORT,…; empty: none
};

// How the bytes of KV objects go from a store process to workers.
struct TransportSettings {
  std::string paths;             // shm | ucx | grpc, by preference, with commas
  std::string ucx_devices;       // by UCX's names, with commas
  std::string ucx_listen;        // a numeric address of one of these
  bool trusted_network = false;  // allows devices beyond this host, though UCX encrypts nothing
  int64_t ucx_pieces = 0;        // under way to a worker
  int64_t prefetch_bytes = 0;    // under way for one object
  int64_t in_flight_bytes = 0;   // under way to a worker
  int64_t link_bytes = 0;        // a second, of all classes; 0: as fast as it goes
  int64_t fetch_bytes = 0;       // a second, of one class; 0: no limit of its own
  int64_t write_behind_bytes = 0;
  int64_t repair_bytes = 0;
};
// One name after the other. Errors: InvalidArgument for what is empty, or given twice.
absl::StatusOr<std::vector<std::string>> ParseNames(std::string_view text);

struct LinkingSettings {
  std::string strategy;        // full | prefix | naive | legolink-K | cacheblend-R | query-guided-B
  std::string compile_prefix;  // of legolink-0: bos | bos4 | system
};

// Bounds on what a client may send, hold open or leave unread.
struct LimitSettings {
  int64_t body_bytes = 0;
  int64_t json_depth = 0;
  int64_t messages = 0;
  int64_t content_parts = 0;
  int64_t n = 0;
  int64_t stop_count = 0;
  int64_t stop_bytes = 0;
  int64_t default_max_tokens = 0;
  int64_t tags = 0;
  int64_t tag_bytes = 0;
  int64_t name_bytes = 0;
  int64_t header_bytes = 0;
  int64_t connections = 0;
  int64_t stream_buffer_bytes = 0;
  int64_t header_timeout_ms = 0;
  int64_t body_timeout_ms = 0;
  int64_t write_timeout_ms = 0;
  int64_t idle_timeout_ms = 0;
  int64_t heartbeat_ms = 0;
};

struct DeadlineSettings {
  int64_t request_ms = 0;
  int64_t context_wait_ms = 0;
  int64_t drain_ms = 0;
};

struct LogSettings {
  std::string level;   // trace | debug | info | warn | error
  std::string format;  // text | json
};

// Where the value of one setting came from.
struct SettingOrigin {
  std::string name;
  std::string value;   // as text, in canonical form
  std::string source;  // "default", "file PATH", "environment EPIC_X", "--set", or the flag
};

// The members have no defaults of their own: the table has them. DefaultConfig() or LoadConfig() fill them.
struct Config {
  ModelSettings model;
  ListenSettings listen;
  bool insecure = false;  // allows listening elsewhere than on loopback to whom anybody may be
  TlsSettings tls;
  EngineSettings engine;
  CompileSettings compile;
  StoreSettings store;
  ClusterSettings cluster;
  TransportSettings transport;
  LinkingSettings linking;
  LimitSettings limits;
  DeadlineSettings deadlines;
  LogSettings log;

  std::vector<SettingOrigin> origins;  // every setting once, in the order of the table
  std::vector<std::string> warnings;   // e.g. a variable EPIC_… that names no setting
};

// A value given by a flag of the command line, such as {"listen.http", "127.0.0.1:0", "--http"}.
struct FlagValue {
  std::string name;
  std::string value;
  std::string flag;
};

struct ConfigSources {
  std::optional<std::string> file;                 // a YAML file
  std::map<std::string, std::string> environment;  // usually ProcessEnvironment()
  std::vector<std::string> sets;                   // "name=value", later ones win
  std::vector<FlagValue> flags;                    // win over `sets`
};

// HOME, XDG_CACHE_HOME and every variable that starts with EPIC_, as this process has them.
std::map<std::string, std::string> ProcessEnvironment();

// Errors: InvalidArgument whose message names every problem, one a line.
absl::StatusOr<Config> LoadConfig(const ConfigSources& sources);

// The defaults alone. Paths that need HOME are empty when `environment` has none.
Config DefaultConfig(const std::map<std::string, std::string>& environment = {});

}  // namespace epic

#endif  // EPIC_COMMON_CONFIG_CONFIG_H_
