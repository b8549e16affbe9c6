// One endpoint of UCX as a Lane. Made, called and destroyed by UcxFabric on its loop.
//
// What UCX completes, it completes by a callback inside ucp_worker_progress; the lane notes it in the
// fabric's list, and the fabric calls `done` after the progress call, when it is allowed to call UCX again.
#ifndef EPIC_COMMON_TRANSPORT_UCX_UCX_LANE_H_
#define EPIC_COMMON_TRANSPORT_UCX_UCX_LANE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ucp/api/ucp.h>

#include "absl/status/status.h"
#include "common/transport/ucx/lane.h"
#include "common/transport/ucx/registration_cache.h"

namespace epic::transport {

class UcxLane;

// A call that UCX has not ended, or has ended and whose `done` is due.
struct LaneOp {
  UcxLane* lane = nullptr;
  LaneDone done;
  std::string header;             // of a message: UCX reads it until the end
  RegistrationCache::Use memory;  // of a Get
  absl::Status status;
  std::list<LaneOp>::iterator self;
};

// What a lane needs of the fabric that owns it.
struct LaneShared {
  ucp_worker_h worker = nullptr;
  RegistrationCache* registrations = nullptr;  // nullptr without RMA
  std::list<LaneOp> ended;                     // `done` is due
  std::vector<UcxLane*> to_close;
};

class UcxLane final : public Lane {
 public:
  // The endpoint is closed by EndClose.
  UcxLane(LaneShared* shared, ucp_ep_h endpoint, LaneEvents* events);
  ~UcxLane() override;

  void Send(uint8_t kind, std::string header, ByteSpan body, MemoryKind body_kind, LaneDone done) override;
  bool has_rma() const override { return shared_->registrations != nullptr; }
  absl::Status AddRemoteRegion(uint64_t address, uint64_t size, std::string_view key) override;
  void Get(uint64_t address, MutableByteSpan to, MemoryKind kind, LaneDone done) override;
  void Close() override;

  // Of the fabric. Where events go; nullptr once closed.
  LaneEvents* events() const { return events_; }
  void set_events(LaneEvents* events) { events_ = events; }
  ucp_ep_h endpoint() const { return endpoint_; }
  // The peer is gone: nothing more is given to UCX. True the first time.
  bool MarkDown(ucs_status_t status);
  const absl::Status& down() const { return down_; }
  // Closes the endpoint by force, outside of UCX's callbacks.
  void EndClose();
  // Nothing is owed any more.
  bool done() const { return ended_close_ && live_.empty() && ended_ == 0; }
  // Gives back the keys of the peer's regions; otherwise the destructor does.
  void ReleaseRegions();
  // The worker is gone, and with it every lane: what it never completed ends now.
  void EndAll();
  // Begins to receive an incoming body by rendezvous. REQUIRES: inside the message's callback.
  void Receive(void* descriptor, MutableByteSpan to, MemoryKind kind, LaneDone done);
  void Fail(LaneDone done, absl::Status status);
  // One op of `ended` was called back.
  void Forget() { ended_ -= 1; }

 private:
  struct Region {
    uint64_t address = 0;
    uint64_t size = 0;
    ucp_rkey_h key = nullptr;
  };
  static void OnSent(void* request, ucs_status_t status, void* user_data);
  static void OnReceived(void* request, ucs_status_t status, size_t length, void* user_data);

  LaneOp* NewOp(LaneDone done);
  void End(LaneOp* op, ucs_status_t status, const char* what);
  // What UCX returned for `op`: ended at once, failed at once, or under way.
  void Started(LaneOp* op, ucs_status_ptr_t returned, const char* what);

  LaneShared* const shared_;
  const ucp_ep_h endpoint_;
  LaneEvents* events_;
  std::list<LaneOp> live_;
  size_t ended_ = 0;  // of ours in shared_->ended
  absl::Status down_;
  bool closed_ = false;
  bool ended_close_ = false;
  std::vector<Region> regions_;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_UCX_LANE_H_
