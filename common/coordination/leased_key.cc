#include "common/coordination/leased_key.h"

#include <string_view>
#include <utility>

namespace epic {
namespace {

using Phase = LeasedKeyState::Phase;

constexpr size_t kToTell = 16;

std::string TextOf(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

}  // namespace

LeasedKey::LeasedKey(Options options, std::string value)
    : options_(std::move(options)), value_(std::move(value)) {}

std::shared_ptr<LeasedKey> LeasedKey::Start(Options options, std::string value) {
  std::shared_ptr<LeasedKey> key(new LeasedKey(std::move(options), std::move(value)));
  key->Step();
  return key;
}

void LeasedKey::SetValue(std::string value) {
  {
    MutexLock lock(&mu_);
    if (value == value_) return;
    value_ = std::move(value);
    ++version_;
  }
  Step();
}

void LeasedKey::Seen(const std::optional<KeyValue>& item, Revision revision) {
  {
    MutexLock lock(&mu_);
    if (Ended() || busy_ || state_.lease == 0 || written_version_ != version_) return;
    if (revision <= state_.modified) return;
    if (item.has_value() && item->value == value_ && item->lease == state_.lease) return;
    expected_.reset();
    written_version_ = 0;
    state_.phase = Phase::kWriting;
    state_.fault = "the key was not what it should be";
    Note();
  }
  Publish();
  Step();
}

LeasedKeyState LeasedKey::state() const {
  MutexLock lock(&mu_);
  return state_;
}

void LeasedKey::Leave(std::function<void(absl::Status)> done) {
  LeaseId lease = 0;
  {
    MutexLock lock(&mu_);
    if (!Ended()) {
      lease = std::exchange(state_.lease, 0);
      state_.phase = Phase::kLeft;
      Note();
    }
  }
  Publish();
  if (lease == 0) return done(absl::OkStatus());
  options_.coordinator->RevokeLease(lease, std::move(done));
}

void LeasedKey::Stop() {
  LeaseId lease = 0;
  {
    MutexLock lock(&mu_);
    stopped_ = true;
    to_tell_.clear();
    lease = std::exchange(state_.lease, 0);
  }
  if (lease != 0) options_.coordinator->AbandonLease(lease);
}

void LeasedKey::Step() {
  bool take_lease = false;
  {
    MutexLock lock(&mu_);
    if (Ended() || busy_) return;
    take_lease = state_.lease == 0;
    if (!take_lease && written_version_ == version_) return;
    busy_ = true;
  }
  if (take_lease) {
    TakeLease();
  } else {
    Write();
  }
}

void LeasedKey::TakeLease() {
  uint64_t round = 0;
  {
    MutexLock lock(&mu_);
    round = ++lease_round_;
  }
  options_.coordinator->GrantLease(
      options_.lease_ms,
      [weak = weak_from_this(), round](LeaseState state) {
        if (const auto self = weak.lock(); self != nullptr) self->LeaseChanged(state, round);
      },
      [weak = weak_from_this(), coordinator = options_.coordinator](const absl::StatusOr<Lease>& lease) {
        if (const auto self = weak.lock(); self != nullptr) return self->Granted(lease);
        if (lease.ok()) coordinator->AbandonLease(lease->id);
      });
}

void LeasedKey::Granted(const absl::StatusOr<Lease>& lease) {
  bool ended = false;
  {
    MutexLock lock(&mu_);
    busy_ = false;
    ended = Ended();
    if (!ended && lease.ok()) {
      state_.lease = lease->id;
      written_version_ = 0;
      uncertain_ = false;
    } else if (!ended) {
      state_.fault = TextOf(lease.status());
      Note();
    }
  }
  Publish();
  if (ended) {
    if (lease.ok()) options_.coordinator->RevokeLease(lease->id, [](const absl::Status&) {});
  } else if (lease.ok()) {
    Step();
  } else {
    RetryLater();
  }
}

void LeasedKey::LeaseChanged(LeaseState state, uint64_t round) {
  {
    MutexLock lock(&mu_);
    if (Ended() || round != lease_round_) return;
    if (state == LeaseState::kLost) {
      LoseLease();
    } else {
      uncertain_ = state == LeaseState::kUncertain;
      const bool is_there = state_.phase == Phase::kHeld || state_.phase == Phase::kUncertain;
      if (is_there) state_.phase = uncertain_ ? Phase::kUncertain : Phase::kHeld;
    }
    Note();
  }
  Publish();
  Step();
}

void LeasedKey::Write() {
  Transaction transaction;
  LeaseId lease = 0;
  uint64_t version = 0;
  {
    MutexLock lock(&mu_);
    lease = state_.lease;
    version = version_;
    const std::string key = options_.key_of(lease);
    transaction.guards.push_back(expected_.has_value() ? Guard::ModifiedAt(key, expected_->modified)
                                                       : Guard::Absent(key));
    transaction.changes.push_back(Change::Put(key, value_, lease));
  }
  options_.coordinator->Commit(std::move(transaction), [weak = weak_from_this(), lease, version](
                                                           const absl::StatusOr<TransactionResult>& result) {
    if (const auto self = weak.lock(); self != nullptr) self->Written(lease, version, result);
  });
}

void LeasedKey::Written(LeaseId lease, uint64_t version, const absl::StatusOr<TransactionResult>& result) {
  bool retry = false;
  LeaseId useless = 0;
  {
    MutexLock lock(&mu_);
    busy_ = false;
    if (Ended()) return;
    if (!result.ok()) {
      expected_.reset();  // whether it was applied shows at the next attempt
      retry = true;
      state_.fault = TextOf(result.status());
      if (absl::IsAborted(result.status()) && lease == state_.lease) {
        useless = lease;
        LoseLease();
      }
    } else if (!result->applied) {
      if (!Learn(*result)) {
        useless = std::exchange(state_.lease, 0);
        state_.phase = Phase::kGaveUp;
      }
    } else if (lease == state_.lease) {
      KeyValue written;
      written.created = expected_.has_value() ? expected_->created : result->revision;
      written.modified = result->revision;
      state_.key = options_.key_of(lease);
      state_.created = written.created;
      state_.modified = written.modified;
      state_.phase = uncertain_ ? Phase::kUncertain : Phase::kHeld;
      state_.fault.clear();
      expected_ = std::move(written);
      written_version_ = version;
    } else {
      expected_.reset();
    }
    Note();
  }
  Publish();
  if (useless != 0) options_.coordinator->RevokeLease(useless, [](const absl::Status&) {});
  if (retry) {
    RetryLater();
  } else {
    Step();
  }
}

bool LeasedKey::Learn(const TransactionResult& result) {
  expected_ = result.found.empty() ? std::nullopt : result.found[0];
  if (!expected_.has_value() || options_.is_ours(expected_->value) || options_.may_take_over(*expected_)) {
    return true;
  }
  state_.fault = "the key is held by another process";
  return false;
}

void LeasedKey::LoseLease() {
  ++lease_round_;
  state_.lease = 0;
  state_.phase = Phase::kWriting;
  written_version_ = 0;
  expected_.reset();
  uncertain_ = false;
}

void LeasedKey::RetryLater() {
  options_.timers->At(options_.clock->SteadyNs() + options_.retry_ms * 1'000'000, [weak = weak_from_this()] {
    if (const auto self = weak.lock(); self != nullptr) self->Step();
  });
}

void LeasedKey::Note() {
  if (stopped_ || (!to_tell_.empty() && to_tell_.back() == state_)) return;
  if (to_tell_.size() >= kToTell) to_tell_.pop_front();
  to_tell_.push_back(state_);
}

void LeasedKey::Publish() {
  {
    MutexLock lock(&mu_);
    if (telling_) return;
    telling_ = true;
  }
  while (true) {
    LeasedKeyState next;
    {
      MutexLock lock(&mu_);
      if (stopped_ || to_tell_.empty()) {
        telling_ = false;
        return;
      }
      next = std::move(to_tell_.front());
      to_tell_.pop_front();
    }
    options_.listener(next);
  }
}

}  // namespace epic
