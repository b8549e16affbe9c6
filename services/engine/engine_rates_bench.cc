// Rates that other engines report too: prefill of one prompt, decode of one sequence; and the share that the
// bare products of that prefill (oneDNN, same shapes, panels and threads) have in its wall clock.
//
//   epic_engine_rates_bench [--model FILE] [--threads N] [--repeats N] [--json] [COMMAND...]
//   COMMAND: prefill:TOKENS, share:TOKENS (a prefill, then its products bare), decode:TOKENS; or one `-`:
//   commands are read from standard input, a line each, until it ends. Without any: share:512 share:2048
//   decode:64.
//
// --json prints an object a line: what runs, then each measurement as it is made. Commands are repeated in
// turn, so what is compared is interleaved; the first of each is a warm-up and does not count.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/testing/paths.h"
#include "kernels/api/dispatch.h"
#include "services/engine/engine.h"
#include "services/engine/testing/bare_products.h"
#include "services/engine/testing/engine_harness.h"
#include "services/model/model.h"

namespace epic {
namespace {

using testing::BareProducts;
using testing::CollectLink;
using testing::PrefillProducts;
using testing::RandomTokens;
using testing::Text;

enum class What { kPrefill, kShare, kDecode };

struct Command {
  What what = What::kPrefill;
  uint32_t tokens = 0;
  std::string text;
};

struct Flags {
  std::string model;
  uint32_t threads = std::max(1u, std::thread::hardware_concurrency());
  int repeats = 5;
  bool json = false;
  bool from_input = false;
  std::vector<Command> commands;
};

[[noreturn]] void Usage(const std::string& wrong) {
  std::fprintf(stderr,
               "cannot use '%s'\nusage: epic_engine_rates_bench [--model FILE] [--threads N] [--repeats N] "
               "[--json] [prefill:TOKENS | share:TOKENS | decode:TOKENS | -]...\n",
               wrong.c_str());
  std::exit(2);
}

uint32_t PositiveOr(std::string_view text, const std::string& whole) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value == 0) Usage(whole);
  return value;
}

Command ParseCommand(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  if (colon == std::string::npos) Usage(text);
  Command command{.tokens = PositiveOr(std::string_view(text).substr(colon + 1), text), .text = text};
  if (name == "prefill") {
    command.what = What::kPrefill;
  } else if (name == "share") {
    command.what = What::kShare;
  } else if (name == "decode") {
    command.what = What::kDecode;
  } else {
    Usage(text);
  }
  return command;
}

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  flags.model = testing::DefaultModelPath().value_or("");
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const bool has_value = i + 1 < argc;
    if (flag == "--model" && has_value) {
      flags.model = argv[++i];
    } else if (flag == "--threads" && has_value) {
      flags.threads = PositiveOr(argv[i + 1], argv[i + 1]);
      ++i;
    } else if (flag == "--repeats" && has_value) {
      flags.repeats = static_cast<int>(PositiveOr(argv[i + 1], argv[i + 1]));
      ++i;
    } else if (flag == "--json") {
      flags.json = true;
    } else if (flag == "-") {
      flags.from_input = true;
    } else {
      flags.commands.push_back(ParseCommand(flag));
    }
  }
  if (flags.commands.empty() && !flags.from_input) {
    for (const char* text : {"share:512", "share:2048", "decode:64"}) {
      flags.commands.push_back(ParseCommand(text));
    }
  }
  return flags;
}

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}

struct Measurement {
  double seconds = 0;
  double tokens_per_second = 0;
  double bare_seconds = 0;  // of kShare
};

class RatesBench {
 public:
  explicit RatesBench(const Flags& flags)
      : flags_(flags),
        model_(OrDie(Model::Load(flags.model))),
        engine_(OrDie(Engine::Create(model_, Options(flags), SystemClock::Get()))) {}

  void Describe() const {
    std::printf(flags_.json
                    ? "{\"model\":\"%s\",\"isa\":\"%s\",\"threads\":%u,\"weights\":\"%s\",\"kv\":\"%s\","
                      "\"panel_tokens\":%u}\n"
                    : "%s, %s, %u threads, %s weights, KV %s, panels of %u\n",
                model_->config().name.c_str(), DescribeCpu().c_str(), flags_.threads,
                engine_->compute() == ComputeFormat::kBf16 ? "bf16" : "f32",
                engine_->kv_dtype() == KvDtype::kBf16 ? "bf16" : "f32", EngineOptions().panel_tokens);
    std::fflush(stdout);
  }

  Measurement Run(const Command& command) {
    Measurement result;
    if (command.what == What::kDecode) {
      result.seconds = Decode(command.tokens);
    } else {
      result.seconds = Prefill(command.tokens);
      if (command.what == What::kShare) result.bare_seconds = Bare(command.tokens);
    }
    result.tokens_per_second = command.tokens / result.seconds;
    return result;
  }

  void Print(const Command& command, const Measurement& result) const {
    if (!flags_.json) return;
    std::printf("{\"command\":\"%s\",\"seconds\":%.6g,\"tokens_per_second\":%.6g", command.text.c_str(),
                result.seconds, result.tokens_per_second);
    if (command.what == What::kShare) {
      std::printf(",\"bare_seconds\":%.6g,\"share\":%.6g,\"bare_format\":\"%s\"", result.bare_seconds,
                  result.bare_seconds / result.seconds, bare_format_ == DType::kBf16 ? "bf16" : "f32");
    }
    std::printf("}\n");
    std::fflush(stdout);
  }

  void Summarise(const Command& command, const std::vector<Measurement>& results) const {
    if (flags_.json || results.empty()) return;
    std::vector<double> rates, shares;
    for (const Measurement& result : results) {
      rates.push_back(result.tokens_per_second);
      shares.push_back(result.bare_seconds / result.seconds);
    }
    PrintSpread(command.text + ", tokens/s", rates);
    if (command.what != What::kShare) return;
    PrintSpread(std::string("  share of bare products in ") + (bare_format_ == DType::kBf16 ? "bf16" : "f32"),
                shares);
  }

 private:
  static EngineOptions Options(const Flags& flags) {
    EngineOptions options;
    options.threads = flags.threads;
    options.prefix_cache_bytes = 0;
    return options;
  }

  static void PrintSpread(const std::string& name, std::vector<double> values) {
    std::sort(values.begin(), values.end());
    std::printf("%s: median %.4g (%.4g .. %.4g)\n", name.c_str(), values[values.size() / 2], values.front(),
                values.back());
  }

  // Submits, and waits for the end. Seconds from `begin_ns`, or from the first token where it is 0, to the
  // last token.
  double TimeOf(uint32_t prompt, uint32_t max_tokens, bool from_first) {
    LinkRequest request{.pieces = {Text(RandomTokens(7, prompt, model_->config().vocab))},
                        .strategy = {StrategyKind::kFull, 0}};
    request.sampling.temperature = 0;
    request.max_tokens = max_tokens;
    auto sink = std::make_shared<CollectLink>(1);
    int64_t begin_ns = 0;
    int64_t last_ns = 0;
    sink->on_token = [&](const GeneratedToken&) {
      last_ns = SystemClock::Get()->SteadyNs();
      if (begin_ns == 0) begin_ns = last_ns;
      return true;
    };
    if (!from_first) begin_ns = SystemClock::Get()->SteadyNs();
    EPIC_CHECK(engine_->SubmitLink(std::move(request), sink).ok());
    EPIC_CHECK(sink->done.Wait().ok());
    EPIC_CHECK(sink->tokens[0].size() == max_tokens);
    sink->on_token = nullptr;
    return static_cast<double>(last_ns - begin_ns) * 1e-9;
  }

  double Prefill(uint32_t tokens) { return TimeOf(tokens, 1, false); }
  // `tokens` rows, each over all rows before it, behind a prompt of one token.
  double Decode(uint32_t tokens) { return TimeOf(1, tokens + 1, true); }

  double Bare(uint32_t tokens) {
    if (bare_ == nullptr) {
      bare_format_ = OrDie(testing::FasterBareFormat(model_->config(), flags_.threads));
      bare_ = OrDie(BareProducts::Create(model_->config(), bare_format_, flags_.threads));
    }
    return OrDie(bare_->Run(PrefillProducts(model_->config(), tokens, EngineOptions().panel_tokens)));
  }

  const Flags flags_;
  const std::shared_ptr<const Model> model_;
  const std::unique_ptr<Engine> engine_;
  DType bare_format_ = DType::kF32;
  std::unique_ptr<BareProducts> bare_;  // made when first asked for
};

void RunInput(RatesBench* bench) {
  for (std::string line; std::getline(std::cin, line);) {
    const Command command = ParseCommand(line);
    bench->Print(command, bench->Run(command));
  }
}

void RunCommands(const Flags& flags, RatesBench* bench) {
  std::vector<std::vector<Measurement>> results(flags.commands.size());
  for (int repeat = 0; repeat <= flags.repeats; ++repeat) {
    for (size_t i = 0; i < flags.commands.size(); ++i) {
      const Measurement result = bench->Run(flags.commands[i]);
      if (repeat == 0) continue;
      bench->Print(flags.commands[i], result);
      results[i].push_back(result);
    }
  }
  for (size_t i = 0; i < flags.commands.size(); ++i) bench->Summarise(flags.commands[i], results[i]);
}

}  // namespace
}  // namespace epic

int main(int argc, char** argv) {
  const epic::Flags flags = epic::ParseFlags(argc, argv);
  if (!std::ifstream(flags.model).good()) {
    std::fprintf(stderr, "no model at '%s': run deploy/fetch_model.sh or name one with --model\n",
                 flags.model.c_str());
    return 2;
  }
  epic::RatesBench bench(flags);
  bench.Describe();
  if (flags.from_input) {
    epic::RunInput(&bench);
  } else {
    epic::RunCommands(flags, &bench);
  }
  return 0;
}
