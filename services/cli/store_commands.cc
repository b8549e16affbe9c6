// `epic store check|dump`: looks into the directory of a store that is stopped.
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "common/base/absl_std.h"
#include "common/base/clock.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/cli/command.h"
#include "services/cli/store_text.h"
#include "services/node/store_tools.h"

namespace epic {
namespace {

using nlohmann::json;

struct StoreFlags {
  std::string dir;  // empty: the setting store.data_dir
  bool deep = true;
  bool repair = false;
  std::string tenant, id;
  bool with_names = false, with_tokens = false;
};

absl::StatusOr<std::string> DirOf(const CommonFlags& common, const StoreFlags& flags) {
  if (!flags.dir.empty()) return flags.dir;
  EPIC_ASSIGN_OR_RETURN(const Config config, LoadCommandConfig(common));
  return config.store.data_dir;
}

absl::StatusOr<store_tools::StoreReport> CheckWithProgress(const Console& console, const std::string& dir,
                                                           bool deep) {
  ProgressLine line(console.err, SystemClock::Get());
  return store_tools::CheckStore(dir, {.deep = deep, .progress = [&](const store_tools::StoreCounts& counts) {
                                         line.Show("read " + std::to_string(counts.records) + " records, " +
                                                   std::to_string(counts.objects) + " objects, " +
                                                   std::to_string(counts.verified_bytes >> 20) +
                                                   " MiB of KV");
                                       }});
}

absl::Status CheckIn(const Console& console, const CommonFlags& common, const StoreFlags& flags,
                     const std::string& dir) {
  EPIC_ASSIGN_OR_RETURN(store_tools::StoreReport report, CheckWithProgress(console, dir, flags.deep));
  uint64_t dropped = 0;
  if (flags.repair && report.damage + report.left_over > 0) {
    EPIC_ASSIGN_OR_RETURN(dropped, store_tools::RepairStore(dir, report));
    *console.err << "dropped " << dropped << "; checking again\n";
    EPIC_ASSIGN_OR_RETURN(report, CheckWithProgress(console, dir, flags.deep));
  }
  if (common.json) {
    json document = ReportJson(report);
    document["directory"] = dir;
    if (flags.repair) document["dropped"] = dropped;
    *console.out << document.dump(2, ' ', false, json::error_handler_t::replace) << '\n';
  } else {
    PrintReport(*console.out, dir, report);
  }
  if (report.damage == 0) return absl::OkStatus();
  return absl::DataLossError(ToAbsl(std::to_string(report.damage) + " faults in " + dir));
}

absl::Status DumpIn(const Console& console, const CommonFlags& common, const StoreFlags& flags,
                    const std::string& dir) {
  store_tools::DumpOptions options{.tenant = {}, .id = {}, .with_tokens = flags.with_tokens};
  if (!flags.tenant.empty()) options.tenant = flags.tenant;
  if (!flags.id.empty()) {
    EPIC_ASSIGN_OR_RETURN(options.id, CacheId::Parse(flags.id));
  }
  uint64_t shown = 0, faults = 0;
  constexpr std::string_view kBegin = "{\"contexts\": [", kEnd = "\n]}\n";
  const auto show = [&](const store_tools::DumpedContext& context) {
    if (common.json) *console.out << (shown == 0 ? kBegin : ",") << '\n';
    *console.out
        << ContextJson(context, flags.with_names).dump(-1, ' ', false, json::error_handler_t::replace);
    if (!common.json) *console.out << '\n';
    ++shown;
    return console.out->good() ? absl::OkStatus()
                               : absl::UnavailableError("standard output does not take any more");
  };
  const absl::Status status =
      store_tools::DumpStore(dir, options, show, [&](const store_tools::StoreFault& fault) {
        ++faults;
        PrintFault(*console.err, fault);
      });
  if (common.json && (status.ok() || shown > 0)) *console.out << (shown == 0 ? kBegin : "") << kEnd;
  EPIC_RETURN_IF_ERROR(status);
  if (faults == 0) return absl::OkStatus();
  return absl::DataLossError(
      ToAbsl(std::to_string(faults) + " rows cannot be read; `epic store check` tells more"));
}

using Handler = absl::Status (*)(const Console&, const CommonFlags&, const StoreFlags&, const std::string&);

CLI::App* AddOne(CLI::App* parent, Action* chosen, const std::string& name, const std::string& help,
                 const std::shared_ptr<StoreFlags>& flags, Handler handler) {
  CLI::App* command = parent->add_subcommand(name, help);
  command->add_option("DIR", flags->dir,
                      "The data directory of a node that is stopped (default: store.data_dir)");
  command->callback([chosen, flags, handler] {
    *chosen = [flags, handler](const Console& console, const CommonFlags& common) -> absl::Status {
      EPIC_ASSIGN_OR_RETURN(const std::string dir, DirOf(common, *flags));
      return Isolated(console, [&] { return handler(console, common, *flags, dir); });
    };
  });
  return command;
}

}  // namespace

void AddStoreCommands(CLI::App* app, Action* chosen) {
  CLI::App* store = app->add_subcommand("store", "Check and show the store of a node that is stopped");
  store->require_subcommand(1);
  const auto flags = std::make_shared<StoreFlags>();
  CLI::App* check =
      AddOne(store, chosen, "check", "Read all of a store and name what is damaged", flags, CheckIn);
  check->add_flag("--deep,!--no-deep", flags->deep,
                  "Read the KV too and compare its checksums (default: yes)");
  check->add_flag("--repair", flags->repair,
                  "Drop damaged objects and rows that belong to nothing; never a record");
  CLI::App* dump =
      AddOne(store, chosen, "dump", "Print what a store holds, a JSON object a line", flags, DumpIn);
  dump->add_option("--tenant", flags->tenant, "Only contexts of this tenant");
  dump->add_option("--id", flags->id, "Only the context with this Cache ID");
  dump->add_flag("--with-names", flags->with_names, "Show names, tags and errors too");
  dump->add_flag("--with-tokens", flags->with_tokens, "Show token ids too: the texts can be told from them");
}

}  // namespace epic
