#include "services/kv_store/core/scrubber.h"

#include <algorithm>
#include <utility>

namespace epic::kv_store {

Scrubber::Scrubber(const Options& options, std::function<void(const ScrubPace&)> pass)
    : options_(options), pass_(std::move(pass)) {
  if (options_.bytes_per_s > 0) thread_ = std::thread([this] { Run(); });
}

Scrubber::~Scrubber() { Stop(); }

void Scrubber::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    stopped_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

int64_t Scrubber::WaitMs(uint64_t bytes, uint64_t bytes_per_s) {
  if (bytes_per_s == 0) return 0;
  const double ms = static_cast<double>(bytes) * 1000.0 / static_cast<double>(bytes_per_s);
  return static_cast<int64_t>(std::min(ms, 3'600'000.0)) + 1;
}

bool Scrubber::Wait(int64_t ms) {
  MutexLock lock(&mu_);
  bool in_time = true;
  while (!stopping_ && in_time) in_time = stopped_.WaitForMs(&mu_, ms);
  return !stopping_;
}

void Scrubber::Run() {
  while (Wait(options_.period_ms)) {
    pass_([this](uint64_t bytes) { return Wait(WaitMs(bytes, options_.bytes_per_s)); });
    if (options_.once) return;
  }
}

}  // namespace epic::kv_store
