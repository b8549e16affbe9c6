#include "common/coordination/election.h"

#include <array>
#include <charconv>
#include <limits>
#include <utility>

namespace epic {
namespace {

using Phase = LeasedKeyState::Phase;

std::string Hex(uint64_t value) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return std::string(digits.data(), end.ptr);
}

}  // namespace

std::shared_ptr<Election> Election::Start(Options options) {
  std::shared_ptr<Election> election(new Election(std::move(options)));
  election->Begin();
  return election;
}

void Election::Begin() {
  const std::weak_ptr<Election> weak = weak_from_this();
  if (!options_.candidate.empty()) {
    LeasedKey::Options key{options_.coordinator, options_.timers, options_.clock, options_.lease_ms,
                           options_.retry_ms};
    key.key_of = [prefix = options_.prefix](LeaseId lease) {
      return prefix + Hex(static_cast<uint64_t>(lease));
    };
    key.may_take_over = [](const KeyValue&) { return false; };
    // Nobody else has our lease.
    key.is_ours = [candidate = options_.candidate](const std::string& value) { return value == candidate; };
    key.listener = [weak](const LeasedKeyState& state) {
      if (const auto self = weak.lock(); self != nullptr) self->OwnChanged(state);
    };
    auto started = LeasedKey::Start(std::move(key), options_.candidate);
    MutexLock lock(&mu_);
    key_ = std::move(started);
  }
  PrefixMirror::Options mirror{options_.coordinator, options_.timers,   options_.clock,
                               options_.prefix,      options_.retry_ms, options_.relist_ms};
  auto started = PrefixMirror::Start(
      mirror, {[weak](const Listing& listing, bool history_changed) {
                 const auto self = weak.lock();
                 if (self == nullptr) return;
                 self->Listed(listing);
                 self->CheckOwn(history_changed ? std::numeric_limits<Revision>::max() : listing.revision);
               },
               [weak](const WatchUpdate& update) {
                 const auto self = weak.lock();
                 if (self == nullptr) return;
                 self->Changed(update);
                 self->CheckOwn(update.revision);
               }});
  MutexLock lock(&mu_);
  mirror_ = std::move(started);
}

LeaderView Election::view() const {
  MutexLock lock(&mu_);
  return Compute();
}

void Election::Resign(std::function<void(absl::Status)> done) {
  std::shared_ptr<LeasedKey> key;
  {
    MutexLock lock(&mu_);
    key = std::exchange(key_, nullptr);
    own_ = {};
  }
  Publish();
  if (key == nullptr) return done(absl::OkStatus());
  key->Leave(std::move(done));
}

void Election::Stop() {
  std::shared_ptr<LeasedKey> key;
  std::shared_ptr<PrefixMirror> mirror;
  {
    MutexLock lock(&mu_);
    stopped_ = true;
    key = std::exchange(key_, nullptr);
    mirror = std::exchange(mirror_, nullptr);
    own_ = {};
  }
  if (key != nullptr) key->Stop();
  if (mirror != nullptr) mirror->Stop();
}

void Election::Listed(const Listing& listing) {
  {
    MutexLock lock(&mu_);
    candidates_.clear();
    for (const KeyValue& item : listing.items) candidates_[item.key] = item;
  }
  Publish();
}

void Election::Changed(const WatchUpdate& update) {
  {
    MutexLock lock(&mu_);
    for (const KeyChange& change : update.changes) {
      if (change.is_put) {
        candidates_[change.item.key] = change.item;
      } else {
        candidates_.erase(change.item.key);
      }
    }
  }
  Publish();
}

void Election::CheckOwn(Revision revision) {
  std::shared_ptr<LeasedKey> key;
  std::optional<KeyValue> item;
  {
    MutexLock lock(&mu_);
    key = key_;
    if (const auto found = candidates_.find(own_.key); found != candidates_.end()) item = found->second;
  }
  if (key != nullptr) key->Seen(item, revision);
}

void Election::OwnChanged(const LeasedKeyState& state) {
  {
    MutexLock lock(&mu_);
    if (key_ == nullptr && state.phase == Phase::kLeft) return;
    own_ = state;
  }
  Publish();
}

LeaderView Election::Compute() const {
  const KeyValue* first = nullptr;
  for (const auto& [key, item] : candidates_) {
    if (first == nullptr || item.created < first->created) first = &item;
  }
  if (first == nullptr) return {};
  LeaderView view{first->value, first->created, false, first->key};
  view.leading =
      !stopped_ && own_.phase == Phase::kHeld && own_.key == first->key && own_.created == first->created;
  return view;
}

void Election::Publish() {
  {
    MutexLock lock(&mu_);
    if (telling_) return;
    telling_ = true;
  }
  while (true) {
    LeaderView view;
    {
      MutexLock lock(&mu_);
      view = Compute();
      if (stopped_ || view == told_) {
        telling_ = false;
        return;
      }
      told_ = view;
    }
    if (options_.listener != nullptr) options_.listener(view);
  }
}

}  // namespace epic
