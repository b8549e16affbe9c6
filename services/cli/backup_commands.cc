// `epic backup create|verify|restore`: a node's contexts, without their KV, as one file.
#include <memory>
#include <ostream>
#include <string>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "common/base/clock.h"
#include "common/status/status_macros.h"
#include "services/cli/command.h"
#include "services/cli/store_text.h"
#include "services/node/store_tools.h"

namespace epic {
namespace {

using nlohmann::json;

struct BackupFlags {
  std::string file;
  bool force = false;
  bool skip_damaged = false;
};

void PrintJson(const Console& console, const json& document) {
  *console.out << document.dump(2, ' ', false, json::error_handler_t::replace) << '\n';
}

absl::Status Create(const Console& console, const CommonFlags& common, const BackupFlags& flags) {
  EPIC_ASSIGN_OR_RETURN(const Config config, LoadCommandConfig(common));
  ProgressLine line(console.err, SystemClock::Get());
  const store_tools::BackupOptions options{
      .skip_damaged = flags.skip_damaged,
      .progress = [&](uint64_t contexts) { line.Show("wrote " + std::to_string(contexts) + " contexts"); }};
  EPIC_ASSIGN_OR_RETURN(const store_tools::BackupReport report,
                        store_tools::CreateBackup(config.store.data_dir, flags.file, flags.force,
                                                  *SystemClock::Get(), options));
  for (const store_tools::StoreFault& fault : report.skipped.faults) {
    *console.err << "left out: ";
    PrintFault(*console.err, fault);
  }
  if (common.json) {
    json document = SummaryJson(report.summary);
    document["file"] = flags.file;
    document["left_out"] = report.skipped.damage;
    PrintJson(console, document);
  } else {
    PrintSummary(*console.out, flags.file, report.summary);
  }
  return absl::OkStatus();
}

absl::Status Verify(const Console& console, const CommonFlags& common, const BackupFlags& flags) {
  EPIC_ASSIGN_OR_RETURN(const store_tools::BackupSummary summary, store_tools::VerifyBackup(flags.file));
  if (common.json) {
    json document = SummaryJson(summary);
    document["file"] = flags.file;
    document["sound"] = true;
    PrintJson(console, document);
  } else {
    PrintSummary(*console.out, flags.file, summary);
    *console.out << "sound: every token id hashes to its Cache ID\n";
  }
  return absl::OkStatus();
}

void PrintRestored(std::ostream& out, const store_tools::RestoreReport& report) {
  out << report.added << " contexts added, " << report.changed << " changed, " << report.unchanged
      << " unchanged, " << report.removed << " removed, " << report.stayed_gone << " stayed gone, "
      << report.mended << " damaged rows mended\n";
}

void Warn(std::ostream& err, const store_tools::RestoreReport& report) {
  if (report.left_alone > 0) {
    err << "warning: " << report.left_alone
        << " contexts were left alone: their tombstones here are damaged; `epic store check` names them\n";
  }
  if (report.may_revive) {
    err << "warning: the backup is more than 7 days old, and deletions are remembered for 7 days: contexts "
           "that "
           "were deleted between are back\n";
  }
}

absl::Status Restore(const Console& console, const CommonFlags& common, const BackupFlags& flags) {
  EPIC_ASSIGN_OR_RETURN(const Config config, LoadCommandConfig(common));
  ProgressLine line(console.err, SystemClock::Get());
  const auto progress = [&](uint64_t contexts) {
    line.Show("restored " + std::to_string(contexts) + " contexts");
  };
  EPIC_ASSIGN_OR_RETURN(
      const store_tools::RestoreReport report,
      store_tools::RestoreBackup(flags.file, config.store.data_dir, *SystemClock::Get(), progress));
  Warn(*console.err, report);
  if (!common.json) {
    PrintSummary(*console.out, flags.file, report.summary);
    PrintRestored(*console.out, report);
    return absl::OkStatus();
  }
  json document = SummaryJson(report.summary);
  document["file"] = flags.file;
  document["directory"] = config.store.data_dir;
  document["added"] = report.added;
  document["changed"] = report.changed;
  document["unchanged"] = report.unchanged;
  document["removed"] = report.removed;
  document["stayed_gone"] = report.stayed_gone;
  document["mended"] = report.mended;
  document["left_alone"] = report.left_alone;
  document["may_revive"] = report.may_revive;
  PrintJson(console, document);
  return absl::OkStatus();
}

using Handler = absl::Status (*)(const Console&, const CommonFlags&, const BackupFlags&);

CLI::App* AddOne(CLI::App* parent, Action* chosen, const std::string& name, const std::string& help,
                 const std::shared_ptr<BackupFlags>& flags, Handler handler) {
  CLI::App* command = parent->add_subcommand(name, help);
  command->add_option("FILE", flags->file, "The backup")->required();
  command->callback([chosen, flags, handler] {
    *chosen = [flags, handler](const Console& console, const CommonFlags& common) {
      return Isolated(console, [&] { return handler(console, common, *flags); });
    };
  });
  return command;
}

}  // namespace

void AddBackupCommands(CLI::App* app, CommonFlags* common, Action* chosen) {
  CLI::App* backup =
      app->add_subcommand("backup", "Back up the contexts of a node that is stopped, without KV");
  backup->require_subcommand(1);
  const auto flags = std::make_shared<BackupFlags>();
  constexpr auto kDataDir = "The data directory of a node that is stopped";
  CLI::App* create = AddOne(backup, chosen, "create", "Write a backup of a store", flags, Create);
  AddSettingFlag(create, common, "--data-dir", "store.data_dir", kDataDir);
  create->add_flag("--force", flags->force, "Replace FILE if it exists");
  create->add_flag("--skip-damaged", flags->skip_damaged, "Leave out contexts that cannot be read whole");
  AddOne(backup, chosen, "verify", "Read all of a backup and check it", flags, Verify);
  CLI::App* restore =
      AddOne(backup, chosen, "restore", "Join a backup with what a store has", flags, Restore);
  AddSettingFlag(restore, common, "--data-dir", "store.data_dir",
                 std::string(kDataDir) + "; made if there is none");
}

}  // namespace epic
