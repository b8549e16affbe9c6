// Links whose objects come over a real link from another process, in shape M with one compute thread: the
// time to the first token when layers compute as they come, beside fetching first and computing then, and
// with objects that are held in the memory of a store on this host.
//
//   epic_overlap_bench [--repeats N] [--gbit N] [--ways grpc,ucx,shm] [--json]
//
// The peer lives in a network of its own, behind a veth pair whose end there is shaped by tbf. Every ratio is
// of runs that took turns. Every byte of every object is compared before anything is timed: a wrong one is a
// non-zero exit. Exits with 77 where networks cannot be made, or the default model is not there.
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/timers.h"
#include "common/testing/paths.h"
#include "common/transport/object_fetcher.h"
#include "common/transport/shm/shm_path.h"
#include "common/transport/ucx/ucx_node.h"
#include "services/engine/bench/bench_report.h"
#include "services/engine/bench/engine_fixture.h"
#include "tests/network/testing/network.h"
#include "tests/network/testing/objects_file.h"
#include "tests/network/testing/peer.h"

namespace epic::network {
namespace {

using engine_bench::Bar;
using engine_bench::BenchEngine;
using engine_bench::BenchReport;
using engine_bench::FirstToken;
using engine_bench::kLegoLink16;
using engine_bench::OrDie;
using transport::Path;
using transport::Region;

constexpr int kSkipped = 77;
constexpr int64_t kPatienceNs = 60'000'000'000;

struct Flags {
  int repeats = 7;
  double gbit = 2;
  std::string ways = "grpc,ucx,shm";
  bool json = false;
};

int64_t NowNs() { return SystemClock::Get()->SteadyNs(); }
double SecondsSince(int64_t ns) { return static_cast<double>(NowNs() - ns) * 1e-9; }

class OverlapBench {
 public:
  OverlapBench(const Flags& flags, const std::string& model)
      : flags_(flags), report_(flags.json), whole_(model), engine_(whole_.WithThreads(1)) {
    pieces_ = whole_.Prompt(engine_bench::kShapeM);
    std::vector<std::shared_ptr<const KvObject>> objects;
    for (const PromptPiece& piece : pieces_) {
      if (piece.object != nullptr) objects.push_back(piece.object);
    }
    const std::string file = folder_.path() + "/objects";
    WriteObjects(file, objects);
    regions_ = ReadObjects(file, &twin_);
    peer_ = OrDie(Peer::Start({.objects = {"file", "1", file, ShmPath()}}));
    const std::string rate = std::to_string(std::lround(flags.gbit * 1000)) + "mbit";
    const absl::Status shaped = peer_->RunThere(std::string("tc qdisc add dev ") + Peer::kThere +
                                                " root tbf rate " + rate + " burst 256kb latency 20ms");
    if (!shaped.ok()) engine_bench::Die(shaped);
    report_.Note(engine_->Describe() + "; the link: veth, tbf " + rate);
    engine_->TimeToFirstToken(pieces_, kLegoLink16);
  }

  int Run() {
    if (Wants("grpc")) {
      const std::unique_ptr<Path> path = MakeGrpcPathTo(*peer_);
      TimeOver("grpc", path.get());
    }
    if (Wants("ucx")) {
      const auto node = OrDie(transport::UcxNode::Start({.settings = peer_->ucx_settings()}));
      const std::unique_ptr<Path> path = node->MakePath(peer_, {});
      TimeOver("ucx", path.get());
    }
    if (Wants("shm")) TimeHeld();
    return report_.Finish(engine_->Describe(), engine_->model().config().name);
  }

 private:
  using Objects = std::vector<std::shared_ptr<const KvObject>>;

  bool Wants(const std::string& way) const {
    return ("," + flags_.ways + ",").find("," + way + ",") != std::string::npos;
  }
  std::string ShmPath() const { return folder_.path() + "/shm"; }

  // Begins to fetch all objects.
  Objects Begin(Path* path) {
    Objects objects;
    for (const auto& region : regions_) {
      objects.push_back(
          OrDie(fetcher_.Get(path, region, transport::TrafficClass::kFetch, NowNs() + kPatienceNs)));
    }
    return objects;
  }
  static void WaitWhole(const Objects& objects) {
    for (const auto& object : objects) {
      const absl::Status status = object->WaitLayer(object->layout().layers - 1);
      if (!status.ok()) engine_bench::Die(status);
    }
  }
  std::vector<PromptPiece> PromptOf(const Objects& objects) const {
    std::vector<PromptPiece> pieces = pieces_;
    size_t next = 0;
    for (PromptPiece& piece : pieces) {
      if (piece.object != nullptr) piece.object = objects[next++];
    }
    return pieces;
  }
  void CheckBytes(const std::string& way, const Objects& objects) {
    bool right = true;
    for (size_t i = 0; i < objects.size(); ++i) {
      for (uint32_t layer = 0; layer < regions_[i]->layout.layers; ++layer) {
        const ByteSpan expected = twin_.Bytes(*regions_[i], layer);
        const ByteSpan there = objects[i]->Layer(layer);
        right = right && std::equal(expected.begin(), expected.end(), there.begin(), there.end());
      }
    }
    report_.Check(way + ": the bytes are right", right ? 1 : 0, Bar::kAtLeast, 1, /*required=*/true);
  }

  double Compute() { return engine_->TimeToFirstToken(pieces_, kLegoLink16).seconds; }
  double FetchOnly(Path* path) {
    const int64_t begin_ns = NowNs();
    WaitWhole(Begin(path));
    return SecondsSince(begin_ns);
  }

  void TimeOver(const std::string& way, Path* path) {
    {
      const Objects objects = Begin(path);
      WaitWhole(objects);
      CheckBytes(way, objects);
    }
    std::vector<double> compute, fetch, overlapped, behind, waited, ratio, behind_ratio;
    for (int i = 0; i < flags_.repeats; ++i) {
      compute.push_back(Compute());
      fetch.push_back(FetchOnly(path));
      int64_t begin_ns = NowNs();
      std::vector<PromptPiece> pieces = PromptOf(Begin(path));
      double before = SecondsSince(begin_ns);
      const FirstToken token = engine_->TimeToFirstToken(std::move(pieces), kLegoLink16);
      overlapped.push_back(before + token.seconds);
      waited.push_back(static_cast<double>(token.stats.suspended_ns) * 1e-9);
      begin_ns = NowNs();
      const Objects objects = Begin(path);
      WaitWhole(objects);
      before = SecondsSince(begin_ns);
      behind.push_back(before + engine_->TimeToFirstToken(PromptOf(objects), kLegoLink16).seconds);
      const double least = std::max(fetch.back(), compute.back());
      ratio.push_back(overlapped.back() / least);
      behind_ratio.push_back(behind.back() / least);
    }
    report_.Measure(way + ": fetch alone, s", fetch);
    report_.Measure(way + ": compute alone, s", compute);
    report_.Measure(way + ": TTFT with overlap, s", overlapped);
    report_.Measure(way + ": of it suspended, s", waited);
    report_.Measure(way + ": TTFT of fetch, then compute, s", behind);
    report_.Measure(way + ": fetch, then compute / max(fetch, compute)", behind_ratio);
    const std::string name = way + ": TTFT with overlap / max(fetch, compute)";
    report_.Check(name, report_.Measure(name, ratio), Bar::kAtMost, 1.15);
  }

  // Holds all objects; `check`: and reads them against their checksums.
  std::vector<std::shared_ptr<const transport::HeldRegion>> Hold(Path* path, bool check) {
    std::vector<std::shared_ptr<const transport::HeldRegion>> held;
    for (const auto& region : regions_) {
      held.push_back(OrDie(path->Hold(region, NowNs() + kPatienceNs)));
      for (uint32_t layer = 0; check && layer < region->layout.layers; ++layer) {
        if (const absl::Status status = held.back()->CheckLayer(layer); !status.ok())
          engine_bench::Die(status);
      }
    }
    return held;
  }
  static Objects ObjectsOf(const std::vector<std::shared_ptr<const transport::HeldRegion>>& held) {
    Objects objects;
    for (const auto& region : held) objects.emplace_back(region, &region->object());
    return objects;
  }
  double TimeHold(Path* path, bool check) {
    const int64_t begin_ns = NowNs();
    const auto held = Hold(path, check);
    const double before = SecondsSince(begin_ns);
    const double after = engine_->TimeToFirstToken(PromptOf(ObjectsOf(held)), kLegoLink16).seconds;
    for (const auto& region : held) {
      if (!region->StillHeld()) engine_bench::Die(transport::LeaseEndedStatus());
    }
    return before + after;
  }

  void TimeHeld() {
    TimerThread timers(SystemClock::Get());
    const auto path = transport::MakeShmPath({.store = {.path = ShmPath()}, .timers = &timers});
    CheckBytes("shm", ObjectsOf(Hold(path.get(), /*check=*/true)));
    std::vector<double> warm, held, checked, ratio, checked_ratio;
    for (int i = 0; i < flags_.repeats; ++i) {
      warm.push_back(Compute());
      held.push_back(TimeHold(path.get(), /*check=*/false));
      checked.push_back(TimeHold(path.get(), /*check=*/true));
      ratio.push_back(held.back() / warm.back());
      checked_ratio.push_back(checked.back() / warm.back());
    }
    report_.Measure("TTFT from the memory of this process, s", warm);
    report_.Measure("shm: TTFT from held memory, s", held);
    report_.Measure("shm: TTFT from held memory that is checked first, s", checked);
    const std::string name = "shm: TTFT held / in this process";
    report_.Check(name, report_.Measure(name, ratio), Bar::kAtMost, 1.1);
    const std::string checked_name = "shm: TTFT held and checked / in this process";
    report_.Check(checked_name, report_.Measure(checked_name, checked_ratio), Bar::kAtMost, 1.1);
  }

  const Flags flags_;
  BenchReport report_;
  testing::TempDir folder_;
  BenchEngine whole_;  // compiles the contexts, on all processors
  const std::unique_ptr<BenchEngine> engine_;
  std::vector<PromptPiece> pieces_;
  transport::TestSource twin_{1};
  std::vector<std::shared_ptr<const Region>> regions_;
  std::shared_ptr<Peer> peer_;
  transport::ObjectFetcher fetcher_;
};

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const bool has_value = i + 1 < argc;
    if (flag == "--json") {
      flags.json = true;
    } else if (flag == "--repeats" && has_value) {
      flags.repeats = std::max(1, std::atoi(argv[++i]));
    } else if (flag == "--gbit" && has_value) {
      flags.gbit = std::atof(argv[++i]);
    } else if (flag == "--ways" && has_value) {
      flags.ways = argv[++i];
    } else {
      std::fprintf(stderr, "usage: %s [--repeats N] [--gbit N] [--ways grpc,ucx,shm] [--json]\n", argv[0]);
      std::exit(2);
    }
  }
  return flags;
}

int Skip(std::string_view why) {
  std::fprintf(stderr, "skipped: %s\n", std::string(why).c_str());
  return kSkipped;
}

int Main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  const Flags flags = ParseFlags(argc, argv);
  const auto model = testing::DefaultModelPath();
  if (!model.has_value()) return Skip("the default model is not there: run deploy/fetch_model.sh");
  if (const absl::Status own = EnterOwnNetwork(); !own.ok()) return Skip(own.ToString());
  OverlapBench bench(flags, *model);
  return bench.Run();
}

}  // namespace
}  // namespace epic::network

int main(int argc, char** argv) { return epic::network::Main(argc, argv); }
