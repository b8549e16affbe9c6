#include "common/transport/ucx/ucx_lane.h"

#include <utility>

#include "common/base/check.h"
#include "common/status/status_macros.h"
#include "common/transport/ucx/ucx_status.h"

namespace epic::transport {
namespace {

constexpr size_t kMaxRegions = 64;

ucs_memory_type_t MemoryType(MemoryKind kind) {
  return kind == MemoryKind::kCuda ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
}

}  // namespace

UcxLane::UcxLane(LaneShared* shared, ucp_ep_h endpoint, LaneEvents* events)
    : shared_(shared), endpoint_(endpoint), events_(events) {}

UcxLane::~UcxLane() {
  EPIC_CHECK(done());
  ReleaseRegions();
}

void UcxLane::ReleaseRegions() {
  for (const Region& region : regions_) ucp_rkey_destroy(region.key);
  regions_.clear();
}

LaneOp* UcxLane::NewOp(LaneDone done) {
  LaneOp& op = live_.emplace_back();
  op.lane = this;
  op.done = std::move(done);
  op.self = std::prev(live_.end());
  return &op;
}

void UcxLane::End(LaneOp* op, ucs_status_t status, const char* what) {
  op->status = FromUcx(status, what);
  // A lane that was closed says so, whatever UCX made of it.
  if (closed_ && !op->status.ok()) op->status = absl::CancelledError("the lane was closed");
  op->memory = RegistrationCache::Use();
  ended_ += 1;
  shared_->ended.splice(shared_->ended.end(), live_, op->self);
}

void UcxLane::Started(LaneOp* op, ucs_status_ptr_t returned, const char* what) {
  if (returned == nullptr) {
    End(op, UCS_OK, what);
  } else if (UCS_PTR_IS_ERR(returned)) {
    End(op, UCS_PTR_STATUS(returned), what);
  }
}

void UcxLane::Fail(LaneDone done, absl::Status status) {
  LaneOp* const op = NewOp(std::move(done));
  op->status = std::move(status);
  ended_ += 1;
  shared_->ended.splice(shared_->ended.end(), live_, op->self);
}

void UcxLane::OnSent(void* request, ucs_status_t status, void* user_data) {
  auto* op = static_cast<LaneOp*>(user_data);
  op->lane->End(op, status, "send to a peer");
  ucp_request_free(request);
}

void UcxLane::OnReceived(void* request, ucs_status_t status, size_t length, void* user_data) {
  auto* op = static_cast<LaneOp*>(user_data);
  op->lane->End(op, status, "receive from a peer");
  ucp_request_free(request);
}

void UcxLane::Send(uint8_t kind, std::string header, ByteSpan body, MemoryKind body_kind, LaneDone done) {
  EPIC_CHECK(header.size() <= Fabric::kMaxHeaderBytes);
  if (!down_.ok() || closed_) return Fail(std::move(done), closed_ ? absl::CancelledError("closed") : down_);
  LaneOp* const op = NewOp(std::move(done));
  op->header = std::move(header);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  // With the reply flag the receiver learns on which endpoint a message came.
  param.flags = UCP_AM_SEND_FLAG_REPLY | (body.empty() ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV);
  param.cb.send = OnSent;
  param.user_data = op;
  param.memory_type = MemoryType(body_kind);
  Started(op,
          ucp_am_send_nbx(endpoint_, kind, op->header.data(), op->header.size(), body.data(), body.size(),
                          &param),
          "send to a peer");
}

void UcxLane::Receive(void* descriptor, MutableByteSpan to, MemoryKind kind, LaneDone done) {
  LaneOp* const op = NewOp(std::move(done));
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.recv_am = OnReceived;
  param.user_data = op;
  param.memory_type = MemoryType(kind);
  Started(op, ucp_am_recv_data_nbx(shared_->worker, descriptor, to.data(), to.size(), &param),
          "receive from a peer");
}

absl::Status UcxLane::AddRemoteRegion(uint64_t address, uint64_t size, std::string_view key) {
  if (!has_rma()) return absl::UnimplementedError("this lane has no RMA");
  if (!down_.ok() || closed_) return absl::UnavailableError("the lane is down");
  if (regions_.size() >= kMaxRegions) return absl::ResourceExhaustedError("too many regions of a peer");
  if (key.size() < sizeof(uint64_t) || size == 0 || address + size < address) {
    return absl::InvalidArgumentError("a region of a peer makes no sense");
  }
  Region region{.address = address, .size = size};
  EPIC_RETURN_IF_ERROR(
      FromUcx(ucp_ep_rkey_unpack(endpoint_, key.data(), &region.key), "take the key of a peer's region"));
  regions_.push_back(region);
  return absl::OkStatus();
}

void UcxLane::Get(uint64_t address, MutableByteSpan to, MemoryKind kind, LaneDone done) {
  if (!down_.ok() || closed_) return Fail(std::move(done), closed_ ? absl::CancelledError("closed") : down_);
  const Region* from = nullptr;
  for (const Region& region : regions_) {
    if (address >= region.address && to.size() <= region.size &&
        address - region.address <= region.size - to.size()) {
      from = &region;
    }
  }
  if (from == nullptr) {
    return Fail(std::move(done), absl::OutOfRangeError("no region of the peer holds these bytes"));
  }
  absl::StatusOr<RegistrationCache::Use> memory = shared_->registrations->Acquire(to, kind);
  if (!memory.ok()) return Fail(std::move(done), memory.status());
  LaneOp* const op = NewOp(std::move(done));
  op->memory = *std::move(memory);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_MEMH;
  param.cb.send = OnSent;
  param.user_data = op;
  param.memory_type = MemoryType(kind);
  param.memh = static_cast<ucp_mem_h>(op->memory.handle());
  Started(op, ucp_get_nbx(endpoint_, to.data(), to.size(), address, from->key, &param),
          "read memory of a peer");
}

bool UcxLane::MarkDown(ucs_status_t status) {
  if (!down_.ok()) return false;
  down_ = absl::UnavailableError(std::string("the peer is gone: ") + ucs_status_string(status));
  return true;
}

void UcxLane::Close() {
  EPIC_CHECK(!closed_);
  closed_ = true;
  events_ = nullptr;
  shared_->to_close.push_back(this);
}

void UcxLane::EndClose() {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t returned = ucp_ep_close_nbx(endpoint_, &param);
  if (UCS_PTR_IS_PTR(returned)) ucp_request_free(returned);
  ended_close_ = true;
}

void UcxLane::EndAll() {
  EPIC_CHECK(ended_close_);
  while (!live_.empty()) End(&live_.front(), UCS_ERR_CANCELED, "close");
}

}  // namespace epic::transport
