// A connection to one peer and the fabric that makes such connections, without a word of UCX: the protocol
// above (peer_link, path_core, piece_server) is written and tested against these interfaces.
//
// Everything here is called on the fabric's loop, and calls back on it. `done` callbacks never come from
// inside the call that takes them; each comes exactly once. After the `done` of a call that was given memory,
// no lane reads or writes that memory any more: that is the moment at which it is its owner's again.
// UcxFabric is the real fabric, testing/fake_fabric.h the scripted one.
#ifndef EPIC_COMMON_TRANSPORT_UCX_LANE_H_
#define EPIC_COMMON_TRANSPORT_UCX_LANE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/transport/transport.h"

namespace epic::transport {

using LaneDone = std::function<void(absl::Status)>;

// The bytes that follow the header of an incoming message: taken during OnMessage, or dropped.
class IncomingBody {
 public:
  virtual ~IncomingBody() = default;
  virtual uint64_t size() const = 0;
  // Begins to write the body to `to`. Errors come to `done`: those of the lane. At most once.
  // REQUIRES: to.size() == size(); during OnMessage only.
  virtual void ReceiveInto(MutableByteSpan to, MemoryKind kind, LaneDone done) = 0;
};

class Lane;

// What a lane tells its user. Never called from inside a call of the user, and not after Lane::Close.
class LaneEvents {
 public:
  virtual ~LaneEvents() = default;
  // `header` is valid during the call only, and untrusted like the body.
  virtual void OnMessage(uint8_t kind, ByteSpan header, IncomingBody& body) = 0;
  // Once: the peer or the network is gone. What is under way ends by its `done`; the user closes the lane.
  virtual void OnDown(const absl::Status& why) = 0;
};

// Belongs to its fabric; its user may call it until it has called Close.
class Lane {
 public:
  virtual ~Lane() = default;
  // Sends a message. `body` stays valid and unchanged until `done`. Errors, to `done`: Unavailable; Cancelled
  // when the lane was closed. REQUIRES: header.size() <= kMaxHeaderBytes.
  virtual void Send(uint8_t kind, std::string header, ByteSpan body, MemoryKind body_kind, LaneDone done) = 0;
  // The lane reads memory of the peer by hardware of its own, and fails cleanly when the peer dies. Only
  // then:
  virtual bool has_rma() const = 0;
  // Names memory of the peer that Get may read, by the key that its fabric exported. Errors: InvalidArgument
  // for a key that makes no sense; ResourceExhausted when there are too many.
  virtual absl::Status AddRemoteRegion(uint64_t address, uint64_t size, std::string_view key) = 0;
  // Reads `to.size()` bytes of the peer at `address`, which must lie in one region; otherwise OutOfRange.
  virtual void Get(uint64_t address, MutableByteSpan to, MemoryKind kind, LaneDone done) = 0;
  // Closes by force: no more events; every `done` that is still owed comes as soon as no lane can touch its
  // memory, with Cancelled or with how it ended. The last call.
  virtual void Close() = 0;
};

// Takes lanes that peers open.
class LaneAcceptor {
 public:
  virtual ~LaneAcceptor() = default;
  // Returns where the events of the new lane go; they live until Close. nullptr refuses the lane.
  virtual LaneEvents* OnLane(Lane* lane) = 0;
};

class Fabric {
 public:
  static constexpr size_t kMaxHeaderBytes = 4096;

  virtual ~Fabric() = default;
  // Begins to connect; failure to do so comes as OnDown. Errors: InvalidArgument for an address that makes no
  // sense; ResourceExhausted when there are too many lanes. `events` lives until Close.
  virtual absl::StatusOr<Lane*> Connect(std::string_view address, LaneEvents* events) = 0;
  // Where others connect to; empty when nobody may.
  virtual std::string address() const = 0;
  // Lanes of this fabric have RMA. Both ends of a lane are of the same kind.
  virtual bool has_rma() const = 0;
  // Lanes read and write memory of a device in place; otherwise it is staged (staging.h).
  virtual bool reaches_device_memory() const = 0;
  // The key by which lanes with RMA read `region`, which is registered from now on: for an arena, once.
  // Errors: Unimplemented without RMA; ResourceExhausted.
  virtual absl::StatusOr<std::string> Export(ByteSpan region) = 0;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_LANE_H_
