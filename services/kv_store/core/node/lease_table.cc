#include "services/kv_store/core/node/lease_table.h"

#include <algorithm>

namespace epic::kv_store {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

}  // namespace

int64_t LeaseTable::BoundedMs(int64_t duration_ms) const {
  return std::clamp(duration_ms, options_.min_ms, options_.max_ms);
}

void LeaseTable::NoteEnd(Shard* shard, int64_t end_ns) {
  if (end_ns < shard->first_end_ns.load()) shard->first_end_ns = end_ns;
}

LeaseTable::Lease* LeaseTable::FindIn(Shard* shard, PeerId peer, uint64_t number, int64_t now_ns) {
  const auto found = shard->leases.find(number);
  if (found == shard->leases.end() || found->second.peer != peer) return nullptr;
  return found->second.IsOver(now_ns) ? nullptr : &found->second;
}

ObjectPtr LeaseTable::Drop(Shard* shard, Leases::iterator lease) {
  ObjectPtr object = std::move(lease->second.object);
  const auto peer = shard->peers.find(lease->second.peer);
  if (--peer->second == 0) shard->peers.erase(peer);
  shard->leases.erase(lease);
  --held_;
  return object;
}

std::vector<std::optional<uint64_t>> LeaseTable::Grant(PeerId peer, std::span<const ObjectPtr> objects,
                                                       int64_t duration_ms) {
  std::vector<std::optional<uint64_t>> numbers;
  numbers.reserve(objects.size());
  if (objects.empty()) return numbers;
  if (held_.load() + objects.size() > options_.max) Sweep();
  std::vector<ObjectPtr> freed;  // destroyed after the lock is released
  Shard& shard = ShardOf(peer);
  MutexLock lock(&shard.mu);
  const int64_t now_ns = clock_->SteadyNs();
  if (const auto known = shard.peers.find(peer);
      known != shard.peers.end() && known->second + objects.size() > options_.max_per_peer) {
    EndOver(&shard, now_ns, &freed);
  }
  const int64_t end_ns = now_ns + BoundedMs(duration_ms) * kNsPerMs;
  NoteEnd(&shard, end_ns);
  size_t& of_peer = shard.peers[peer];
  for (const ObjectPtr& object : objects) {
    if (of_peer >= options_.max_per_peer || held_.load() >= options_.max) {
      ++refused_;
      numbers.emplace_back(std::nullopt);
      continue;
    }
    const uint64_t number = ++shard.granted * kShards + IndexOf(peer);
    shard.leases.emplace(number, Lease{.peer = peer, .object = object, .end_ns = end_ns});
    ++of_peer;
    ++held_;
    ++granted_;
    numbers.emplace_back(number);
  }
  if (of_peer == 0) shard.peers.erase(peer);
  return numbers;
}

ObjectPtr LeaseTable::Find(PeerId peer, uint64_t number) {
  Shard& shard = ShardOf(peer);
  MutexLock lock(&shard.mu);
  const Lease* const lease = FindIn(&shard, peer, number, clock_->SteadyNs());
  return lease == nullptr ? nullptr : lease->object;
}

std::vector<bool> LeaseTable::Check(PeerId peer, std::span<const uint64_t> numbers) {
  Shard& shard = ShardOf(peer);
  MutexLock lock(&shard.mu);
  const int64_t now_ns = clock_->SteadyNs();
  std::vector<bool> held;
  held.reserve(numbers.size());
  for (const uint64_t number : numbers) held.push_back(FindIn(&shard, peer, number, now_ns) != nullptr);
  return held;
}

std::vector<bool> LeaseTable::Release(PeerId peer, std::span<const uint64_t> numbers) {
  std::vector<ObjectPtr> freed;  // destroyed after the lock is released
  std::vector<bool> held;
  freed.reserve(numbers.size());
  held.reserve(numbers.size());
  Shard& shard = ShardOf(peer);
  MutexLock lock(&shard.mu);
  const int64_t now_ns = clock_->SteadyNs();
  for (const uint64_t number : numbers) {
    const auto found = shard.leases.find(number);
    const bool is_theirs = found != shard.leases.end() && found->second.peer == peer;
    held.push_back(is_theirs && !found->second.IsOver(now_ns));
    if (!is_theirs) continue;
    expired_ += held.back() ? 0 : 1;
    freed.push_back(Drop(&shard, found));
  }
  return held;
}

std::vector<bool> LeaseTable::Renew(PeerId peer, std::span<const uint64_t> numbers, int64_t duration_ms) {
  Shard& shard = ShardOf(peer);
  MutexLock lock(&shard.mu);
  const int64_t now_ns = clock_->SteadyNs();
  const int64_t end_ns = now_ns + BoundedMs(duration_ms) * kNsPerMs;
  std::vector<bool> held;
  held.reserve(numbers.size());
  for (const uint64_t number : numbers) {
    Lease* const lease = FindIn(&shard, peer, number, now_ns);
    held.push_back(lease != nullptr);
    if (lease != nullptr) lease->end_ns = std::max(lease->end_ns, end_ns);
  }
  return held;
}

size_t LeaseTable::Goodbye(PeerId peer) {
  std::vector<ObjectPtr> freed;
  Shard& shard = ShardOf(peer);
  MutexLock lock(&shard.mu);
  std::vector<uint64_t> numbers;
  for (const auto& [number, lease] : shard.leases) {
    if (lease.peer == peer) numbers.push_back(number);
  }
  for (const uint64_t number : numbers) freed.push_back(Drop(&shard, shard.leases.find(number)));
  return freed.size();
}

size_t LeaseTable::EndOver(Shard* shard, int64_t now_ns, std::vector<ObjectPtr>* freed) {
  if (shard->first_end_ns.load() > now_ns) return 0;
  int64_t first_end_ns = kNever;
  std::vector<uint64_t> over;
  for (const auto& [number, lease] : shard->leases) {
    if (lease.end_ns <= now_ns) {
      over.push_back(number);
    } else {
      first_end_ns = std::min(first_end_ns, lease.end_ns);
    }
  }
  for (const uint64_t number : over) freed->push_back(Drop(shard, shard->leases.find(number)));
  shard->first_end_ns = first_end_ns;
  expired_ += over.size();
  return over.size();
}

size_t LeaseTable::Sweep() {
  size_t ended = 0;
  for (Shard& shard : shards_) {
    const int64_t now_ns = clock_->SteadyNs();
    if (shard.first_end_ns.load() > now_ns) continue;
    std::vector<ObjectPtr> freed;  // destroyed after the lock is released
    MutexLock lock(&shard.mu);
    ended += EndOver(&shard, now_ns, &freed);
  }
  return ended;
}

size_t LeaseTable::CountOf(uint64_t generation) {
  size_t count = 0;
  for (Shard& shard : shards_) {
    MutexLock lock(&shard.mu);
    const int64_t now_ns = clock_->SteadyNs();
    for (const auto& [number, lease] : shard.leases) {
      if (lease.object->region().generation() == generation && !lease.IsOver(now_ns)) ++count;
    }
  }
  return count;
}

LeaseTable::Counts LeaseTable::counts() const {
  return {.held = held_.load(),
          .granted = granted_.load(),
          .expired = expired_.load(),
          .refused = refused_.load()};
}

}  // namespace epic::kv_store
