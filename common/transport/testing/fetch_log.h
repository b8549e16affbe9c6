// A listener for tests: notes what it hears, complains when a path breaks the rules of FetchListener, and
// waits, at most 20 s. Thread-safe. Tests only.
#ifndef EPIC_COMMON_TRANSPORT_TESTING_FETCH_LOG_H_
#define EPIC_COMMON_TRANSPORT_TESTING_FETCH_LOG_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/transport/testing/patience.h"
#include "common/transport/transport.h"

namespace epic::transport {

class FetchLog final : public FetchListener {
 public:
  // `on_range`: called after each OnRange was noted, on the path's thread.
  explicit FetchLog(size_t ranges, std::function<void(size_t)> on_range = {})
      : on_range_(std::move(on_range)), ranges_(ranges), crcs_(ranges) {}

  void OnRange(size_t range, const absl::Status& status, std::span<const uint32_t> block_crcs) override {
    {
      MutexLock lock(&mu_);
      EXPECT_FALSE(done_.has_value()) << "a range after the end";
      ASSERT_LT(range, ranges_.size());
      EXPECT_FALSE(ranges_[range].has_value()) << "range " << range << " ended twice";
      EXPECT_TRUE(status.ok() || block_crcs.empty());
      ranges_[range] = status;
      crcs_[range].assign(block_crcs.begin(), block_crcs.end());
      ++ended_;
      changed_.SignalAll();
    }
    if (on_range_) on_range_(range);
  }
  void OnDone(const absl::Status& status) override {
    MutexLock lock(&mu_);
    EXPECT_FALSE(done_.has_value()) << "two ends";
    EXPECT_EQ(ended_, ranges_.size()) << "the end before the end of each range";
    for (const auto& range : ranges_) EXPECT_TRUE(!status.ok() || (range.has_value() && range->ok()));
    done_ = status;
    changed_.SignalAll();
  }

  // The status of the end; Internal and a failure of the test when there is none.
  absl::Status WaitDone() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    Patience patience;
    while (!done_.has_value() && patience.Wait(&mu_, &changed_)) {
    }
    if (done_.has_value()) return *done_;
    ADD_FAILURE() << "the fetch did not end; " << ended_ << " of " << ranges_.size() << " ranges did";
    return absl::InternalError("the fetch did not end");
  }
  absl::Status WaitRange(size_t range) const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    Patience patience;
    while (!ranges_[range].has_value() && patience.Wait(&mu_, &changed_)) {
    }
    if (ranges_[range].has_value()) return *ranges_[range];
    ADD_FAILURE() << "range " << range << " did not end";
    return absl::InternalError("the range did not end");
  }

  bool done() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return done_.has_value();
  }
  size_t ended() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return ended_;
  }
  // REQUIRES: it ended.
  absl::Status range(size_t index) const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return ranges_[index].value();
  }
  std::vector<uint32_t> crcs(size_t index) const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return crcs_[index];
  }

 private:
  const std::function<void(size_t)> on_range_;
  mutable Mutex mu_;
  mutable CondVar changed_;
  std::vector<std::optional<absl::Status>> ranges_ ABSL_GUARDED_BY(mu_);
  std::vector<std::vector<uint32_t>> crcs_ ABSL_GUARDED_BY(mu_);
  size_t ended_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<absl::Status> done_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_TESTING_FETCH_LOG_H_
