#include "common/transport/inproc/inproc_path.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/status/ending.h"
#include "common/transport/progress_thread.h"
#include "common/transport/range_check.h"

namespace epic::transport {
namespace {

// One fetch. Of the progress thread, but for what is constant.
struct Transfer {
  Transfer(FetchId id, FetchRequest request, std::shared_ptr<FetchListener> listener)
      : id(id), request(std::move(request)), listener(std::move(listener)) {}

  const FetchId id;
  const FetchRequest request;
  const std::shared_ptr<FetchListener> listener;

  bool over = false;
  std::vector<bool> ended;  // Shape: [ranges]
  size_t left = 0;          // ranges that have not ended
  absl::Status error;       // the first
  TimerId timer = 0;
  std::shared_ptr<SourceObject> object;
  std::deque<size_t> ready;  // ranges whose layers are there
  size_t current = 0;        // where check is set
  std::optional<RangeCheck> check;
  bool stepping = false;  // a step is posted
};
using TransferPtr = std::shared_ptr<Transfer>;

}  // namespace

class InprocCore : public std::enable_shared_from_this<InprocCore> {
 public:
  InprocCore(std::shared_ptr<InprocEndpoint> endpoint, InprocOptions options)
      : endpoint_(std::move(endpoint)), options_(std::move(options)) {
    EPIC_CHECK(options_.timers != nullptr && options_.piece_bytes > 0);
  }
  void Register() { endpoint_->Add(weak_from_this()); }
  const InprocOptions& options() const { return options_; }

  FetchId Fetch(FetchRequest request, std::shared_ptr<FetchListener> listener) ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel(FetchId id) ABSL_LOCKS_EXCLUDED(mu_);
  void Probe(std::function<void(const absl::Status&)> done);
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);
  // Ends all fetches, and waits for that.
  void PeerGone();

 private:
  using Step = void (InprocCore::*)(const TransferPtr&);
  bool Post(const TransferPtr& transfer, Step step) {
    return thread_.Post([self = shared_from_this(), transfer, step] { (self.get()->*step)(transfer); });
  }

  // Steps of the progress thread.
  void Begin(const TransferPtr& transfer);
  void AskForLayers(const TransferPtr& transfer);
  void Move(const TransferPtr& transfer);
  void Expire(const TransferPtr& transfer) { EndAll(transfer, DeadlineStatus()); }
  void EndCancelled(const TransferPtr& transfer) { EndAll(transfer, CancelledStatus()); }
  void LayerIs(const TransferPtr& transfer, size_t range, const absl::Status& status);
  void EndEverything(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  bool MovePiece(Transfer* transfer);
  void EndRange(const TransferPtr& transfer, size_t range, const absl::Status& status,
                std::span<const uint32_t> block_crcs = {});
  void EndAll(const TransferPtr& transfer, const absl::Status& status);
  void Finish(const TransferPtr& transfer) ABSL_LOCKS_EXCLUDED(mu_);

  const std::shared_ptr<InprocEndpoint> endpoint_;
  const InprocOptions options_;

  Mutex mu_;
  FetchId last_id_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::map<FetchId, TransferPtr> transfers_ ABSL_GUARDED_BY(mu_);

  ProgressThread thread_;  // last: uses all of the above
};

FetchId InprocCore::Fetch(FetchRequest request, std::shared_ptr<FetchListener> listener) {
  TransferPtr transfer;
  bool posted = false;
  {
    MutexLock lock(&mu_);
    transfer = std::make_shared<Transfer>(++last_id_, std::move(request), std::move(listener));
    transfer->left = transfer->request.ranges.size();
    transfer->ended.resize(transfer->left);
    if (transfers_.size() >= options_.fetches_max) {
      transfer->error = PathDownStatus("too many fetches at a time; try again");
    }
    posted = !stopping_ && Post(transfer, &InprocCore::Begin);
    if (posted) transfers_[transfer->id] = transfer;
  }
  if (!posted) EndAll(transfer, PathDownStatus("the path was stopped"));
  return transfer->id;
}

void InprocCore::Cancel(FetchId id) {
  TransferPtr transfer;
  {
    MutexLock lock(&mu_);
    const auto found = transfers_.find(id);
    if (found == transfers_.end()) return;
    transfer = found->second;
  }
  if (!Post(transfer, &InprocCore::EndCancelled)) return;  // it was stopped: over
}

void InprocCore::Probe(std::function<void(const absl::Status&)> done) {
  const auto answer = [self = shared_from_this(), done] {
    const bool there = self->endpoint_->source() != nullptr;
    done(there ? absl::OkStatus() : PathDownStatus("nobody is there"));
  };
  if (!thread_.Post(answer)) done(PathDownStatus("the path was stopped"));
}

void InprocCore::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  // Not posted: another call of Stop did it.
  (void)thread_.Post([self = shared_from_this()] { self->EndEverything(CancelledStatus()); });
  thread_.Stop();
}

void InprocCore::PeerGone() {
  auto ending = std::make_shared<Ending>();
  const absl::Status why = PathDownStatus("the peer is gone");
  const bool posted = thread_.Post([self = shared_from_this(), ending, why] {
    self->EndEverything(why);
    if (self->options_.peer_down) self->options_.peer_down(why);
    ending->Set(absl::OkStatus());
  });
  if (posted) (void)ending->Wait();
}

void InprocCore::EndEverything(const absl::Status& status) {
  std::map<FetchId, TransferPtr> transfers;
  {
    MutexLock lock(&mu_);
    transfers = transfers_;
  }
  for (const auto& [id, transfer] : transfers) EndAll(transfer, status);
}

void InprocCore::Begin(const TransferPtr& transfer) {
  if (transfer->over) return;
  if (!transfer->error.ok()) return EndAll(transfer, transfer->error);
  const FetchRequest& request = transfer->request;
  if (absl::Status status = ValidateRequest(request); !status.ok()) return EndAll(transfer, status);
  if (request.memory != MemoryKind::kHost) {
    return EndAll(transfer, NotOnThisPathStatus("this path copies to host memory only"));
  }
  for (size_t range = 0; range < request.ranges.size(); ++range) {
    if (request.ranges[range].to.empty()) EndRange(transfer, range, absl::OkStatus());
  }
  if (transfer->left == 0) return Finish(transfer);
  if (request.deadline_steady_ns <= options_.clock->SteadyNs()) return EndAll(transfer, DeadlineStatus());
  KvSource* const source = endpoint_->source();
  if (source == nullptr) return EndAll(transfer, PathDownStatus("nobody is there"));
  auto object = source->Open(request.region->lease);
  if (!object.ok()) return EndAll(transfer, object.status());
  if ((*object)->layout() != request.region->layout) {
    return EndAll(transfer, LeaseEndedStatus("the lease is of an object with another layout"));
  }
  transfer->object = *std::move(object);
  transfer->timer = options_.timers->At(request.deadline_steady_ns,
                                        [weak = weak_from_this(), weak_transfer = std::weak_ptr(transfer)] {
                                          const auto self = weak.lock();
                                          const auto late = weak_transfer.lock();
                                          if (self == nullptr || late == nullptr) return;
                                          (void)self->Post(late, &InprocCore::Expire);
                                        });
  AskForLayers(transfer);
}

void InprocCore::AskForLayers(const TransferPtr& transfer) {
  for (size_t range = 0; range < transfer->request.ranges.size(); ++range) {
    if (transfer->ended[range]) continue;
    transfer->object->WhenLayer(
        transfer->request.ranges[range].layer,
        [weak = weak_from_this(), weak_transfer = std::weak_ptr(transfer),
         range](const absl::Status& status) {
          const auto self = weak.lock();
          const auto waiting = weak_transfer.lock();
          if (self == nullptr || waiting == nullptr) return;
          (void)self->thread_.Post([self, waiting, range, status] { self->LayerIs(waiting, range, status); });
        });
  }
}

void InprocCore::LayerIs(const TransferPtr& transfer, size_t range, const absl::Status& status) {
  if (transfer->over) return;
  if (!status.ok()) {
    EndRange(transfer, range, status);
    if (transfer->left == 0) Finish(transfer);
    return;
  }
  transfer->ready.push_back(range);
  if (!transfer->stepping) transfer->stepping = Post(transfer, &InprocCore::Move);
}

void InprocCore::Move(const TransferPtr& transfer) {
  transfer->stepping = false;
  if (transfer->over) return;
  if (!transfer->check.has_value()) {
    transfer->current = transfer->ready.front();
    transfer->ready.pop_front();
    const FetchRange& range = transfer->request.ranges[transfer->current];
    transfer->check.emplace(*transfer->request.region, range, transfer->object->LayerCrcs(range.layer));
  }
  if (MovePiece(transfer.get())) {
    const absl::Status status = transfer->check->Finish();
    const auto crcs = status.ok() ? transfer->check->block_crcs() : std::span<const uint32_t>();
    EndRange(transfer, transfer->current, status, crcs);
    transfer->check.reset();
  }
  if (transfer->left == 0) return Finish(transfer);
  if (transfer->check.has_value() || !transfer->ready.empty()) {
    transfer->stepping = Post(transfer, &InprocCore::Move);
  }
}

// Whether the range has come to its end, good or bad.
bool InprocCore::MovePiece(Transfer* transfer) {
  const FetchRange& range = transfer->request.ranges[transfer->current];
  const ByteSpan slab = transfer->object->Layer(range.layer);
  const uint64_t at = range.offset + transfer->check->done_bytes();
  const uint64_t wanted = std::min(range.to.size() - transfer->check->done_bytes(), options_.piece_bytes);
  if (at > slab.size() || wanted > slab.size() - at) return true;  // cut short: Finish will say so
  const bool right = transfer->check->Copy(slab.subspan(at, wanted)).ok();
  return !right || transfer->check->done_bytes() == range.to.size();
}

void InprocCore::EndRange(const TransferPtr& transfer, size_t range, const absl::Status& status,
                          std::span<const uint32_t> block_crcs) {
  if (transfer->ended[range]) return;
  transfer->ended[range] = true;
  --transfer->left;
  if (transfer->error.ok()) transfer->error = status;
  transfer->listener->OnRange(range, status, block_crcs);
}

void InprocCore::EndAll(const TransferPtr& transfer, const absl::Status& status) {
  if (transfer->over) return;
  if (transfer->error.ok()) transfer->error = status;
  transfer->check.reset();
  for (size_t range = 0; range < transfer->ended.size(); ++range) EndRange(transfer, range, status);
  Finish(transfer);
}

void InprocCore::Finish(const TransferPtr& transfer) {
  transfer->over = true;
  if (transfer->timer != 0) options_.timers->Cancel(transfer->timer);
  if (transfer->error.ok() && transfer->object != nullptr && !transfer->object->StillLeased()) {
    transfer->error = LeaseEndedStatus();
  }
  transfer->object.reset();
  {
    MutexLock lock(&mu_);
    transfers_.erase(transfer->id);
  }
  transfer->listener->OnDone(transfer->error);
}

namespace {

class InprocPath final : public Path {
 public:
  explicit InprocPath(std::shared_ptr<InprocCore> core) : core_(std::move(core)) {}
  ~InprocPath() override { Stop(); }
  Capabilities capabilities() const override {
    return {.kind = PathKind::kInproc, .max_piece_bytes = core_->options().piece_bytes};
  }
  FetchId Fetch(FetchRequest request, std::shared_ptr<FetchListener> listener) override {
    return core_->Fetch(std::move(request), std::move(listener));
  }
  void Cancel(FetchId id) override { core_->Cancel(id); }
  void Probe(int64_t, std::function<void(const absl::Status&)> done) override {
    core_->Probe(std::move(done));
  }
  void Stop() override { core_->Stop(); }

 private:
  const std::shared_ptr<InprocCore> core_;
};

}  // namespace

std::unique_ptr<Path> MakeInprocPath(std::shared_ptr<InprocEndpoint> endpoint, InprocOptions options) {
  auto core = std::make_shared<InprocCore>(std::move(endpoint), std::move(options));
  core->Register();
  return std::make_unique<InprocPath>(std::move(core));
}

void InprocEndpoint::Attach(KvSource* source) {
  MutexLock lock(&mu_);
  EPIC_CHECK(source_ == nullptr && source != nullptr);
  source_ = source;
}

void InprocEndpoint::Detach() {
  std::vector<std::shared_ptr<InprocCore>> cores;
  {
    MutexLock lock(&mu_);
    source_ = nullptr;
    for (const auto& weak : cores_) {
      if (auto core = weak.lock(); core != nullptr) cores.push_back(std::move(core));
    }
  }
  for (const auto& core : cores) core->PeerGone();
}

KvSource* InprocEndpoint::source() const {
  MutexLock lock(&mu_);
  return source_;
}

void InprocEndpoint::Add(std::weak_ptr<InprocCore> core) {
  MutexLock lock(&mu_);
  std::erase_if(cores_, [](const auto& weak) { return weak.expired(); });
  cores_.push_back(std::move(core));
}

}  // namespace epic::transport
