#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "services/router/placement/bench/cluster_sim.h"
#include "services/router/placement/bench/sections.h"

namespace epic::router {
namespace {

// The knee of a policy: the greatest rate at which 99 of 100 requests have their first token within this, in
// arrivals for so long: a rate that is a twentieth too high leaves a quarter of a second of work by then.
constexpr double kKneeP99S = 0.25;
constexpr double kKneeSeconds = 5;
constexpr double kStep = 1.1;

struct Contender {
  PolicyKind kind;
  std::unique_ptr<ClusterSim> sim;
  double knee_per_s = 0;
};

void PrintRun(const Contender& contender, double per_s, const SimResult& result, const BenchReport& report) {
  char line[256];
  std::snprintf(
      line, sizeof line,
      "  %-12s %8.0f/s  TTFT mean %8.2f p50 %8.2f p99 %9.2f ms  device %4.1f %%  pulled %5.3f/request "
      "(%2.0f %% from memory)  compiled %5.3f  balance %5.2f  queue %7.2f ms",
      NameOf(contender.kind).c_str(), per_s, result.mean_ttft_s * 1e3, result.p50_ttft_s * 1e3,
      result.p99_ttft_s * 1e3, result.device_hits * 100, result.pulled_per_request, result.host_share * 100,
      result.compiled_per_request, result.balance, result.last_queue_s * 1e3);
  report.Say(line);
}

SimResult RunAt(Contender* contender, double per_s, double seconds, const BenchReport& report) {
  // The seed is the rate's: who is measured at the same rate has the same trace.
  const SimLoad load{
      .per_s = per_s, .seconds = seconds, .ignored_s = seconds / 4, .seed = static_cast<uint64_t>(per_s)};
  const SimResult result = contender->sim->Run(load);
  PrintRun(*contender, per_s, result, report);
  return result;
}

void FindKnee(Contender* contender, const ScaleOptions& options, double nominal_per_s, BenchReport* report) {
  contender->sim = std::make_unique<ClusterSim>(ClusterOf(options), TraceOf(options), contender->kind);
  contender->sim->Run({.per_s = 0.5 * nominal_per_s, .seconds = 14, .seed = 1});
  const auto holds = [&](double per_s) {
    return RunAt(contender, per_s, kKneeSeconds, *report).p99_ttft_s <= kKneeP99S;
  };
  double per_s = 0.4 * nominal_per_s;
  while (per_s < 4 * nominal_per_s && holds(per_s)) {
    contender->knee_per_s = per_s;
    per_s *= kStep;
  }
  per_s = contender->knee_per_s * 1.05;
  if (contender->knee_per_s > 0 && holds(per_s)) contender->knee_per_s = per_s;
  report->Add("policies: knee of " + NameOf(contender->kind), contender->knee_per_s, "/s");
}

void CompareAt(double share, const Contender& best, std::vector<Contender>* contenders, BenchReport* report) {
  const double per_s = share * best.knee_per_s;
  char at[48];
  std::snprintf(at, sizeof at, " at %.1f of the best baseline's knee", share);
  double least = 1e300, ours = 0;
  for (Contender& contender : *contenders) {
    const SimResult result = RunAt(&contender, per_s, 4, *report);
    const std::string name = "policies: " + NameOf(contender.kind) + at;
    report->Add(name + ": mean TTFT", result.mean_ttft_s * 1e3, "ms");
    report->Add(name + ": p99 TTFT", result.p99_ttft_s * 1e3, "ms");
    if (contender.kind == PolicyKind::kOurs) {
      ours = result.mean_ttft_s;
      report->Add(name + ": most requests at a worker / mean", result.balance, "");
    } else {
      least = std::min(least, result.mean_ttft_s);
    }
  }
  const std::string name = std::string("policies: mean TTFT of ours / least of the baselines") + at;
  if (share > 0.8) {
    report->AtMost(name, ours / least, "", 0.7);
  } else {
    report->Add(name, ours / least, "");
  }
}

void Recover(Contender* contender, double per_s, BenchReport* report) {
  constexpr double kKillS = 3;
  const SimLoad load{.per_s = per_s, .seconds = 10, .seed = 77, .kill_at_s = kKillS};
  const SimResult result = contender->sim->Run(load);
  const auto killed = static_cast<size_t>(kKillS / ClusterSim::kWindowS);
  double before = 0;
  for (size_t at = killed - 4; at < killed; ++at) before += result.window_p95_s[at] / 4;
  std::string line = "  p95 TTFT by quarters of a second, ms:";
  double most = 0;
  size_t last_bad = killed - 1;
  // The last window is of few arrivals.
  for (size_t at = killed - 2; at + 1 < result.window_p95_s.size(); ++at) {
    char text[16];
    std::snprintf(text, sizeof text, " %.0f", result.window_p95_s[at] * 1e3);
    line += text;
    most = std::max(most, result.window_p95_s[at]);
    if (at >= killed && result.window_p95_s[at] > 1.5 * before) last_bad = at;
  }
  report->Say(line);
  const std::string name = "policies: a tenth of all nodes dies under " + NameOf(contender->kind);
  report->Add(name + ": rate", per_s, "/s");
  report->Add(name + ": requests that failed over", static_cast<double>(result.failed_over), "");
  report->Add(name + ": p95 TTFT before", before * 1e3, "ms");
  report->Add(name + ": worst p95 TTFT of a quarter of a second", most * 1e3, "ms");
  report->AtMost(name + ": until p95 TTFT is within 1.5 times that of before for good",
                 static_cast<double>(last_bad + 1 - killed) * ClusterSim::kWindowS, "s", 3);
}

}  // namespace

void BenchPolicies(const ScaleOptions& options, BenchReport* report) {
  const double nominal_per_s = options.nominal_per_s * (options.quick ? 0.1 : 1);
  std::vector<Contender> contenders;
  for (const PolicyKind kind :
       {PolicyKind::kRoundRobin, PolicyKind::kLeastLoaded, PolicyKind::kPrefixHash, PolicyKind::kOurs}) {
    contenders.push_back({.kind = kind, .sim = nullptr});
    FindKnee(&contenders.back(), options, nominal_per_s, report);
  }
  Contender& ours = contenders.back();
  Contender& best =
      *std::max_element(contenders.begin(), contenders.end() - 1,
                        [](const Contender& a, const Contender& b) { return a.knee_per_s < b.knee_per_s; });
  report->AtLeast("policies: knee of ours / best knee of the baselines", ours.knee_per_s / best.knee_per_s,
                  "", 1.2);
  CompareAt(0.5, best, &contenders, report);
  CompareAt(0.9, best, &contenders, report);
  report->Say("--- past the knee: 1.2 times each one's own");
  for (Contender& contender : contenders) {
    const SimResult result = RunAt(&contender, 1.2 * contender.knee_per_s, 4, *report);
    const std::string name = "policies: " + NameOf(contender.kind) + " at 1.2 of its knee for 4 s";
    report->Add(name + ": mean queue of its workers then", result.last_queue_s * 1e3, "ms");
    report->Add(name + ": p99 TTFT", result.p99_ttft_s * 1e3, "ms");
  }
  report->Say("--- a tenth of the nodes dies");
  Recover(&best, 0.6 * best.knee_per_s, report);
  Recover(&ours, 0.6 * best.knee_per_s, report);
}

}  // namespace epic::router
