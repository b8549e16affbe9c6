#include "services/router/core/context_service.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/storage/erase_wait.h"
#include "services/router/core/checks.h"
#include "services/router/core/create_context.h"
#include "services/router/core/prompt.h"

namespace epic {
namespace {

constexpr int64_t kMaxEraseNs = int64_t{55} * 1'000'000'000;  // as long as a create waits at most

}  // namespace

using Outcome = CreateContextResult::Outcome;

// One create. Kept alive by whichever holds it: the executor's queue, the registry, the compiler or the
// timer.
class ContextService::CreateTask final : public std::enable_shared_from_this<CreateTask> {
 public:
  CreateTask(std::shared_ptr<const RouterParts> parts, const RequestScope& scope,
             CreateContextRequest request, CreateDone done)
      : parts_(std::move(parts)), scope_(scope), request_(std::move(request)), done_(std::move(done)) {}

  void Start() {
    if (const absl::Status bad = CheckCreate(request_, *parts_); !bad.ok()) return done_(bad);
    const absl::StatusOr<RequestRegistry::Id> id = parts_->registry->Add(
        scope_, "create", [self = shared_from_this()](const absl::Status& why) { self->Interrupt(why); });
    if (!id.ok()) return done_(id.status());
    registry_id_ = *id;
    if (parts_->executor->TrySubmit([self = shared_from_this()] { self->Run(); })) return;
    Finish(RetryLater(ErrorCode::kQueueFull, "too many requests wait: try again later", 1000));
  }

 private:
  // On the executor.
  void Run() {
    absl::Status interrupted;
    {
      MutexLock lock(&mu_);
      interrupted = interrupted_;
    }
    if (!interrupted.ok()) return Finish(interrupted);
    parts_->registry->SetPhase(registry_id_, "record");
    absl::StatusOr<NewContext> context = MakeNewContext(scope_, request_, *parts_);
    if (!context.ok()) return Finish(context.status());
    absl::StatusOr<CreateResult> created = parts_->store->CreateContext(*context);
    if (!created.ok()) return Finish(created.status());
    created_ = created->created;
    record_ = created->record;
    CompileJob job = PrimaryCompile(*parts_->model, record_, context->tokens);
    const CompileJob asked = AskedCompile(*context);
    if (asked.key != job.key && request_.compile_prefix.has_value()) return Compile(asked);
    if (record_.state == ContextState::kReady) return Finish(Result(Outcome::kExisted, record_));
    Compile(std::move(job));
  }

  // The compile that this request names. A context that existed behind another prefix gets this variant
  // beside.
  CompileJob AskedCompile(const NewContext& context) {
    ContextRecord record = record_;
    record.compile_prefix = context.compile_prefix;
    CompileJob job = PrimaryCompile(*parts_->model, record, context.tokens);
    job.sets_state = false;
    return job;
  }

  void Compile(CompileJob job) {
    parts_->registry->SetPhase(registry_id_, "compile");
    const absl::StatusOr<CompileTicket> ticket = parts_->compiler->Ensure(
        std::move(job),
        [self = shared_from_this()](absl::StatusOr<CompileOutcome> outcome) { self->OnCompiled(outcome); });
    if (!ticket.ok()) return Finish(ticket.status());
    absl::Status interrupted;
    {
      MutexLock lock(&mu_);
      ticket_ = *ticket;
      interrupted = interrupted_;
    }
    if (!interrupted.ok()) return StopWaiting(interrupted);
    const double wait = std::min(request_.wait.value_or(parts_->limits.default_wait_seconds),
                                 parts_->limits.default_wait_seconds);
    if (wait <= 0) return Accept();
    const TimerId timer = parts_->timers->At(parts_->clock->SteadyNs() + static_cast<int64_t>(wait * 1e9),
                                             [weak = weak_from_this()] {
                                               if (const auto self = weak.lock()) self->Accept();
                                             });
    bool over = false;
    {
      MutexLock lock(&mu_);
      timer_ = timer;
      over = over_;
    }
    if (over) parts_->timers->Cancel(timer);
  }

  void OnCompiled(const absl::StatusOr<CompileOutcome>& outcome) {
    if (!outcome.ok()) {
      absl::Status why = outcome.status();
      {
        MutexLock lock(&mu_);
        if (CodeOf(why) == ErrorCode::kClientGone && !interrupted_.ok()) why = interrupted_;
      }
      return Finish(why);
    }
    absl::StatusOr<ContextRecord> record = parts_->store->GetContext(scope_.tenant, record_.id);
    if (!record.ok()) return Finish(record.status());
    Finish(Result(created_ ? Outcome::kCreated : Outcome::kExisted, *std::move(record)));
  }

  // The wait is over, the compile goes on: 202.
  void Accept() {
    CompileTicket ticket = 0;
    {
      MutexLock lock(&mu_);
      ticket = ticket_;
    }
    // False: it has just ended, and OnCompiled answers.
    if (parts_->compiler->Detach(ticket)) Finish(Result(Outcome::kAccepted, record_));
  }

  void Interrupt(const absl::Status& why) {
    CompileTicket ticket = 0;
    {
      MutexLock lock(&mu_);
      interrupted_ = why;
      ticket = ticket_;
    }
    if (ticket != 0) StopWaiting(why);
  }

  // A client that is gone frees the compile; a deadline ends the wait only.
  void StopWaiting(const absl::Status& why) {
    if (CodeOf(why) == ErrorCode::kDeadline) return Accept();
    CompileTicket ticket = 0;
    {
      MutexLock lock(&mu_);
      ticket = ticket_;
    }
    parts_->compiler->Abandon(ticket);
  }

  static CreateContextResult Result(Outcome outcome, ContextRecord record) {
    return {.outcome = outcome, .record = std::move(record)};
  }

  void Finish(absl::StatusOr<CreateContextResult> result) {
    std::optional<TimerId> timer;
    {
      MutexLock lock(&mu_);
      if (std::exchange(over_, true)) return;
      timer = timer_;
    }
    if (timer.has_value()) parts_->timers->Cancel(*timer);
    parts_->registry->Remove(registry_id_);
    done_(std::move(result));
  }

  const std::shared_ptr<const RouterParts> parts_;
  const RequestScope scope_;
  const CreateContextRequest request_;
  const CreateDone done_;
  RequestRegistry::Id registry_id_ = 0;  // written by Start before anything else runs
  // Written by Run before the compiler knows the task.
  ContextRecord record_;
  bool created_ = false;

  Mutex mu_;
  absl::Status interrupted_ ABSL_GUARDED_BY(mu_);
  CompileTicket ticket_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<TimerId> timer_ ABSL_GUARDED_BY(mu_);
  bool over_ ABSL_GUARDED_BY(mu_) = false;
};

// Compiles the records that a stop left `compiling`, one at a time, so that it never crowds out requests.
class ContextService::RedriveTask final : public std::enable_shared_from_this<RedriveTask> {
 public:
  RedriveTask(std::shared_ptr<const RouterParts> parts, std::string tenant)
      : parts_(std::move(parts)), tenant_(std::move(tenant)) {}

  void Collect() {
    ContextQuery query;
    query.limit = 1000;
    query.descending = false;
    query.state = ContextState::kCompiling;
    while (ids_.size() < kMostRecords) {
      const absl::StatusOr<ContextPage> page = parts_->store->ListContexts(tenant_, query);
      if (!page.ok()) break;
      for (const ContextRecord& record : page->records) {
        if (record.model_identity == parts_->model->identity) ids_.push_back(record.id);
      }
      if (!page->has_more || page->records.empty()) break;
      query.after = page->records.back().id;
    }
    Next();
  }

 private:
  static constexpr size_t kMostRecords = 100'000;
  static constexpr int64_t kRetryNs = 1'000'000'000;

  void Next() {
    while (!ids_.empty()) {
      const absl::StatusOr<ContextRecord> record = parts_->store->GetContext(tenant_, ids_.front());
      absl::StatusOr<std::vector<TokenId>> tokens = parts_->store->GetTokens(tenant_, ids_.front());
      if (!record.ok() || !tokens.ok() || record->state != ContextState::kCompiling) {
        ids_.pop_front();
        continue;
      }
      const absl::StatusOr<CompileTicket> ticket = parts_->compiler->Ensure(
          PrimaryCompile(*parts_->model, *record, *std::move(tokens)),
          [self = shared_from_this()](const absl::StatusOr<CompileOutcome>& outcome) {
            self->OnDone(outcome);
          });
      if (!ticket.ok()) Later(ticket.status());
      return;
    }
  }

  void OnDone(const absl::StatusOr<CompileOutcome>& outcome) {
    if (!outcome.ok() && CodeOf(outcome.status()) == ErrorCode::kDraining) return;
    if (!outcome.ok() && CodeOf(outcome.status()) == ErrorCode::kQueueFull) return Later(outcome.status());
    ids_.pop_front();
    Again();
  }

  void Later(const absl::Status& why) {
    if (CodeOf(why) == ErrorCode::kDraining) return;
    parts_->timers->At(parts_->clock->SteadyNs() + kRetryNs, [self = shared_from_this()] { self->Again(); });
  }

  void Again() {
    parts_->executor->Submit([self = shared_from_this()] { self->Next(); });
  }

  const std::shared_ptr<const RouterParts> parts_;
  const std::string tenant_;
  std::deque<CacheId> ids_;  // one step at a time
};

ContextService::ContextService(const RouterParts& parts)
    : parts_(std::make_shared<const RouterParts>(parts)) {}

void ContextService::Create(const RequestScope& scope, CreateContextRequest request, CreateDone done) {
  std::make_shared<CreateTask>(parts_, scope, std::move(request), std::move(done))->Start();
}

absl::StatusOr<ContextRecord> ContextService::Get(const RequestScope& scope, const std::string& id) {
  EPIC_ASSIGN_OR_RETURN(const CacheId parsed, ParseCacheId(id, "id"));
  absl::StatusOr<ContextRecord> record = parts_->store->GetContext(scope.tenant, parsed);
  if (record.ok() && record->hidden) return Error(ErrorCode::kContextNotFound, "no such context", "id");
  return record;
}

absl::StatusOr<ContextPage> ContextService::List(const RequestScope& scope,
                                                 const ListContextsRequest& request) {
  ContextQuery query;
  const int64_t limit = request.limit.value_or(20);
  EPIC_RETURN_IF_ERROR(CheckRange(limit, int64_t{1}, int64_t{1000}, "limit"));
  query.limit = static_cast<uint32_t>(limit);
  if (request.after.has_value()) {
    absl::StatusOr<CacheId> after = CacheId::Parse(*request.after);
    if (!after.ok()) return Error(ErrorCode::kInvalidRequest, "after must be a Cache ID", "after");
    query.after = *std::move(after);
  }
  const std::string order = request.order.value_or("desc");
  if (order != "asc" && order != "desc") {
    return Error(ErrorCode::kInvalidRequest, "order must be asc or desc", "order");
  }
  query.descending = order == "desc";
  query.tag = request.tag;
  query.model = request.model;
  query.name = request.name;
  if (request.state.has_value()) {
    EPIC_ASSIGN_OR_RETURN(query.state, ParseState(*request.state));
  }
  return parts_->store->ListContexts(scope.tenant, query);
}

absl::StatusOr<ContextRecord> ContextService::Patch(const RequestScope& scope, const std::string& id,
                                                    const PatchContextRequest& request) {
  EPIC_ASSIGN_OR_RETURN(const ContextRecord record, Get(scope, id));
  const RouterLimits& limits = parts_->limits;
  ContextPatch patch;
  patch.ttl_seconds = request.ttl;
  if (request.ttl.has_value() && request.ttl->has_value()) {
    EPIC_RETURN_IF_ERROR(CheckRange(**request.ttl, int64_t{1}, limits.ttl_seconds, "ttl"));
  }
  if (request.pin.has_value()) {
    EPIC_ASSIGN_OR_RETURN(patch.pin, ParsePin(*request.pin));
    if (*patch.pin == Pin::kNone) patch.pin_until_ms = std::optional<int64_t>();
  }
  if (request.pin_until.has_value()) {
    std::optional<int64_t> until_ms;
    if (request.pin_until->has_value()) {
      const int64_t now = parts_->clock->UnixMs() / 1000;
      if (patch.pin.value_or(record.pin) == Pin::kNone) {
        return Error(ErrorCode::kInvalidRequest, "pin_until needs a pin of soft or hard", "pin_until");
      }
      EPIC_RETURN_IF_ERROR(CheckRange(**request.pin_until, now + 1, now + limits.ttl_seconds, "pin_until"));
      until_ms = **request.pin_until * 1000;
    }
    patch.pin_until_ms = until_ms;
  }
  if (request.tags.has_value()) {
    EPIC_ASSIGN_OR_RETURN(patch.tags, CheckTags(*request.tags, limits));
  }
  if (request.name.has_value()) {
    EPIC_RETURN_IF_ERROR(CheckName(*request.name, limits));
    patch.name = request.name;
  }
  return parts_->store->UpdateContext(scope.tenant, record.id, patch);
}

absl::Status ContextService::Delete(const RequestScope& scope, const std::string& id) {
  EPIC_ASSIGN_OR_RETURN(const CacheId parsed, ParseCacheId(id, "id"));
  EPIC_RETURN_IF_ERROR(parts_->store->DeleteContext(scope.tenant, parsed).status());
  parts_->compiler->Forget(scope.tenant, parsed);
  return absl::OkStatus();
}

void ContextService::Erase(const RequestScope& scope, const std::string& id, EraseDone done) {
  const auto parsed = ParseCacheId(id, "id");
  if (!parsed.ok()) return done(parsed.status());
  const auto wait = EraseWait::Make(parts_->timers, parts_->clock);
  const auto existed = parts_->store->EraseContext(scope.tenant, *parsed, wait->Receiver());
  if (!existed.ok()) return done(existed.status());
  parts_->compiler->Forget(scope.tenant, *parsed);
  const int64_t now_ns = parts_->clock->SteadyNs();
  int64_t until_ns = now_ns + kMaxEraseNs;
  if (scope.deadline_steady_ns != 0) {
    until_ns = std::min(until_ns, scope.deadline_steady_ns - (scope.deadline_steady_ns - now_ns) / 20);
  }
  wait->Await(until_ns, scope.cancel, [done](std::vector<std::string> pending) { done(std::move(pending)); });
}

void ContextService::Redrive(const std::string& tenant) {
  auto task = std::make_shared<RedriveTask>(parts_, tenant);
  parts_->executor->Submit([task] { task->Collect(); });
}

}  // namespace epic
