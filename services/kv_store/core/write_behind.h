// The background writer of objects: one thread, a queue bounded in bytes, writes in order, one at a time.
// Between writes, and at least once a period, it does the housekeeping of its owner. Where the disk is too
// slow for who waits, an item is not written: its object is left to memory. Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_CORE_WRITE_BEHIND_H_
#define EPIC_SERVICES_KV_STORE_CORE_WRITE_BEHIND_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "services/kv_store/core/disk_calls.h"
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
    // For how long callers wait here for the disk, beyond what the bytes need; 0: as long as it takes.
    int64_t wait_ms = 0;
  };
  // Both functions run on the writer's thread only and must not call back into this class.
  WriteBehind(const Options& options, std::function<absl::Status(const Item&)> write,
              std::function<void()> housekeep);
  ~WriteBehind();
  WriteBehind(const WriteBehind&) = delete;
  WriteBehind& operator=(const WriteBehind&) = delete;

  // Waits while the queue is full, if it `may_wait`; an item larger than the bound goes in alone. After Stop,
  // and where there is no room in time, the item is dropped.
  void Enqueue(Item item, bool may_wait = true) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for the item's own write and returns its result. Errors: Unavailable after Stop; DeadlineExceeded
  // when it took too long: it may be written later.
  absl::Status EnqueueAndWait(Item item) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for the end of one write; false at once when none is queued or running, and when it took too long.
  bool WaitForProgress() ABSL_LOCKS_EXCLUDED(mu_);
  // Drops queued items that nobody waits for, the first ones, until `bytes` of objects are let go. False:
  // none.
  bool GiveUp(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until every item that was queued before has been tried, or dropped.
  void Drain() ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t pending() const ABSL_LOCKS_EXCLUDED(mu_);
  // Items that were dropped for the slowness of the disk.
  uint64_t dropped() const ABSL_LOCKS_EXCLUDED(mu_);
  // Tries every queued item, drops those to which the disk does not come in time, then ends the thread. A
  // write that was begun is waited for. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Job {
    Item item;           // the writer's alone while it is running
    uint64_t place = 0;  // in the order of coming
    uint64_t bytes = 0;
    bool running = false;
    bool waited_for = false;
    bool done = false;
    absl::Status result;
  };
  static uint64_t BytesOf(const Item& item) { return item.object->layout().TotalBytes(); }
  // nullptr: stopping, or no room in time.
  std::shared_ptr<Job> Add(Item item, bool may_wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes the first items out of the queue, but what is being written, and unless `waited_for_too` what
  // somebody waits for. Returns their objects, at least `bytes` where there are so many.
  std::vector<ObjectPtr> Drop(uint64_t bytes, bool waited_for_too) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // With a write of `bytes`, for which it is patient enough.
  Patience PatienceFor(uint64_t bytes) const;
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  const std::function<absl::Status(const Item&)> write_;
  const std::function<void()> housekeep_;

  mutable Mutex mu_;
  CondVar changed_;
  std::deque<std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mu_);  // the first one may be running
  uint64_t pending_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t added_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t finished_ ABSL_GUARDED_BY(mu_) = 0;  // dropped ones included, so not in the order of coming
  uint64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  Patience until_drop_ ABSL_GUARDED_BY(mu_){0};  // once it is stopping
  std::thread thread_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_WRITE_BEHIND_H_
