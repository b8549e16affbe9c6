// The bench of scale: 1,000 nodes, 10 million contexts, 50,000 requests a second, without models or bytes.
//
//   epic_router_scale_bench [--only index|policies] [--quick] [--zipf EXPONENT] [--json]
//
// Sections are told in sections.h; without --only both run. --quick: a tenth of nodes, contexts and requests.
// Exits non-zero when an answer was wrong; a number beyond its bar is reported, not failed.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "services/router/placement/bench/sections.h"

namespace epic::router {
namespace {

[[noreturn]] void Usage(const char* program) {
  std::fprintf(stderr, "usage: %s [--only index|policies] [--quick] [--zipf EXPONENT] [--json]\n", program);
  std::exit(2);
}

int Run(int argc, char** argv) {
  ScaleOptions options;
  std::string only;
  bool json = false;
  for (int at = 1; at < argc; ++at) {
    const std::string flag = argv[at];
    if (flag == "--only" && at + 1 < argc) {
      only = argv[++at];
      if (only != "index" && only != "policies") Usage(argv[0]);
    } else if (flag == "--zipf" && at + 1 < argc) {
      options.zipf = std::strtod(argv[++at], nullptr);
      // The law is drawn by its integral, which has another form at 1.
      if (!(options.zipf > 0 && options.zipf < 3) || options.zipf == 1) Usage(argv[0]);
    } else if (flag == "--quick") {
      options.quick = true;
    } else if (flag == "--json") {
      json = true;
    } else {
      Usage(argv[0]);
    }
  }
  BenchReport report(json);
  if (only.empty() || only == "index") BenchIndex(options, &report);
  if (only.empty() || only == "policies") BenchPolicies(options, &report);
  report.Finish();
  return report.correct() ? 0 : 1;
}

}  // namespace
}  // namespace epic::router

int main(int argc, char** argv) { return epic::router::Run(argc, argv); }
