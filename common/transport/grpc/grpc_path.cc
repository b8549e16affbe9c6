#include "common/transport/grpc/grpc_path.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/absl_std.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/kv_store/layer_part.h"
#include "common/status/error.h"
#include "common/transport/progress_thread.h"
#include "common/transport/range_check.h"

namespace epic::transport {
namespace {

constexpr char kReadLayers[] = "/epic.v1.KvStoreService/ReadLayers";

void SetDeadline(grpc::ClientContext* context, int64_t left_ns) {
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::nanoseconds(left_ns));
}

// What the node says itself, and what became of the way to it, in the words of transport.h.
absl::Status ToPathStatus(const grpc::Status& status, bool deadline_over) {
  const absl::Status converted = FromGrpcStatus(status);
  if (converted.ok()) return converted;
  if (deadline_over && absl::IsDeadlineExceeded(converted)) return DeadlineStatus();
  // Without a code of ours it is gRPC that says so.
  const bool of_the_node =
      !IsUnexpected(converted) && !absl::IsCancelled(converted) && !absl::IsDeadlineExceeded(converted);
  return of_the_node ? converted : PathDownStatus(ToStd(converted.message()));
}

}  // namespace

class GrpcCore {
 public:
  explicit GrpcCore(const GrpcPathOptions& options) : options_(options) {
    EPIC_CHECK(options_.channel != nullptr);
  }
  ~GrpcCore() { Stop(); }

  FetchId Fetch(FetchRequest request, std::shared_ptr<FetchListener> listener) ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel(FetchId id) ABSL_LOCKS_EXCLUDED(mu_);
  void Probe(int64_t deadline_steady_ns, std::function<void(const absl::Status&)> done)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Transfer;
  class Stream;
  struct Question;

  // Asks for the state of leases, which may be none. `done`: on a thread of gRPC.
  void Ask(const std::optional<LeaseName>& lease, int64_t left_ns, std::shared_ptr<Question> question,
           std::function<void(const grpc::Status&)> done);
  int64_t LeftNs(int64_t deadline_steady_ns) const { return deadline_steady_ns - options_.clock->SteadyNs(); }
  void NoteAnswer(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void Over(FetchId id) ABSL_LOCKS_EXCLUDED(mu_);

  const GrpcPathOptions options_;

  Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool peer_known_ ABSL_GUARDED_BY(mu_) = false;  // it answered since it was last seen to be gone
  FetchId last_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<FetchId, std::shared_ptr<Transfer>> transfers_ ABSL_GUARDED_BY(mu_);
  std::map<FetchId, std::shared_ptr<Question>> probes_ ABSL_GUARDED_BY(mu_);

  ProgressThread thread_;  // last: uses all of the above
};

// A Confirm under way.
struct GrpcCore::Question {
  grpc::ClientContext context;
  v1::ConfirmRequest request;
  v1::LeaseStatesResponse response;
};

// One fetch: its streams, one after the other, then the question. Its steps come one at a time; what is
// guarded may be asked for by Cancel meanwhile.
class GrpcCore::Transfer final : public std::enable_shared_from_this<Transfer> {
 public:
  Transfer(GrpcCore* core, FetchRequest request, std::shared_ptr<FetchListener> listener)
      : core_(core), request_(std::move(request)), listener_(std::move(listener)) {
    ended_.resize(request_.ranges.size());
  }
  void set_id(FetchId id) { id_ = id; }

  void Begin(const absl::Status& refused);
  void Cancel(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void End(const absl::Status& status);

  // --- of the stream
  void Take(const ReceivedPart& part);
  void StreamIsOver(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Run {
    uint32_t first = 0;
    uint32_t layers = 0;
  };

  void PlanRuns();
  void StartStream();
  void AskWhetherHeld(bool at_the_end);
  void Answered(bool at_the_end, const grpc::Status& status, const v1::LeaseStatesResponse& response);
  void BeginLayer(const ReceivedPart& part);
  void FinishLayer();
  void EndRange(size_t range, const absl::Status& status, std::span<const uint32_t> crcs = {});
  std::optional<absl::Status> ending() const ABSL_LOCKS_EXCLUDED(mu_);
  // False: it is to end instead.
  bool SetContext(std::shared_ptr<grpc::ClientContext> context) ABSL_LOCKS_EXCLUDED(mu_);
  bool DeadlineIsOver() const { return core_->LeftNs(request_.deadline_steady_ns) <= 0; }

  GrpcCore* const core_;
  const FetchRequest request_;
  std::shared_ptr<FetchListener> listener_;
  FetchId id_ = 0;

  std::map<uint32_t, std::vector<size_t>> of_layer_;  // ranges
  std::vector<bool> ended_;                           // Shape: [ranges]
  absl::Status error_;                                // the first
  std::vector<Run> runs_;
  size_t run_ = 0;
  bool received_ = false;  // something in this run
  bool retried_ = false;
  // The layer whose parts come.
  std::optional<uint32_t> layer_;
  uint64_t filled_ = 0;  // bytes of it
  std::vector<std::pair<size_t, RangeCheck>> checks_;

  mutable Mutex mu_;
  std::optional<absl::Status> ending_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mu_);  // of the call that runs
};

// One ReadLayers; frees itself.
class GrpcCore::Stream final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Stream(const StoreChannel& channel, std::shared_ptr<Transfer> transfer)
      : transfer_(std::move(transfer)), stub_(channel.channel()) {}
  const std::shared_ptr<grpc::ClientContext>& context() const { return context_; }

  void Start(const v1::ReadLayersRequest& request) {
    bool own = false;
    EPIC_CHECK(grpc::SerializationTraits<v1::ReadLayersRequest>::Serialize(request, &sent_, &own).ok());
    stub_.PrepareBidiStreamingCall(context_.get(), kReadLayers, grpc::StubOptions(), this);
    StartWriteLast(&sent_, grpc::WriteOptions());
    StartRead(&received_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;  // OnDone says why
    const absl::StatusOr<ReceivedPart> part = DecodeLayerPart(received_);
    received_.Clear();
    if (part.ok()) {
      transfer_->Take(*part);
    } else {
      transfer_->Cancel(PathDownStatus("the peer sends what is no part of a layer"));
    }
    StartRead(&received_);
  }
  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<Transfer> transfer = std::move(transfer_);
    delete this;
    transfer->StreamIsOver(status);
  }

 private:
  std::shared_ptr<Transfer> transfer_;
  const std::shared_ptr<grpc::ClientContext> context_ = std::make_shared<grpc::ClientContext>();
  grpc::GenericStub stub_;
  grpc::ByteBuffer sent_;
  grpc::ByteBuffer received_;
};

// --- one fetch

void GrpcCore::Transfer::Begin(const absl::Status& refused) {
  absl::Status status = refused;
  if (status.ok()) status = ValidateRequest(request_);
  if (status.ok() && request_.memory != MemoryKind::kHost) {
    status = NotOnThisPathStatus("this path copies to host memory only");
  }
  if (!status.ok()) return End(status);
  PlanRuns();
  if (runs_.empty()) return End(absl::OkStatus());
  StartStream();
}

void GrpcCore::Transfer::PlanRuns() {
  for (size_t range = 0; range < request_.ranges.size(); ++range) {
    if (request_.ranges[range].to.empty()) {
      EndRange(range, absl::OkStatus());
    } else {
      of_layer_[request_.ranges[range].layer].push_back(range);
    }
  }
  for (const auto& [layer, ranges] : of_layer_) {
    if (runs_.empty() || runs_.back().first + runs_.back().layers != layer) runs_.push_back({layer, 0});
    ++runs_.back().layers;
  }
  // What was asked for first goes first.
  std::stable_sort(runs_.begin(), runs_.end(), [this](const Run& a, const Run& b) {
    const auto earliest = [this](const Run& run) {
      size_t first = request_.ranges.size();
      for (uint32_t i = 0; i < run.layers; ++i) first = std::min(first, of_layer_[run.first + i].front());
      return first;
    };
    return earliest(a) < earliest(b);
  });
}

void GrpcCore::Transfer::StartStream() {
  if (DeadlineIsOver()) return End(DeadlineStatus());
  received_ = false;
  layer_.reset();
  const LeaseName& lease = request_.region->lease;
  v1::ReadLayersRequest request;
  request.set_peer(lease.holder);
  request.set_incarnation(lease.incarnation);
  request.set_lease(lease.number);
  request.set_first_layer(runs_[run_].first);
  request.set_layers(runs_[run_].layers);
  request.set_keep_lease(true);
  auto stream = std::make_unique<Stream>(*core_->options_.channel, shared_from_this());
  SetDeadline(stream->context().get(), core_->LeftNs(request_.deadline_steady_ns));
  if (!SetContext(stream->context())) return End(*ending());
  stream.release()->Start(request);  // frees itself
}

void GrpcCore::Transfer::Take(const ReceivedPart& part) {
  received_ = true;
  const Run& run = runs_[run_];
  const uint64_t size = request_.region->layout.LayerBytes();
  if (!layer_.has_value() || part.head.layer != *layer_) {
    const bool forward = !layer_.has_value() || part.head.layer > *layer_;
    if (!forward || part.head.layer < run.first || part.head.layer - run.first >= run.layers) {
      return Cancel(PathDownStatus("the peer sends another layer than it was asked for"));
    }
    FinishLayer();
    BeginLayer(part);
  }
  if (part.head.offset != filled_ || part.data_bytes > size - filled_) {
    return Cancel(PathDownStatus("the peer sends the parts of a layer out of order"));
  }
  for (const ByteSpan data : part.data) {
    for (auto& [index, check] : checks_) {
      const FetchRange& range = request_.ranges[index];
      const uint64_t begin = std::max(range.offset, filled_);
      const uint64_t end = std::min(range.offset + range.to.size(), filled_ + data.size());
      // What is wrong is said by Finish.
      if (begin < end) check.Copy(data.subspan(begin - filled_, end - begin)).IgnoreError();
    }
    filled_ += data.size();
  }
  if (filled_ == size) FinishLayer();
}

void GrpcCore::Transfer::BeginLayer(const ReceivedPart& part) {
  layer_ = part.head.layer;
  filled_ = 0;
  for (const size_t index : of_layer_[*layer_]) {
    checks_.emplace_back(index, RangeCheck(*request_.region, request_.ranges[index], part.head.block_crcs));
  }
}

void GrpcCore::Transfer::FinishLayer() {
  for (const auto& [index, check] : checks_) {
    const absl::Status status = check.Finish();
    EndRange(index, status, status.ok() ? check.block_crcs() : std::span<const uint32_t>());
  }
  checks_.clear();
}

void GrpcCore::Transfer::StreamIsOver(const grpc::Status& status) {
  SetContext(nullptr);
  if (const auto why = ending(); why.has_value()) return End(*why);
  if (status.ok()) {
    FinishLayer();
    for (uint32_t i = 0; i < runs_[run_].layers; ++i) {
      for (const size_t index : of_layer_[runs_[run_].first + i]) {
        EndRange(index, DamagedStatus(runs_[run_].first + i));  // if it did not come whole
      }
    }
    core_->NoteAnswer(absl::OkStatus());
    return ++run_ < runs_.size() ? StartStream() : AskWhetherHeld(/*at_the_end=*/true);
  }
  const absl::Status why = ToPathStatus(status, DeadlineIsOver());
  const bool nobody = status.error_code() == grpc::StatusCode::UNAVAILABLE && !received_;
  if (nobody && !std::exchange(retried_, true)) return AskWhetherHeld(/*at_the_end=*/false);
  if (received_) core_->NoteAnswer(absl::OkStatus());
  core_->NoteAnswer(why);
  End(why);
}

// At the end, or to find a node that is being restarted.
void GrpcCore::Transfer::AskWhetherHeld(bool at_the_end) {
  int64_t left_ns = core_->LeftNs(request_.deadline_steady_ns);
  if (left_ns <= 0) return End(DeadlineStatus());
  if (!at_the_end) left_ns = std::min(left_ns, core_->options_.reconnect_ms * 1'000'000);
  auto question = std::make_shared<Question>();
  question->context.set_wait_for_ready(!at_the_end);
  if (!SetContext({question, &question->context})) return End(*ending());
  core_->Ask(request_.region->lease, left_ns, question,
             [self = shared_from_this(), question, at_the_end](const grpc::Status& status) {
               self->Answered(at_the_end, status, question->response);
             });
}

void GrpcCore::Transfer::Answered(bool at_the_end, const grpc::Status& status,
                                  const v1::LeaseStatesResponse& response) {
  SetContext(nullptr);
  if (const auto why = ending(); why.has_value()) return End(*why);
  const absl::Status converted = ToPathStatus(status, DeadlineIsOver());
  core_->NoteAnswer(converted);
  if (!converted.ok()) return End(converted);
  const bool held = response.incarnation() == request_.region->lease.incarnation &&
                    response.held_size() == 1 && response.held(0);
  if (!held) return End(LeaseEndedStatus());
  at_the_end ? End(absl::OkStatus()) : StartStream();
}

void GrpcCore::Transfer::Cancel(const absl::Status& status) {
  std::shared_ptr<grpc::ClientContext> context;
  {
    MutexLock lock(&mu_);
    if (!ending_.has_value()) ending_ = status;
    context = context_;
  }
  if (context != nullptr) context->TryCancel();  // without the lock: it may call back from within
}

std::optional<absl::Status> GrpcCore::Transfer::ending() const {
  MutexLock lock(&mu_);
  return ending_;
}

bool GrpcCore::Transfer::SetContext(std::shared_ptr<grpc::ClientContext> context) {
  MutexLock lock(&mu_);
  if (context != nullptr && ending_.has_value()) return false;
  context_ = std::move(context);
  return true;
}

void GrpcCore::Transfer::EndRange(size_t range, const absl::Status& status, std::span<const uint32_t> crcs) {
  if (ended_[range]) return;
  ended_[range] = true;
  if (error_.ok()) error_ = status;
  listener_->OnRange(range, status, crcs);
}

void GrpcCore::Transfer::End(const absl::Status& status) {
  checks_.clear();
  for (size_t range = 0; range < ended_.size(); ++range) EndRange(range, status);
  const std::shared_ptr<FetchListener> listener = std::move(listener_);
  listener->OnDone(error_.ok() ? status : error_);
  core_->Over(id_);
}

// --- all of them

FetchId GrpcCore::Fetch(FetchRequest request, std::shared_ptr<FetchListener> listener) {
  auto transfer = std::make_shared<Transfer>(this, std::move(request), std::move(listener));
  FetchId id = 0;
  bool posted = false;
  {
    MutexLock lock(&mu_);
    id = ++last_id_;
    transfer->set_id(id);
    absl::Status refused;
    if (transfers_.size() >= options_.fetches_max) refused = PathDownStatus("too many fetches at a time");
    posted = !stopping_ && thread_.Post([transfer, refused] { transfer->Begin(refused); });
    if (posted) transfers_[id] = transfer;
  }
  if (!posted) transfer->End(PathDownStatus("the path was stopped"));
  return id;
}

void GrpcCore::Cancel(FetchId id) {
  std::shared_ptr<Transfer> transfer;
  {
    MutexLock lock(&mu_);
    const auto found = transfers_.find(id);
    if (found == transfers_.end()) return;
    transfer = found->second;
  }
  // On a thread of ours: no callback from within this call.
  (void)thread_.Post([transfer] { transfer->Cancel(CancelledStatus()); });
}

void GrpcCore::Ask(const std::optional<LeaseName>& lease, int64_t left_ns, std::shared_ptr<Question> question,
                   std::function<void(const grpc::Status&)> done) {
  SetDeadline(&question->context, left_ns);
  if (lease.has_value()) {
    question->request.set_peer(lease->holder);
    question->request.mutable_leases()->set_incarnation(lease->incarnation);
    question->request.mutable_leases()->add_numbers(lease->number);
  }
  options_.channel->stub()->async()->Confirm(
      &question->context, &question->request, &question->response,
      [question, done = std::move(done)](const grpc::Status& status) { done(status); });
}

void GrpcCore::Probe(int64_t deadline_steady_ns, std::function<void(const absl::Status&)> done) {
  auto question = std::make_shared<Question>();
  question->context.set_wait_for_ready(true);
  const auto ask = [this, question, deadline_steady_ns, done](FetchId id) {
    Ask({}, std::max<int64_t>(0, LeftNs(deadline_steady_ns)), question,
        [this, id, done](const grpc::Status& status) {
          // Any word of the node itself will do.
          const absl::Status converted = ToPathStatus(status, /*deadline_over=*/true);
          const FetchEnd end = EndOf(converted);
          const bool silent = end == FetchEnd::kPathDown || end == FetchEnd::kDeadline;
          done(silent ? converted : absl::OkStatus());
          MutexLock lock(&mu_);
          probes_.erase(id);
          changed_.SignalAll();
        });
  };
  bool posted = false;
  {
    MutexLock lock(&mu_);
    const FetchId id = ++last_id_;
    posted = !stopping_ && thread_.Post([ask, id] { ask(id); });
    if (posted) probes_[id] = question;
  }
  if (!posted) done(PathDownStatus("the path was stopped"));
}

void GrpcCore::NoteAnswer(const absl::Status& status) {
  {
    MutexLock lock(&mu_);
    if (EndOf(status) != FetchEnd::kPathDown) {
      peer_known_ = peer_known_ || EndOf(status) != FetchEnd::kDeadline;
      return;
    }
    if (!std::exchange(peer_known_, false)) return;
  }
  if (options_.peer_down) options_.peer_down(status);
}

void GrpcCore::Over(FetchId id) {
  std::shared_ptr<Transfer> transfer;  // let go without the lock
  MutexLock lock(&mu_);
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) return;
  transfer = std::move(found->second);
  transfers_.erase(found);
  changed_.SignalAll();
}

void GrpcCore::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    std::vector<std::shared_ptr<Transfer>> transfers;
    for (const auto& [id, transfer] : transfers_) transfers.push_back(transfer);
    std::vector<std::shared_ptr<Question>> probes;
    for (const auto& [id, question] : probes_) probes.push_back(question);
    (void)thread_.Post([transfers = std::move(transfers), probes = std::move(probes)] {
      for (const auto& transfer : transfers) transfer->Cancel(CancelledStatus());
      for (const auto& question : probes) question->context.TryCancel();
    });
    while (!transfers_.empty() || !probes_.empty()) changed_.Wait(&mu_);
  }
  thread_.Stop();
}

namespace {

class GrpcPath final : public Path {
 public:
  explicit GrpcPath(const GrpcPathOptions& options) : core_(options) {}
  ~GrpcPath() override { core_.Stop(); }
  // A node sends parts of at most 1 MiB.
  Capabilities capabilities() const override { return {.kind = PathKind::kGrpc}; }
  FetchId Fetch(FetchRequest request, std::shared_ptr<FetchListener> listener) override {
    return core_.Fetch(std::move(request), std::move(listener));
  }
  void Cancel(FetchId id) override { core_.Cancel(id); }
  void Probe(int64_t deadline_steady_ns, std::function<void(const absl::Status&)> done) override {
    core_.Probe(deadline_steady_ns, std::move(done));
  }
  void Stop() override { core_.Stop(); }

 private:
  GrpcCore core_;
};

}  // namespace

std::unique_ptr<Path> MakeGrpcPath(const GrpcPathOptions& options) {
  return std::make_unique<GrpcPath>(options);
}

}  // namespace epic::transport
