#include "common/rpc/kv_store/remote_kv_store.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <utility>

#include "common/base/check.h"
#include "common/base/system_random.h"
#include "common/rpc/kv_store/attachment.h"
#include "common/rpc/kv_store/erase_calls.h"
#include "common/rpc/kv_store/object_client.h"
#include "common/rpc/kv_store/record_client.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/storage/object_codec.h"

namespace epic {
namespace {

constexpr std::align_val_t kAlignment{64};

// An object in memory of this process. Written by one thread before it is shared, then immutable.
class OwnedObject final : public KvObject {
 public:
  // nullptr when there is no memory for it. REQUIRES: ValidateLayout accepts the layout.
  static std::shared_ptr<OwnedObject> Make(const KvLayout& layout) {
    const uint64_t stride = (layout.LayerBytes() + 63) / 64 * 64;
    void* bytes = ::operator new(stride* layout.layers, kAlignment, std::nothrow);
    if (bytes == nullptr) return nullptr;
    return std::shared_ptr<OwnedObject>(new OwnedObject(layout, stride, static_cast<std::byte*>(bytes)));
  }
  ~OwnedObject() override { ::operator delete(bytes_, kAlignment); }
  OwnedObject(const OwnedObject&) = delete;
  OwnedObject& operator=(const OwnedObject&) = delete;

  const KvLayout& layout() const override { return layout_; }
  const Digest& build() const override { return build_; }
  ByteSpan Layer(uint32_t layer) const override { return {bytes_ + layer * stride_, layout_.LayerBytes()}; }
  MutableByteSpan layer(uint32_t layer) { return {bytes_ + layer * stride_, layout_.LayerBytes()}; }
  void set_build(const Digest& build) { build_ = build; }

 private:
  OwnedObject(const KvLayout& layout, uint64_t stride, std::byte* bytes)
      : layout_(layout), stride_(stride), bytes_(bytes) {}

  const KvLayout layout_;
  const uint64_t stride_;  // of layers
  std::byte* const bytes_;
  Digest build_;
};

absl::Status NoMemory() {
  return RetryLater(ErrorCode::kStorageFull, "this process has no memory for the object", 1000);
}

// What one more attempt, from the beginning, can mend: the node was restarted or could not be reached, took
// the lease or the reservation away, or bytes were damaged on the way.
bool MayTryAgain(const absl::Status& status) {
  if (status.ok()) return false;
  // Unimplemented: of a path to bytes that were elsewhere by then.
  if (absl::IsUnavailable(status) || absl::IsUnimplemented(status)) return true;
  const ErrorCode code = CodeOf(status);
  return code == ErrorCode::kReservationEnded || code == ErrorCode::kLeaseEnded ||
         code == ErrorCode::kLayerDamaged;
}

// What the writers of a store share with it, and may outlive it by.
struct Shared {
  Shared(const RemoteKvStoreOptions& from)
      : options(from),
        channel(std::make_shared<StoreChannel>(StoreChannelOptions{.address = from.address,
                                                                   .credentials = from.credentials,
                                                                   .call_ms = from.call_ms,
                                                                   .reconnect_ms = from.reconnect_ms})),
        records(channel, from.clock),
        objects(channel, SystemRandom()),
        erasures(channel, from.erase_ms),
        attachment(channel, &objects, from.heartbeat_ms) {
    if (from.make_reader) reader = from.make_reader({channel, &objects, &attachment});
  }

  absl::StatusOr<AcquireResult> ReadOnce(std::string_view tenant, const ObjectKey& key,
                                         const KvLayout& layout);
  // Whole objects.
  absl::StatusOr<AcquireResult> Read(std::string_view tenant, const ObjectKey& key, const KvLayout& layout);
  // Objects that may be on their way, where the reader has them so.
  absl::StatusOr<AcquireResult> ReadStreaming(std::string_view tenant, const ObjectKey& key,
                                              const KvLayout& layout);

  const RemoteKvStoreOptions options;
  const std::shared_ptr<StoreChannel> channel;
  RecordClient records;
  ObjectClient objects;
  EraseCalls erasures;
  Attachment attachment;                 // its threads use the above
  std::unique_ptr<ObjectReader> reader;  // nullptr: ReadOnce
};

absl::StatusOr<AcquireResult> Shared::ReadOnce(std::string_view tenant, const ObjectKey& key,
                                               const KvLayout& layout) {
  if (reader != nullptr) {
    EPIC_ASSIGN_OR_RETURN(AcquireResult result, reader->Read(tenant, key, layout));
    if (result.object != nullptr) EPIC_RETURN_IF_ERROR(result.object->WaitLayer(layout.layers - 1));
    return result;
  }
  EPIC_ASSIGN_OR_RETURN(const auto acquired, objects.Acquire(tenant, {&key, 1}, {&layout, 1},
                                                             options.lease_ms, /*streaming=*/true));
  const ObjectClient::Acquired& item = acquired.front();
  EPIC_RETURN_IF_ERROR(item.status);
  if (!item.hit) return AcquireResult{.object = nullptr, .cause = item.cause};
  const auto object = OwnedObject::Make(layout);
  if (object == nullptr) {
    const auto released = objects.ConfirmAndRelease({&item.lease, 1});
    return AcquireResult{.object = nullptr, .cause = MissCause::kNoMemory};
  }
  std::vector<MutableByteSpan> layers;
  for (uint32_t layer = 0; layer < layout.layers; ++layer) layers.push_back(object->layer(layer));
  EPIC_ASSIGN_OR_RETURN(const Digest build, objects.ReadLayers(item.lease, layout, 0, layers));
  if (build != item.build) {
    return Error(ErrorCode::kLayerDamaged, "the layers are not those of the object that was leased");
  }
  EPIC_ASSIGN_OR_RETURN(const auto held, objects.ConfirmAndRelease({&item.lease, 1}));
  if (!held.front()) return Error(ErrorCode::kLeaseEnded, "the lease ended before the transfer did");
  object->set_build(build);
  return AcquireResult{.object = object};
}

absl::StatusOr<AcquireResult> Shared::Read(std::string_view tenant, const ObjectKey& key,
                                           const KvLayout& layout) {
  EPIC_RETURN_IF_ERROR(ValidateLayout(layout));
  auto result = ReadOnce(tenant, key, layout);
  if (result.ok() || !MayTryAgain(result.status())) return result;
  return ReadOnce(tenant, key, layout);
}

absl::StatusOr<AcquireResult> Shared::ReadStreaming(std::string_view tenant, const ObjectKey& key,
                                                    const KvLayout& layout) {
  if (reader == nullptr) return Read(tenant, key, layout);
  EPIC_RETURN_IF_ERROR(ValidateLayout(layout));
  return reader->Read(tenant, key, layout);
}

class RemoteWriter final : public ObjectWriter {
 public:
  RemoteWriter(std::shared_ptr<Shared> shared, std::string_view tenant, const ObjectKey& key,
               std::shared_ptr<OwnedObject> object)
      : shared_(std::move(shared)),
        tenant_(tenant),
        key_(key),
        object_(std::move(object)),
        crcs_(BlockCount(object_->layout())),
        written_(object_->layout().layers, false) {}
  ~RemoteWriter() override {
    if (token_.empty()) return;
    shared_->attachment.LetGo(token_);
    const absl::Status aborted = shared_->objects.Abort(token_);
  }

  absl::Status Begin() {
    EPIC_ASSIGN_OR_RETURN(const auto reserved,
                          shared_->objects.Reserve(tenant_, key_, object_->layout(), shared_->options.source,
                                                   ObjectClient::NewRequestId()));
    EPIC_RETURN_IF_ERROR(reserved.status);
    exists_ = reserved.exists;
    token_ = reserved.token;
    behind_ = false;
    if (!token_.empty()) shared_->attachment.KeepAlive(token_);
    return absl::OkStatus();
  }

  absl::Status WriteLayer(uint32_t layer, ByteSpan slab) override {
    const KvLayout& layout = object_->layout();
    if (layer >= layout.layers || slab.size() != layout.LayerBytes()) {
      return absl::InvalidArgumentError("a layer out of range, or of a wrong size");
    }
    if (committed_ != nullptr || written_[layer]) {
      return absl::FailedPreconditionError("layer is written already");
    }
    CopyWithBlockCrcs(layout, slab, object_->layer(layer), CrcsOf(layer));
    written_[layer] = true;
    if (exists_ || behind_) return absl::OkStatus();
    const ObjectClient::LayerToSend sent = ToSend(layer);
    absl::Status status = shared_->objects.WriteLayers(token_, {&sent, 1});
    if (!status.ok() && CodeOf(status) == ErrorCode::kLayerDamaged) {
      status = shared_->objects.WriteLayers(token_, {&sent, 1});
    }
    behind_ = !status.ok() && MayTryAgain(status);  // Commit begins anew
    return behind_ ? absl::OkStatus() : status;
  }

  absl::StatusOr<std::shared_ptr<const KvObject>> Commit() override {
    if (committed_ != nullptr) return committed_;
    if (std::find(written_.begin(), written_.end(), false) != written_.end()) {
      return absl::FailedPreconditionError("a layer is missing");
    }
    object_->set_build(BuildDigest(crcs_));
    if (behind_) {
      EPIC_RETURN_IF_ERROR(Again());
      return committed_;
    }
    absl::Status of_node;
    absl::Status status = CommitOnce(&of_node);
    // A disk that fails is Unavailable, too, but is not asked by beginning anew.
    if (MayTryAgain(status) && (of_node.ok() || CodeOf(of_node) == ErrorCode::kReservationEnded)) {
      status = Again();
    }
    if (!status.ok()) return status;
    return committed_;
  }

 private:
  std::span<uint32_t> CrcsOf(uint32_t layer) {
    const uint64_t blocks = BlocksPerLayer(object_->layout());
    return std::span(crcs_).subspan(layer * blocks, blocks);
  }
  ObjectClient::LayerToSend ToSend(uint32_t layer) {
    return {.layer = layer, .slab = object_->Layer(layer), .block_crcs = CrcsOf(layer)};
  }

  // `of_node`: what the node itself says of the commit.
  absl::Status CommitOnce(absl::Status* of_node) {
    if (exists_) return ReadBack();
    EPIC_ASSIGN_OR_RETURN(const auto committed, shared_->objects.Commit(token_, object_->build()));
    *of_node = committed.status;
    EPIC_RETURN_IF_ERROR(committed.status);
    End();
    if (committed.build != object_->build()) return ReadBack();
    committed_ = object_;
    return absl::OkStatus();
  }
  // What somebody else put there first.
  absl::Status ReadBack() {
    EPIC_ASSIGN_OR_RETURN(const AcquireResult result, shared_->Read(tenant_, key_, object_->layout()));
    if (result.object == nullptr) {
      return Error(ErrorCode::kReservationEnded, "what was there is gone; write the object again");
    }
    committed_ = result.object;
    return absl::OkStatus();
  }
  absl::Status Again() {
    End();
    EPIC_RETURN_IF_ERROR(Begin());
    if (!exists_) {
      std::vector<ObjectClient::LayerToSend> layers;
      for (uint32_t layer = 0; layer < object_->layout().layers; ++layer) layers.push_back(ToSend(layer));
      EPIC_RETURN_IF_ERROR(shared_->objects.WriteLayers(token_, layers));
    }
    absl::Status of_node;
    return CommitOnce(&of_node);
  }
  void End() {
    if (!token_.empty()) shared_->attachment.LetGo(token_);
    token_.clear();
  }

  const std::shared_ptr<Shared> shared_;
  const std::string tenant_;
  const ObjectKey key_;
  const std::shared_ptr<OwnedObject> object_;  // the copy; shared with readers once it is committed
  std::vector<uint32_t> crcs_;
  std::vector<bool> written_;
  bool exists_ = false;
  bool behind_ = false;  // the node has not all that was written: the reservation is over
  std::string token_;    // empty: none
  std::shared_ptr<const KvObject> committed_;
};

class RemoteKvStore final : public KvStore {
 public:
  explicit RemoteKvStore(const RemoteKvStoreOptions& options) : shared_(std::make_shared<Shared>(options)) {}

  absl::StatusOr<CreateResult> CreateContext(const NewContext& context) override {
    return shared_->records.CreateContext(context);
  }
  absl::StatusOr<ContextRecord> GetContext(std::string_view tenant, const CacheId& id) override {
    return shared_->records.GetContext(tenant, id);
  }
  absl::StatusOr<ContextRecord> FindByName(std::string_view tenant, const Digest& model_identity,
                                           std::string_view name) override {
    return shared_->records.FindByName(tenant, model_identity, name);
  }
  absl::StatusOr<std::vector<TokenId>> GetTokens(std::string_view tenant, const CacheId& id) override {
    return shared_->records.GetTokens(tenant, id);
  }
  absl::StatusOr<ContextPage> ListContexts(std::string_view tenant, const ContextQuery& query) override {
    return shared_->records.ListContexts(tenant, query);
  }
  absl::StatusOr<ContextRecord> UpdateContext(std::string_view tenant, const CacheId& id,
                                              const ContextPatch& patch) override {
    return shared_->records.UpdateContext(tenant, id, patch);
  }
  absl::StatusOr<bool> DeleteContext(std::string_view tenant, const CacheId& id) override {
    return shared_->records.DeleteContext(tenant, id);
  }
  // Two calls: the first says whether it was there, the second waits.
  absl::StatusOr<bool> EraseContext(std::string_view tenant, const CacheId& id, ErasedDone erased) override {
    EPIC_ASSIGN_OR_RETURN(const bool existed, shared_->records.DeleteContext(tenant, id));
    shared_->erasures.Start(tenant, id, std::move(erased));
    return existed;
  }
  absl::Status SetState(std::string_view tenant, const CacheId& id, ContextState state, int64_t compile_ms,
                        std::string_view error) override {
    return shared_->records.SetState(tenant, id, state, compile_ms, error);
  }
  void Touch(std::string_view tenant, const CacheId& id) override {
    const absl::Status touched = shared_->records.Touch(tenant, {id});
  }
  absl::StatusOr<std::unique_ptr<ObjectWriter>> Reserve(std::string_view tenant, const ObjectKey& key,
                                                        const KvLayout& layout) override {
    EPIC_RETURN_IF_ERROR(ValidateLayout(layout));
    auto object = OwnedObject::Make(layout);
    if (object == nullptr) return NoMemory();
    auto writer = std::make_unique<RemoteWriter>(shared_, tenant, key, std::move(object));
    EPIC_RETURN_IF_ERROR(writer->Begin());
    return writer;
  }
  absl::StatusOr<AcquireResult> Acquire(std::string_view tenant, const ObjectKey& key,
                                        const KvLayout& layout) override {
    return shared_->Read(tenant, key, layout);
  }
  absl::StatusOr<AcquireResult> AcquireStreaming(std::string_view tenant, const ObjectKey& key,
                                                 const KvLayout& layout) override {
    return shared_->ReadStreaming(tenant, key, layout);
  }
  absl::Status DropObject(std::string_view tenant, const ObjectKey& key) override {
    EPIC_ASSIGN_OR_RETURN(const auto results, shared_->objects.Drop(tenant, {&key, 1}));
    return results.front();
  }
  StoreUsage Usage() override {
    const auto answer = shared_->records.Usage();
    return answer.ok() ? answer->usage : StoreUsage();
  }
  // A call to the node, as Usage: unlike that of a store in this process it may block.
  StoreDisk Disk() override {
    const auto answer = shared_->records.Usage();
    return answer.ok() ? answer->disk : StoreDisk();
  }

 private:
  const std::shared_ptr<Shared> shared_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KvStore>> MakeRemoteKvStore(const RemoteKvStoreOptions& options) {
  if (options.address.empty()) return absl::InvalidArgumentError("name the address of the store node");
  return std::make_unique<RemoteKvStore>(options);
}

}  // namespace epic
