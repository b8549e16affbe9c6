#include "common/storage/shm/client.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/absl_std.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/status/status_macros.h"
#include "common/storage/object_codec.h"
#include "common/storage/shm/unix_socket.h"

namespace epic::shm {
namespace {

constexpr uint64_t kSlabAlignment = 64;

absl::Status NotOurStore(std::string_view why) {
  return absl::FailedPreconditionError(ToAbsl("the store's hand-over: " + std::string(why)));
}

// Memory that its owner could shrink would end this process when it is read.
absl::Status CheckFile(int fd, uint64_t bytes) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return NotOurStore("its memory is not sealed");
  struct stat info = {};
  if (fstat(fd, &info) != 0 || static_cast<uint64_t>(info.st_size) != bytes) {
    return NotOurStore("its memory has another size than it says");
  }
  return absl::OkStatus();
}

absl::Status CheckRequest(std::string_view tenant, const ObjectKey& key, const KvLayout& layout) {
  EPIC_RETURN_IF_ERROR(ValidateLayout(layout));
  if (tenant.size() > kMaxTenantBytes) return absl::InvalidArgumentError("the tenant's name is too long");
  if (key.id.empty()) return absl::InvalidArgumentError("a key without a Cache ID");
  if (key.variant.dtype != layout.dtype) {
    return absl::InvalidArgumentError("dtype of variant and layout differ");
  }
  return absl::OkStatus();
}

}  // namespace

// The connection and the mapping of the arena, shared by a client and its objects.
class Link {
 public:
  Link(UniqueFd socket, const ClientOptions& options) : channel_(std::move(socket), options.timeout_ms) {}
  ~Link() {
    if (!arena_.empty()) munmap(const_cast<std::byte*>(arena_.data()), arena_.size());
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Once, before any other call.
  absl::Status Open() {
    UniqueFd file;
    MutexLock lock(&mu_);
    EPIC_RETURN_IF_ERROR(channel_.Send(EncodeFrame(FrameType::kHello, 0, "")));
    EPIC_ASSIGN_OR_RETURN(const Frame frame, channel_.Receive(kMaxAnswerBytes, &file));
    if (frame.header.type == FrameType::kRefused) {
      EPIC_ASSIGN_OR_RETURN(const std::string reason, DecodeReason(AsBytes(frame.body)));
      return NotOurStore(reason);
    }
    if (frame.header.type != FrameType::kWelcome || !file.valid())
      return NotOurStore("it does not say welcome");
    EPIC_ASSIGN_OR_RETURN(const Welcome welcome, DecodeWelcome(AsBytes(frame.body)));
    EPIC_RETURN_IF_ERROR(CheckFile(file.get(), welcome.arena_bytes));
    void* const pages = mmap(nullptr, welcome.arena_bytes, PROT_READ, MAP_SHARED, file.get(), 0);
    if (pages == MAP_FAILED) {
      return absl::UnavailableError(
          ToAbsl(std::string("cannot map the store's memory: ") + std::strerror(errno)));
    }
    arena_ = {static_cast<const std::byte*>(pages), welcome.arena_bytes};
    incarnation_ = welcome.incarnation;
    return absl::OkStatus();
  }

  // Errors: FailedPrecondition with the store's reason; Unavailable, DeadlineExceeded, DataLoss.
  absl::StatusOr<LeaseAnswer> Lease(const LeaseRequest& request) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    EPIC_ASSIGN_OR_RETURN(const std::string body,
                          Ask(FrameType::kLease, EncodeLeaseRequest(request), FrameType::kAnswer));
    auto answer = DecodeLeaseAnswer(AsBytes(body));
    if (!answer.ok()) return Break("its answer is malformed");
    if (answer->outcome == LeaseOutcome::kRefused) return NotOurStore(answer->reason);
    if (answer->outcome == LeaseOutcome::kLeased && !FitsIn(request.layout, answer->object)) {
      return Break("it leases what is no such object");
    }
    return answer;
  }

  absl::StatusOr<bool> Confirm(uint64_t lease) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    EPIC_ASSIGN_OR_RETURN(const std::string body,
                          Ask(FrameType::kConfirm, EncodeLeaseNumber(lease), FrameType::kConfirmed));
    const auto current = DecodeConfirmed(AsBytes(body));
    if (!current.ok()) return Break("its confirmation is malformed");
    return *current;
  }

  void Release(uint64_t lease) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (broken_) return;  // the leases went with the connection
    if (!channel_.Send(EncodeFrame(FrameType::kRelease, 0, EncodeLeaseNumber(lease))).ok()) SetBroken();
  }

  void Close() { SetBroken(); }
  bool IsAlive() const { return !broken_ && !channel_.PeerIsGone(); }
  ByteSpan At(uint64_t offset, uint64_t bytes) const { return arena_.subspan(offset, bytes); }
  uint64_t incarnation() const { return incarnation_; }

 private:
  // Sends a request and waits for its answer's body.
  absl::StatusOr<std::string> Ask(FrameType type, std::string_view body, FrameType wanted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (broken_) return absl::UnavailableError("the connection to the store is broken; connect anew");
    const uint32_t number = ++last_number_;
    absl::StatusOr<Frame> answer = Exchange(EncodeFrame(type, number, body));
    if (!answer.ok()) {
      SetBroken();
      const bool transport =
          absl::IsUnavailable(answer.status()) || absl::IsDeadlineExceeded(answer.status());
      return transport ? answer.status() : Break("its frame is malformed");
    }
    if (answer->header.type != wanted || answer->header.number != number) {
      return Break("it answers what was not asked");
    }
    return std::move(answer->body);
  }

  absl::StatusOr<Frame> Exchange(std::string_view request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    EPIC_RETURN_IF_ERROR(channel_.Send(request));
    return channel_.Receive(kMaxAnswerBytes);
  }

  absl::Status Break(std::string_view why) {
    SetBroken();
    return absl::DataLossError(ToAbsl("the store breaks the protocol of the hand-over: " + std::string(why)));
  }
  // An answer that comes late would be taken for that of the next request: nothing goes on after an error.
  void SetBroken() {
    broken_ = true;
    channel_.Close();
  }

  bool FitsIn(const KvLayout& layout, const LeasedObject& object) const {
    const uint64_t bytes = layout.LayerBytes();
    const auto fits = [&](uint64_t offset) {
      return offset % kSlabAlignment == 0 && bytes <= arena_.size() && offset <= arena_.size() - bytes;
    };
    return object.layer_offsets.size() == layout.layers && object.block_crcs.size() == BlockCount(layout) &&
           std::all_of(object.layer_offsets.begin(), object.layer_offsets.end(), fits) &&
           BuildDigest(object.block_crcs) == object.build;
  }

  // Set by Open.
  ByteSpan arena_;
  uint64_t incarnation_ = 0;

  std::atomic<bool> broken_{false};
  mutable Mutex mu_;
  Channel channel_;  // sends and receives under mu_
  uint32_t last_number_ ABSL_GUARDED_BY(mu_) = 0;
};

namespace {

std::span<const uint32_t> CrcsOf(const LeasedObject& leased, const KvLayout& layout, uint32_t layer) {
  EPIC_CHECK(layer < layout.layers);
  const uint64_t blocks = BlocksPerLayer(layout);
  return std::span(leased.block_crcs).subspan(layer * blocks, blocks);
}

}  // namespace

HeldObject::HeldObject(std::shared_ptr<Link> link, const KvLayout& layout, LeasedObject leased)
    : link_(std::move(link)), layout_(layout), leased_(std::move(leased)) {}

HeldObject::~HeldObject() { link_->Release(leased_.lease); }

ByteSpan HeldObject::Layer(uint32_t layer) const {
  EPIC_CHECK(layer < layout_.layers);
  return link_->At(leased_.layer_offsets[layer], layout_.LayerBytes());
}

std::span<const uint32_t> HeldObject::LayerCrcs(uint32_t layer) const {
  return CrcsOf(leased_, layout_, layer);
}

bool HeldObject::Matches(uint32_t layer) const {
  const std::span<const uint32_t> said = LayerCrcs(layer);
  std::vector<uint32_t> crcs(said.size());
  ComputeBlockCrcs(layout_, Layer(layer), crcs);
  return std::equal(crcs.begin(), crcs.end(), said.begin());
}

bool HeldObject::StillHeld() const { return link_->IsAlive(); }

LentObject::LentObject(std::shared_ptr<Link> link, const KvLayout& layout, LeasedObject leased)
    : link_(std::move(link)), layout_(layout), leased_(std::move(leased)) {}

LentObject::~LentObject() {
  if (!over_) link_->Release(leased_.lease);
}

ByteSpan LentObject::Layer(uint32_t layer) const {
  EPIC_CHECK(layer < layout_.layers);
  return link_->At(leased_.layer_offsets[layer], layout_.LayerBytes());
}

std::span<const uint32_t> LentObject::LayerCrcs(uint32_t layer) const {
  return CrcsOf(leased_, layout_, layer);
}

absl::StatusOr<bool> LentObject::Confirm() {
  EPIC_CHECK(!over_);
  over_ = true;
  return link_->Confirm(leased_.lease);
}

Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const ClientOptions& options) {
  EPIC_ASSIGN_OR_RETURN(UniqueFd socket, ConnectTo(options.path));
  EPIC_ASSIGN_OR_RETURN(const uid_t uid, PeerUid(socket.get()));
  if (uid != options.server_uid) {
    return absl::PermissionDeniedError(ToAbsl("the store at " + options.path + " is another user's"));
  }
  auto link = std::make_shared<Link>(std::move(socket), options);
  EPIC_RETURN_IF_ERROR(link->Open());
  return std::unique_ptr<Client>(new Client(std::move(link)));
}

absl::StatusOr<Client::LendResult> Client::Lend(std::string_view tenant, const ObjectKey& key,
                                                const KvLayout& layout) {
  EPIC_RETURN_IF_ERROR(CheckRequest(tenant, key, layout));
  EPIC_ASSIGN_OR_RETURN(
      LeaseAnswer answer,
      link_->Lease({.zero_copy = false, .tenant = std::string(tenant), .key = key, .layout = layout}));
  if (answer.outcome != LeaseOutcome::kLeased) return LendResult{.cause = answer.cause};
  return LendResult{.outcome = Outcome::kHit,
                    .object = std::make_unique<LentObject>(link_, layout, std::move(answer.object))};
}

absl::StatusOr<Client::CopyResult> Client::Copy(std::string_view tenant, const ObjectKey& key,
                                                const KvLayout& layout, MutableByteSpan to) {
  EPIC_ASSIGN_OR_RETURN(const LendResult lent, Lend(tenant, key, layout));
  EPIC_CHECK(to.size() == layout.TotalBytes());
  if (lent.outcome != Outcome::kHit) return CopyResult{.cause = lent.cause};
  const uint64_t layer_bytes = layout.LayerBytes();
  bool matches = true;
  for (uint32_t layer = 0; layer < layout.layers && matches; ++layer) {
    matches = CopyIfMatches(layout, lent.object->Layer(layer), to.subspan(layer * layer_bytes, layer_bytes),
                            lent.object->LayerCrcs(layer));
  }
  // Also after a mismatch: it tells damage from a change.
  EPIC_ASSIGN_OR_RETURN(const bool current, lent.object->Confirm());
  if (!current) return CopyResult{.outcome = Outcome::kChanged};
  if (!matches) return CopyResult{.outcome = Outcome::kDamaged};
  return CopyResult{.outcome = Outcome::kHit, .build = lent.object->build()};
}

absl::StatusOr<Client::HoldResult> Client::Hold(std::string_view tenant, const ObjectKey& key,
                                                const KvLayout& layout) {
  EPIC_RETURN_IF_ERROR(CheckRequest(tenant, key, layout));
  EPIC_ASSIGN_OR_RETURN(
      LeaseAnswer answer,
      link_->Lease({.zero_copy = true, .tenant = std::string(tenant), .key = key, .layout = layout}));
  if (answer.outcome == LeaseOutcome::kMustCopy) return HoldResult{.outcome = Outcome::kMustCopy};
  if (answer.outcome != LeaseOutcome::kLeased) return HoldResult{.cause = answer.cause};
  return HoldResult{.outcome = Outcome::kHit,
                    .object = std::make_shared<const HeldObject>(link_, layout, std::move(answer.object))};
}

uint64_t Client::incarnation() const { return link_->incarnation(); }

bool Client::alive() const { return link_->IsAlive(); }

void Client::Close() { link_->Close(); }

}  // namespace epic::shm
