#include "common/coordination/cluster_membership.h"

#include <limits>
#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic {
namespace {

using Phase = LeasedKeyState::Phase;

// Beyond a lease, until a node that was reported down and still keeps its lease is tried again.
constexpr int64_t kSuspectMarginMs = 1'000;

}  // namespace

ClusterMembership::ClusterMembership(Options options)
    : options_(std::move(options)),
      prefix_(options_.settings.prefix + "members/"),
      started_ns_(options_.clock->SteadyNs()),
      board_(
          {.prefix = prefix_, .grace_ms = options_.settings.grace_ms, .suspect_margin_ms = kSuspectMarginMs}),
      self_(options_.self) {}

absl::StatusOr<std::shared_ptr<ClusterMembership>> ClusterMembership::Start(Options options) {
  if (options.self.has_value()) {
    options.self->lease_ms = options.settings.lease_ms;
    EPIC_RETURN_IF_ERROR(ValidateNode(*options.self));
  }
  std::shared_ptr<ClusterMembership> membership(new ClusterMembership(std::move(options)));
  membership->Begin();
  return membership;
}

void ClusterMembership::Begin() {
  if (options_.self.has_value()) Register();
  const std::weak_ptr<ClusterMembership> weak = weak_from_this();
  PrefixMirror::Options mirror{options_.coordinator, options_.timers,   options_.clock, prefix_,
                               options_.retry_ms,    options_.relist_ms};
  auto started = PrefixMirror::Start(mirror, {[weak](const Listing& listing, bool history_changed) {
                                                if (const auto self = weak.lock(); self != nullptr)
                                                  self->Listed(listing, history_changed);
                                              },
                                              [weak](const WatchUpdate& update) {
                                                if (const auto self = weak.lock(); self != nullptr)
                                                  self->Changed(update);
                                              }});
  {
    MutexLock lock(&mu_);
    mirror_ = std::move(started);
  }
  TickLater();
}

void ClusterMembership::Register() {
  const NodeInfo& self = *options_.self;
  LeasedKey::Options key{options_.coordinator, options_.timers, options_.clock, options_.settings.lease_ms,
                         options_.retry_ms};
  key.key_of = [own = OwnKey()](LeaseId) { return own; };
  key.is_ours = [incarnation = self.incarnation](const std::string& value) {
    const auto node = DecodeMember(value);
    return node.ok() && node->incarnation == incarnation;
  };
  key.may_take_over = [incarnation = self.incarnation](const KeyValue& item) {
    const auto node = DecodeMember(item.value);
    return !node.ok() || node->incarnation < incarnation;
  };
  key.listener = [](const LeasedKeyState&) {};
  auto started = LeasedKey::Start(std::move(key), EncodeMember(self));
  MutexLock lock(&mu_);
  key_ = std::move(started);
}

std::string ClusterMembership::OwnKey() const { return prefix_ + options_.self->id; }

std::shared_ptr<LeasedKey> ClusterMembership::key() const {
  MutexLock lock(&mu_);
  return key_;
}

void ClusterMembership::Listed(const Listing& listing, bool history_changed) {
  board_.Update([&](MemberTable* table) { table->Listed(listing, history_changed, NowMs()); });
  const auto own = key();
  if (own == nullptr) return;
  std::optional<KeyValue> item;
  for (const KeyValue& one : listing.items) {
    if (one.key == OwnKey()) item = one;
  }
  own->Seen(item, history_changed ? std::numeric_limits<Revision>::max() : listing.revision);
}

void ClusterMembership::Changed(const WatchUpdate& update) {
  board_.Update([&](MemberTable* table) { table->Changed(update, NowMs()); });
  const auto own = key();
  if (own == nullptr) return;
  for (const KeyChange& change : update.changes) {
    if (change.item.key != OwnKey()) continue;
    own->Seen(change.is_put ? std::optional(change.item) : std::nullopt, change.item.modified);
  }
}

void ClusterMembership::Tick() {
  const CoordinationHealth health = options_.coordinator->health();
  // What was never reached is no outage.
  const bool up = health.up || health.answered_steady_ns == 0;
  board_.Update([&](MemberTable* table) { table->SetUp(up, NowMs()); });
  TickLater();
}

void ClusterMembership::TickLater() {
  MutexLock lock(&mu_);
  if (stopped_) return;
  timer_ = options_.timers->At(options_.clock->SteadyNs() + options_.tick_ms * 1'000'000,
                               [weak = weak_from_this()] {
                                 if (const auto self = weak.lock(); self != nullptr) self->Tick();
                               });
}

void ClusterMembership::ReportDown(std::string_view id, const Incarnation& incarnation,
                                   std::string_view why) {
  board_.Update([&](MemberTable* table) { table->ReportDown(id, incarnation, why, NowMs()); });
}

void ClusterMembership::ReportUp(std::string_view id, const Incarnation& incarnation) {
  board_.Update([&](MemberTable* table) { table->ReportUp(id, incarnation); });
}

void ClusterMembership::SetState(NodeState state) {
  WriteSelf([&](NodeInfo* self) { self->state = state; });
}

void ClusterMembership::SetModels(std::vector<ServedModel> models) {
  WriteSelf([&](NodeInfo* self) { self->models = std::move(models); });
}

void ClusterMembership::WriteSelf(const std::function<void(NodeInfo*)>& change) {
  MutexLock lock(&mu_);  // held, so that two changes are written in their order; the key calls nobody back
  if (!self_.has_value() || key_ == nullptr) return;
  change(&*self_);
  key_->SetValue(EncodeMember(*self_));
}

LeasedKeyState ClusterMembership::registration() const {
  const auto own = key();
  return own == nullptr ? LeasedKeyState{} : own->state();
}

MembershipHealth ClusterMembership::health() const {
  const CoordinationHealth coordination = options_.coordinator->health();
  MembershipHealth health;
  health.up = coordination.up;
  if (!health.up) {
    const int64_t since_ns =
        coordination.answered_steady_ns == 0 ? started_ns_ : coordination.answered_steady_ns;
    health.away_ms = (options_.clock->SteadyNs() - since_ns) / 1'000'000;
  }
  health.stale = health.away_ms > options_.settings.stale_ms;
  if (options_.self.has_value()) {
    const Phase phase = registration().phase;
    health.registered = phase == Phase::kHeld;
    health.superseded = phase == Phase::kGaveUp;
  }
  if (health.stale) {
    health.causes.push_back("the coordination store has been away for " +
                            std::to_string(health.away_ms / 1000) +
                            " s: who is a member may be out of date (" + coordination.fault + ")");
  }
  if (health.superseded) {
    health.causes.push_back("another process registered as " + options_.self->id +
                            " later than this one: stop one of them, or give it another id");
  }
  return health;
}

void ClusterMembership::Leave(std::function<void(absl::Status)> done) {
  const auto own = key();
  if (own == nullptr) return done(absl::OkStatus());
  own->Leave(std::move(done));
}

void ClusterMembership::Stop() {
  std::shared_ptr<LeasedKey> own;
  std::shared_ptr<PrefixMirror> mirror;
  TimerId timer = 0;
  {
    MutexLock lock(&mu_);
    if (std::exchange(stopped_, true)) return;
    own = std::exchange(key_, nullptr);
    mirror = std::exchange(mirror_, nullptr);
    timer = timer_;
  }
  options_.timers->Cancel(timer);
  if (own != nullptr) own->Stop();
  if (mirror != nullptr) mirror->Stop();
  board_.Stop();
}

}  // namespace epic
