#include "common/coordination/member_board.h"

#include <utility>
#include <vector>

namespace epic {

MemberViewPtr MemberBoard::view() const {
  MutexLock lock(&mu_);
  return view_;
}

void MemberBoard::Update(const std::function<void(MemberTable*)>& change) {
  {
    MutexLock lock(&mu_);
    change(&table_);
    view_ = table_.view();
  }
  Publish();
}

uint64_t MemberBoard::AddListener(Membership::Listener listener) {
  MutexLock lock(&mu_);
  listeners_[next_listener_] = std::move(listener);
  return next_listener_++;
}

void MemberBoard::RemoveListener(uint64_t id) {
  Membership::Listener dropped;  // destroyed outside the lock
  MutexLock lock(&mu_);
  const auto found = listeners_.find(id);
  if (found == listeners_.end()) return;
  dropped = std::move(found->second);
  listeners_.erase(found);
}

void MemberBoard::Stop() {
  MutexLock lock(&mu_);
  stopped_ = true;
}

void MemberBoard::Publish() {
  {
    MutexLock lock(&mu_);
    if (telling_) return;
    telling_ = true;
  }
  while (true) {
    MemberViewPtr view;
    std::vector<uint64_t> ids;
    {
      MutexLock lock(&mu_);
      if (stopped_ || told_ == view_) {
        telling_ = false;
        return;
      }
      view = told_ = view_;
      for (const auto& [id, listener] : listeners_) ids.push_back(id);
    }
    for (const uint64_t id : ids) {
      Membership::Listener listener;
      {
        MutexLock lock(&mu_);
        const auto found = listeners_.find(id);
        if (found != listeners_.end() && !stopped_) listener = found->second;
      }
      if (listener != nullptr) listener(view);
    }
  }
}

}  // namespace epic
