// Cancellation of one request. The owner holds a CancelSource; every part that works for the request holds a
// CancelToken and asks it between steps. Thread-safe; setting is one-way.
#ifndef EPIC_COMMON_BASE_CANCEL_H_
#define EPIC_COMMON_BASE_CANCEL_H_

#include <atomic>
#include <memory>

namespace epic {

class CancelToken {
 public:
  // A token that is never cancelled.
  CancelToken() = default;
  bool cancelled() const { return flag_ != nullptr && flag_->load(std::memory_order_acquire); }

 private:
  friend class CancelSource;
  explicit CancelToken(std::shared_ptr<const std::atomic<bool>> flag) : flag_(std::move(flag)) {}
  std::shared_ptr<const std::atomic<bool>> flag_;
};

class CancelSource {
 public:
  CancelSource() : flag_(std::make_shared<std::atomic<bool>>(false)) {}
  void Cancel() { flag_->store(true, std::memory_order_release); }
  CancelToken token() const { return CancelToken(flag_); }

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

}  // namespace epic

#endif  // EPIC_COMMON_BASE_CANCEL_H_
