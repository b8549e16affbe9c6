#include "common/transport/shm/shm_path.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/absl_std.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/status/status_macros.h"
#include "common/storage/object_codec.h"
#include "common/transport/progress_thread.h"
#include "common/transport/range_check.h"

namespace epic::transport {
namespace {

enum class Stage : uint8_t {
  kQueued,
  kAsking,   // a worker waits for the store; the buffers are not touched
  kCopying,  // a worker writes to the buffers, and alone ends it
  kOver,     // whoever set it ends it
};

// A fetch, or a probe. `stage`, `ending` and `client` are under the mutex of the path; what follows is of
// whoever ends it.
struct Work {
  FetchId id = 0;
  FetchRequest request;
  std::shared_ptr<FetchListener> listener;
  std::function<void(const absl::Status&)> probed;  // of a probe; the request has a deadline only
  TimerId timer = 0;

  Stage stage = Stage::kQueued;
  std::optional<absl::Status> ending;
  shm::Client* client = nullptr;  // while it is asked for something

  std::vector<bool> ended;  // Shape: [ranges]
  absl::Status error;
};
using WorkPtr = std::shared_ptr<Work>;

// What the client says, in the words of transport.h.
absl::Status ToPathStatus(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kFailedPrecondition:
      return NotOnThisPathStatus(ToStd(status.message()));
    case absl::StatusCode::kInvalidArgument:
      return status;
    default:
      return PathDownStatus(ToStd(status.message()));
  }
}

// Whether what the store has is what the region says.
absl::Status CheckSame(const Region& region, uint64_t incarnation, uint64_t generation, const Digest& build) {
  if (region.lease.incarnation != incarnation) return LeaseEndedStatus();
  if (region.generation != 0 && region.generation != generation) {
    return NotOnThisPathStatus("the store has another copy of the object in memory by now");
  }
  if (region.build.has_value() && *region.build != build) {
    return NotOnThisPathStatus("the store has another build of the object by now");
  }
  return absl::OkStatus();
}

void EndRange(Work* work, size_t range, const absl::Status& status, std::span<const uint32_t> crcs = {}) {
  if (work->ended[range]) return;
  work->ended[range] = true;
  if (work->error.ok()) work->error = status;
  work->listener->OnRange(range, status, crcs);
}

class HeldShmRegion final : public HeldRegion {
 public:
  HeldShmRegion(std::shared_ptr<const Region> region, std::shared_ptr<const shm::HeldObject> object)
      : region_(std::move(region)), object_(std::move(object)) {}
  const KvObject& object() const override { return *object_; }
  absl::Status CheckLayer(uint32_t layer) const override {
    const std::span<const uint32_t> said = object_->LayerCrcs(layer);
    const std::span<const uint32_t> known = KnownCrcs(*region_, layer, 0, BlocksPerLayer(region_->layout));
    if (!known.empty() && !std::ranges::equal(said, known)) return DamagedStatus(layer);
    return object_->Matches(layer) ? absl::OkStatus() : DamagedStatus(layer);
  }
  bool StillHeld() const override { return object_->StillHeld(); }

 private:
  const std::shared_ptr<const Region> region_;
  const std::shared_ptr<const shm::HeldObject> object_;
};

}  // namespace

class ShmCore : public std::enable_shared_from_this<ShmCore> {
 public:
  explicit ShmCore(const ShmPathOptions& options) : options_(options) {
    EPIC_CHECK(options_.timers != nullptr && options_.workers > 0 && options_.piece_bytes > 0);
    for (uint32_t i = 0; i < options_.workers; ++i) workers_.emplace_back([this] { Run(); });
  }
  ~ShmCore() { Stop(); }

  const ShmPathOptions& options() const { return options_; }

  FetchId Submit(const WorkPtr& work) ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel(FetchId id) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::shared_ptr<const HeldRegion>> Hold(std::shared_ptr<const Region> region,
                                                         int64_t deadline_steady_ns)
      ABSL_LOCKS_EXCLUDED(mu_, hold_mu_);
  void Stop() ABSL_LOCKS_EXCLUDED(mu_, stop_mu_);

 private:
  // --- of the clock's thread
  void EndEarly(FetchId id, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  // --- of the workers
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  WorkPtr Next() ABSL_LOCKS_EXCLUDED(mu_);
  void Do(const WorkPtr& work, std::unique_ptr<shm::Client>* client);
  absl::Status Connect(std::unique_ptr<shm::Client>* client) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status CheckWork(const Work& work, bool* moves) const;
  absl::StatusOr<std::unique_ptr<shm::LentObject>> Ask(const WorkPtr& work, shm::Client* client);
  absl::Status Copy(const WorkPtr& work, const shm::LentObject& object, std::vector<size_t>* doubtful);
  absl::Status Confirm(const WorkPtr& work, shm::Client* client, shm::LentObject* object,
                       const std::vector<size_t>& doubtful);
  bool Claim(const WorkPtr& work, Stage to) ABSL_LOCKS_EXCLUDED(mu_);
  // What moves nothing cannot be late, and has no timer.
  void SetTimer(const WorkPtr& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // So that EndEarly can end what it waits for. False: it is to end.
  bool SetClient(const WorkPtr& work, shm::Client* client) ABSL_LOCKS_EXCLUDED(mu_);
  std::optional<absl::Status> EndingOf(const WorkPtr& work) const ABSL_LOCKS_EXCLUDED(mu_);
  void NoteGone() ABSL_LOCKS_EXCLUDED(mu_);

  // REQUIRES: the stage was set to kOver by the caller.
  void Finish(const WorkPtr& work, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  const ShmPathOptions options_;

  Mutex hold_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  std::unique_ptr<shm::Client> holder_ ABSL_GUARDED_BY(hold_mu_);

  mutable Mutex mu_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool peer_known_ ABSL_GUARDED_BY(mu_) = false;  // connected since the peer was last seen to be gone
  FetchId last_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<FetchId, WorkPtr> works_ ABSL_GUARDED_BY(mu_);  // all that are not over
  std::deque<WorkPtr> queue_ ABSL_GUARDED_BY(mu_);

  ProgressThread clock_thread_;
  Mutex stop_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  std::vector<std::thread> workers_;  // constructor and the one Stop that joins
};

FetchId ShmCore::Submit(const WorkPtr& work) {
  work->ended.resize(work->request.ranges.size());
  bool stopped = false;
  {
    MutexLock lock(&mu_);
    work->id = ++last_id_;
    stopped = stopping_;
    if (!stopped) {
      if (works_.size() >= options_.fetches_max) work->ending = PathDownStatus("too many fetches at a time");
      works_[work->id] = work;
      queue_.push_back(work);
      if (work->probed != nullptr || MovesBytes(work->request)) SetTimer(work);
      wake_.Signal();
    }
  }
  if (stopped) Finish(work, PathDownStatus("the path was stopped"));
  return work->id;
}

void ShmCore::SetTimer(const WorkPtr& work) {
  const auto late = [weak = weak_from_this(), id = work->id] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    (void)self->clock_thread_.Post([core = self.get(), id] { core->EndEarly(id, DeadlineStatus()); });
  };
  work->timer = options_.timers->At(work->request.deadline_steady_ns, late);
}

void ShmCore::Cancel(FetchId id) {
  (void)clock_thread_.Post([this, id] { EndEarly(id, CancelledStatus()); });
}

void ShmCore::EndEarly(FetchId id, const absl::Status& status) {
  WorkPtr work;
  {
    MutexLock lock(&mu_);
    const auto found = works_.find(id);
    if (found == works_.end()) return;
    work = found->second;
    if (work->stage == Stage::kOver) return;
    if (!work->ending.has_value()) work->ending = status;
    if (work->client != nullptr) work->client->Close();  // the worker does not wait for an answer any more
    if (work->stage == Stage::kCopying) return;          // it sees this after the next piece
    work->stage = Stage::kOver;
    std::erase(queue_, work);
  }
  Finish(work, status);
}

void ShmCore::Stop() {
  MutexLock stop(&stop_mu_);
  std::vector<FetchId> all;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    for (const auto& [id, work] : works_) all.push_back(id);
    wake_.SignalAll();
  }
  (void)clock_thread_.Post([this, all] {
    for (const FetchId id : all) EndEarly(id, CancelledStatus());
  });
  for (std::thread& worker : workers_) {
    if (worker.joinable()) worker.join();
  }
  clock_thread_.Stop();
}

void ShmCore::Run() {
  std::unique_ptr<shm::Client> client;
  while (const WorkPtr work = Next()) Do(work, &client);
}

WorkPtr ShmCore::Next() {
  MutexLock lock(&mu_);
  while (queue_.empty() && !stopping_) wake_.Wait(&mu_);
  if (queue_.empty()) return nullptr;
  WorkPtr work = std::move(queue_.front());
  queue_.pop_front();
  work->stage = Stage::kAsking;
  return work;
}

// Whether the worker goes on to this stage with it; not when it was ended meanwhile.
bool ShmCore::Claim(const WorkPtr& work, Stage to) {
  MutexLock lock(&mu_);
  if (work->stage == Stage::kOver) return false;
  work->stage = to;
  return true;
}

std::optional<absl::Status> ShmCore::EndingOf(const WorkPtr& work) const {
  MutexLock lock(&mu_);
  return work->ending;
}

absl::Status ShmCore::CheckWork(const Work& work, bool* moves) const {
  if (work.probed != nullptr) return absl::OkStatus();
  if (absl::Status status = ValidateRequest(work.request); !status.ok()) return status;
  if (work.request.memory != MemoryKind::kHost) {
    return NotOnThisPathStatus("this path copies to host memory only");
  }
  if (work.request.region->on_its_way && !options_.waits_for_whole) {
    return NotOnThisPathStatus("the object is not whole yet; other paths bring its layers as they come");
  }
  *moves = MovesBytes(work.request);
  if (*moves && work.request.deadline_steady_ns <= options_.clock->SteadyNs()) return DeadlineStatus();
  return absl::OkStatus();
}

void ShmCore::Do(const WorkPtr& work, std::unique_ptr<shm::Client>* client) {
  bool moves = false;
  absl::Status status = EndingOf(work).value_or(absl::OkStatus());
  if (status.ok()) status = CheckWork(*work, &moves);
  if (status.ok() && (moves || work->probed != nullptr)) status = Connect(client);
  std::unique_ptr<shm::LentObject> object;
  if (status.ok() && moves) {
    auto lent = Ask(work, client->get());
    status = lent.status();
    if (lent.ok()) object = *std::move(lent);
  }
  if (!Claim(work, object == nullptr ? Stage::kOver : Stage::kCopying)) return;
  if (object == nullptr) return Finish(work, status);
  std::vector<size_t> doubtful;
  status = Copy(work, *object, &doubtful);
  if (status.ok()) status = Confirm(work, client->get(), object.get(), doubtful);
  object.reset();  // before its listener hears of the end
  Claim(work, Stage::kOver);
  Finish(work, EndingOf(work).value_or(status));
}

absl::Status ShmCore::Connect(std::unique_ptr<shm::Client>* client) {
  if (*client != nullptr && (*client)->alive()) return absl::OkStatus();
  if (*client != nullptr) NoteGone();
  client->reset();
  shm::ClientOptions store = options_.store;
  ShmPlace place;
  if (options_.find) {
    place = options_.find();
    store.path = place.socket;
  }
  if (store.path.empty()) return NotOnThisPathStatus("the peer hands its memory to no process here");
  auto connected = shm::Client::Connect(store);
  if (!connected.ok()) return ToPathStatus(connected.status());
  if (place.incarnation != 0 && place.incarnation != (*connected)->incarnation()) {
    return NotOnThisPathStatus("another life of the peer, or another store, is at its socket");
  }
  *client = *std::move(connected);
  MutexLock lock(&mu_);
  peer_known_ = true;
  return absl::OkStatus();
}

// A connection was lost that we did not end.
void ShmCore::NoteGone() {
  {
    MutexLock lock(&mu_);
    if (!std::exchange(peer_known_, false)) return;
  }
  if (options_.peer_down) options_.peer_down(PathDownStatus("the store ended the connection"));
}

bool ShmCore::SetClient(const WorkPtr& work, shm::Client* client) {
  MutexLock lock(&mu_);
  if (client != nullptr && work->ending.has_value()) return false;
  work->client = client;
  return true;
}

absl::StatusOr<std::unique_ptr<shm::LentObject>> ShmCore::Ask(const WorkPtr& work, shm::Client* client) {
  const Region& region = *work->request.region;
  if (!SetClient(work, client)) return CancelledStatus();
  auto lent = client->Lend(region.tenant, region.key, region.layout);
  SetClient(work, nullptr);
  if (!lent.ok()) {
    if (absl::IsUnavailable(lent.status()) && !EndingOf(work).has_value()) NoteGone();
    return ToPathStatus(lent.status());
  }
  if (lent->outcome != shm::Outcome::kHit) {
    return region.lease.incarnation == client->incarnation()
               ? NotOnThisPathStatus("the store finds no such object by its key")
               : LeaseEndedStatus();
  }
  const shm::LentObject& object = *lent->object;
  if (absl::Status same = CheckSame(region, client->incarnation(), object.generation(), object.build());
      !same.ok()) {
    return same;
  }
  return std::move(lent->object);
}

// Ranges that are not as they should be are `doubtful`: damaged, or of an object that is there no more.
// Errors: why the fetch is to end.
absl::Status ShmCore::Copy(const WorkPtr& work, const shm::LentObject& object,
                           std::vector<size_t>* doubtful) {
  const FetchRequest& request = work->request;
  for (size_t index = 0; index < request.ranges.size(); ++index) {
    const FetchRange& range = request.ranges[index];
    const ByteSpan from = object.Layer(range.layer).subspan(range.offset, range.to.size());
    RangeCheck check(*request.region, range, object.LayerCrcs(range.layer));
    for (uint64_t at = 0; at < from.size(); at += options_.piece_bytes) {
      if (const auto ending = EndingOf(work); ending.has_value()) return *ending;
      if (!check.Copy(from.subspan(at, std::min(options_.piece_bytes, from.size() - at))).ok()) break;
    }
    if (check.Finish().ok()) {
      EndRange(work.get(), index, absl::OkStatus(), check.block_crcs());
    } else {
      doubtful->push_back(index);
    }
  }
  return absl::OkStatus();
}

// What the store says after the last byte.
absl::Status ShmCore::Confirm(const WorkPtr& work, shm::Client* client, shm::LentObject* object,
                              const std::vector<size_t>& doubtful) {
  if (!SetClient(work, client)) return absl::OkStatus();
  const absl::StatusOr<bool> current = object->Confirm();
  SetClient(work, nullptr);
  absl::Status status;
  if (!current.ok()) {
    if (absl::IsUnavailable(current.status()) && !EndingOf(work).has_value()) NoteGone();
    status = ToPathStatus(current.status());
  } else if (!*current) {
    status = NotOnThisPathStatus("the object was replaced, evicted or deleted while it was copied");
  }
  for (const size_t index : doubtful) {
    EndRange(work.get(), index, status.ok() ? DamagedStatus(work->request.ranges[index].layer) : status);
  }
  return status;
}

void ShmCore::Finish(const WorkPtr& work, const absl::Status& status) {
  {
    MutexLock lock(&mu_);
    works_.erase(work->id);
  }
  if (work->timer != 0) options_.timers->Cancel(work->timer);
  if (work->probed != nullptr) return work->probed(status);
  for (size_t range = 0; range < work->ended.size(); ++range) EndRange(work.get(), range, status);
  work->listener->OnDone(work->error.ok() ? status : work->error);
}

absl::StatusOr<std::shared_ptr<const HeldRegion>> ShmCore::Hold(std::shared_ptr<const Region> region,
                                                                int64_t deadline_steady_ns) {
  EPIC_RETURN_IF_ERROR(ValidateRequest({.region = region}));
  MutexLock hold(&hold_mu_);
  {
    MutexLock lock(&mu_);
    if (stopping_) return PathDownStatus("the path was stopped");
  }
  if (deadline_steady_ns <= options_.clock->SteadyNs()) return DeadlineStatus();
  EPIC_RETURN_IF_ERROR(Connect(&holder_));
  auto held = holder_->Hold(region->tenant, region->key, region->layout);
  if (!held.ok()) return ToPathStatus(held.status());
  if (region->lease.incarnation != holder_->incarnation()) return LeaseEndedStatus();
  if (held->outcome == shm::Outcome::kMustCopy) {
    return NotOnThisPathStatus("readers hold as much of the store's memory as they may; fetch the region");
  }
  if (held->outcome != shm::Outcome::kHit) {
    return NotOnThisPathStatus("the store finds no such object by its key");
  }
  const shm::HeldObject& object = *held->object;
  EPIC_RETURN_IF_ERROR(CheckSame(*region, holder_->incarnation(), object.generation(), object.build()));
  return std::make_shared<const HeldShmRegion>(std::move(region), std::move(held->object));
}

namespace {

class ShmPath final : public Path {
 public:
  explicit ShmPath(std::shared_ptr<ShmCore> core) : core_(std::move(core)) {}
  ~ShmPath() override { core_->Stop(); }
  Capabilities capabilities() const override {
    return {.kind = PathKind::kShm, .zero_copy = true, .max_piece_bytes = core_->options().piece_bytes};
  }
  FetchId Fetch(FetchRequest request, std::shared_ptr<FetchListener> listener) override {
    auto work = std::make_shared<Work>();
    work->request = std::move(request);
    work->listener = std::move(listener);
    return core_->Submit(work);
  }
  void Cancel(FetchId id) override { core_->Cancel(id); }
  void Probe(int64_t deadline_steady_ns, std::function<void(const absl::Status&)> done) override {
    auto work = std::make_shared<Work>();
    work->request.deadline_steady_ns = deadline_steady_ns;
    work->probed = std::move(done);
    core_->Submit(work);
  }
  absl::StatusOr<std::shared_ptr<const HeldRegion>> Hold(std::shared_ptr<const Region> region,
                                                         int64_t deadline_steady_ns) override {
    return core_->Hold(std::move(region), deadline_steady_ns);
  }
  void Stop() override { core_->Stop(); }

 private:
  const std::shared_ptr<ShmCore> core_;
};

}  // namespace

std::unique_ptr<Path> MakeShmPath(const ShmPathOptions& options) {
  return std::make_unique<ShmPath>(std::make_shared<ShmCore>(options));
}

}  // namespace epic::transport
