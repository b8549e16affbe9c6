// A path that does what a test says, when it says so: fetches are noted, and the test ends their ranges on
// its own thread. Probes get the answer that is set. Thread-safe. Tests only.
#ifndef EPIC_COMMON_TRANSPORT_TESTING_SCRIPTED_PATH_H_
#define EPIC_COMMON_TRANSPORT_TESTING_SCRIPTED_PATH_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/transport/range_check.h"
#include "common/transport/testing/patience.h"
#include "common/transport/testing/test_source.h"
#include "common/transport/transport.h"

namespace epic::transport {

class ScriptedPath final : public Path {
 public:
  explicit ScriptedPath(Capabilities capabilities) : capabilities_(capabilities) {}
  ~ScriptedPath() override { Stop(); }

  Capabilities capabilities() const override { return capabilities_; }
  FetchId Fetch(FetchRequest request, std::shared_ptr<FetchListener> listener) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    Noted& fetch = fetches_.emplace_back();
    fetch.ended.resize(request.ranges.size());
    fetch.request = std::move(request);
    fetch.listener = std::move(listener);
    changed_.SignalAll();
    return fetches_.size();
  }
  void Cancel(FetchId id) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (id == 0 || id > fetches_.size()) return;
    fetches_[id - 1].cancelled = true;
    changed_.SignalAll();
  }
  void Probe(int64_t, std::function<void(const absl::Status&)> done) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    probes_.push_back(std::move(done));
    changed_.SignalAll();
  }
  void Stop() override ABSL_LOCKS_EXCLUDED(mu_) {
    for (size_t n = 0; n < fetches(); ++n) EndAll(n, CancelledStatus());
    while (AnswerProbe(PathDownStatus("stopped"))) {
    }
  }

  // --- what was asked

  size_t fetches() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return fetches_.size();
  }
  FetchRequest request(size_t n) const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return fetches_.at(n).request;
  }
  // False when it does not come true within 20 s.
  bool WaitForFetches(size_t count) const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    Patience patience;
    while (fetches_.size() < count && patience.Wait(&mu_, &changed_)) {
    }
    return fetches_.size() >= count;
  }
  bool WaitForCancel(size_t n) const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    Patience patience;
    while (!fetches_.at(n).cancelled && patience.Wait(&mu_, &changed_)) {
    }
    return fetches_.at(n).cancelled;
  }
  // Probes that were not answered yet.
  bool WaitForProbes(size_t count) const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    Patience patience;
    while (probes_.size() < count && patience.Wait(&mu_, &changed_)) {
    }
    return probes_.size() >= count;
  }
  size_t probes() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return probes_.size();
  }

  // --- what happens; n: of the fetch, from 0 on. Ranges and fetches that are over are passed over.

  // Brings a range's bytes out of `source`, as they should be.
  void Bring(size_t n, size_t range, const TestSource& source) {
    const FetchRequest request = this->request(n);
    const FetchRange& asked = request.ranges.at(range);
    const KvLayout& layout = request.region->layout;
    const ByteSpan slab = source.Bytes(*request.region, asked.layer);
    std::vector<uint32_t> crcs(BlocksPerLayer(layout));
    ComputeBlockCrcs(layout, slab, crcs);
    RangeCheck check(*request.region, asked, crcs);
    EPIC_CHECK(check.Copy(slab.subspan(asked.offset, asked.to.size())).ok());
    End(n, range, absl::OkStatus(), check.block_crcs());
  }
  void End(size_t n, size_t range, const absl::Status& status, std::span<const uint32_t> crcs = {})
      ABSL_LOCKS_EXCLUDED(mu_) {
    std::shared_ptr<FetchListener> listener;
    {
      MutexLock lock(&mu_);
      Noted& fetch = fetches_.at(n);
      if (fetch.over || fetch.ended.at(range)) return;
      fetch.ended[range] = true;
      listener = fetch.listener;
    }
    listener->OnRange(range, status, crcs);
  }
  // REQUIRES: every range has ended.
  void Done(size_t n, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    std::shared_ptr<FetchListener> listener;
    {
      MutexLock lock(&mu_);
      Noted& fetch = fetches_.at(n);
      if (fetch.over) return;
      EPIC_CHECK(std::all_of(fetch.ended.begin(), fetch.ended.end(), [](bool ended) { return ended; }));
      fetch.over = true;
      listener = std::exchange(fetch.listener, nullptr);
    }
    listener->OnDone(status);
  }
  void EndAll(size_t n, const absl::Status& status) {
    const size_t ranges = request(n).ranges.size();
    for (size_t range = 0; range < ranges; ++range) End(n, range, status);
    Done(n, status);
  }
  void BringAll(size_t n, const TestSource& source) {
    const size_t ranges = request(n).ranges.size();
    for (size_t range = 0; range < ranges; ++range) Bring(n, range, source);
    Done(n, absl::OkStatus());
  }
  // The oldest; false when there is none.
  bool AnswerProbe(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    std::function<void(const absl::Status&)> done;
    {
      MutexLock lock(&mu_);
      if (probes_.empty()) return false;
      done = std::move(probes_.front());
      probes_.erase(probes_.begin());
    }
    done(status);
    return true;
  }

 private:
  struct Noted {
    FetchRequest request;
    std::shared_ptr<FetchListener> listener;
    std::vector<bool> ended;
    bool over = false;
    bool cancelled = false;
  };

  const Capabilities capabilities_;
  mutable Mutex mu_;
  mutable CondVar changed_;
  std::vector<Noted> fetches_ ABSL_GUARDED_BY(mu_);
  std::vector<std::function<void(const absl::Status&)>> probes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_TESTING_SCRIPTED_PATH_H_
