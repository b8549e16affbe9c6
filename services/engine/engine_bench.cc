// The engine's bench: times to the first token, rates of decode and memory, on one engine, by sections.
//
//   epic_engine_bench [--model FILE] [--only NAME,...] [--repeats N] [--quick] [--json]
//
// Every ratio is of runs that were interleaved; beside it stand the times and the tokens per second of the
// slower side. Exits non-zero when a required check fails (what is timed must be right first); bars that
// depend on the machine are reported, not enforced. Exits with 77, which CTest counts as skipped, when no
// model is named and the default one is not there. --help lists the sections.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "common/testing/paths.h"
#include "services/engine/bench/sections.h"

namespace epic::engine_bench {
namespace {

constexpr int kSkipped = 77;

struct Flags {
  std::string model;  // empty: none is named, and the default one is not there
  int repeats = 5;
  bool json = false;
  std::vector<const Section*> sections;
};

void PrintHelp(const char* program, std::FILE* out) {
  std::fprintf(out,
               "usage: %s [--model FILE] [--only NAME,...] [--repeats N] [--quick] [--json]\n"
               "  --only     these sections, in the order below; without it all of them\n"
               "  --repeats  rounds of what is timed (5)\n"
               "  --quick    one round of the sections with a star\n"
               "  --json     one document on stdout\n"
               "sections:\n",
               program);
  for (const Section& section : Sections()) {
    std::fprintf(out, "  %-14s%s %s\n", std::string(section.name).c_str(), section.is_quick ? "*" : " ",
                 std::string(section.what).c_str());
  }
}

[[noreturn]] void Refuse(const char* program, const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  PrintHelp(program, stderr);
  std::exit(2);
}

std::vector<std::string> SplitNames(const std::string& names) {
  std::vector<std::string> all;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    all.push_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

std::vector<const Section*> Named(const char* program, const std::string& names) {
  const std::vector<std::string> wanted = SplitNames(names);
  for (const std::string& name : wanted) {
    if (std::none_of(Sections().begin(), Sections().end(), [&](const Section& s) { return s.name == name; }))
      Refuse(program, "no section is named '" + name + "'");
  }
  std::vector<const Section*> sections;
  for (const Section& section : Sections()) {
    if (std::find(wanted.begin(), wanted.end(), section.name) != wanted.end()) sections.push_back(&section);
  }
  return sections;
}

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  flags.model = testing::DefaultModelPath().value_or("");
  bool quick = false;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const bool has_value = i + 1 < argc;
    if (flag == "--model" && has_value) {
      flags.model = argv[++i];
    } else if (flag == "--repeats" && has_value) {
      flags.repeats = std::max(1, std::atoi(argv[++i]));
    } else if (flag == "--only" && has_value) {
      only = argv[++i];
    } else if (flag == "--quick") {
      quick = true;
    } else if (flag == "--json") {
      flags.json = true;
    } else if (flag == "--help") {
      PrintHelp(argv[0], stdout);
      std::exit(0);
    } else {
      Refuse(argv[0], "unknown option or missing value: " + std::string(flag));
    }
  }
  if (quick) flags.repeats = 1;
  if (!only.empty()) {
    flags.sections = Named(argv[0], only);
  } else {
    for (const Section& section : Sections()) {
      if (section.is_quick || !quick) flags.sections.push_back(&section);
    }
  }
  return flags;
}

int Run(const Flags& flags) {
  BenchReport report(flags.json);
  BenchEngine bench(flags.model);
  report.Note(bench.Describe() + ", " + bench.model().config().name);
  for (const Section* section : flags.sections) {
    report.Note("-- " + std::string(section->name));
    section->run(&bench, flags.repeats, &report);
  }
  return report.Finish(bench.Describe(), bench.model().config().name);
}

}  // namespace
}  // namespace epic::engine_bench

int main(int argc, char** argv) {
  const epic::engine_bench::Flags flags = epic::engine_bench::ParseFlags(argc, argv);
  if (flags.model.empty()) {
    std::fprintf(stderr, "skipped: the default model is not there: run deploy/fetch_model.sh\n");
    return epic::engine_bench::kSkipped;
  }
  if (!std::ifstream(flags.model).good()) {
    std::fprintf(stderr, "no model at '%s'\n", flags.model.c_str());
    return 2;
  }
  return epic::engine_bench::Run(flags);
}
