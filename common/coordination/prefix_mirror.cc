#include "common/coordination/prefix_mirror.h"

#include <utility>

namespace epic {

PrefixMirror::PrefixMirror(Options options, Listeners listeners)
    : options_(std::move(options)), listeners_(std::move(listeners)) {}

std::shared_ptr<PrefixMirror> PrefixMirror::Start(Options options, Listeners listeners) {
  std::shared_ptr<PrefixMirror> mirror(new PrefixMirror(std::move(options), std::move(listeners)));
  mirror->List();
  return mirror;
}

void PrefixMirror::Stop() {
  WatchId watch = 0;
  TimerId timer = 0;
  {
    MutexLock lock(&mu_);
    stopped_ = true;
    watch = std::exchange(watch_, 0);
    timer = std::exchange(timer_, 0);
  }
  if (watch != 0) options_.coordinator->Unwatch(watch);
  if (timer != 0) options_.timers->Cancel(timer);
}

void PrefixMirror::List() {
  {
    MutexLock lock(&mu_);
    if (stopped_ || std::exchange(listing_, true)) return;
  }
  options_.coordinator->List(KeyRange::Prefix(options_.prefix), 0,
                             [weak = weak_from_this()](const absl::StatusOr<Listing>& listing) {
                               if (const auto self = weak.lock(); self != nullptr) self->Listed(listing);
                             });
}

void PrefixMirror::Listed(const absl::StatusOr<Listing>& listing) {
  const uint64_t histories_lost = options_.coordinator->health().histories_lost;
  bool history_changed = false;
  bool is_old = false;
  WatchId ended = 0;
  {
    MutexLock lock(&mu_);
    listing_ = false;
    if (stopped_) return;
    if (histories_lost != histories_lost_) history_changed_ = true;
    histories_lost_ = histories_lost;
    if (listing.ok()) {
      history_changed = std::exchange(history_changed_, false);
      is_old = !history_changed && listing->revision < told_;  // the watch was faster
      if (!is_old) {
        told_ = listing->revision;
        ended = std::exchange(watch_, 0);
        ++round_;
      }
    }
  }
  if (!listing.ok()) return ListIn(options_.retry_ms);
  if (!is_old) {
    if (ended != 0) options_.coordinator->Unwatch(ended);
    listeners_.listed(*listing, history_changed);
    Watch(listing->revision + 1);
  }
  ListIn(options_.relist_ms);
}

void PrefixMirror::Watch(Revision from) {
  uint64_t round = 0;
  {
    MutexLock lock(&mu_);
    if (stopped_) return;
    round = round_;
  }
  const absl::StatusOr<WatchId> watch = options_.coordinator->Watch(
      KeyRange::Prefix(options_.prefix), from, [weak = weak_from_this(), round](const WatchUpdate& update) {
        if (const auto self = weak.lock(); self != nullptr) self->Updated(round, update);
      });
  if (!watch.ok()) return ListIn(options_.retry_ms);
  bool stopped = false;
  {
    MutexLock lock(&mu_);
    stopped = stopped_ || round != round_;
    if (!stopped) watch_ = *watch;
  }
  if (stopped) options_.coordinator->Unwatch(*watch);
}

void PrefixMirror::Updated(uint64_t round, const WatchUpdate& update) {
  {
    MutexLock lock(&mu_);
    if (stopped_ || round != round_) return;
    if (update.list_again()) {
      watch_ = 0;
      ++round_;
      if (update.kind == WatchUpdate::Kind::kHistoryChanged) history_changed_ = true;
    } else {
      told_ = update.revision;
    }
  }
  if (!update.list_again()) return listeners_.changed(update);
  // A refused one is not to be asked for at once again and again.
  if (update.kind == WatchUpdate::Kind::kRefused) return ListIn(options_.retry_ms);
  List();
}

void PrefixMirror::TimeToList() {
  {
    MutexLock lock(&mu_);
    timer_ = 0;
    timer_ns_ = 0;
  }
  List();  // one that is under way sets the next timer when it ends
}

void PrefixMirror::ListIn(int64_t ms) {
  TimerId dropped = 0;
  {
    MutexLock lock(&mu_);
    const int64_t due_ns = options_.clock->SteadyNs() + ms * 1'000'000;
    if (stopped_ || (timer_ns_ != 0 && timer_ns_ <= due_ns)) return;
    dropped = timer_;
    timer_ns_ = due_ns;
    timer_ = options_.timers->At(due_ns, [weak = weak_from_this()] {
      if (const auto self = weak.lock(); self != nullptr) self->TimeToList();
    });
  }
  if (dropped != 0) options_.timers->Cancel(dropped);
}

}  // namespace epic
