// A node over a store in memory, with a clock that moves by hand, and objects that follow from a seed. Tests
// only.
#ifndef EPIC_SERVICES_KV_STORE_CORE_NODE_STORE_NODE_FIXTURE_H_
#define EPIC_SERVICES_KV_STORE_CORE_NODE_STORE_NODE_FIXTURE_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/storage/object_codec.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/node/store_node.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {

inline constexpr char kTenant[] = "default";
inline constexpr uint32_t kTokens = 8;

// What a writer of the object of `seed` sends.
struct SentObject {
  SentObject(const KvLayout& layout, uint64_t seed) {
    for (uint32_t layer = 0; layer < layout.layers; ++layer) {
      slabs.push_back(SlabOf(layout, layer, seed));
      std::vector<uint32_t> layer_crcs(BlocksPerLayer(layout));
      ComputeBlockCrcs(layout, AsBytes(slabs.back()), layer_crcs);
      crcs.push_back(layer_crcs);
      all_crcs.insert(all_crcs.end(), layer_crcs.begin(), layer_crcs.end());
    }
    build = BuildDigest(all_crcs);
  }
  std::vector<std::string> slabs;
  std::vector<std::vector<uint32_t>> crcs;  // by layer
  std::vector<uint32_t> all_crcs;
  Digest build;
};

class StoreNodeFixture : public ::testing::Test {
 protected:
  static constexpr uint64_t kMemoryBytes = uint64_t{1} << 20;

  void SetUp() override { OpenStore(); }
  void OpenStore(uint64_t memory_bytes = kMemoryBytes) {
    node_.reset();
    store_.reset();
    auto store = StoreCore::Open(
        std::make_unique<MemoryTableStore>(disk_),
        {.memory_bytes = memory_bytes, .disk_bytes_max = 64 << 20, .clock = &clock_, .writer = {}});
    ASSERT_OK(store);
    store_ = *std::move(store);
    OpenNode();
  }
  void OpenNode(StoreNodeOptions options = {}) {
    node_.reset();
    options.clock = &clock_;
    options.random = [rng = Rng(++lives_)]() mutable { return rng.Next(); };
    auto node = StoreNode::Open(store_.get(), options);
    ASSERT_OK(node);
    node_ = *std::move(node);
  }

  ObjectKey Create(uint64_t seed) {
    const auto created = store_->CreateContext(ContextOf(seed, kTokens));
    EXPECT_OK(created);
    return {created->record.id, {}};
  }
  ReserveResult Reserve(const ObjectKey& key, const std::string& source = "worker", PeerId peer = 1) {
    const std::vector<ReserveItem> items = {
        {.tenant = kTenant, .key = key, .layout = layout_, .source = source}};
    return node_->Reserve(peer, items).front();
  }
  ReserveResult ReserveAs(const ReserveRequestId& request, const ObjectKey& key, PeerId peer = 1) {
    const std::vector<ReserveItem> items = {
        {.tenant = kTenant, .key = key, .layout = layout_, .source = "worker", .request = request}};
    return node_->Reserve(peer, items).front();
  }
  absl::Status Send(const ReservationToken& token, uint32_t layer, uint64_t seed) {
    const SentObject sent(layout_, seed);
    auto fill = node_->BeginLayer(token, layer);
    if (!fill.ok()) return fill.status();
    std::memcpy(fill->bytes().data(), sent.slabs[layer].data(), sent.slabs[layer].size());
    return node_->FinishLayer(*std::move(fill), sent.crcs[layer]);
  }
  absl::Status SendAll(const ReservationToken& token, uint64_t seed) {
    for (uint32_t layer = 0; layer < layout_.layers; ++layer) {
      if (absl::Status status = Send(token, layer, seed); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<Committed> Commit(const ReservationToken& token, uint64_t seed) {
    return node_->Commit(token, SentObject(layout_, seed).build);
  }
  void PutWhole(const ObjectKey& key, uint64_t seed) {
    const ReserveResult reserved = Reserve(key);
    ASSERT_EQ(reserved.outcome, ReserveOutcome::kReserved) << reserved.status;
    ASSERT_OK(SendAll(reserved.token, seed));
    ASSERT_OK(Commit(reserved.token, seed));
  }
  LeaseResult Acquire(const ObjectKey& key, int64_t duration_ms = 10'000, PeerId peer = 1) {
    const std::vector<AcquireItem> items = {{.tenant = kTenant, .key = key, .layout = layout_}};
    return node_->Acquire(peer, items, duration_ms).front();
  }
  TokenState Heartbeat(const ReservationToken& token) {
    return node_->Heartbeat(std::span(&token, 1)).front();
  }
  TokenState Abort(const ReservationToken& token) { return node_->Abort(std::span(&token, 1)).front(); }
  LeaseState Confirm(const LeaseId& lease, bool release = false, PeerId peer = 1) {
    return node_->Confirm(peer, std::span(&lease, 1), release).front();
  }
  ObjectTiers Exists(const ObjectKey& key) {
    const std::vector<ObjectName> names = {{.tenant = kTenant, .key = key}};
    return node_->Exists(names).front();
  }

  ManualClock clock_;
  const KvLayout layout_ = LayoutOf(kTokens);
  uint64_t lives_ = 0;
  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  std::unique_ptr<StoreCore> store_;
  std::unique_ptr<StoreNode> node_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_NODE_STORE_NODE_FIXTURE_H_
