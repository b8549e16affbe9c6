#include "services/kv_store/core/node/store_node.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/storage/object_codec.h"

namespace epic::kv_store {
namespace {

absl::Status LeaseEnded(LeaseState state) {
  return Error(ErrorCode::kLeaseEnded,
               state == LeaseState::kOtherLife
                   ? "the node was started again since the lease was given; acquire the object again"
                   : "the lease is over; acquire the object again, and renew it while bytes are read");
}

// What the core says of a broken call, for those who made it.
absl::Status ForCaller(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) return status;
  return Error(ErrorCode::kInvalidRequest, MessageOf(status), "layout");
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoreNode>> StoreNode::Open(StoreCore* store,
                                                           const StoreNodeOptions& options) {
  EPIC_ASSIGN_OR_RETURN(const uint64_t boots, CountBoot(store));
  return std::unique_ptr<StoreNode>(new StoreNode(store, options, MakeIncarnation(boots, options.random())));
}

StoreNode::StoreNode(StoreCore* store, const StoreNodeOptions& options, uint64_t incarnation)
    : store_(store),
      incarnation_(incarnation),
      reservations_(options.reservations, incarnation, options.clock, options.random),
      leases_(options.leases, options.clock),
      log_(incarnation, options.event_ring),
      source_(store, incarnation, &log_) {}

// --- writing ---

// nullptr: it exists.
absl::StatusOr<std::unique_ptr<ArenaWriter>> StoreNode::TakeMemory(const ReserveItem& item) {
  EPIC_RETURN_IF_ERROR(ForCaller(ValidateLayout(item.layout)));
  EPIC_RETURN_IF_ERROR(CheckObjectSize(item.layout));
  const uint64_t bytes = ObjectBytes(item.layout);
  const uint64_t capacity = store_->arena().capacity_bytes();
  if (SlabFootprint(item.layout) > capacity) {
    return FinalError(ErrorCode::kStorageFull,
                      "an object of " + std::to_string(bytes) + " bytes is larger than the " +
                          std::to_string(capacity) +
                          " bytes of host memory; raise the store's memory or split the context");
  }
  const ObjectTiers tiers = store_->Where(item.tenant, item.key);
  if (tiers.any() && tiers.layout == item.layout) return nullptr;
  auto writer = store_->ReserveInArena(item.tenant, item.key, item.layout);
  if (!writer.ok()) return ForCaller(writer.status());
  return writer;
}

ReserveResult StoreNode::ReserveOne(PeerId peer, const ReserveItem& item) {
  const auto begin = [&] { return TakeMemory(item); };
  ReserveResult result = reservations_.Reserve(peer, item, begin);
  if (result.status.ok() || CodeOf(result.status) != ErrorCode::kStorageFull || !MayFreeMemory())
    return result;
  return reservations_.Reserve(peer, item, begin);
}

std::vector<ReserveResult> StoreNode::Reserve(PeerId peer, std::span<const ReserveItem> items) {
  std::vector<ReserveResult> results;
  results.reserve(items.size());
  for (const ReserveItem& item : items) results.push_back(ReserveOne(peer, item));
  return results;
}

std::vector<TokenState> StoreNode::Heartbeat(std::span<const ReservationToken> tokens) {
  std::vector<TokenState> states;
  states.reserve(tokens.size());
  for (const ReservationToken& token : tokens) states.push_back(reservations_.Heartbeat(token));
  return states;
}

std::vector<TokenState> StoreNode::Abort(std::span<const ReservationToken> tokens) {
  std::vector<TokenState> states;
  states.reserve(tokens.size());
  for (const ReservationToken& token : tokens) states.push_back(reservations_.Abort(token));
  return states;
}

// --- reading ---

LeaseResult StoreNode::FindOne(const AcquireItem& item, bool streaming) {
  LeaseResult result;
  const auto find = [&] {
    return streaming ? store_->AcquireStreaming(item.tenant, item.key, item.layout)
                     : store_->Acquire(item.tenant, item.key, item.layout);
  };
  auto found = find();
  if (found.ok() && found->cause == MissCause::kNoMemory && found->object == nullptr && MayFreeMemory()) {
    found = find();
  }
  if (!found.ok()) {
    result.status = ForCaller(found.status());
    return result;
  }
  result.outcome = found->object == nullptr ? AcquireOutcome::kMiss : AcquireOutcome::kLeased;
  result.cause = found->cause;
  // The store has no other objects.
  result.object = std::static_pointer_cast<const HostObject>(std::move(found->object));
  return result;
}

std::vector<LeaseResult> StoreNode::Acquire(PeerId peer, std::span<const AcquireItem> items,
                                            int64_t duration_ms, bool streaming) {
  std::vector<LeaseResult> results;
  std::vector<ObjectPtr> objects;
  results.reserve(items.size());
  objects.reserve(items.size());
  for (const AcquireItem& item : items) {
    results.push_back(FindOne(item, streaming));
    if (results.back().object != nullptr) objects.push_back(results.back().object);
  }
  const auto numbers = leases_.Grant(peer, objects, duration_ms);
  auto number = numbers.begin();
  for (LeaseResult& result : results) {
    if (result.object == nullptr) continue;
    const std::optional<uint64_t> granted = *number++;
    if (!granted.has_value()) {
      result = {};
      result.status = RetryLater(ErrorCode::kQueueFull,
                                 "there are too many leases; release those that are not needed", 1000);
      continue;
    }
    result.lease = {.incarnation = incarnation_, .number = *granted};
    result.generation = {.incarnation = incarnation_, .counter = result.object->region().generation()};
    result.duration_ms = leases_.BoundedMs(duration_ms);
  }
  return results;
}

absl::StatusOr<ObjectPtr> StoreNode::Read(PeerId peer, const LeaseId& lease) {
  if (lease.incarnation != incarnation_) return LeaseEnded(LeaseState::kOtherLife);
  ObjectPtr object = leases_.Find(peer, lease.number);
  if (object == nullptr) return LeaseEnded(LeaseState::kEnded);
  return object;
}

// `ask` gets the numbers of leases of this life and says which are held.
template <typename Ask>
std::vector<LeaseState> StoreNode::AskLeases(std::span<const LeaseId> leases, Ask ask) const {
  std::vector<uint64_t> numbers;
  numbers.reserve(leases.size());
  for (const LeaseId& lease : leases) {
    if (lease.incarnation == incarnation_) numbers.push_back(lease.number);
  }
  const std::vector<bool> held = ask(numbers);
  std::vector<LeaseState> states;
  states.reserve(leases.size());
  auto next = held.begin();
  for (const LeaseId& lease : leases) {
    if (lease.incarnation != incarnation_) {
      states.push_back(LeaseState::kOtherLife);
    } else {
      states.push_back(*next++ ? LeaseState::kHeld : LeaseState::kEnded);
    }
  }
  return states;
}

std::vector<LeaseState> StoreNode::Confirm(PeerId peer, std::span<const LeaseId> leases, bool release) {
  return AskLeases(leases, [&](std::span<const uint64_t> numbers) {
    return release ? leases_.Release(peer, numbers) : leases_.Check(peer, numbers);
  });
}

std::vector<LeaseState> StoreNode::Renew(PeerId peer, std::span<const LeaseId> leases, int64_t duration_ms) {
  return AskLeases(
      leases, [&](std::span<const uint64_t> numbers) { return leases_.Renew(peer, numbers, duration_ms); });
}

std::vector<LeaseState> StoreNode::Release(PeerId peer, std::span<const LeaseId> leases) {
  return Confirm(peer, leases, /*release=*/true);
}

std::vector<ObjectTiers> StoreNode::Exists(std::span<const ObjectName> names) const {
  std::vector<ObjectTiers> tiers;
  tiers.reserve(names.size());
  for (const ObjectName& name : names) tiers.push_back(store_->Where(name.tenant, name.key));
  return tiers;
}

std::vector<absl::Status> StoreNode::Drop(std::span<const ObjectName> names) {
  std::vector<absl::Status> results;
  results.reserve(names.size());
  for (const ObjectName& name : names) results.push_back(store_->DropObject(name.tenant, name.key));
  return results;
}

// --- explain ---

Verdict StoreNode::VerdictOn(const Explanation& e, MissCause cause) {
  switch (e.context.life) {
    case ContextLife::kUnknown:
      return Verdict::kNoContext;
    case ContextLife::kDeleted:
      return Verdict::kContextDeleted;
    case ContextLife::kExpired:
      return Verdict::kContextExpired;
    case ContextLife::kLive:
      break;
  }
  if (e.tiers.any()) {
    if (e.wanted.has_value() && *e.wanted != e.tiers.layout) return Verdict::kLayoutMismatch;
    if (e.tiers.in_memory) return Verdict::kInMemory;
    return store_->MayFit(e.tiers.layout) ? Verdict::kOnDisk : Verdict::kNoMemory;
  }
  switch (cause) {
    case MissCause::kEvicted:
      return Verdict::kEvicted;
    case MissCause::kDeleted:
      return Verdict::kDropped;
    case MissCause::kChecksum:
      return Verdict::kChecksum;
    case MissCause::kIoError:
      return Verdict::kIoError;
    case MissCause::kOldFormat:
      return Verdict::kOldFormat;
    default:  // others are no causes of being gone
      return Verdict::kNeverStored;
  }
}

Explanation StoreNode::Explain(const ObjectName& name, const std::optional<KvLayout>& layout) {
  const TenantObjectKey key{{name.tenant, name.key.id}, name.key.variant};
  Explanation e;
  e.wanted = layout;
  e.context = store_->SummaryOf(key.context);
  e.tiers = store_->Where(name.tenant, name.key);
  e.writing = reservations_.WritingOf(key);
  e.memory_capacity_bytes = store_->arena().capacity_bytes();
  const ObjectStanding standing = store_->Explain(name.tenant, name.key);
  if (e.tiers.any()) {
    e.memory = standing.memory;
    e.disk = standing.disk;
    e.held = standing.held;
    e.memory_needed_bytes = SlabFootprint(e.tiers.layout);
    e.leases = leases_.CountOf(e.tiers.generation);
  } else {
    e.gone_at_ms = standing.gone_at_ms;
  }
  e.verdict = VerdictOn(e, standing.cause);
  return e;
}

// --- time ---

void StoreNode::Goodbye(PeerId peer) {
  leases_.Goodbye(peer);
  reservations_.Goodbye(peer);
}

bool StoreNode::MayFreeMemory() { return leases_.Sweep() + reservations_.Sweep() > 0; }

void StoreNode::Sweep() {
  leases_.Sweep();
  reservations_.Sweep();
}

}  // namespace epic::kv_store
