#include "services/kv_store/core/eviction/traces.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/base/check.h"
#include "common/base/random.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

uint64_t FingerprintOf(uint64_t key) { return Rng(key).Next(); }

// For each request when its key comes next.
std::vector<uint64_t> NextUses(const std::vector<uint64_t>& trace) {
  std::vector<uint64_t> next(trace.size(), kNever);
  absl::flat_hash_map<uint64_t, uint64_t> seen;
  for (uint64_t at = trace.size(); at-- > 0;) {
    const auto [known, inserted] = seen.try_emplace(trace[at], at);
    if (!inserted) next[at] = std::exchange(known->second, at);
  }
  return next;
}

}  // namespace

std::vector<uint64_t> MakeTrace(const TraceOptions& options) {
  EPIC_CHECK(options.keys > 0);
  Rng rng(options.seed);
  std::vector<double> cumulated(options.keys);
  double sum = 0;
  for (uint64_t rank = 0; rank < options.keys; ++rank) {
    sum += std::pow(static_cast<double>(rank + 1), -options.zipf_exponent);
    cumulated[rank] = sum;
  }
  std::vector<uint64_t> key_of(options.keys);
  std::iota(key_of.begin(), key_of.end(), 0);
  for (uint64_t left = options.keys; left > 1; --left) std::swap(key_of[left - 1], key_of[rng.Below(left)]);

  std::vector<uint64_t> trace;
  trace.reserve(options.requests);
  uint64_t scanned = options.keys;
  for (uint64_t asked = 1; trace.size() < options.requests; ++asked) {
    const auto rank = std::upper_bound(cumulated.begin(), cumulated.end() - 1, rng.Uniform() * sum);
    trace.push_back(key_of[static_cast<uint64_t>(rank - cumulated.begin())]);
    if (options.scan_every == 0 || asked % options.scan_every != 0) continue;
    for (uint64_t i = 0; i < options.scan_length && trace.size() < options.requests; ++i) {
      trace.push_back(scanned++);
    }
  }
  return trace;
}

double HitRatio(const std::vector<uint64_t>& trace, EvictionKind kind, uint64_t capacity) {
  EntryPool pool;
  const auto policy = MakeEvictionPolicy(kind, &pool);
  const MayGo any = [](const EvictionEntry&) { return true; };
  absl::flat_hash_map<uint64_t, EntrySlot> cached;
  uint64_t hits = 0;
  for (const uint64_t key : trace) {
    const auto found = cached.find(key);
    if (found != cached.end()) {
      ++hits;
      policy->Use(found->second);
      continue;
    }
    if (cached.size() == capacity) {
      const EntrySlot slot = policy->Next(any);
      policy->Evict(slot);
      cached.erase(pool[slot].owner);
      pool.Erase(slot);
    }
    const EntrySlot slot = pool.Add({.owner = key, .fingerprint = FingerprintOf(key), .bytes = 1});
    policy->Add(slot);
    cached.emplace(key, slot);
  }
  return static_cast<double>(hits) / static_cast<double>(trace.size());
}

double OptimalHitRatio(const std::vector<uint64_t>& trace, uint64_t capacity) {
  const std::vector<uint64_t> next = NextUses(trace);
  std::set<std::pair<uint64_t, uint64_t>> cached;  // when it comes next, key
  absl::flat_hash_map<uint64_t, uint64_t> due;     // the same by key
  uint64_t hits = 0;
  for (uint64_t at = 0; at < trace.size(); ++at) {
    const uint64_t key = trace[at];
    if (const auto found = due.find(key); found != due.end()) {
      ++hits;
      cached.erase({found->second, key});
      due.erase(found);
    }
    if (next[at] == kNever) continue;
    cached.emplace(next[at], key);
    due.emplace(key, next[at]);
    if (cached.size() <= capacity) continue;
    const auto last = std::prev(cached.end());
    due.erase(last->second);
    cached.erase(last);
  }
  return static_cast<double>(hits) / static_cast<double>(trace.size());
}

}  // namespace epic::kv_store
