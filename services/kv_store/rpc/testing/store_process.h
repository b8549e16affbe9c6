// A store node with its gRPC door on loopback, over a disk in memory that outlives it: what a process of it
// would be, without the process. Tests only.
#ifndef EPIC_SERVICES_KV_STORE_RPC_TESTING_STORE_PROCESS_H_
#define EPIC_SERVICES_KV_STORE_RPC_TESTING_STORE_PROCESS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/node/store_node.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/rpc/store_door.h"
#include "services/kv_store/testing/gated_tables.h"

namespace epic::kv_store {

class StoreProcess {
 public:
  explicit StoreProcess(uint64_t memory_bytes = uint64_t{8} << 20, StoreDoorOptions door = {},
                        SlabStoreMaker make_slabs = nullptr, StoreDoorObservers observers = {})
      : memory_bytes_(memory_bytes),
        make_slabs_(std::move(make_slabs)),
        options_(std::move(door)),
        observers_(std::move(observers)) {
    options_.address = "127.0.0.1:0";
    options_.drain_ms = 1000;
    Start();
  }
  ~StoreProcess() { Stop(); }

  void Stop() {
    if (door_ != nullptr) door_->Stop();
    door_.reset();
    node_.reset();
    store_.reset();
  }
  // At the same address, with what the disk holds.
  void Start() {
    auto store = StoreCore::Open(
        std::make_unique<GatedTables>(std::make_unique<MemoryTableStore>(disk_), &reclaim_gate_),
        {.memory_bytes = memory_bytes_,
         .disk_bytes_max = uint64_t{1} << 30,
         .make_slabs = make_slabs_,
         .clock = &clock_,
         .writer = {}});
    ASSERT_OK(store);
    store_ = *std::move(store);
    StoreNodeOptions node_options;
    node_options.clock = &clock_;
    auto node = StoreNode::Open(store_.get(), node_options);
    ASSERT_OK(node);
    node_ = *std::move(node);
    auto door = StoreDoor::Start(options_, node_.get(), observers_);
    ASSERT_OK(door);
    door_ = *std::move(door);
    options_.address = address();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(door_->port()); }
  StoreDoor* door() const { return door_.get(); }
  StoreNode* node() const { return node_.get(); }
  StoreCore* store() const { return store_.get(); }
  ManualClock* clock() { return &clock_; }
  // Through which each run of an erasure goes.
  ReclaimGate* reclaim_gate() { return &reclaim_gate_; }

 private:
  const uint64_t memory_bytes_;
  const SlabStoreMaker make_slabs_;
  StoreDoorOptions options_;
  const StoreDoorObservers observers_;
  ReclaimGate reclaim_gate_;
  ManualClock clock_;  // of the node; the door's time is the system's
  const std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  std::unique_ptr<StoreCore> store_;
  std::unique_ptr<StoreNode> node_;
  std::unique_ptr<StoreDoor> door_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_RPC_TESTING_STORE_PROCESS_H_
