// EPIC's paths as ways of the bench.
#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/timers.h"
#include "common/transport/bench/testing/meter.h"
#include "common/transport/bench/testing/ways.h"
#include "common/transport/grpc/grpc_path.h"
#include "common/transport/inproc/inproc_path.h"
#include "common/transport/shm/shm_path.h"
#include "common/transport/testing/end_of_fetch.h"
#include "common/transport/ucx/ucx_node.h"

namespace epic::transport {
namespace {

constexpr int64_t kPatienceNs = 60'000'000'000;

// The path comes from a class that derives from this.
class FetchWay : public Way {
 public:
  FetchWay(WayShared* shared, std::string name) : shared_(shared), name_(std::move(name)) {}
  std::string name() const override { return name_; }

  std::optional<Sample> Move(uint64_t bytes, int count, int at_a_time) override {
    std::vector<std::shared_ptr<EndOfFetch>> endings;
    std::vector<double> seconds;
    const Meter meter(shared_->peer);
    int64_t begin_ns = NowNs();
    for (int i = 0; i < count; ++i) {
      if (i >= at_a_time) {
        if (!endings[i - at_a_time]->Wait().ok()) return std::nullopt;
        seconds.push_back(SecondsSince(begin_ns));
        begin_ns = NowNs();
      }
      endings.push_back(Begin(bytes, i));
    }
    for (const auto& ending : endings) {
      if (!ending->Wait().ok()) return std::nullopt;
    }
    seconds.push_back(SecondsSince(begin_ns));
    return meter.Read(bytes * static_cast<uint64_t>(count), std::move(seconds));
  }

  bool IsRight(uint64_t bytes) override {
    const ByteSpan right = shared_->objects->source.Bytes(*shared_->objects->regions.at(bytes), 0);
    std::byte* const got = shared_->buffers[0].data();
    std::fill(got, got + bytes, std::byte{0xA5});
    return Begin(bytes, 0)->Wait().ok() && std::equal(right.begin(), right.end(), got);
  }

 protected:
  virtual Path* path() = 0;
  WayShared* const shared_;

 private:
  std::shared_ptr<EndOfFetch> Begin(uint64_t bytes, int turn) {
    auto ending = std::make_shared<EndOfFetch>();
    std::vector<std::byte>& to = shared_->buffers[static_cast<size_t>(turn) % shared_->buffers.size()];
    path()->Fetch({.region = shared_->objects->regions.at(bytes),
                   .ranges = {{.layer = 0, .to = MutableByteSpan(to).first(bytes)}},
                   .deadline_steady_ns = NowNs() + kPatienceNs},
                  ending);
    return ending;
  }

  const std::string name_;
};

class InprocWay final : public FetchWay {
 public:
  explicit InprocWay(WayShared* shared)
      : FetchWay(shared, "inproc"),
        endpoint_(std::make_shared<InprocEndpoint>()),
        path_(MakeInprocPath(endpoint_, {.timers = &timers_})) {
    endpoint_->Attach(&shared->objects->source);
  }
  ~InprocWay() override { endpoint_->Detach(); }
  Path* path() override { return path_.get(); }

 private:
  TimerThread timers_{SystemClock::Get()};
  const std::shared_ptr<InprocEndpoint> endpoint_;
  const std::unique_ptr<Path> path_;
};

class ShmWay final : public FetchWay {
 public:
  explicit ShmWay(WayShared* shared)
      : FetchWay(shared, "shm copying"),
        path_(MakeShmPath({.store = {.path = shared->peer->shm_path()}, .timers = &timers_})) {}
  Path* path() override { return path_.get(); }

 private:
  TimerThread timers_{SystemClock::Get()};
  const std::unique_ptr<Path> path_;
};

class GrpcWay final : public FetchWay {
 public:
  explicit GrpcWay(WayShared* shared)
      : FetchWay(shared, "grpc"),
        path_(MakeGrpcPath({.channel = std::make_shared<StoreChannel>(
                                StoreChannelOptions{.address = shared->peer->grpc_address()})})) {}
  Path* path() override { return path_.get(); }

 private:
  const std::unique_ptr<Path> path_;
};

class UcxWay final : public FetchWay {
 public:
  explicit UcxWay(WayShared* shared) : FetchWay(shared, "ucx") {
    auto node = UcxNode::Start({.settings = {.poll_us = shared->ucx_poll_us}});
    if (!node.ok()) return;
    node_ = *std::move(node);
    // The peer outlives this.
    path_ = node_->MakePath(std::shared_ptr<TicketSource>(shared->peer, [](TicketSource*) {}), {});
  }
  ~UcxWay() override { path_.reset(); }
  Path* path() override { return path_.get(); }

 private:
  std::unique_ptr<UcxNode> node_;
  std::unique_ptr<Path> path_;
};

class ShmHoldWay final : public Way {
 public:
  ShmHoldWay(WayShared* shared, bool check)
      : shared_(shared),
        check_(check),
        path_(MakeShmPath({.store = {.path = shared->peer->shm_path()}, .timers = &timers_})) {}
  std::string name() const override { return check_ ? "shm hold checked" : "shm hold"; }

  std::optional<Sample> Move(uint64_t bytes, int count, int) override {
    std::vector<double> seconds;
    const Meter meter(shared_->peer);
    for (int i = 0; i < count; ++i) {
      const int64_t begin_ns = NowNs();
      const auto held = path_->Hold(shared_->objects->regions.at(bytes), begin_ns + kPatienceNs);
      if (!held.ok() || (check_ && !(*held)->CheckLayer(0).ok()) || !(*held)->StillHeld())
        return std::nullopt;
      seconds.push_back(SecondsSince(begin_ns));
    }
    return meter.Read(bytes * static_cast<uint64_t>(count), std::move(seconds));
  }

  bool IsRight(uint64_t bytes) override {
    const auto& region = shared_->objects->regions.at(bytes);
    const auto held = path_->Hold(region, NowNs() + kPatienceNs);
    if (!held.ok()) return false;
    const ByteSpan right = shared_->objects->source.Bytes(*region, 0);
    const ByteSpan there = (*held)->object().Layer(0);
    return std::equal(right.begin(), right.end(), there.begin(), there.end());
  }

 private:
  WayShared* const shared_;
  const bool check_;
  TimerThread timers_{SystemClock::Get()};
  const std::unique_ptr<Path> path_;
};

}  // namespace

std::unique_ptr<Way> MakeInprocWay(WayShared* shared) { return std::make_unique<InprocWay>(shared); }
std::unique_ptr<Way> MakeShmWay(WayShared* shared) { return std::make_unique<ShmWay>(shared); }
std::unique_ptr<Way> MakeGrpcWay(WayShared* shared) { return std::make_unique<GrpcWay>(shared); }
std::unique_ptr<Way> MakeUcxWay(WayShared* shared) {
  auto way = std::make_unique<UcxWay>(shared);
  if (way->path() == nullptr) return nullptr;
  return way;
}
std::unique_ptr<Way> MakeShmHoldWay(WayShared* shared, bool check) {
  return std::make_unique<ShmHoldWay>(shared, check);
}

}  // namespace epic::transport
