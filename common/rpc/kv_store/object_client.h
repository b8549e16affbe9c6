// The calls of a store node that concern objects, one batch each, and the transfer of layers over gRPC. Owned
// by RemoteKvStore (remote_kv_store.h), which makes puts and gets of them. Thread-safe; calls block until the
// node answers or their deadline is over.
//
// A peer is one caller: its leases and reservations are known by a random number, drawn here. Errors of every
// call: what the node says of the call as a whole, Unavailable and DeadlineExceeded of the way there.
#ifndef EPIC_COMMON_RPC_KV_STORE_OBJECT_CLIENT_H_
#define EPIC_COMMON_RPC_KV_STORE_OBJECT_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/rpc/kv_store/store_channel.h"
#include "common/storage/kv_store.h"

namespace epic {

struct RemoteLease {
  uint64_t incarnation = 0;
  uint64_t number = 0;
};

class ObjectClient {
 public:
  ObjectClient(std::shared_ptr<StoreChannel> channel, uint64_t peer)
      : channel_(std::move(channel)), peer_(peer) {}

  struct Tiers {
    bool in_memory = false;
    bool on_disk = false;
  };
  absl::StatusOr<std::vector<Tiers>> Exists(std::string_view tenant, std::span<const ObjectKey> keys);
  absl::StatusOr<std::vector<absl::Status>> Drop(std::string_view tenant, std::span<const ObjectKey> keys);

  // --- reading

  struct Acquired {
    absl::Status status;  // not OK: this item failed
    bool hit = false;
    MissCause cause = MissCause::kNeverStored;  // of a miss
    RemoteLease lease;
    Digest build;
    uint64_t generation = 0;           // of the bytes, within the incarnation of the lease
    std::vector<uint32_t> block_crcs;  // Shape: [BlockCount(layout)]; where they were asked for
    bool on_its_way = false;           // with `streaming`: some layers are not in the node's memory yet
  };
  // With `streaming` objects may still be on their way up from the node's disk: then ReadLayers brings each
  // layer as it comes, or kLeaseEnded if the rest never does.
  absl::StatusOr<std::vector<Acquired>> Acquire(std::string_view tenant, std::span<const ObjectKey> keys,
                                                std::span<const KvLayout> layouts, int64_t duration_ms,
                                                bool streaming = false, bool with_checksums = false);
  // As many layers as there is room for, from `first` on, checked on the way; returns what is the build if
  // they are all. REQUIRES: to[i].size() == layout.LayerBytes(). Errors: kLeaseEnded; DataLoss
  // (kLayerDamaged) when what came has not its checksums. What is in `to` counts after a Confirm only.
  absl::StatusOr<Digest> ReadLayers(const RemoteLease& lease, const KvLayout& layout, uint32_t first,
                                    std::span<const MutableByteSpan> to);
  // Per lease: held. Releases them in the same step.
  absl::StatusOr<std::vector<bool>> ConfirmAndRelease(std::span<const RemoteLease> leases);
  absl::StatusOr<std::vector<bool>> Renew(std::span<const RemoteLease> leases, int64_t duration_ms);

  // --- writing

  struct Reserved {
    absl::Status status;  // not OK: this item failed; kReservationConflict: somebody else writes it
    bool exists = false;
    std::string token;
    int64_t heartbeat_ms = 0;
  };
  // `request`: NewRequestId, of this reserve alone; a repeated call with it gets the same token. Empty: none.
  absl::StatusOr<Reserved> Reserve(std::string_view tenant, const ObjectKey& key, const KvLayout& layout,
                                   std::string_view source, std::string_view request = {});
  // 16 random bytes.
  static std::string NewRequestId();
  struct LayerToSend {
    uint32_t layer = 0;
    ByteSpan slab;
    std::span<const uint32_t> block_crcs;
  };
  // All of them in one stream. Errors: of the first layer that was not taken, or of the stream.
  absl::Status WriteLayers(const std::string& token, std::span<const LayerToSend> layers);
  struct Committed {
    absl::Status status;  // not OK: the node says why; the rest says nothing
    Digest build;         // of what readers get
    bool own = false;
  };
  absl::StatusOr<Committed> Commit(const std::string& token, const Digest& build);
  absl::Status Abort(const std::string& token);
  // Per token: alive.
  absl::StatusOr<std::vector<bool>> Heartbeat(std::span<const std::string> tokens);

  uint64_t peer() const { return peer_; }

 private:
  template <typename Request>
  Request LeasesRequest(std::span<const RemoteLease> leases) const;

  const std::shared_ptr<StoreChannel> channel_;
  const uint64_t peer_;
};

}  // namespace epic

#endif  // EPIC_COMMON_RPC_KV_STORE_OBJECT_CLIENT_H_
