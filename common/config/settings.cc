#include "common/config/settings.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "common/base/absl_std.h"
#include "common/config/tenant_quotas.h"

namespace epic {
namespace {

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * kKiB;
constexpr int64_t kGiB = 1024 * kMiB;
constexpr int64_t kTiB = 1024 * kGiB;
constexpr int64_t kSecond = 1000;
constexpr int64_t kMinute = 60 * kSecond;
constexpr int64_t kHour = 60 * kMinute;

bool AreDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Up to five digits without leading zeros.
bool IsCount(std::string_view text) {
  return AreDigits(text) && text.size() <= 5 && (text.size() == 1 || text[0] != '0');
}

// A number of 0..1 with up to six decimals.
bool IsShare(std::string_view text) {
  if (text == "0" || text == "1") return true;
  if (!text.starts_with("0.") && !text.starts_with("1.")) return false;
  const std::string_view decimals = text.substr(2);
  if (!AreDigits(decimals) || decimals.size() > 6) return false;
  return text[0] == '0' || decimals.find_first_not_of('0') == std::string_view::npos;
}

// full, prefix, naive, legolink-K, cacheblend-R with nothing, :paper or :attention behind it, query-guided-B.
std::string CheckStrategy(std::string_view value) {
  if (value == "full" || value == "prefix" || value == "naive") return {};
  const auto behind = [value](std::string_view family) {
    return value.starts_with(family) ? value.substr(family.size()) : std::string_view{};
  };
  if (IsCount(behind("legolink-"))) return {};
  const std::string_view budget = behind("query-guided-");
  if (IsCount(budget) && budget != "0") return {};
  std::string_view ratio = behind("cacheblend-");
  for (const std::string_view pick : {":paper", ":attention"}) {
    if (!ratio.ends_with(pick)) continue;
    ratio.remove_suffix(pick.size());
    break;
  }
  if (IsShare(ratio)) return {};
  return "use full, prefix, naive, legolink-K with K rows a context, such as legolink-16, cacheblend-R with "
         "a share R of the rows, such as cacheblend-0.15, or query-guided-B with B rows a context";
}

std::string CheckTenantQuotas(std::string_view value) {
  const auto quotas = ParseTenantQuotas(value);
  return quotas.ok() ? std::string() : std::string(ToStd(quotas.status().message()));
}

std::string CheckAddresses(std::string_view value) {
  const auto addresses = ParseAddresses(value);
  return addresses.ok() ? std::string() : std::string(ToStd(addresses.status().message()));
}

std::string CheckPaths(std::string_view value) {
  const auto names = ParseNames(value);
  if (!names.ok()) return std::string(ToStd(names.status().message()));
  for (const std::string& name : *names) {
    if (name != "shm" && name != "ucx" && name != "grpc") {
      return "must be some of shm, ucx and grpc, with commas, the best first";
    }
  }
  return {};
}

std::string CheckIp(std::string_view value) {
  const std::string text(value);
  in6_addr address{};
  const bool is_ip =
      inet_pton(AF_INET, text.c_str(), &address) == 1 || inet_pton(AF_INET6, text.c_str(), &address) == 1;
  return is_ip ? "" : "must be a numeric address, such as 10.0.0.7";
}

std::string CheckDevices(std::string_view value) {
  const auto names = ParseNames(value);
  return names.ok() ? std::string() : std::string(ToStd(names.status().message()));
}

std::string CheckNotEmpty(std::string_view value) { return value.empty() ? "must not be empty" : ""; }

using B = bool*;
using I = int64_t*;
using S = std::string*;
using H = HostPort*;
using T = SettingType;

constexpr std::array kTable = {
    Setting{.name = "model.path",
            .type = T::kPath,
            .default_text = "${XDG_CACHE_HOME:-~/.cache}/epic/models/smollm2-135m-instruct-q4_1.gguf",
            .field = +[](Config& c) -> S { return &c.model.path; },
            .help = "The model: a GGUF file or a Hugging Face directory",
            .flag = "--model",
            .check = CheckNotEmpty},
    Setting{.name = "model.alias",
            .type = T::kText,
            .default_text = "",
            .field = +[](Config& c) -> S { return &c.model.alias; },
            .help = "The name by which clients ask for the model; empty takes the file's name",
            .flag = "--model-alias"},

    Setting{.name = "listen.http",
            .type = T::kHostPort,
            .default_text = "127.0.0.1:8080",
            .field = +[](Config& c) -> H { return &c.listen.http; },
            .help = "Public HTTP door; port 0 takes a free port",
            .flag = "--http"},
    Setting{.name = "listen.grpc",
            .type = T::kHostPort,
            .default_text = "127.0.0.1:8081",
            .field = +[](Config& c) -> H { return &c.listen.grpc; },
            .help = "Public gRPC door; port 0 takes a free port",
            .flag = "--grpc"},
    Setting{.name = "listen.admin",
            .type = T::kHostPort,
            .default_text = "127.0.0.1:8082",
            .field = +[](Config& c) -> H { return &c.listen.admin; },
            .help = "Admin HTTP door: metrics, live, ready, debug",
            .flag = "--admin"},
    Setting{.name = "listen.admin_grpc",
            .type = T::kHostPort,
            .default_text = "127.0.0.1:8083",
            .field = +[](Config& c) -> H { return &c.listen.admin_grpc; },
            .help = "Admin gRPC door",
            .flag = "--admin-grpc"},
    Setting{.name = "insecure",
            .type = T::kSwitch,
            .default_text = "false",
            .field = +[](Config& c) -> B { return &c.insecure; },
            .help = "Allows doors elsewhere than on loopback, where anyone who reaches them may use them",
            .flag = "--insecure"},

    Setting{.name = "tls.cert_file",
            .type = T::kPath,
            .default_text = "",
            .field = +[](Config& c) -> S { return &c.tls.cert_file; },
            .help =
                "Certificate chain of this process as PEM, its own first; gRPC doors are TLS then. Empty: "
                "gRPC is plain"},
    Setting{.name = "tls.key_file",
            .type = T::kPath,
            .default_text = "",
            .field = +[](Config& c) -> S { return &c.tls.key_file; },
            .help = "Private key of that certificate as PEM; a file that every user may read is refused"},
    Setting{.name = "tls.ca_file",
            .type = T::kPath,
            .default_text = "",
            .field = +[](Config& c) -> S { return &c.tls.ca_file; },
            .help = "Certificates of those who vouch for peers, as PEM"},
    Setting{.name = "tls.peer_name",
            .type = T::kText,
            .default_text = "",
            .field = +[](Config& c) -> S { return &c.tls.peer_name; },
            .help =
                "DNS name that the certificate of every peer must bear; empty: servers must bear the host "
                "that is called, clients any name"},
    Setting{.name = "tls.client_certs",
            .type = T::kChoice,
            .default_text = "required",
            .field = +[](Config& c) -> S { return &c.tls.client_certs; },
            .help = "Whether clients of gRPC doors must have a certificate; between parts always required",
            .choices = "required|none"},
    Setting{
        .name = "tls.reload_ms",
        .type = T::kMillis,
        .default_text = "5s",
        .field = +[](Config& c) -> I { return &c.tls.reload_ms; },
        .help = "Interval of looks at these files; what is new in them counts for connections that follow",
        .unit = "ms",
        .min = 100,
        .max = kHour},

    Setting{.name = "engine.threads",
            .type = T::kNumber,
            .default_text = "0",
            .field = +[](Config& c) -> I { return &c.engine.threads; },
            .help = "Threads that compute; 0 takes every core",
            .unit = "threads",
            .min = 0,
            .max = 1024},
    Setting{.name = "engine.compute",
            .type = T::kChoice,
            .default_text = "auto",
            .field = +[](Config& c) -> S { return &c.engine.compute; },
            .help = "Number format of products; auto takes bf16 where the CPU has it",
            .choices = "auto|f32|bf16"},
    Setting{.name = "engine.decode_weights",
            .type = T::kChoice,
            .default_text = "quantized",
            .field = +[](Config& c) -> S { return &c.engine.decode_weights; },
            .help = "Weights that decoding reads: the model file's own few bits, or those of prompts, which "
                    "are slower",
            .choices = "quantized|same_as_prompt"},
    Setting{.name = "engine.kv_dtype",
            .type = T::kChoice,
            .default_text = "bf16",
            .field = +[](Config& c) -> S { return &c.engine.kv_dtype; },
            .help = "Number format of keys and values in KV objects",
            .choices = "bf16|f32"},
    Setting{.name = "engine.panel_tokens",
            .type = T::kNumber,
            .default_text = "256",
            .field = +[](Config& c) -> I { return &c.engine.panel_tokens; },
            .help = "Rows of links and compiles computed in one step of the engine",
            .unit = "tokens",
            .min = 1,
            .max = 65536},
    Setting{.name = "engine.max_sequences",
            .type = T::kNumber,
            .default_text = "16",
            .field = +[](Config& c) -> I { return &c.engine.max_sequences; },
            .help = "Sequences that run at once",
            .unit = "sequences",
            .min = 1,
            .max = 4096},
    Setting{.name = "engine.max_queue",
            .type = T::kNumber,
            .default_text = "256",
            .field = +[](Config& c) -> I { return &c.engine.max_queue; },
            .help = "Requests that wait; one more is refused with queue_full",
            .unit = "requests",
            .min = 1,
            .max = 1000000},
    Setting{
        .name = "engine.memory_bytes",
        .type = T::kBytes,
        .default_text = "2GiB",
        .field = +[](Config& c) -> I { return &c.engine.memory_bytes; },
        .help = "Memory for the private segments of running requests, a step's scratch and the rotary table",
        .unit = "bytes",
        .min = 16 * kMiB,
        .max = 64 * kTiB},
    Setting{.name = "engine.prefix_cache_bytes",
            .type = T::kBytes,
            .default_text = "256MiB",
            .field = +[](Config& c) -> I { return &c.engine.prefix_cache_bytes; },
            .help = "Memory for rows kept by the prefix strategy; 0 keeps none",
            .unit = "bytes",
            .min = 0,
            .max = 64 * kTiB},
    Setting{.name = "engine.stuck_after_ms",
            .type = T::kMillis,
            .default_text = "10s",
            .field = +[](Config& c) -> I { return &c.engine.stuck_after_ms; },
            .help = "Time that an engine with work may stand still before health is 503; one layer of a step "
                    "takes less",
            .unit = "ms",
            .min = 100,
            .max = 3600000},

    Setting{.name = "compile.max_running",
            .type = T::kNumber,
            .default_text = "4",
            .field = +[](Config& c) -> I { return &c.compile.max_running; },
            .help = "Contexts compiled at once; more while all of them fill at most two steps of the engine",
            .unit = "compiles",
            .min = 1,
            .max = 1024},
    Setting{.name = "compile.max_queue",
            .type = T::kNumber,
            .default_text = "64",
            .field = +[](Config& c) -> I { return &c.compile.max_queue; },
            .help = "Compiles that wait; one more is refused with queue_full",
            .unit = "compiles",
            .min = 0,
            .max = 1000000},

    Setting{.name = "store.data_dir",
            .type = T::kPath,
            .default_text = "~/.local/share/epic",
            .field = +[](Config& c) -> S { return &c.store.data_dir; },
            .help = "Folder of the store: context records, token ids, KV objects",
            .flag = "--data-dir",
            .check = CheckNotEmpty},
    Setting{.name = "store.memory_bytes",
            .type = T::kBytes,
            .default_text = "1GiB",
            .field = +[](Config& c) -> I { return &c.store.memory_bytes; },
            .help = "KV objects held in memory",
            .unit = "bytes",
            .min = kMiB,
            .max = 64 * kTiB},
    Setting{.name = "store.disk_bytes",
            .type = T::kBytes,
            .default_text = "16GiB",
            .field = +[](Config& c) -> I { return &c.store.disk_bytes; },
            .help = "KV objects held on disk",
            .unit = "bytes",
            .min = kMiB,
            .max = 1024 * kTiB},
    Setting{.name = "store.eviction",
            .type = T::kChoice,
            .default_text = "s3fifo",
            .field = +[](Config& c) -> S { return &c.store.eviction; },
            .help = "Which KV objects leave memory and disk first when room is short",
            .choices = "s3fifo|lru"},
    Setting{.name = "store.slabs",
            .type = T::kChoice,
            .default_text = "extents",
            .field = +[](Config& c) -> S { return &c.store.slabs; },
            .help = "Where the bytes of new KV objects go on disk; those of before are read either way",
            .choices = "extents|blob_files"},
    Setting{.name = "store.evict_to_percent",
            .type = T::kNumber,
            .default_text = "97",
            .field = +[](Config& c) -> I { return &c.store.evict_to_percent; },
            .help = "How full memory is left when KV objects had to leave it",
            .unit = "percent",
            .min = 10,
            .max = 100},
    Setting{
        .name = "store.quotas",
        .type = T::kText,
        .default_text = "",
        .field = +[](Config& c) -> S { return &c.store.quotas; },
        .help = "What KV objects of single tenants may take, as tenant=MEMORY/DISK,…; 0: as much as there is",
        .check = CheckTenantQuotas},
    Setting{.name = "store.scrub_bytes",
            .type = T::kBytes,
            .default_text = "8MiB",
            .field = +[](Config& c) -> I { return &c.store.scrub_bytes; },
            .help = "At most so much of the disk is read a second to check what nobody asks for; 0: nothing",
            .unit = "bytes",
            .min = 0,
            .max = 64 * kGiB},
    Setting{
        .name = "store.warm_up_bytes",
        .type = T::kBytes,
        .default_text = "128MiB",
        .field = +[](Config& c) -> I { return &c.store.warm_up_bytes; },
        .help = "At most so much is read from disk a second to fill memory again after a start; 0: nothing",
        .unit = "bytes",
        .min = 0,
        .max = 64 * kGiB},
    Setting{
        .name = "store.disk_wait_ms",
        .type = T::kMillis,
        .default_text = "2s",
        .field = +[](Config& c) -> I { return &c.store.disk_wait_ms; },
        .help = "How long a call waits for a slow disk, beyond what its bytes need at 32 MiB/s: then a KV "
                "object on disk is a miss, and a change is to be sent again; 0: as long as it takes",
        .unit = "ms",
        .min = 0,
        .max = 3'600'000},
    Setting{
        .name = "store.shm_socket",
        .type = T::kText,
        .default_text = "",
        .field = +[](Config& c) -> S { return &c.store.shm_socket; },
        .help =
            "Socket on which a store process hands its memory to processes of its user; empty: shm.sock in "
            "store.data_dir"},
    Setting{.name = "store.workers",
            .type = T::kNumber,
            .default_text = "8",
            .field = +[](Config& c) -> I { return &c.store.workers; },
            .help = "Threads of a store process for calls that may block",
            .unit = "threads",
            .min = 1,
            .max = 1024},
    Setting{
        .name = "store.streams",
        .type = T::kNumber,
        .default_text = "256",
        .field = +[](Config& c) -> I { return &c.store.streams; },
        .help =
            "Streams of layers that a store process serves at a time; one more is refused with queue_full",
        .unit = "streams",
        .min = 1,
        .max = 65536},

    Setting{.name = "cluster.stores",
            .type = T::kText,
            .default_text = "",
            .field = +[](Config& c) -> S { return &c.cluster.stores; },
            .help = "Store processes as HOST:PORT,…: a worker's one store",
            .check = CheckAddresses},
    Setting{.name = "cluster.compile_workers",
            .type = T::kText,
            .default_text = "",
            .field = +[](Config& c) -> S { return &c.cluster.compile_workers; },
            .help = "Compile workers as HOST:PORT,…, which a link worker asks for objects that are missing; "
                    "empty: none",
            .check = CheckAddresses},

    Setting{
        .name = "transport.paths",
        .type = T::kText,
        .default_text = "shm,ucx,grpc",
        .field = +[](Config& c) -> S { return &c.transport.paths; },
        .help = "Ways of KV objects from a store to workers, the best first: shm (memory of a store on the "
                "same host), ucx, grpc. A store serves those that are named, and always grpc",
        .check = CheckPaths},
    Setting{.name = "transport.ucx_devices",
            .type = T::kText,
            .default_text = "lo",
            .field = +[](Config& c) -> S { return &c.transport.ucx_devices; },
            .help = "Network devices of UCX, by its names, such as eth0 or mlx5_0:1; others than lo need "
                    "transport.trusted_network",
            .check = CheckDevices},
    Setting{.name = "transport.ucx_listen",
            .type = T::kText,
            .default_text = "127.0.0.1",
            .field = +[](Config& c) -> S { return &c.transport.ucx_listen; },
            .help = "Numeric address, of one of these devices, at which a store process serves UCX",
            .check = CheckIp},
    Setting{.name = "transport.trusted_network",
            .type = T::kSwitch,
            .default_text = "false",
            .field = +[](Config& c) -> B { return &c.transport.trusted_network; },
            .help = "Allows UCX, which encrypts nothing, on networks where nobody else listens"},
    Setting{.name = "transport.ucx_pieces",
            .type = T::kNumber,
            .default_text = "32",
            .field = +[](Config& c) -> I { return &c.transport.ucx_pieces; },
            .help = "Pieces of 1 MiB at most that are under way to a worker over UCX",
            .unit = "pieces",
            .min = 1,
            .max = 4096},
    Setting{.name = "transport.prefetch_bytes",
            .type = T::kBytes,
            .default_text = "16MiB",
            .field = +[](Config& c) -> I { return &c.transport.prefetch_bytes; },
            .help = "How far the fetch of one KV object runs ahead of what has arrived; a layer at least",
            .unit = "bytes",
            .min = kMiB,
            .max = 64 * kGiB},
    Setting{.name = "transport.in_flight_bytes",
            .type = T::kBytes,
            .default_text = "64MiB",
            .field = +[](Config& c) -> I { return &c.transport.in_flight_bytes; },
            .help = "Under way to a worker, of all KV objects together",
            .unit = "bytes",
            .min = kMiB,
            .max = 64 * kGiB},
    Setting{.name = "transport.link_bytes",
            .type = T::kBytes,
            .default_text = "0",
            .field = +[](Config& c) -> I { return &c.transport.link_bytes; },
            .help = "At most so much comes to a worker a second; 0: as fast as it goes",
            .unit = "bytes",
            .min = 0,
            .max = kTiB},
    Setting{.name = "transport.fetch_bytes",
            .type = T::kBytes,
            .default_text = "0",
            .field = +[](Config& c) -> I { return &c.transport.fetch_bytes; },
            .help = "Of these, for running requests; 0: no limit of its own",
            .unit = "bytes",
            .min = 0,
            .max = kTiB},
    Setting{.name = "transport.write_behind_bytes",
            .type = T::kBytes,
            .default_text = "0",
            .field = +[](Config& c) -> I { return &c.transport.write_behind_bytes; },
            .help = "Of these, for what is stored in the background; 0: no limit of its own",
            .unit = "bytes",
            .min = 0,
            .max = kTiB},
    Setting{.name = "transport.repair_bytes",
            .type = T::kBytes,
            .default_text = "0",
            .field = +[](Config& c) -> I { return &c.transport.repair_bytes; },
            .help = "Of these, for copies that are made anew; 0: no limit of its own",
            .unit = "bytes",
            .min = 0,
            .max = kTiB},

    Setting{.name = "linking.strategy",
            .type = T::kText,
            .default_text = "legolink-16",
            .field = +[](Config& c) -> S { return &c.linking.strategy; },
            .help = "How contexts are linked when a request does not say: full, prefix, naive, legolink-K, "
                    "cacheblend-R, query-guided-B",
            .check = CheckStrategy},
    Setting{.name = "linking.compile_prefix",
            .type = T::kChoice,
            .default_text = "bos4",
            .field = +[](Config& c) -> S { return &c.linking.compile_prefix; },
            .help = "The compile prefix behind which legolink-0 reads contexts, when a request does not say",
            .choices = "bos|bos4|system"},

    Setting{.name = "limits.body_bytes",
            .type = T::kBytes,
            .default_text = "16MiB",
            .field = +[](Config& c) -> I { return &c.limits.body_bytes; },
            .help = "Body of one request",
            .unit = "bytes",
            .min = kKiB,
            .max = kGiB},
    Setting{.name = "limits.json_depth",
            .type = T::kNumber,
            .default_text = "32",
            .field = +[](Config& c) -> I { return &c.limits.json_depth; },
            .help = "Nesting of a JSON body",
            .unit = "levels",
            .min = 8,
            .max = 256},
    Setting{.name = "limits.messages",
            .type = T::kNumber,
            .default_text = "1024",
            .field = +[](Config& c) -> I { return &c.limits.messages; },
            .help = "Messages of one chat",
            .unit = "messages",
            .min = 1,
            .max = 65536},
    Setting{.name = "limits.content_parts",
            .type = T::kNumber,
            .default_text = "1024",
            .field = +[](Config& c) -> I { return &c.limits.content_parts; },
            .help = "Content parts and context ids of one chat, over all its messages",
            .unit = "parts",
            .min = 1,
            .max = 65536},
    Setting{.name = "limits.n",
            .type = T::kNumber,
            .default_text = "8",
            .field = +[](Config& c) -> I { return &c.limits.n; },
            .help = "Answers to one chat",
            .unit = "answers",
            .min = 1,
            .max = 128},
    Setting{.name = "limits.stop_count",
            .type = T::kNumber,
            .default_text = "4",
            .field = +[](Config& c) -> I { return &c.limits.stop_count; },
            .help = "Stop strings of one chat",
            .unit = "strings",
            .min = 1,
            .max = 64},
    Setting{.name = "limits.stop_bytes",
            .type = T::kBytes,
            .default_text = "512",
            .field = +[](Config& c) -> I { return &c.limits.stop_bytes; },
            .help = "Length of one stop string",
            .unit = "bytes",
            .min = 1,
            .max = 64 * kKiB},
    Setting{.name = "limits.default_max_tokens",
            .type = T::kNumber,
            .default_text = "4096",
            .field = +[](Config& c) -> I { return &c.limits.default_max_tokens; },
            .help = "Longest answer to a chat that names no max_tokens",
            .unit = "tokens",
            .min = 1,
            .max = 1000000},
    Setting{.name = "limits.tags",
            .type = T::kNumber,
            .default_text = "32",
            .field = +[](Config& c) -> I { return &c.limits.tags; },
            .help = "Tags of one context",
            .unit = "tags",
            .min = 0,
            .max = 1024},
    Setting{.name = "limits.tag_bytes",
            .type = T::kBytes,
            .default_text = "128",
            .field = +[](Config& c) -> I { return &c.limits.tag_bytes; },
            .help = "Length of one tag",
            .unit = "bytes",
            .min = 1,
            .max = kKiB},
    Setting{.name = "limits.name_bytes",
            .type = T::kBytes,
            .default_text = "256",
            .field = +[](Config& c) -> I { return &c.limits.name_bytes; },
            .help = "Length of the name of a context",
            .unit = "bytes",
            .min = 1,
            .max = kKiB},
    Setting{.name = "limits.header_bytes",
            .type = T::kBytes,
            .default_text = "16KiB",
            .field = +[](Config& c) -> I { return &c.limits.header_bytes; },
            .help = "Header of one request",
            .unit = "bytes",
            .min = kKiB,
            .max = kMiB},
    Setting{.name = "limits.connections",
            .type = T::kNumber,
            .default_text = "1024",
            .field = +[](Config& c) -> I { return &c.limits.connections; },
            .help = "Open connections of one door",
            .unit = "connections",
            .min = 1,
            .max = 1000000},
    Setting{.name = "limits.stream_buffer_bytes",
            .type = T::kBytes,
            .default_text = "256KiB",
            .field = +[](Config& c) -> I { return &c.limits.stream_buffer_bytes; },
            .help = "Unsent bytes held for one stream before its reader counts as stuck",
            .unit = "bytes",
            .min = 4 * kKiB,
            .max = kGiB},
    Setting{.name = "limits.header_timeout_ms",
            .type = T::kMillis,
            .default_text = "10s",
            .field = +[](Config& c) -> I { return &c.limits.header_timeout_ms; },
            .help = "Time for the header of a request to arrive, from its first byte",
            .unit = "ms",
            .min = 100,
            .max = kHour},
    Setting{.name = "limits.body_timeout_ms",
            .type = T::kMillis,
            .default_text = "60s",
            .field = +[](Config& c) -> I { return &c.limits.body_timeout_ms; },
            .help = "Time for the body of a request to arrive",
            .unit = "ms",
            .min = 100,
            .max = kHour},
    Setting{.name = "limits.write_timeout_ms",
            .type = T::kMillis,
            .default_text = "20s",
            .field = +[](Config& c) -> I { return &c.limits.write_timeout_ms; },
            .help = "Time without progress after which a client that does not read is cut",
            .unit = "ms",
            .min = 100,
            .max = kHour},
    Setting{.name = "limits.idle_timeout_ms",
            .type = T::kMillis,
            .default_text = "75s",
            .field = +[](Config& c) -> I { return &c.limits.idle_timeout_ms; },
            .help = "Time that a connection stays open between requests",
            .unit = "ms",
            .min = 100,
            .max = 24 * kHour},
    Setting{.name = "limits.heartbeat_ms",
            .type = T::kMillis,
            .default_text = "1s",
            .field = +[](Config& c) -> I { return &c.limits.heartbeat_ms; },
            .help = "Interval of heartbeat comments in a stream that waits for its next token",
            .unit = "ms",
            .min = 10,
            .max = kHour},

    Setting{.name = "deadlines.request_ms",
            .type = T::kMillis,
            .default_text = "10min",
            .field = +[](Config& c) -> I { return &c.deadlines.request_ms; },
            .help = "Longest life of one chat, queue included",
            .unit = "ms",
            .min = 100,
            .max = 24 * kHour},
    Setting{.name = "deadlines.context_wait_ms",
            .type = T::kMillis,
            .default_text = "55s",
            .field = +[](Config& c) -> I { return &c.deadlines.context_wait_ms; },
            .help = "How long a create or a chat waits for a context that is compiling",
            .unit = "ms",
            .min = 0,
            .max = kHour},
    Setting{.name = "deadlines.drain_ms",
            .type = T::kMillis,
            .default_text = "30s",
            .field = +[](Config& c) -> I { return &c.deadlines.drain_ms; },
            .help = "Time for running requests to end after a request to stop",
            .unit = "ms",
            .min = 0,
            .max = kHour},

    Setting{.name = "log.level",
            .type = T::kChoice,
            .default_text = "info",
            .field = +[](Config& c) -> S { return &c.log.level; },
            .help = "Least level that is written",
            .choices = "trace|debug|info|warn|error"},
    Setting{.name = "log.format",
            .type = T::kChoice,
            .default_text = "text",
            .field = +[](Config& c) -> S { return &c.log.format; },
            .help = "Lines of key=value text, or of JSON",
            .choices = "text|json"},
};

}  // namespace

std::span<const Setting> SettingTable() { return kTable; }

const Setting* FindSetting(std::string_view name) {
  const auto* found =
      std::find_if(kTable.begin(), kTable.end(), [&](const Setting& s) { return s.name == name; });
  return found == kTable.end() ? nullptr : found;
}

std::string EnvironmentName(const Setting& setting) {
  std::string name = "EPIC_";
  for (const char c : setting.name) name += c == '.' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

std::string_view NameOf(SettingType type) {
  switch (type) {
    case SettingType::kSwitch:
      return "switch";
    case SettingType::kNumber:
      return "number";
    case SettingType::kBytes:
      return "bytes";
    case SettingType::kMillis:
      return "duration";
    case SettingType::kText:
      return "text";
    case SettingType::kChoice:
      return "choice";
    case SettingType::kPath:
      return "path";
    case SettingType::kHostPort:
      return "host:port";
  }
  return "";
}

}  // namespace epic
