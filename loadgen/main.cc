// The `epic-loadgen` command: parses the command line, runs one subcommand, turns its status into an exit
// code (0 done, 1 failed, 2 wrong usage).
#include <iostream>
#include <string>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "common/base/clock.h"
#include "common/status/error.h"
#include "loadgen/quality/quality_command.h"

namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

std::string Joined(int argc, char** argv) {
  std::string line;
  for (int i = 0; i < argc; ++i) line += (i == 0 ? "" : " ") + std::string(argv[i]);
  return line;
}

int Run(int argc, char** argv) {
  CLI::App app("EPIC: measures quality and speed", "epic-loadgen");
  app.require_subcommand(1);
  app.fallthrough();
  bool json = false;
  app.add_flag("--json", json, "One JSON document on stdout, all else on stderr");
  epic::loadgen::QualityFlags quality;
  epic::loadgen::AddQualityCommand(&app, &quality);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : kUsage;
  }
  quality.command_line = Joined(argc, argv);
  const absl::Status status =
      epic::loadgen::RunQuality(quality, json, epic::SystemClock::Get(), std::cout, std::cerr);
  if (status.ok()) return 0;
  std::cerr << "epic-loadgen: " << epic::MessageOf(status) << '\n';
  return kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  return Run(argc, argv);
}
