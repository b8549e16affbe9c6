#include "services/compile_worker/core/compile_service.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/compile_worker/core/layer_queue.h"

namespace epic {
namespace {

// What a flight takes of max_batch_rows at least, which bounds their number.
constexpr uint64_t kFewestRows = 16;

// Failures that say nothing about the context itself: its record stays as it is, and the next use tries
// again.
bool IsPassing(ErrorCode code) {
  switch (code) {
    case ErrorCode::kQueueFull:
    case ErrorCode::kDraining:
    case ErrorCode::kLoading:
    case ErrorCode::kClientGone:
    case ErrorCode::kDeadline:
    case ErrorCode::kContextNotFound:
    case ErrorCode::kContextExpired:
    case ErrorCode::kContextDeleted:
      return true;
    default:
      return false;
  }
}

// What waiters see: codes that tell them what to do stay, anything else is a failed context.
absl::Status ForWaiters(const absl::Status& status) {
  const ErrorCode code = CodeOf(status);
  const bool keep = IsPassing(code) || code == ErrorCode::kStorageFull ||
                    code == ErrorCode::kContextLengthExceeded || code == ErrorCode::kContextFailed;
  if (keep) return status;
  return Error(ErrorCode::kContextFailed, "the context cannot be compiled: " + MessageOf(status));
}

}  // namespace

// Members without a note are constant or touched by one step at a time (executor, then engine, then executor;
// each hand-over synchronises). Those under "guarded" are guarded by the service's mu_.
struct CompileService::Flight {
  CompileJob job;
  FlightKey key;
  std::unique_ptr<ObjectWriter> writer;
  int64_t started_ns = 0;

  // Guarded.
  std::map<CompileTicket, Done> waiters;
  CompileTicket starter = 0;
  bool detached = false;
  bool queued = false;
  bool sets_state = false;
  CancelSource cancel;
  bool wanted() const { return detached || !waiters.empty(); }
  uint64_t rows() const {
    return std::max<uint64_t>(job.prefix_tokens.size() + job.tokens.size(), kFewestRows);
  }
};

class CompileService::Sink final : public CompileSink {
 public:
  Sink(CompileService* service, std::shared_ptr<Flight> flight)
      : service_(service), flight_(std::move(flight)) {
    if (!service_->limits_.queues_layers) return;
    queue_ = std::make_shared<LayerQueue>(flight_->writer.get(), service_->executor_);
  }
  absl::Status OnLayer(uint32_t layer, ByteSpan slab) override {
    return queue_ != nullptr ? queue_->Push(layer, slab) : flight_->writer->WriteLayer(layer, slab);
  }
  void OnDone(const absl::Status& status) override {
    const auto finish = [service = service_, flight = flight_, status](const absl::Status& written) {
      service->Finish(flight, status.ok() ? written : status);
    };
    if (queue_ != nullptr) return queue_->End(/*keep=*/status.ok(), finish);
    service_->executor_->Submit([finish] { finish(absl::OkStatus()); });
  }

 private:
  CompileService* const service_;
  const std::shared_ptr<Flight> flight_;
  std::shared_ptr<LayerQueue> queue_;  // null: layers are written at once
};

CompileService::CompileService(const CompileLimits& limits, Engine* engine, KvStore* store,
                               Executor* executor, const Clock* clock, Metrics* metrics)
    : limits_(limits), engine_(engine), store_(store), executor_(executor), clock_(clock) {
  if (metrics == nullptr) return;
  series_.emplace(Series{.ok = metrics->GetCounter(MetricId::kCompilesTotal, {"ok"}),
                         .failed = metrics->GetCounter(MetricId::kCompilesTotal, {"failed"}),
                         .cancelled = metrics->GetCounter(MetricId::kCompilesTotal, {"cancelled"}),
                         .tokens = metrics->GetCounter(MetricId::kCompileTokensTotal),
                         .seconds = metrics->GetHistogram(MetricId::kCompileSeconds)});
}

CompileService::~CompileService() { Stop(); }

absl::StatusOr<CompileTicket> CompileService::Ensure(CompileJob job, Done done) {
  EPIC_CHECK(!job.tokens.empty() && !job.key.id.empty());
  FlightKey key(job.tenant, job.key);
  MutexLock lock(&mu_);
  if (stopped_) return Error(ErrorCode::kDraining, "the server is stopping: send the request elsewhere");
  auto found = flights_.find(key);
  const bool joins = found != flights_.end();
  if (!joins) {
    auto flight = std::make_shared<Flight>();
    flight->job = std::move(job);
    const bool waits = !queue_.empty() || !HasPlace(*flight);
    if (waits && queue_.size() >= limits_.max_queue) {
      ++totals_.refused;
      return RetryLater(ErrorCode::kQueueFull, "too many contexts wait to be compiled: try again later",
                        limits_.retry_after_ms);
    }
    flight->key = key;
    flight->queued = true;
    flight->sets_state = flight->job.sets_state;
    queue_.push_back(flight);
    found = flights_.emplace(std::move(key), std::move(flight)).first;
  }
  const std::shared_ptr<Flight>& flight = found->second;
  const CompileTicket ticket = next_ticket_++;
  if (joins) {
    flight->sets_state |= job.sets_state;
  } else {
    flight->starter = ticket;
  }
  flight->waiters.emplace(ticket, std::move(done));
  tickets_.emplace(ticket, flight);
  Launch();
  return ticket;
}

void CompileService::Abandon(CompileTicket ticket) {
  Done done;
  {
    MutexLock lock(&mu_);
    const auto found = tickets_.find(ticket);
    if (found == tickets_.end()) return;
    const std::shared_ptr<Flight> flight = found->second;
    tickets_.erase(found);
    const auto waiter = flight->waiters.find(ticket);
    done = std::move(waiter->second);
    flight->waiters.erase(waiter);
    CancelIfUnwanted(flight);
  }
  done(absl::CancelledError("no longer waited for"));
}

bool CompileService::Detach(CompileTicket ticket) {
  Done dropped;  // destroyed outside the lock
  MutexLock lock(&mu_);
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return false;
  const std::shared_ptr<Flight> flight = found->second;
  tickets_.erase(found);
  flight->detached = true;
  const auto waiter = flight->waiters.find(ticket);
  dropped = std::move(waiter->second);
  flight->waiters.erase(waiter);
  return true;
}

void CompileService::Forget(std::string_view tenant, const CacheId& id) {
  std::vector<Done> waiters;
  {
    MutexLock lock(&mu_);
    std::vector<std::shared_ptr<Flight>> affected;
    for (const auto& [key, flight] : flights_) {
      if (key.first == tenant && key.second.id == id) affected.push_back(flight);
    }
    for (const std::shared_ptr<Flight>& flight : affected) {
      for (auto& [ticket, done] : flight->waiters) {
        tickets_.erase(ticket);
        waiters.push_back(std::move(done));
      }
      flight->waiters.clear();
      flight->detached = false;
      CancelIfUnwanted(flight);
    }
  }
  for (const Done& done : waiters) done(Error(ErrorCode::kContextDeleted, "the context was deleted"));
}

CompileStats CompileService::stats() const {
  MutexLock lock(&mu_);
  CompileStats stats = totals_;
  stats.running = running_;
  stats.queued = static_cast<uint32_t>(queue_.size());
  stats.waiters = static_cast<uint32_t>(tickets_.size());
  return stats;
}

void CompileService::Stop() {
  std::vector<Done> waiters;
  {
    MutexLock lock(&mu_);
    if (stopped_) return;
    stopped_ = true;
    for (const std::shared_ptr<Flight>& flight : queue_) flights_.erase(flight->key);
    for (const auto& [ticket, flight] : tickets_) waiters.push_back(std::move(flight->waiters.at(ticket)));
    for (const auto& [key, flight] : flights_) {
      flight->waiters.clear();
      flight->cancel.Cancel();
    }
    queue_.clear();
    tickets_.clear();
  }
  for (const Done& done : waiters) done(Error(ErrorCode::kDraining, "the server is stopping"));
}

bool CompileService::HasPlace(const Flight& flight) const {
  return running_ < limits_.max_running || running_rows_ + flight.rows() <= limits_.max_batch_rows;
}

void CompileService::Launch() {
  while (!queue_.empty() && HasPlace(*queue_.front())) {
    const std::shared_ptr<Flight> flight = queue_.front();
    queue_.pop_front();
    flight->queued = false;
    ++running_;
    running_rows_ += flight->rows();
    executor_->Submit([this, flight] { Begin(flight); });
  }
}

void CompileService::CancelIfUnwanted(const std::shared_ptr<Flight>& flight) {
  if (flight->wanted()) return;
  if (!flight->queued) {
    flight->cancel.Cancel();
    return;
  }
  queue_.erase(std::find(queue_.begin(), queue_.end(), flight));
  flights_.erase(flight->key);
  ++totals_.cancelled;
}

void CompileService::Begin(const std::shared_ptr<Flight>& flight) {
  flight->started_ns = clock_->SteadyNs();
  const CompileJob& job = flight->job;
  const KvLayout layout = engine_->LayoutOf(static_cast<uint32_t>(job.tokens.size()),
                                            static_cast<uint32_t>(job.prefix_tokens.size()));
  const absl::StatusOr<AcquireResult> stored = store_->Acquire(job.tenant, job.key, layout);
  if (!stored.ok()) return Complete(flight, stored.status(), false);
  if (stored->object != nullptr) {
    WriteState(*flight, absl::OkStatus());
    return Complete(flight, stored->object, false);
  }
  absl::StatusOr<std::unique_ptr<ObjectWriter>> writer = store_->Reserve(job.tenant, job.key, layout);
  absl::Status status = writer.status();
  if (status.ok()) {
    flight->writer = *std::move(writer);
    status = StartEngine(flight);
  }
  if (!status.ok()) Finish(flight, status);
}

absl::Status CompileService::StartEngine(const std::shared_ptr<Flight>& flight) {
  CompileRequest request;
  request.prefix_tokens = flight->job.prefix_tokens;
  request.tokens = flight->job.tokens;
  {
    MutexLock lock(&mu_);
    request.cancel = flight->cancel.token();
  }
  if (request.cancel.cancelled()) return absl::CancelledError("nobody waits for the compile");
  return engine_->SubmitCompile(std::move(request), std::make_shared<Sink>(this, flight));
}

void CompileService::Finish(const std::shared_ptr<Flight>& flight, const absl::Status& compiled) {
  absl::StatusOr<std::shared_ptr<const KvObject>> object = Publish(flight, compiled);
  flight->writer.reset();
  WriteState(*flight, object.status());
  Complete(flight, object, true);
}

absl::StatusOr<std::shared_ptr<const KvObject>> CompileService::Publish(const std::shared_ptr<Flight>& flight,
                                                                        const absl::Status& compiled) {
  EPIC_RETURN_IF_ERROR(compiled);
  return flight->writer->Commit();
}

void CompileService::WriteState(const Flight& flight, const absl::Status& status) {
  bool sets_state = false;
  {
    MutexLock lock(&mu_);
    sets_state = flight.sets_state;
  }
  const CompileJob& job = flight.job;
  const int64_t compile_ms = (clock_->SteadyNs() - flight.started_ns) / 1'000'000;
  // A record whose state cannot be written stays `compiling`: its next use finds the object and tries again.
  if (status.ok()) {
    if (sets_state) {
      store_->SetState(job.tenant, job.key.id, ContextState::kReady, compile_ms, "").IgnoreError();
    }
  } else if (sets_state && !IsPassing(CodeOf(status))) {
    store_->SetState(job.tenant, job.key.id, ContextState::kFailed, compile_ms, MessageOf(status))
        .IgnoreError();
  }
}

void CompileService::Count(const Flight& flight, const absl::Status& status, bool computed, bool cancelled) {
  if (status.ok() && !computed) {
    ++totals_.found;
    return;
  }
  const uint64_t tokens = flight.job.tokens.size();
  if (status.ok()) {
    ++totals_.compiled;
    totals_.compiled_tokens += tokens;
  } else {
    ++(cancelled ? totals_.cancelled : totals_.failed);
  }
  if (!series_.has_value()) return;
  (status.ok() ? series_->ok : cancelled ? series_->cancelled : series_->failed).Add();
  if (!status.ok()) return;
  series_->tokens.Add(tokens);
  series_->seconds.Observe(static_cast<double>(clock_->SteadyNs() - flight.started_ns) / 1e9);
}

void CompileService::Complete(const std::shared_ptr<Flight>& flight,
                              const absl::StatusOr<std::shared_ptr<const KvObject>>& result, bool computed) {
  std::map<CompileTicket, Done> waiters;
  CompileTicket starter = 0;
  {
    MutexLock lock(&mu_);
    const bool cancelled = !result.ok() && flight->cancel.token().cancelled();
    if (cancelled && flight->wanted() && !stopped_) {
      // Somebody joined after the last waiter had left: the work is wanted again.
      flight->cancel = CancelSource();
      flight->starter = flight->waiters.empty() ? 0 : flight->waiters.begin()->first;
      executor_->Submit([this, flight] { Begin(flight); });
      return;
    }
    flights_.erase(flight->key);
    --running_;
    running_rows_ -= flight->rows();
    waiters.swap(flight->waiters);
    starter = flight->starter;
    for (const auto& [ticket, done] : waiters) tickets_.erase(ticket);
    Count(*flight, result.status(), computed, cancelled);
    Launch();
  }
  for (const auto& [ticket, done] : waiters) {
    if (result.ok()) {
      done(CompileOutcome{*result, computed && ticket == starter});
    } else {
      done(ForWaiters(result.status()));
    }
  }
}

}  // namespace epic
