// Readers and one peer of the UCX protocol over fake lanes, on a loop and a clock moved by hand. Tests only.
#ifndef EPIC_COMMON_TRANSPORT_UCX_TESTING_PROTOCOL_WORLD_H_
#define EPIC_COMMON_TRANSPORT_UCX_TESTING_PROTOCOL_WORLD_H_

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/transport/testing/fetch_log.h"
#include "common/transport/testing/test_source.h"
#include "common/transport/ucx/path_core.h"
#include "common/transport/ucx/piece_server.h"
#include "common/transport/ucx/testing/fake_fabric.h"
#include "common/transport/ucx/testing/manual_loop.h"

namespace epic::transport {

// A door that gives tickets, refuses, or never answers.
class ScriptedDoor final : public TicketSource {
 public:
  enum class Mood : uint8_t { kGives, kRefuses, kSilent };
  void Ask(std::function<void(absl::StatusOr<std::string>)> done) override {
    asked += 1;
    if (mood == Mood::kSilent) return;
    if (mood == Mood::kRefuses) return done(PathDownStatus("nobody there"));
    Ticket given = ticket;
    given.secret = book->Issue();
    done(EncodeTicket(given));
  }
  Mood mood = Mood::kGives;
  Ticket ticket;
  TicketBook* book = nullptr;
  int asked = 0;
};

// A fetch of whole layers into buffers of its own.
struct WorldFetch {
  std::shared_ptr<const Region> region;
  std::vector<std::vector<std::byte>> buffers;
  std::shared_ptr<FetchLog> log;
  FetchId id = 0;
};

struct ProtocolWorld {
  explicit ProtocolWorld(bool rma = false, bool device = false, uint32_t max_pieces = 32)
      : loop(std::make_shared<ManualLoop>(&clock)),
        fabric(loop.get(), rma, device),
        source(std::make_shared<TestSource>(11)),
        book(&clock, 30'000, 100),
        server(source.get(), &book, &clock, {}),
        budget(loop.get(), max_pieces),
        door(std::make_shared<ScriptedDoor>()) {
    server.AttachTo(loop);
    fabric.Listen("peer", &server);
    door->book = &book;
    door->ticket = {.incarnation = 11, .address = "peer", .rma = rma};
    // Everything of this process is the peer's arena.
    if (rma) door->ticket.regions = {{.address = 1, .size = ~uint64_t{0} >> 1, .key = "key"}};
  }
  ~ProtocolWorld() {
    for (const auto& core : cores) core->Stop(CancelledStatus());
    loop->Run();
    fabric.Hold(false);
    fabric.Finish();
    loop->Run();
    server.Close();
    loop->Run();
    EXPECT_EQ(source->open(), 0);
    EXPECT_EQ(budget.free(), budget_size);
    for (const auto& core : cores) EXPECT_EQ(core->pieces_under_way(), 0u);
  }

  PathCore* MakeCore(PathCoreOptions options = {}) {
    cores.push_back(std::make_shared<PathCore>(
        PathShared{.loop = loop, .fabric = &fabric, .clock = &clock, .budget = &budget, .staging = staging},
        door, options, [this](const absl::Status&) { downs += 1; }, [](FetchId) {}, cores.size() + 1));
    return cores.back().get();
  }
  WorldFetch Start(PathCore* core, std::shared_ptr<const Region> region,
                   MemoryKind memory = MemoryKind::kHost, int64_t deadline_ms = 60'000,
                   TrafficClass traffic = TrafficClass::kFetch) {
    WorldFetch fetch{.region = region, .id = next_id++};
    FetchRequest request{.region = region,
                         .memory = memory,
                         .traffic = traffic,
                         .deadline_steady_ns = clock.SteadyNs() + deadline_ms * 1'000'000};
    fetch.buffers.resize(region->layout.layers);
    for (uint32_t layer = 0; layer < region->layout.layers; ++layer) {
      fetch.buffers[layer].assign(region->layout.LayerBytes(), std::byte{0xA5});
      request.ranges.push_back({.layer = layer, .offset = 0, .to = fetch.buffers[layer]});
    }
    fetch.log = std::make_shared<FetchLog>(request.ranges.size());
    core->Fetch(fetch.id, std::move(request), fetch.log);
    return fetch;
  }
  void ExpectWhole(const WorldFetch& fetch) {
    ASSERT_TRUE(fetch.log->done());
    EXPECT_TRUE(fetch.log->WaitDone().ok()) << fetch.log->WaitDone();
    for (uint32_t layer = 0; layer < fetch.buffers.size(); ++layer) {
      const ByteSpan bytes = source->Bytes(*fetch.region, layer);
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), fetch.buffers[layer].begin())) << "layer " << layer;
      EXPECT_EQ(fetch.log->crcs(layer).size(), BlocksPerLayer(fetch.region->layout));
    }
  }
  FetchEnd EndOf(const WorldFetch& fetch) {
    EXPECT_TRUE(fetch.log->done());
    return transport::EndOf(fetch.log->WaitDone());
  }

  ManualClock clock;
  std::shared_ptr<ManualLoop> loop;
  FakeFabric fabric;
  std::shared_ptr<TestSource> source;
  TicketBook book;
  PieceServer server;
  FlowBudget budget;
  uint32_t budget_size = budget.free();
  std::shared_ptr<ScriptedDoor> door;
  StagingPool* staging = nullptr;
  std::vector<std::shared_ptr<PathCore>> cores;
  int downs = 0;
  FetchId next_id = 1;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_TESTING_PROTOCOL_WORLD_H_
