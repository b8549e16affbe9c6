// Lanes between the two ends of a test on one loop: in order, without loss, with RMA where the test wants it.
// Bodies and RMA reads may be held on their way, lanes broken, and messages looked at. Keeps the rules of
// lane.h to the letter: no callback from inside a call, every `done` once, no byte written after it. Tests
// only.
#ifndef EPIC_COMMON_TRANSPORT_UCX_TESTING_FAKE_FABRIC_H_
#define EPIC_COMMON_TRANSPORT_UCX_TESTING_FAKE_FABRIC_H_

#include <algorithm>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/transport/ucx/lane.h"
#include "common/transport/ucx/loop.h"

namespace epic::transport {

class FakeFabric final : public Fabric {
 public:
  // Sees every message before it is delivered; may change its header; false drops it.
  using Filter = std::function<bool(uint8_t kind, std::string* header)>;

  FakeFabric(Loop* loop, bool rma, bool device) : loop_(loop), rma_(rma), device_(device) {}

  // --- the test's

  void Listen(const std::string& address, LaneAcceptor* acceptor) { acceptors_[address] = acceptor; }
  void Unlisten(const std::string& address) { acceptors_.erase(address); }
  void set_filter(Filter filter) { filter_ = std::move(filter); }
  // Bodies and RMA reads stay on their way until Finish, or until their lane is closed.
  void Hold(bool hold) { hold_ = hold; }
  void Finish() {
    for (Transfer& transfer : std::exchange(under_way_, {})) Complete(std::move(transfer));
  }
  size_t under_way() const { return under_way_.size(); }
  // Every lane loses its other end.
  void Break() {
    for (const auto& lane : lanes_) TellDown(lane.get());
  }
  size_t open_lanes() const {
    return static_cast<size_t>(
        std::count_if(lanes_.begin(), lanes_.end(), [](const auto& lane) { return !lane->closed; }));
  }
  int connects() const { return connects_; }
  int gets() const { return gets_; }

  // --- Fabric

  absl::StatusOr<Lane*> Connect(std::string_view address, LaneEvents* events) override {
    connects_ += 1;
    FakeLane* const ours = Add(events);
    FakeLane* const theirs = Add(nullptr);
    ours->peer = theirs;
    theirs->peer = ours;
    loop_->Post([this, ours, theirs, address = std::string(address)] {
      const auto found = acceptors_.find(address);
      LaneEvents* const taken = found == acceptors_.end() ? nullptr : found->second->OnLane(theirs);
      if (taken != nullptr) {
        theirs->events = taken;
      } else {
        theirs->closed = true;
        TellDown(ours);
      }
    });
    return ours;
  }
  std::string address() const override { return "fake"; }
  bool has_rma() const override { return rma_; }
  bool reaches_device_memory() const override { return device_; }
  absl::StatusOr<std::string> Export(ByteSpan region) override {
    if (!rma_) return absl::UnimplementedError("no RMA");
    return std::string("key");
  }

 private:
  struct FakeLane final : public Lane {
    explicit FakeLane(FakeFabric* fabric) : fabric(fabric) {}
    void Send(uint8_t kind, std::string header, ByteSpan body, MemoryKind, LaneDone done) override {
      EPIC_CHECK(!closed && header.size() <= kMaxHeaderBytes);
      fabric->loop_->Post([this, kind, header = std::move(header), body, done = std::move(done)] {
        fabric->Deliver(this, kind, header, body, done);
      });
    }
    bool has_rma() const override { return fabric->rma_; }
    absl::Status AddRemoteRegion(uint64_t address, uint64_t size, std::string_view key) override {
      if (!fabric->rma_ || key != "key") return absl::InvalidArgumentError("no such key");
      regions.emplace_back(address, size);
      return absl::OkStatus();
    }
    void Get(uint64_t address, MutableByteSpan to, MemoryKind, LaneDone done) override {
      EPIC_CHECK(!closed && fabric->rma_);
      fabric->gets_ += 1;
      bool inside = false;
      for (const auto& [begin, size] : regions) {
        inside = inside || (address >= begin && to.size() <= size && address - begin <= size - to.size());
      }
      if (!inside || down) {
        fabric->loop_->Post([done = std::move(done), inside] {
          done(inside ? absl::UnavailableError("down") : absl::OutOfRangeError("no region has it"));
        });
        return;
      }
      fabric->Begin({.from = reinterpret_cast<const std::byte*>(address),
                     .to = to,
                     .lane = this,
                     .received = std::move(done)});
    }
    void Close() override {
      EPIC_CHECK(!closed);
      closed = true;
      events = nullptr;
      fabric->EndTransfersOf(this);
      fabric->TellDown(peer);
    }

    FakeFabric* const fabric;
    FakeLane* peer = nullptr;
    LaneEvents* events = nullptr;
    bool closed = false;
    bool down = false;
    std::vector<std::pair<uint64_t, uint64_t>> regions;
  };

  // Bytes on their way.
  struct Transfer {
    const std::byte* from = nullptr;
    MutableByteSpan to;
    FakeLane* lane = nullptr;  // that writes to `to`
    LaneDone received;
    LaneDone sent;  // empty for RMA
  };

  class FakeBody final : public IncomingBody {
   public:
    FakeBody(FakeFabric* fabric, FakeLane* lane, ByteSpan body, LaneDone sent)
        : fabric_(fabric), lane_(lane), body_(body), sent_(std::move(sent)) {}
    uint64_t size() const override { return body_.size(); }
    void ReceiveInto(MutableByteSpan to, MemoryKind, LaneDone done) override {
      EPIC_CHECK(sent_ != nullptr && to.size() == body_.size());
      fabric_->Begin({.from = body_.data(),
                      .to = to,
                      .lane = lane_,
                      .received = std::move(done),
                      .sent = std::exchange(sent_, nullptr)});
    }
    // Whoever sent a body that nobody took is let go.
    LaneDone TakeSent() { return std::exchange(sent_, nullptr); }

   private:
    FakeFabric* const fabric_;
    FakeLane* const lane_;
    const ByteSpan body_;
    LaneDone sent_;
  };

  FakeLane* Add(LaneEvents* events) {
    lanes_.push_back(std::make_unique<FakeLane>(this));
    lanes_.back()->events = events;
    return lanes_.back().get();
  }
  void Deliver(FakeLane* from, uint8_t kind, std::string header, ByteSpan bytes, LaneDone sent) {
    FakeLane* const to = from->peer;
    if (from->closed || from->down || to->closed || to->events == nullptr) {
      return sent(absl::UnavailableError("nobody takes it"));
    }
    if (filter_ != nullptr && !filter_(kind, &header)) return sent(absl::OkStatus());
    FakeBody body(this, to, bytes, std::move(sent));
    to->events->OnMessage(kind, AsBytes(header), body);
    if (const LaneDone dropped = body.TakeSent(); dropped != nullptr) dropped(absl::OkStatus());
  }
  void Begin(Transfer transfer) {
    if (hold_) {
      under_way_.push_back(std::move(transfer));
      return;
    }
    under_way_.push_back(std::move(transfer));
    loop_->Post([this] {
      if (!hold_) Finish();
    });
  }
  void Complete(Transfer transfer) {
    if (!transfer.to.empty()) std::memcpy(transfer.to.data(), transfer.from, transfer.to.size());
    loop_->Post([transfer = std::move(transfer)] {
      transfer.received(absl::OkStatus());
      if (transfer.sent != nullptr) transfer.sent(absl::OkStatus());
    });
  }
  void EndTransfersOf(FakeLane* lane) {
    std::list<Transfer> ended;
    for (auto it = under_way_.begin(); it != under_way_.end();) {
      const auto next = std::next(it);
      if (it->lane == lane || it->lane == lane->peer) ended.splice(ended.end(), under_way_, it);
      it = next;
    }
    for (Transfer& transfer : ended) {
      loop_->Post([transfer = std::move(transfer)] {
        transfer.received(absl::CancelledError("the lane was closed"));
        if (transfer.sent != nullptr) transfer.sent(absl::UnavailableError("the lane was closed"));
      });
    }
  }
  void TellDown(FakeLane* lane) {
    if (lane == nullptr || lane->closed || std::exchange(lane->down, true)) return;
    loop_->Post([lane] {
      if (lane->events != nullptr) lane->events->OnDown(absl::UnavailableError("the peer is gone"));
    });
  }

  Loop* const loop_;
  const bool rma_;
  const bool device_;
  std::map<std::string, LaneAcceptor*> acceptors_;
  std::vector<std::unique_ptr<FakeLane>> lanes_;
  std::list<Transfer> under_way_;
  Filter filter_;
  bool hold_ = false;
  int connects_ = 0;
  int gets_ = 0;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_TESTING_FAKE_FABRIC_H_
