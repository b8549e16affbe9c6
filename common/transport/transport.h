// How the bytes of KV objects come from a peer: one interface for every path (shm, ucx, grpc, inproc).
//
// A Path is the client's end of one way to one peer; a process has one per peer and way, and path_chooser.h
// picks. A Region says what may be fetched; a fetch asks for many ranges of it, into buffers of the caller,
// and hears of each range when it is there and has its checksums. Paths are made by functions of their own
// folders; what a peer serves is a KvSource (kv_source.h). Every call is thread-safe and none of Fetch,
// Cancel and Probe blocks. Not here: who grants, renews and confirms leases (the store's client), which path
// is taken (path_chooser.h), how bytes are checked (range_check.h).
//
// The cancel rule. A buffer belongs to the path from Fetch until OnRange was called for its range: only then
// may it be read, reused or freed, whatever the status says. Cancel and deadlines ask for that end; they do
// not bring it about by themselves: pieces on their way into a buffer are waited for, or their connection is
// closed by force first.
#ifndef EPIC_COMMON_TRANSPORT_TRANSPORT_H_
#define EPIC_COMMON_TRANSPORT_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/base/digest.h"
#include "common/storage/kv_object.h"

namespace epic::transport {

enum class PathKind : uint8_t { kShm = 0, kUcx = 1, kGrpc = 2, kInproc = 3 };
inline constexpr size_t kPathKinds = 4;
std::string_view NameOf(PathKind kind);

// What a transfer is for. Where they compete the smaller one goes first.
enum class TrafficClass : uint8_t { kFetch = 0, kWriteBehind = 1, kRepair = 2 };
inline constexpr size_t kTrafficClasses = 3;
std::string_view NameOf(TrafficClass traffic);

// Where a buffer lies.
enum class MemoryKind : uint8_t { kHost = 0, kCuda = 1 };

struct Capabilities {
  PathKind kind = PathKind::kInproc;
  bool zero_copy = false;  // Hold works
  bool rma = false;        // one-sided reads by hardware: the peer's processor does not take part
  bool cuda = false;       // takes buffers of MemoryKind::kCuda
  // What is moved in one go: a cancel waits for at most that much per piece in flight. At least 1.
  uint64_t max_piece_bytes = uint64_t{1} << 20;
};

// A lease of an object at a peer, as that peer knows it.
struct LeaseName {
  uint64_t incarnation = 0;  // of the life of the peer: of another one, the lease is over
  uint64_t holder = 0;       // the number by which the peer knows whoever leased it
  uint64_t number = 0;
  auto operator<=>(const LeaseName&) const = default;
};

// One leased object at a peer. Immutable; shared by all that fetch from it.
struct Region {
  std::string tenant;
  ObjectKey key;
  KvLayout layout;
  LeaseName lease;
  uint64_t generation = 0;  // of the bytes, within the incarnation of the lease
  // Of the whole object; nullopt while it is still being compiled.
  std::optional<Digest> build;
  // Shape: [BlockCount(layout)] (object_codec.h), or empty: then the peer's word that comes with each layer
  // is taken. What is here is binding: bytes that do not have these checksums are damaged.
  std::vector<uint32_t> block_crcs;
  // Some layers were not there yet at the peer when it was leased: a path that brings each as it comes is
  // better than one that waits for all.
  bool on_its_way = false;
};

// A part of one layer. `offset` and `offset + to.size()` are borders of blocks (range_check.h) or the end of
// the layer. An empty range moves nothing and ends OK without asking the peer.
struct FetchRange {
  uint32_t layer = 0;
  uint64_t offset = 0;  // in the layer's slab, in bytes
  MutableByteSpan to;
};

inline constexpr size_t kMaxFetchRanges = size_t{1} << 16;

struct FetchRequest {
  std::shared_ptr<const Region> region;
  // Shape: at most kMaxFetchRanges; buffers do not overlap. Earlier ones are wanted earlier: a path begins
  // with them, but they may end in any order. One that is waited for may hold up those behind it, never
  // another fetch.
  std::vector<FetchRange> ranges;
  MemoryKind memory = MemoryKind::kHost;  // of all buffers
  TrafficClass traffic = TrafficClass::kFetch;
  // On Clock::SteadyNs. For everything: connecting, layers that the peer does not have yet, the bytes. A
  // fetch ends by then, but for the pieces that are on their way into its buffers.
  int64_t deadline_steady_ns = 0;
};

// Errors: InvalidArgument that says what is wrong: a layout that cannot be, checksums of another number, a
// range that is not in its layer or not on borders of blocks. Every path asks before it does anything.
absl::Status ValidateRequest(const FetchRequest& request);

// Whether any range has bytes. A fetch that moves nothing cannot be late: it has no deadline.
bool MovesBytes(const FetchRequest& request);

// Hears of one fetch. Calls come one at a time, on a thread of the path, never within Fetch or Cancel (but
// see Path::Stop). They must be cheap and must not block: a whole process may share the thread. They may call
// Fetch and Cancel of any path.
class FetchListener {
 public:
  virtual ~FetchListener() = default;
  // Exactly once for each range, whatever happens: its buffer is the caller's again. OK: the bytes are there
  // and have their checksums. `block_crcs`: of the range's blocks, as the peer says; empty unless OK.
  // On any other status the buffer holds anything.
  virtual void OnRange(size_t range, const absl::Status& status, std::span<const uint32_t> block_crcs) = 0;
  // Once, after the last OnRange; the last call. OK: every range is, and the peer says after the transfer
  // that the lease was held all the while. What was made of the ranges counts only then. Otherwise the first
  // error.
  virtual void OnDone(const absl::Status& status) = 0;
};

// Why a fetch or a range of it did not end well: what the statuses of every path mean.
//   OK                                kOk
//   Cancelled                         kCancelled
//   DeadlineExceeded                  kDeadline
//   Aborted with kLeaseEnded          kLeaseEnded
//   DataLoss with kLayerDamaged       kDamaged
//   Unimplemented, FailedPrecondition kNotOnThisPath
//   Unavailable without a code of ours, or with kDraining or kLoading; ResourceExhausted   kPathDown
//   anything else                     kRefused
enum class FetchEnd : uint8_t {
  kOk,
  kCancelled,
  kDeadline,
  kLeaseEnded,     // or of another incarnation of the peer: acquire again; no other path helps
  kDamaged,        // bytes without their checksums, or too few: another path may bring them whole
  kNotOnThisPath,  // this path cannot bring this region or into this memory; it is well otherwise
  kPathDown,       // no way to the peer here, or it went away, or is full
  kRefused,        // what the source says of the layer, such as a compile that failed; or an invalid request
};
FetchEnd EndOf(const absl::Status& status);

// The statuses that paths make themselves; `what` says what to do about it, where there is more to say.
absl::Status CancelledStatus();
absl::Status DeadlineStatus();
absl::Status LeaseEndedStatus(std::string_view what = "the lease is over; acquire the object again");
absl::Status DamagedStatus(uint32_t layer);
absl::Status NotOnThisPathStatus(std::string_view what);
absl::Status PathDownStatus(std::string_view what);

// An object read where the peer has it. Destroying it ends the hold. Thread-safe.
class HeldRegion {
 public:
  virtual ~HeldRegion() = default;
  // Lives as long as this.
  virtual const KvObject& object() const = 0;
  // OK when the bytes of one layer have their checksums; DamagedStatus. Reads all of the layer.
  virtual absl::Status CheckLayer(uint32_t layer) const = 0;
  // Whether the bytes were the object's up to now. What was computed from them counts only if it says so
  // afterwards.
  virtual bool StillHeld() const = 0;
};

using FetchId = uint64_t;  // of one path; never 0, never used twice

// On a thread of the path, as cheap as a FetchListener: a peer that was there is gone. Fetches under way end
// by themselves with PathDown, before or after. Every function that makes a Path takes one; may be empty.
using PeerDownFn = std::function<void(const absl::Status& why)>;

class Path {
 public:
  // Stops.
  virtual ~Path() = default;
  virtual Capabilities capabilities() const = 0;

  // Begins a fetch; connects if need be, one connection attempt at a time for all. A peer that comes back,
  // also in another incarnation, is found again by the next fetch. All errors come by the listener.
  virtual FetchId Fetch(FetchRequest request, std::shared_ptr<FetchListener> listener) = 0;
  // Ranges that have not ended end soon, as Cancelled if not otherwise; see the cancel rule. Ids that are
  // over or unknown are ignored.
  virtual void Cancel(FetchId id) = 0;

  // Asks whether the peer answers here, connecting if need be. `done` is called once, as a FetchListener is;
  // OK or the error that a fetch would get.
  virtual void Probe(int64_t deadline_steady_ns, std::function<void(const absl::Status&)> done) = 0;

  // The peer's own memory, where capabilities().zero_copy. May block for an answer of the peer until the
  // deadline. Errors: those of a fetch; NotOnThisPath when this peer gives this region by fetch only, now.
  virtual absl::StatusOr<std::shared_ptr<const HeldRegion>> Hold(std::shared_ptr<const Region> region,
                                                                 int64_t deadline_steady_ns);

  // Ends every fetch and probe, Cancelled where not over, and waits until all listeners have heard: nothing
  // calls back after it. Later fetches and probes end with PathDown before the call returns, on its own
  // thread. Idempotent; not from a callback.
  virtual void Stop() = 0;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_TRANSPORT_H_
