// A client's end of the hand-over: KV objects out of the arena of a store on the same host, without the store
// moving a byte. Owned by whoever reads: a worker's transfer path.
//
// Copy() copies an object into the caller's memory, checks every block on the way, and asks the store
// afterwards whether the object was there all the while: only then it is a hit. Hold() gives the store's own
// memory, read-only; it stays as it is while the connection lives, so what was computed from it counts only
// if StillHeld() says so afterwards. Thread-safe; one request at a time travels on a connection, and one that
// the store answers from its disk holds up those behind it: a process that wants several at a time has
// several clients. After an error every call fails: connect anew. Objects may outlive the client.
#ifndef EPIC_COMMON_STORAGE_SHM_CLIENT_H_
#define EPIC_COMMON_STORAGE_SHM_CLIENT_H_

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/storage/kv_object.h"
#include "common/storage/kv_store.h"
#include "common/storage/shm/wire.h"

namespace epic::shm {

struct ClientOptions {
  std::string path;              // of the store's socket
  uid_t server_uid = geteuid();  // whose store it must be
  int64_t timeout_ms = 10'000;   // for an answer
};

enum class Outcome : uint8_t {
  kHit,
  kMiss,      // the store does not have it: `cause`
  kMustCopy,  // Hold(): readers hold as much of the arena as they may; Copy() works
  kChanged,   // Copy(): the object was replaced, evicted or deleted meanwhile; what was copied is worth
              // nothing
  kDamaged,   // the checksums are not those of the bytes, though the object did not change
};

class Link;

// An object in the store's memory. Destroying it ends the lease.
class HeldObject final : public KvObject {
 public:
  // Used by Client.
  HeldObject(std::shared_ptr<Link> link, const KvLayout& layout, LeasedObject leased);
  ~HeldObject() override;

  const KvLayout& layout() const override { return layout_; }
  const Digest& build() const override { return leased_.build; }
  ByteSpan Layer(uint32_t layer) const override;
  // Of the bytes, within the incarnation of the store.
  uint64_t generation() const { return leased_.generation; }
  // What the store says of one layer. Shape: [BlocksPerLayer(layout())]. REQUIRES: layer < layout().layers.
  std::span<const uint32_t> LayerCrcs(uint32_t layer) const;
  // Whether the checksums of one layer are those of its bytes. REQUIRES: layer < layout().layers.
  bool Matches(uint32_t layer) const;
  // Whether the bytes were the object's up to now. False once the store ended the connection.
  bool StillHeld() const;

 private:
  const std::shared_ptr<Link> link_;
  const KvLayout layout_;
  const LeasedObject leased_;
};

// An object lent for copying: its bytes may change while they are read, so that copies count only if
// Confirm() says so after the last one. One thread at a time. Destroying it ends the lease.
class LentObject {
 public:
  // Used by Client.
  LentObject(std::shared_ptr<Link> link, const KvLayout& layout, LeasedObject leased);
  ~LentObject();
  LentObject(const LentObject&) = delete;
  LentObject& operator=(const LentObject&) = delete;

  const Digest& build() const { return leased_.build; }
  uint64_t generation() const { return leased_.generation; }
  // REQUIRES, both: layer < layers of the layout.
  ByteSpan Layer(uint32_t layer) const;
  std::span<const uint32_t> LayerCrcs(uint32_t layer) const;
  // Whether the object was there all the while; ends the lease. Once. Errors as Client::Copy.
  absl::StatusOr<bool> Confirm();

 private:
  const std::shared_ptr<Link> link_;
  const KvLayout layout_;
  const LeasedObject leased_;
  bool over_ = false;
};

class Client {
 public:
  // Errors: Unavailable (nobody there, or no memory to map), PermissionDenied (the store is another user's),
  // InvalidArgument, FailedPrecondition (it refuses us, or is no store of ours; the message says why).
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const ClientOptions& options);
  ~Client();

  struct CopyResult {
    Outcome outcome = Outcome::kMiss;
    MissCause cause = MissCause::kNeverStored;  // where outcome is kMiss
    Digest build;                               // where outcome is kHit
  };
  // Layer l goes to to[l * LayerBytes()]. Unless it is a hit, `to` holds anything. REQUIRES: to.size() ==
  // layout.TotalBytes(). Errors: InvalidArgument (a key or layout that cannot be), FailedPrecondition (the
  // store refuses; its reason), Unavailable, DeadlineExceeded, DataLoss (it breaks the protocol).
  absl::StatusOr<CopyResult> Copy(std::string_view tenant, const ObjectKey& key, const KvLayout& layout,
                                  MutableByteSpan to);

  struct HoldResult {
    Outcome outcome = Outcome::kMiss;
    MissCause cause = MissCause::kNeverStored;
    std::shared_ptr<const HeldObject> object;  // where outcome is kHit
  };
  // Errors as Copy.
  absl::StatusOr<HoldResult> Hold(std::string_view tenant, const ObjectKey& key, const KvLayout& layout);

  struct LendResult {
    Outcome outcome = Outcome::kMiss;
    MissCause cause = MissCause::kNeverStored;  // where outcome is kMiss
    std::unique_ptr<LentObject> object;         // where outcome is kHit
  };
  // Copy() by hand, layer by layer. Errors as Copy.
  absl::StatusOr<LendResult> Lend(std::string_view tenant, const ObjectKey& key, const KvLayout& layout);

  // Of the store that this client is connected to.
  uint64_t incarnation() const;
  // False once the connection is over: connect anew. Never blocks.
  bool alive() const;
  // Ends the connection, and with it all leases: a call that waits fails with Unavailable. Any thread.
  void Close();

 private:
  explicit Client(std::shared_ptr<Link> link) : link_(std::move(link)) {}

  const std::shared_ptr<Link> link_;
};

}  // namespace epic::shm

#endif  // EPIC_COMMON_STORAGE_SHM_CLIENT_H_
