// How fast a node answers batches in process, on one thread: what a door can serve at most.
//
//   epic_kv_store_node_bench [--batch N] [--contexts N]
//
// Checks the answers, then times batches (64 by default) over contexts in random order (100,000 by default,
// each with an object of a page in memory): exists, and acquire with the release of what was leased. Prints
// keys per second, medians of 5 rounds.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/node/store_node.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr char kTenant[] = "default";
constexpr int kRounds = 5;

struct Batches {
  std::vector<std::vector<ObjectName>> names;
  std::vector<std::vector<AcquireItem>> items;
  uint64_t keys = 0;
};

// Keys per second of a function that serves all batches; the median.
template <typename Serve>
double Rate(uint64_t keys, Serve serve) {
  std::vector<double> rates;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t start_ns = SystemClock::Get()->SteadyNs();
    serve();
    rates.push_back(static_cast<double>(keys) * 1e9 /
                    static_cast<double>(SystemClock::Get()->SteadyNs() - start_ns));
  }
  std::sort(rates.begin(), rates.end());
  return rates[kRounds / 2];
}

Batches MakeBatches(const std::vector<CacheId>& ids, const KvLayout& layout, size_t batch) {
  Batches batches;
  for (size_t at = 0; at + batch <= ids.size(); at += batch) {
    auto& names = batches.names.emplace_back();
    auto& items = batches.items.emplace_back();
    for (size_t i = at; i < at + batch; ++i) {
      names.push_back({.tenant = kTenant, .key = {ids[i], {}}});
      items.push_back({.tenant = kTenant, .key = {ids[i], {}}, .layout = layout});
    }
    batches.keys += batch;
  }
  return batches;
}

void Run(size_t batch, uint64_t contexts) {
  const KvLayout layout = LayoutOf(4);
  auto store = StoreCore::Open(std::make_unique<MemoryTableStore>(std::make_shared<MemoryDisk>()),
                               {.memory_bytes = 2 * contexts * 4096, .disk_bytes_max = 0, .writer = {}});
  EPIC_CHECK(store.ok());
  auto node = StoreNode::Open(store->get(), {});
  EPIC_CHECK(node.ok());
  std::vector<CacheId> ids;
  for (uint64_t seed = 0; seed < contexts; ++seed) {
    const auto created = (*store)->CreateContext(ContextOf(seed, 4));
    EPIC_CHECK(created.ok());
    ids.push_back(created->record.id);
    EPIC_CHECK(PutObject(store->get(), kTenant, {ids.back(), {}}, layout, seed).ok());
  }
  Rng rng(1);
  for (uint64_t left = ids.size(); left > 1; --left) std::swap(ids[left - 1], ids[rng.Below(left)]);
  const Batches batches = MakeBatches(ids, layout, batch);
  const auto exists = [&] {
    for (const auto& names : batches.names) {
      const std::vector<ObjectTiers> tiers = (*node)->Exists(names);
      EPIC_CHECK(std::all_of(tiers.begin(), tiers.end(), [](const ObjectTiers& t) { return t.in_memory; }));
    }
  };
  const auto acquire = [&] {
    std::vector<LeaseId> leases(batch);
    for (const auto& items : batches.items) {
      const std::vector<LeaseResult> results = (*node)->Acquire(1, items, 10'000);
      std::transform(results.begin(), results.end(), leases.begin(),
                     [](const LeaseResult& result) { return result.lease; });
      const std::vector<LeaseState> states = (*node)->Release(1, leases);
      EPIC_CHECK(std::all_of(states.begin(), states.end(),
                             [](LeaseState state) { return state == LeaseState::kHeld; }));
    }
  };
  std::printf("batches of %zu, one thread\n", batch);
  std::printf("exists               %12.0f keys/s\n", Rate(batches.keys, exists));
  std::printf("acquire and release  %12.0f keys/s\n", Rate(batches.keys, acquire));
}

}  // namespace
}  // namespace epic::kv_store

int main(int argc, char** argv) {
  size_t batch = 64;
  uint64_t contexts = 100'000;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const uint64_t value = std::max<uint64_t>(std::strtoull(argv[i + 1], nullptr, 10), 1);
    if (flag == "--batch") batch = value;
    if (flag == "--contexts") contexts = value;
  }
  if (contexts < batch) contexts = batch;
  epic::kv_store::Run(batch, contexts);
  return 0;
}
