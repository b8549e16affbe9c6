// The store's bench: how fast it is, what it takes and what it writes, beside what the machine could do in
// the same run. Checks first, then times.
//
//   epic_kv_store_bench [--only SECTION[,SECTION...]] [--dir DIR] [--object-kib N] [--quick] [--json]
//
// Sections are listed below and told in testing/bench/sections.h; without --only all run. DIR lies on the
// disk to be measured (default: a temporary folder); section disk reads objects of N KiB only where that is
// given. Exits non-zero when something was not right; a number
// below its bar is reported, not failed.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

#include "common/testing/paths.h"
#include "services/kv_store/testing/bench/sections.h"

namespace epic::kv_store {
namespace {

struct Section {
  const char* name;
  void (*run)(const BenchOptions&, BenchReport*);
};
constexpr Section kSections[] = {
    {"memory", BenchMemory}, {"rates", BenchRates},     {"host", BenchHost},         {"disk", BenchDisk},
    {"mixed", BenchMixed},   {"creates", BenchCreates}, {"recovery", BenchRecovery}, {"traces", BenchTraces},
};

struct Flags {
  std::set<std::string> only;
  std::string dir;
  bool quick = false;
  bool json = false;
  uint64_t object_kib = 0;
};

[[noreturn]] void Usage(const char* program) {
  std::fprintf(
      stderr,
      "usage: %s [--only SECTION[,SECTION...]] [--dir DIR] [--object-kib N] [--quick] [--json]\nsections:",
      program);
  for (const Section& section : kSections) std::fprintf(stderr, " %s", section.name);
  std::fprintf(stderr, "\n");
  std::exit(2);
}

bool IsSection(const std::string& name) {
  for (const Section& section : kSections) {
    if (name == section.name) return true;
  }
  return false;
}

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--only" && i + 1 < argc) {
      const std::string list = argv[++i];
      for (size_t begin = 0; begin <= list.size();) {
        const size_t end = std::min(list.find(',', begin), list.size());
        const std::string name = list.substr(begin, end - begin);
        if (!IsSection(name)) Usage(argv[0]);
        flags.only.insert(name);
        begin = end + 1;
      }
    } else if (flag == "--dir" && i + 1 < argc) {
      flags.dir = argv[++i];
    } else if (flag == "--object-kib" && i + 1 < argc) {
      flags.object_kib = std::strtoull(argv[++i], nullptr, 10);
    } else if (flag == "--quick") {
      flags.quick = true;
    } else if (flag == "--json") {
      flags.json = true;
    } else {
      Usage(argv[0]);
    }
  }
  return flags;
}

int Run(const Flags& flags) {
  const testing::TempDir temporary;
  BenchOptions options{.dir = (flags.dir.empty() ? temporary.path() : flags.dir) + "/epic_kv_store_bench",
                       .quick = flags.quick,
                       .object_kib = flags.object_kib};
  BenchReport report(flags.json);
  for (const Section& section : kSections) {
    if (!flags.only.empty() && !flags.only.contains(section.name)) continue;
    report.Say("--- " + std::string(section.name));
    std::filesystem::remove_all(options.dir);
    std::filesystem::create_directories(options.dir);
    section.run(options, &report);
    std::filesystem::remove_all(options.dir);
  }
  report.Finish();
  return report.correct() ? 0 : 1;
}

}  // namespace
}  // namespace epic::kv_store

int main(int argc, char** argv) { return epic::kv_store::Run(epic::kv_store::ParseFlags(argc, argv)); }
