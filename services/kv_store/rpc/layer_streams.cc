#include "services/kv_store/rpc/layer_streams.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/crc32c.h"
#include "common/base/mutex.h"
#include "common/rpc/kv_store/item_status.h"
#include "common/rpc/kv_store/layer_part.h"
#include "common/rpc/kv_store/object_convert.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "epic/v1/kv_store.pb.h"
#include "services/kv_store/rpc/node_convert.h"
#include "services/kv_store/rpc/stall_guard.h"

namespace epic::kv_store {
namespace {

absl::Status ClientGone() { return Error(ErrorCode::kClientGone, "the client went away"); }

class LayerReceiver final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  LayerReceiver(const StreamParts* parts, grpc::CallbackServerContext* context, grpc::ByteBuffer* response)
      : parts_(parts),
        response_(response),
        call_(parts->rpc, context, "write_layers"),
        place_(parts),
        guard_(parts->timers, parts->rpc->clock, parts->stall_ms, context) {
    place_.granted() ? Next() : End(DoorIsFull());
  }

  void OnReadDone(bool ok) override {
    parts_->rpc->executor->Submit([this, ok] { ok ? TakePart() : TakeEnd(); });
  }
  void OnCancel() override { call_.Cancel(/*by_client=*/true); }
  void OnDone() override {
    guard_.Disarm();
    call_.Report();
    // Known for sure only now: the last read may fail before gRPC tells of the cancellation.
    if (token_.has_value() && call_.scope().cancel.cancelled()) {
      parts_->rpc->executor->Submit([node = parts_->node, token = *token_] {
        node->Abort(std::span<const ReservationToken>(&token, 1));
      });
    }
    delete this;
  }

 private:
  void Next() {
    guard_.Wait();
    StartRead(&bytes_);
  }

  void TakePart() {
    guard_.Rest();
    absl::StatusOr<ReceivedPart> part = DecodeLayerPart(bytes_);
    bytes_.Clear();
    if (!part.ok()) return End(part.status());
    if (absl::Status status = Take(*part); !status.ok()) return End(status);
    Next();
  }

  // No more parts, or no more client.
  void TakeEnd() {
    guard_.Rest();
    if (call_.scope().cancel.cancelled()) return End(ClientGone());
    if (fill_.has_value()) {
      return End(Error(ErrorCode::kInvalidRequest, "the stream ended within a layer", "data"));
    }
    bool own_buffer = false;
    const grpc::Status status =
        grpc::SerializationTraits<v1::WriteLayersResponse>::Serialize(answer_, response_, &own_buffer);
    End(status.ok() ? absl::OkStatus() : absl::InternalError("the answer could not be serialised"));
  }

  // Errors end the stream; what concerns one layer only stands in the answer.
  absl::Status Take(const ReceivedPart& part) {
    if (!part.head.token.empty() && !token_.has_value()) {
      EPIC_ASSIGN_OR_RETURN(token_, TokenOf(part.head.token));
    }
    if (!token_.has_value()) {
      return Error(ErrorCode::kInvalidRequest, "the first part names the reservation", "token");
    }
    if (part.head.offset == 0) {
      EPIC_RETURN_IF_ERROR(BeginLayer(part));
    } else if (!open_ || part.head.layer != layer_) {
      return Error(ErrorCode::kInvalidRequest, "the parts of a layer come in order from offset 0", "offset");
    }
    if (!fill_.has_value()) return absl::OkStatus();  // the rest of a layer that is refused already
    const MutableByteSpan bytes = fill_->bytes();
    if (part.head.offset != filled_ || part.data_bytes > bytes.size() - filled_ || part.data_bytes == 0) {
      return Error(ErrorCode::kInvalidRequest, "the parts of a layer do not follow one another", "offset");
    }
    if (!part.CopyTo(bytes.subspan(filled_, part.data_bytes))) {
      Refuse(Error(ErrorCode::kLayerDamaged, "a part does not have its checksum; send the layer again"));
      return absl::OkStatus();
    }
    filled_ += part.data_bytes;
    return filled_ == bytes.size() ? FinishLayer() : absl::OkStatus();
  }

  absl::Status BeginLayer(const ReceivedPart& part) {
    if (fill_.has_value()) {
      return Error(ErrorCode::kInvalidRequest, "the layer before is not whole", "offset");
    }
    open_ = true;
    layer_ = part.head.layer;
    filled_ = 0;
    crcs_ = part.head.block_crcs;
    answer_.add_items()->set_layer(layer_);
    absl::StatusOr<LayerFill> fill = parts_->node->BeginLayer(*token_, layer_);
    if (!fill.ok()) return OneLayerOnly(fill.status());
    fill_.emplace(*std::move(fill));
    return absl::OkStatus();
  }

  absl::Status FinishLayer() {
    LayerFill fill = *std::move(fill_);
    fill_.reset();
    open_ = false;
    return OneLayerOnly(parts_->node->FinishLayer(std::move(fill), crcs_));
  }

  // Notes what concerns the layer alone; returns what ends the stream.
  absl::Status OneLayerOnly(const absl::Status& status) {
    if (status.ok()) return status;
    const ErrorCode code = CodeOf(status);
    if (code != ErrorCode::kLayerDamaged && code != ErrorCode::kReservationConflict) return status;
    Refuse(status);
    return absl::OkStatus();
  }
  void Refuse(const absl::Status& status) {
    fill_.reset();
    *answer_.mutable_items(answer_.items_size() - 1)->mutable_error() = epic::ToProto(status);
  }

  void End(const absl::Status& status) {
    const bool within = fill_.has_value();
    fill_.reset();
    if (token_.has_value() && within) {
      parts_->node->Abort(std::span<const ReservationToken>(&*token_, 1));
    }
    Finish(call_.SetOutcome(status));
  }

  const StreamParts* const parts_;
  grpc::ByteBuffer* const response_;
  RpcCall call_;  // synchronises itself
  const StreamPlace place_;

  // Of the step that runs: one at a time.
  StallGuard guard_;
  grpc::ByteBuffer bytes_;
  std::optional<ReservationToken> token_;
  bool open_ = false;  // a layer was begun, and its last part has not come
  uint32_t layer_ = 0;
  uint64_t filled_ = 0;
  std::vector<uint32_t> crcs_;
  std::optional<LayerFill> fill_;  // nullopt while open_: the layer is refused
  v1::WriteLayersResponse answer_;
};

class LayerSender final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  LayerSender(const StreamParts* parts, grpc::CallbackServerContext* context, const grpc::ByteBuffer* request)
      : parts_(parts),
        call_(parts->rpc, context, "read_layers"),
        place_(parts),
        guard_(parts->timers, parts->rpc->clock, parts->stall_ms, context) {
    grpc::ByteBuffer bytes(*request);
    readable_ = grpc::SerializationTraits<v1::ReadLayersRequest>::Deserialize(&bytes, &request_).ok();
    lease_ = {.incarnation = request_.incarnation(), .number = request_.lease()};
    layer_ = request_.first_layer();
    // Last: the stream may be over when it returns.
    if (!place_.granted() || !parts_->rpc->executor->TrySubmit([this] { Begin(); })) End(DoorIsFull());
  }

  void OnWriteDone(bool ok) override {
    parts_->rpc->executor->Submit([this, ok] {
      guard_.Rest();
      if (ok && parts_->on_layer_bytes) parts_->on_layer_bytes(part_bytes_);
      ok ? SendPart() : End(ClientGone());
    });
  }
  void OnCancel() override {
    call_.Cancel(/*by_client=*/true);
    EndWait();
  }
  void OnDone() override {
    guard_.Disarm();
    call_.Report();
    // Known for sure only now: the last write may fail before gRPC tells of the cancellation.
    if (call_.scope().cancel.cancelled() && !request_.keep_lease()) {
      parts_->rpc->executor->Submit([node = parts_->node, peer = request_.peer(), lease = lease_] {
        node->Release(peer, std::span<const LeaseId>(&lease, 1));
      });
    }
    delete this;
  }

 private:
  void Begin() {
    if (!readable_) return End(Error(ErrorCode::kInvalidRequest, "that is no ReadLayersRequest"));
    const absl::StatusOr<ObjectPtr> object = parts_->node->Read(request_.peer(), lease_);
    if (!object.ok()) return EndLease(object.status());
    const uint32_t layers = (*object)->layout().layers;
    const uint64_t end = uint64_t{layer_} + request_.layers();
    if (layer_ >= layers || end > layers) {
      return End(Error(ErrorCode::kInvalidRequest, "the object has no such layers", "first_layer"));
    }
    end_ = request_.layers() == 0 ? layers : static_cast<uint32_t>(end);
    SendPart();
  }

  // The next part, now or when its layer is there, or the end.
  void SendPart() {
    if (call_.scope().cancel.cancelled()) return End(ClientGone());
    if (layer_ == end_) return End(absl::OkStatus());
    absl::StatusOr<ObjectPtr> object = parts_->node->Read(request_.peer(), lease_);
    if (!object.ok()) return EndLease(object.status());
    if (layer_ >= (*object)->ReadyLayers()) return WaitForLayer(*std::move(object));
    const ByteSpan slab = (*object)->Layer(layer_);
    const ByteSpan data = slab.subspan(offset_, std::min<uint64_t>(kMaxPartBytes, slab.size() - offset_));
    LayerPartHead head{.layer = layer_, .offset = offset_, .data_crc32c = Crc32c(0, data)};
    if (offset_ == 0) head.block_crcs = CrcsOf(**object, layer_);
    bytes_ = EncodeLayerPart(head, SliceOf(data, *std::move(object)));
    part_bytes_ = data.size();
    offset_ += data.size();
    if (offset_ == slab.size()) {
      ++layer_;
      offset_ = 0;
    }
    guard_.Wait();
    StartWrite(&bytes_);
  }

  // Waits without a thread: the next step begins when the layer has come, or never will, or the client goes.
  void WaitForLayer(ObjectPtr object) ABSL_LOCKS_EXCLUDED(mu_) {
    const uint32_t layer = layer_;
    auto turn = std::make_shared<std::atomic<bool>>(false);
    {
      MutexLock lock(&mu_);
      waiting_ = turn;
    }
    if (call_.scope().cancel.cancelled()) return EndWait();
    // From here on whoever takes the turn may end the stream.
    const HostObject& waited_for = *object;
    waited_for.OnLayer(layer, [this, layer, turn, object = std::move(object)] {
      if (turn->exchange(true)) return;
      parts_->rpc->executor->Submit(
          [this, layer, object] { object->WaitLayer(layer).ok() ? SendPart() : EndLost(); });
    });
  }
  void EndWait() ABSL_LOCKS_EXCLUDED(mu_) {
    std::shared_ptr<std::atomic<bool>> turn;
    {
      MutexLock lock(&mu_);
      turn.swap(waiting_);
    }
    if (turn == nullptr || turn->exchange(true)) return;
    parts_->rpc->executor->Submit([this] { End(ClientGone()); });
  }
  void EndLost() {
    EndLease(Error(ErrorCode::kLeaseEnded,
                   "the rest of the object could not be read from disk; acquire it again to hear why"));
  }
  // Lets go of a lease that is over, and of its memory.
  void EndLease(const absl::Status& status) {
    parts_->node->Release(request_.peer(), std::span<const LeaseId>(&lease_, 1));
    End(status);
  }

  static std::vector<uint32_t> CrcsOf(const HostObject& object, uint32_t layer) {
    const uint64_t blocks = BlocksPerLayer(object.layout());
    const auto crcs = std::span(object.head().block_crcs).subspan(layer * blocks, blocks);
    return {crcs.begin(), crcs.end()};
  }
  // Holds the object until gRPC has sent the bytes.
  static grpc::Slice SliceOf(ByteSpan data, ObjectPtr object) {
    void* bytes = const_cast<std::byte*>(data.data());
    const auto let_go = [](void* holder) { delete static_cast<ObjectPtr*>(holder); };
    return grpc::Slice(bytes, data.size(), let_go, new ObjectPtr(std::move(object)));
  }

  void End(const absl::Status& status) { Finish(call_.SetOutcome(status)); }

  const StreamParts* const parts_;
  RpcCall call_;  // synchronises itself
  const StreamPlace place_;

  Mutex mu_;
  // True once somebody has taken the next step; nullptr: nothing is waited for.
  std::shared_ptr<std::atomic<bool>> waiting_ ABSL_GUARDED_BY(mu_);

  // Of the step that runs: one at a time.
  StallGuard guard_;
  bool readable_ = false;
  v1::ReadLayersRequest request_;
  LeaseId lease_;
  uint32_t layer_ = 0;
  uint32_t end_ = 0;
  uint64_t offset_ = 0;
  uint64_t part_bytes_ = 0;  // of the part that is being sent
  grpc::ByteBuffer bytes_;
};

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* ReceiveLayers(const StreamParts* parts,
                                                         grpc::CallbackServerContext* context,
                                                         grpc::ByteBuffer* response) {
  return new LayerReceiver(parts, context, response);  // frees itself
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* SendLayers(const StreamParts* parts,
                                                       grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) {
  return new LayerSender(parts, context, request);  // frees itself
}

}  // namespace epic::kv_store
