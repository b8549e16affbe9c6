// Links whose objects are still being fetched, at stated rates: the time to the first token when layers
// compute as they come, and when the link begins behind the fetch.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/storage/testing/scripted_object.h"
#include "services/engine/bench/sections.h"

namespace epic::engine_bench {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr double kMegabyte = 1e6;
// The first is a link of 2 Gbit/s.
constexpr double kRates[] = {250 * kMegabyte, 100 * kMegabyte, 1000 * kMegabyte};

// A prompt whose objects come over one path of `bytes_per_second` from the construction on: layer by layer,
// of each layer one object behind the other.
class Fetch {
 public:
  Fetch(const std::vector<PromptPiece>& whole, double bytes_per_second)
      : pieces_(whole), bytes_per_second_(bytes_per_second) {
    for (PromptPiece& piece : pieces_) {
      if (piece.object == nullptr) continue;
      objects_.push_back(std::make_shared<testing::ScriptedObject>(piece.object));
      piece.object = objects_.back();
    }
    thread_ = std::thread([this] { Bring(); });
  }
  ~Fetch() { Wait(); }
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;

  const std::vector<PromptPiece>& pieces() const { return pieces_; }
  double seconds() const {
    double bytes = 0;
    for (const auto& object : objects_) bytes += static_cast<double>(object->layout().TotalBytes());
    return bytes / bytes_per_second_;
  }
  void Wait() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Bring() {
    const auto begin = std::chrono::steady_clock::now();
    double bytes = 0;
    for (uint32_t layer = 0; layer < objects_.front()->layout().layers; ++layer) {
      for (const auto& object : objects_) {
        bytes += static_cast<double>(object->layout().LayerBytes());
        std::this_thread::sleep_until(
            begin + std::chrono::duration_cast<std::chrono::nanoseconds>(Seconds(bytes / bytes_per_second_)));
        object->Release(layer + 1);
      }
    }
  }

  std::vector<PromptPiece> pieces_;
  const double bytes_per_second_;
  std::vector<std::shared_ptr<testing::ScriptedObject>> objects_;
  std::thread thread_;
};

void TimeAtRate(BenchEngine* engine, const std::vector<PromptPiece>& pieces, double rate, int repeats,
                BenchReport* report) {
  std::vector<double> compute, fetch, overlapped, behind, waited, ratio, behind_ratio;
  for (int i = 0; i < repeats; ++i) {
    compute.push_back(engine->TimeToFirstToken(pieces, kLegoLink16).seconds);
    Fetch first(pieces, rate);
    const FirstToken token = engine->TimeToFirstToken(first.pieces(), kLegoLink16);
    overlapped.push_back(token.seconds);
    waited.push_back(static_cast<double>(token.stats.suspended_ns) * 1e-9);
    fetch.push_back(first.seconds());
    const auto begin = std::chrono::steady_clock::now();
    Fetch second(pieces, rate);
    second.Wait();
    const Seconds fetched = std::chrono::steady_clock::now() - begin;
    behind.push_back(fetched.count() + engine->TimeToFirstToken(second.pieces(), kLegoLink16).seconds);
    const double least = std::max(fetch.back(), compute.back());
    ratio.push_back(overlapped.back() / least);
    behind_ratio.push_back(behind.back() / least);
  }
  const std::string at = " at " + std::to_string(std::lround(rate / kMegabyte)) + " MB/s";
  report->Measure("fetch" + at + ", s", fetch);
  report->Measure("compute beside it, s", compute);
  report->Measure("TTFT with overlap" + at + ", s", overlapped);
  report->Measure("of it suspended, s", waited);
  report->Measure("TTFT of fetch, then compute" + at + ", s", behind);
  report->Measure("fetch, then compute / max(fetch, compute)" + at, behind_ratio);
  const std::string name = "TTFT with overlap / max(fetch, compute)" + at;
  report->Check(name, report->Measure(name, ratio), Bar::kAtMost, 1.15);
}

}  // namespace

void TimeOverlap(BenchEngine* bench, int repeats, BenchReport* report) {
  const std::vector<PromptPiece> pieces = bench->Prompt(kShapeM);
  const std::unique_ptr<BenchEngine> single = bench->WithThreads(1);
  report->Note(single->Describe());
  single->TimeToFirstToken(pieces, kLegoLink16);
  for (const double rate : kRates) TimeAtRate(single.get(), pieces, rate, repeats, report);
}

}  // namespace epic::engine_bench
