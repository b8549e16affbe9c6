// A MemberTable under a lock, and those who hear of its views. Owned by a Membership. Thread-safe; listeners
// as membership.h says.
#ifndef EPIC_COMMON_COORDINATION_MEMBER_BOARD_H_
#define EPIC_COMMON_COORDINATION_MEMBER_BOARD_H_

#include <cstdint>
#include <functional>
#include <map>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/coordination/member_table.h"
#include "common/coordination/membership.h"

namespace epic {

class MemberBoard {
 public:
  explicit MemberBoard(const MemberTable::Options& options)
      : table_(options), view_(table_.view()), told_(view_) {}

  MemberViewPtr view() const ABSL_LOCKS_EXCLUDED(mu_);
  // Changes the table, and tells what came of it. `change` calls nobody.
  void Update(const std::function<void(MemberTable*)>& change) ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t AddListener(Membership::Listener listener) ABSL_LOCKS_EXCLUDED(mu_);
  void RemoveListener(uint64_t id) ABSL_LOCKS_EXCLUDED(mu_);
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Publish() ABSL_LOCKS_EXCLUDED(mu_);

  mutable Mutex mu_;
  MemberTable table_ ABSL_GUARDED_BY(mu_);
  MemberViewPtr view_ ABSL_GUARDED_BY(mu_);
  MemberViewPtr told_ ABSL_GUARDED_BY(mu_);
  bool telling_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::map<uint64_t, Membership::Listener> listeners_ ABSL_GUARDED_BY(mu_);
  uint64_t next_listener_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace epic

#endif  // EPIC_COMMON_COORDINATION_MEMBER_BOARD_H_
