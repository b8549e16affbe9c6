// IoEngine on a few threads of its own that call pread and pwrite: for kernels without io_uring. Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_EXTENTS_THREAD_ENGINE_H_
#define EPIC_SERVICES_KV_STORE_EXTENTS_THREAD_ENGINE_H_

#include <deque>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "services/kv_store/extents/io_engine.h"

namespace epic::kv_store {

class ThreadEngine final : public IoEngine {
 public:
  // REQUIRES: threads > 0.
  explicit ThreadEngine(size_t threads);
  ~ThreadEngine() override;

  std::string_view name() const override { return "threads"; }
  void Run(IoKind kind, std::span<const EnginePiece> pieces, const IoDone& done) override;

 private:
  struct Ended {
    size_t piece = 0;
    int64_t result = 0;  // bytes, or an errno below 0
  };
  // One Run(): lives on its caller's stack until nothing of it is in flight.
  struct Call {
    IoKind kind;
    std::span<const EnginePiece> pieces;
    std::vector<Ended> ended;
  };
  struct Task {
    Call* call = nullptr;
    size_t piece = 0;
  };
  void Work() ABSL_LOCKS_EXCLUDED(mu_);

  Mutex mu_;
  CondVar work_;
  CondVar ended_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mu_);  // at most kIoWindow of each call
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_EXTENTS_THREAD_ENGINE_H_
