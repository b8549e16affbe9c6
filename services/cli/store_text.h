// How reports about a stopped store read, as text and as JSON, and what its commands share. Free functions;
// one thread.
#ifndef EPIC_SERVICES_CLI_STORE_TEXT_H_
#define EPIC_SERVICES_CLI_STORE_TEXT_H_

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "services/cli/command.h"
#include "services/node/store_tools.h"

namespace epic {

nlohmann::json ReportJson(const store_tools::StoreReport& report);
void PrintReport(std::ostream& out, const std::string& dir, const store_tools::StoreReport& report);
nlohmann::json FaultJson(const store_tools::StoreFault& fault);
void PrintFault(std::ostream& out, const store_tools::StoreFault& fault);
// Names, tags and errors only if `with_names`; token ids if they were read.
nlohmann::json ContextJson(const store_tools::DumpedContext& context, bool with_names);
nlohmann::json SummaryJson(const store_tools::BackupSummary& summary);
void PrintSummary(std::ostream& out, const std::string& file, const store_tools::BackupSummary& summary);

// Shows how far something is, at most every two seconds.
class ProgressLine {
 public:
  ProgressLine(std::ostream* out, const Clock* clock)
      : out_(out), clock_(clock), last_ns_(clock->SteadyNs()) {}
  void Show(const std::string& text);

 private:
  std::ostream* const out_;
  const Clock* const clock_;
  int64_t last_ns_;
};

// Runs a command that reads tables which may be damaged in a process of its own. REQUIRES: one thread.
absl::Status Isolated(const Console& console, const std::function<absl::Status()>& work);

}  // namespace epic

#endif  // EPIC_SERVICES_CLI_STORE_TEXT_H_
