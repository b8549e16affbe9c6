#include "common/rpc/kv_store/object_client.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/system_random.h"
#include "common/rpc/kv_store/byte_stream.h"
#include "common/rpc/kv_store/item_status.h"
#include "common/rpc/kv_store/layer_part.h"
#include "common/rpc/kv_store/object_convert.h"
#include "common/rpc/kv_store/record_convert.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/storage/object_codec.h"

namespace epic {
namespace {

using Stub = StoreChannel::Stub;

absl::Status WrongCount() {
  return absl::InternalError("the store answered another number of items than it was asked for");
}

absl::Status Damaged(uint32_t layer) {
  return Error(ErrorCode::kLayerDamaged,
               "layer " + std::to_string(layer) + " did not arrive as it was sent; read it again");
}

template <typename Proto>
absl::StatusOr<grpc::ByteBuffer> BufferOf(const Proto& proto) {
  grpc::ByteBuffer bytes;
  bool own = false;
  const grpc::Status status = grpc::SerializationTraits<Proto>::Serialize(proto, &bytes, &own);
  if (!status.ok()) return absl::InternalError("a request could not be serialised");
  return bytes;
}

// Puts parts into their places and checks them.
class LayerAssembly {
 public:
  LayerAssembly(const KvLayout& layout, uint32_t first, std::span<const MutableByteSpan> to)
      : layout_(layout), first_(first), to_(to) {}

  bool done() const { return whole_ == to_.size(); }
  // REQUIRES: done().
  Digest build() const { return BuildDigest(crcs_); }

  absl::Status Take(const ReceivedPart& part) {
    const uint64_t size = layout_.LayerBytes();
    const uint32_t layer = first_ + static_cast<uint32_t>(whole_);
    if (done() || part.head.layer != layer || part.head.offset != filled_ ||
        part.data_bytes > size - filled_ || part.data_bytes == 0) {
      return absl::InternalError("the store sent a part that was not to come");
    }
    if (filled_ == 0) expected_ = part.head.block_crcs;
    if (!part.CopyTo(to_[whole_].subspan(filled_, part.data_bytes))) return Damaged(layer);
    filled_ += part.data_bytes;
    if (filled_ < size) return absl::OkStatus();
    std::vector<uint32_t> crcs(BlocksPerLayer(layout_));
    ComputeBlockCrcs(layout_, to_[whole_], crcs);
    if (crcs != expected_) return Damaged(layer);
    crcs_.insert(crcs_.end(), crcs.begin(), crcs.end());
    ++whole_;
    filled_ = 0;
    return absl::OkStatus();
  }

 private:
  const KvLayout layout_;
  const uint32_t first_;
  const std::span<const MutableByteSpan> to_;
  size_t whole_ = 0;     // layers
  uint64_t filled_ = 0;  // bytes of the next one
  std::vector<uint32_t> expected_;
  std::vector<uint32_t> crcs_;  // of whole layers
};

// The parts of one layer. False: the stream is over.
bool SendLayer(ByteStream* stream, const std::string& token, const ObjectClient::LayerToSend& layer) {
  for (uint64_t at = 0; at < layer.slab.size();) {
    const ByteSpan data = layer.slab.subspan(at, std::min<uint64_t>(kMaxPartBytes, layer.slab.size() - at));
    // gRPC may hold the bytes longer than the caller does.
    const grpc::Slice slice(data.size());
    auto* copy = reinterpret_cast<std::byte*>(const_cast<uint8_t*>(slice.begin()));
    LayerPartHead head{.token = token, .layer = layer.layer, .offset = at};
    head.data_crc32c = CopyWithCrc32c(0, data, {copy, data.size()});
    if (at == 0) head.block_crcs.assign(layer.block_crcs.begin(), layer.block_crcs.end());
    if (!stream->Write(EncodeLayerPart(head, slice))) return false;
    at += data.size();
  }
  return true;
}

}  // namespace

absl::StatusOr<std::vector<ObjectClient::Tiers>> ObjectClient::Exists(std::string_view tenant,
                                                                      std::span<const ObjectKey> keys) {
  v1::ExistsRequest request;
  request.set_tenant(tenant.data(), tenant.size());
  *request.mutable_keys() = ToProto(keys, {});
  EPIC_ASSIGN_OR_RETURN(const auto answer, channel_->Call(&Stub::Exists, request));
  if (static_cast<size_t>(answer.tiers_size()) != keys.size()) return WrongCount();
  std::vector<Tiers> tiers;
  tiers.reserve(keys.size());
  for (const uint32_t bits : answer.tiers()) tiers.push_back({(bits & 1) != 0, (bits & 2) != 0});
  return tiers;
}

absl::StatusOr<std::vector<absl::Status>> ObjectClient::Drop(std::string_view tenant,
                                                             std::span<const ObjectKey> keys) {
  v1::DropObjectsRequest request;
  request.set_tenant(tenant.data(), tenant.size());
  *request.mutable_keys() = ToProto(keys, {});
  EPIC_ASSIGN_OR_RETURN(const auto answer, channel_->Call(&Stub::Drop, request));
  if (static_cast<size_t>(answer.items_size()) != keys.size()) return WrongCount();
  std::vector<absl::Status> results;
  for (const v1::ItemStatus& item : answer.items()) results.push_back(FromProto(item));
  return results;
}

absl::StatusOr<std::vector<ObjectClient::Acquired>> ObjectClient::Acquire(std::string_view tenant,
                                                                          std::span<const ObjectKey> keys,
                                                                          std::span<const KvLayout> layouts,
                                                                          int64_t duration_ms, bool streaming,
                                                                          bool with_checksums) {
  v1::AcquireObjectsRequest request;
  request.set_peer(peer_);
  request.set_tenant(tenant.data(), tenant.size());
  *request.mutable_keys() = ToProto(keys, layouts);
  request.set_duration_ms(duration_ms);
  request.set_streaming(streaming);
  request.set_with_checksums(with_checksums);
  EPIC_ASSIGN_OR_RETURN(const auto answer, channel_->Call(&Stub::Acquire, request));
  if (static_cast<size_t>(answer.items_size()) != keys.size()) return WrongCount();
  std::vector<Acquired> results;
  results.reserve(keys.size());
  for (const auto& item : answer.items()) {
    Acquired& result = results.emplace_back();
    result.hit = item.has_lease();
    result.lease = {answer.incarnation(), item.lease().number()};
    if (item.has_error()) result.status = FromProto(item.error());
    if (!result.hit) result.cause = FromProto(item.miss());
    if (!result.hit) continue;
    EPIC_ASSIGN_OR_RETURN(result.build, DigestFromProto(item.lease().build(), "build"));
    result.generation = item.lease().counter();
    result.block_crcs.assign(item.lease().block_crcs().begin(), item.lease().block_crcs().end());
    result.on_its_way = item.lease().on_its_way();
  }
  return results;
}

absl::StatusOr<Digest> ObjectClient::ReadLayers(const RemoteLease& lease, const KvLayout& layout,
                                                uint32_t first, std::span<const MutableByteSpan> to) {
  for (const MutableByteSpan slab : to) EPIC_CHECK(slab.size() == layout.LayerBytes());
  v1::ReadLayersRequest request;
  request.set_peer(peer_);
  request.set_incarnation(lease.incarnation);
  request.set_lease(lease.number);
  request.set_first_layer(first);
  request.set_layers(static_cast<uint32_t>(to.size()));
  EPIC_ASSIGN_OR_RETURN(const grpc::ByteBuffer sent, BufferOf(request));
  ByteStream stream(*channel_, "ReadLayers", channel_->TransferMs(to.size() * layout.LayerBytes()));
  LayerAssembly assembly(layout, first, to);
  if (stream.Write(sent) && stream.WritesDone()) {
    grpc::ByteBuffer bytes;
    while (stream.Read(&bytes)) {
      EPIC_ASSIGN_OR_RETURN(const ReceivedPart part, DecodeLayerPart(bytes));
      EPIC_RETURN_IF_ERROR(assembly.Take(part));
      bytes.Clear();
    }
  }
  EPIC_RETURN_IF_ERROR(stream.Finish());
  if (!assembly.done()) return absl::InternalError("the store sent too little");
  return assembly.build();
}

template <typename Request>
Request ObjectClient::LeasesRequest(std::span<const RemoteLease> leases) const {
  Request request;
  request.set_peer(peer_);
  for (const RemoteLease& lease : leases) {
    // All of one life; those of another one are over, and named so by a number that is none.
    const bool same = lease.incarnation == leases.front().incarnation;
    request.mutable_leases()->set_incarnation(leases.front().incarnation);
    request.mutable_leases()->add_numbers(same ? lease.number : 0);
  }
  return request;
}

absl::StatusOr<std::vector<bool>> ObjectClient::ConfirmAndRelease(std::span<const RemoteLease> leases) {
  auto request = LeasesRequest<v1::ConfirmRequest>(leases);
  request.set_release(true);
  EPIC_ASSIGN_OR_RETURN(const auto answer, channel_->Call(&Stub::Confirm, request));
  if (static_cast<size_t>(answer.held_size()) != leases.size()) return WrongCount();
  return std::vector<bool>(answer.held().begin(), answer.held().end());
}

absl::StatusOr<std::vector<bool>> ObjectClient::Renew(std::span<const RemoteLease> leases,
                                                      int64_t duration_ms) {
  auto request = LeasesRequest<v1::RenewRequest>(leases);
  request.set_duration_ms(duration_ms);
  EPIC_ASSIGN_OR_RETURN(const auto answer, channel_->Call(&Stub::Renew, request));
  if (static_cast<size_t>(answer.held_size()) != leases.size()) return WrongCount();
  return std::vector<bool>(answer.held().begin(), answer.held().end());
}

absl::StatusOr<ObjectClient::Reserved> ObjectClient::Reserve(std::string_view tenant, const ObjectKey& key,
                                                             const KvLayout& layout, std::string_view source,
                                                             std::string_view request_id) {
  v1::ReserveObjectsRequest request;
  request.set_peer(peer_);
  request.set_tenant(tenant.data(), tenant.size());
  *request.mutable_keys() = ToProto({&key, 1}, {&layout, 1});
  request.set_source(source.data(), source.size());
  request.set_requests(request_id.data(), request_id.size());
  EPIC_ASSIGN_OR_RETURN(const auto answer, channel_->Call(&Stub::Reserve, request));
  if (answer.items_size() != 1) return WrongCount();
  const auto& item = answer.items(0);
  Reserved reserved{.exists = item.exists(), .token = item.token(), .heartbeat_ms = answer.heartbeat_ms()};
  if (item.has_error()) reserved.status = FromProto(item.error());
  if (item.has_busy()) {
    reserved.status = RetryLater(ErrorCode::kReservationConflict, "somebody else writes this object just now",
                                 item.busy().retry_after_ms());
  }
  return reserved;
}

std::string ObjectClient::NewRequestId() {
  std::string id;
  AppendLittle<uint64_t>(&id, SystemRandom());
  AppendLittle<uint64_t>(&id, SystemRandom());
  return id;
}

absl::Status ObjectClient::WriteLayers(const std::string& token, std::span<const LayerToSend> layers) {
  uint64_t bytes = 0;
  for (const LayerToSend& layer : layers) bytes += layer.slab.size();
  ByteStream stream(*channel_, "WriteLayers", channel_->TransferMs(bytes));
  const bool sent = std::all_of(layers.begin(), layers.end(),
                                [&](const LayerToSend& layer) { return SendLayer(&stream, token, layer); }) &&
                    stream.WritesDone();
  grpc::ByteBuffer buffer;
  v1::WriteLayersResponse answer;
  const bool answered =
      sent && stream.Read(&buffer) &&
      grpc::SerializationTraits<v1::WriteLayersResponse>::Deserialize(&buffer, &answer).ok();
  EPIC_RETURN_IF_ERROR(stream.Finish());
  if (!answered || static_cast<size_t>(answer.items_size()) != layers.size()) return WrongCount();
  for (const auto& item : answer.items()) EPIC_RETURN_IF_ERROR(FromProto(item.error()));
  return absl::OkStatus();
}

absl::StatusOr<ObjectClient::Committed> ObjectClient::Commit(const std::string& token, const Digest& build) {
  v1::CommitObjectsRequest request;
  request.set_tokens(token);
  request.set_builds(std::string(build.view()));
  EPIC_ASSIGN_OR_RETURN(const auto answer, channel_->Call(&Stub::Commit, request));
  if (answer.items_size() != 1) return WrongCount();
  const auto& item = answer.items(0);
  Committed committed;
  if (item.has_error()) committed.status = FromProto(item.error());
  if (!committed.status.ok()) return committed;
  committed.own = item.committed().own();
  EPIC_ASSIGN_OR_RETURN(committed.build, DigestFromProto(item.committed().build(), "build"));
  return committed;
}

absl::Status ObjectClient::Abort(const std::string& token) {
  v1::AbortRequest request;
  request.set_tokens(token);
  return channel_->Call(&Stub::Abort, request).status();
}

absl::StatusOr<std::vector<bool>> ObjectClient::Heartbeat(std::span<const std::string> tokens) {
  v1::HeartbeatRequest request;
  for (const std::string& token : tokens) request.mutable_tokens()->append(token);
  EPIC_ASSIGN_OR_RETURN(const auto answer, channel_->Call(&Stub::Heartbeat, request));
  if (static_cast<size_t>(answer.states_size()) != tokens.size()) return WrongCount();
  std::vector<bool> alive;
  for (const int state : answer.states()) alive.push_back(state == v1::TOKEN_STATE_ALIVE);
  return alive;
}

}  // namespace epic
