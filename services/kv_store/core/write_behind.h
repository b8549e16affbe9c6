// The background writer of objects: one thread, a queue bounded in bytes, writes in order, one at a time.
// Between writes, and at least once a period, it does the housekeeping of its owner. Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_CORE_WRITE_BEHIND_H_
#define EPIC_SERVICES_KV_STORE_CORE_WRITE_BEHIND_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "services/kv_store/core/object_table.h"

namespace epic::kv_store {

class WriteBehind {
 public:
  struct Item {
    TenantObjectKey key;
    ObjectPtr object;
    uint64_t ticket = 0;
    bool durable = false;  // the write ends with a sync
  };
  struct Options {
    uint64_t max_pending_bytes = uint64_t{256} << 20;
    int64_t period_ms = 60'000;
  };
  // Both functions run on the writer's thread only and must not call back into this class.
  WriteBehind(const Options& options, std::function<absl::Status(const Item&)> write,
              std::function<void()> housekeep);
  ~WriteBehind();
  WriteBehind(const WriteBehind&) = delete;
  WriteBehind& operator=(const WriteBehind&) = delete;

  // Blocks while the queue is full; an item larger than the bound goes in alone. After Stop the item is
  // dropped.
  void Enqueue(Item item) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for the item's own write and returns its result. Errors: Unavailable after Stop.
  absl::Status EnqueueAndWait(Item item) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for the end of one write; false at once when none is queued or running.
  bool WaitForProgress() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until every item that was queued before has been tried.
  void Drain() ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t pending() const ABSL_LOCKS_EXCLUDED(mu_);
  // Tries every queued item, then ends the thread. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Job {
    Item item;
    bool done = false;
    absl::Status result;
  };
  static uint64_t BytesOf(const Item& item) { return item.object->layout().TotalBytes(); }
  std::shared_ptr<Job> Add(Item item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  const std::function<absl::Status(const Item&)> write_;
  const std::function<void()> housekeep_;

  mutable Mutex mu_;
  CondVar changed_;
  std::deque<std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mu_);  // the first one may be running
  uint64_t pending_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t finished_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_WRITE_BEHIND_H_
