// What users of one context were promised, told by the changes that they began and the answers that they got;
// the same rules as those of model/records_model.h. Changes that overlap may have come in either order, and
// one that was given up may come, or not, before whatever began after it. Tests only.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_TESTING_PROMISES_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_TESTING_PROMISES_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>

namespace epic::kv_store {

class Promises {
 public:
  enum class Kind : uint8_t { kCreate, kExpiry, kDelete };
  enum class Promise : uint8_t { kAny, kLive, kDead };
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // `until_ms`: the earliest at which a context can expire by it. Returns its number.
  uint64_t Begin(Kind kind, int64_t until_ms) {
    const uint64_t begun = ++events_;
    under_way_[begun] = kind;
    const bool contradicts = (kind == Kind::kCreate && promise_ == Promise::kDead) ||
                             (kind == Kind::kDelete && promise_ == Promise::kLive);
    if (contradicts) promise_ = Promise::kAny;
    if (kind != Kind::kDelete && promise_ == Promise::kLive) {
      exact_ = false;
      until_ms_ = std::min(until_ms_, until_ms);
    }
    return begun;
  }

  // `until_ms`: the expiry that was answered.
  void Acknowledge(uint64_t begun, int64_t until_ms) {
    const Kind kind = under_way_.at(begun);
    under_way_.erase(begun);
    const bool alone = under_way_.empty();
    if (kind == Kind::kDelete) {
      const bool creates = std::any_of(under_way_.begin(), under_way_.end(),
                                       [](const auto& other) { return other.second == Kind::kCreate; });
      promise_ = !creates && unsettled_create_ < begun ? Promise::kDead : Promise::kAny;
      if (!alone) Unsettle(kind);
      return;
    }
    if (!alone || unsettled_ > begun) {
      if (promise_ == Promise::kLive || kind == Kind::kCreate) promise_ = Promise::kAny;
      Unsettle(kind);
      return;
    }
    if (kind == Kind::kExpiry && promise_ != Promise::kLive) return;
    promise_ = Promise::kLive;
    until_ms_ = until_ms;
    exact_ = true;
  }

  void GiveUp(uint64_t begun) {
    const auto given_up = under_way_.find(begun);
    if (given_up == under_way_.end()) return;
    Unsettle(given_up->second);
    under_way_.erase(given_up);
  }

  bool IsLive(int64_t now_ms) const { return promise_ == Promise::kLive && now_ms < until_ms_; }
  bool IsOver(int64_t now_ms) const {
    return promise_ == Promise::kDead || (promise_ == Promise::kLive && exact_ && now_ms >= until_ms_);
  }

 private:
  void Unsettle(Kind kind) {
    unsettled_ = ++events_;
    if (kind == Kind::kCreate) unsettled_create_ = unsettled_;
  }

  uint64_t events_ = 0;
  std::map<uint64_t, Kind> under_way_;
  Promise promise_ = Promise::kAny;
  int64_t until_ms_ = 0;
  bool exact_ = false;
  uint64_t unsettled_ = 0, unsettled_create_ = 0;  // events
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_TESTING_PROMISES_H_
