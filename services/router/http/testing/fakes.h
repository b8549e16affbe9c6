// Apis for the tests of the HTTP door: they record what they get and answer what the test says. Tests only.
// Thread-safe unless a member says otherwise.
#ifndef EPIC_SERVICES_ROUTER_HTTP_TESTING_FAKES_H_
#define EPIC_SERVICES_ROUTER_HTTP_TESTING_FAKES_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/status/error.h"
#include "services/router/core/api.h"

namespace epic::testing {

constexpr char kFakeId[] = "ctx_abcdefghijklmnopqrstuvwxyz234567";

inline ContextRecord FakeRecord() {
  ContextRecord record;
  record.tenant = "default";
  record.id = CacheId::Parse(kFakeId).value();
  record.model = "fake";
  record.token_count = 3;
  record.created_at_ms = 1'700'000'000'500;
  record.state = ContextState::kReady;
  record.compile_ms = 12;
  return record;
}

// Holds at most one call that the test wants to keep open.
template <typename T>
class Held {
 public:
  void Put(T value) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    value_.push_back(std::move(value));
    changed_.SignalAll();
  }
  // Waits up to ten seconds for a call.
  std::vector<T> Wait() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    while (value_.empty() && changed_.WaitForMs(&mu_, 10'000)) {
    }
    return std::exchange(value_, {});
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<T> value_ ABSL_GUARDED_BY(mu_);
};

class FakeContexts : public ContextApi {
 public:
  struct Call {
    RequestScope scope;
    CreateContextRequest request;
    CreateDone done;
  };
  // Set before the server starts. A name of "hold" keeps the call open in `held`.
  absl::StatusOr<CreateContextResult> create =
      CreateContextResult{CreateContextResult::Outcome::kCreated, FakeRecord()};
  Held<Call> held;

  void Create(const RequestScope& scope, CreateContextRequest request, CreateDone done) override {
    if (request.name == "hold") return held.Put({scope, std::move(request), std::move(done)});
    done(create);
  }
  absl::StatusOr<ContextRecord> Get(const RequestScope&, const std::string& id) override {
    if (id != kFakeId) return Error(ErrorCode::kContextNotFound, "no such context", "id");
    return FakeRecord();
  }
  absl::StatusOr<ContextPage> List(const RequestScope&, const ListContextsRequest& request) override {
    if (request.limit == 0) return Error(ErrorCode::kInvalidRequest, "limit must be 1 to 1000", "limit");
    return ContextPage{{FakeRecord()}, true};
  }
  absl::StatusOr<ContextRecord> Patch(const RequestScope&, const std::string&,
                                      const PatchContextRequest& request) override {
    ContextRecord record = FakeRecord();
    if (request.tags.has_value()) record.tags = *request.tags;
    if (request.name.has_value()) return Error(ErrorCode::kNameInUse, "the name is taken", "name");
    return record;
  }
  absl::Status Delete(const RequestScope&, const std::string&) override { return absl::OkStatus(); }
  void Erase(const RequestScope&, const std::string&, EraseDone done) override { done(erase); }

  absl::StatusOr<std::vector<std::string>> erase = std::vector<std::string>();  // what it comes to
};

class FakeChat : public ChatApi {
 public:
  struct Call {
    RequestScope scope;
    ChatRequest request;
    std::shared_ptr<ChatSink> sink;
  };
  Held<Call> held;

  // user "hold": kept open; "refuse": 429; else the answer "Hello" in two deltas.
  void Complete(const RequestScope& scope, ChatRequest request, std::shared_ptr<ChatSink> sink) override {
    if (request.user == "hold") return held.Put({scope, std::move(request), std::move(sink)});
    if (request.user == "refuse") {
      return sink->OnDone(RetryLater(ErrorCode::kQueueFull, "the queue is full", 1500), {}, {});
    }
    sink->OnStart(Start(static_cast<uint32_t>(request.n.value_or(1))));
    for (uint32_t choice = 0; choice < static_cast<uint32_t>(request.n.value_or(1)); ++choice) {
      sink->OnDelta({choice, "Hel", {{"Hel", -0.5f, {{"Hel", -0.5f}}}}});
      sink->OnDelta({choice, "lo", {{"lo", -0.25f, {}}}});
      sink->OnFinish(choice, "stop");
    }
    sink->OnDone(absl::OkStatus(), Usage(), {});
  }

  static ChatStart Start(uint32_t choices = 1) {
    ChatStart start;
    start.id = "chatcmpl-1";
    start.created = 1'700'000'000;
    start.model = "fake";
    start.system_fingerprint = "fp_1";
    start.linking = "legolink-16";
    start.planned_recomputed = 128;
    start.choices = choices;
    return start;
  }
  static ChatUsage Usage() { return {200, 2, 60, 128, 12}; }
};

class FakeModels : public ModelApi {
 public:
  std::vector<ModelInfo> List() const override { return {Info()}; }
  absl::StatusOr<ModelInfo> Get(const std::string& id) const override {
    if (id != "fake") return Error(ErrorCode::kModelNotFound, "no such model", "model");
    return Info();
  }
  absl::StatusOr<std::vector<TokenPiece>> Tokenize(const std::optional<std::string>&,
                                                   const std::string& content) const override {
    return std::vector<TokenPiece>{{7, content.substr(0, 1)}, {8, "\xc3"}};
  }
  absl::StatusOr<std::string> Detokenize(const std::optional<std::string>&,
                                         const std::vector<int64_t>& tokens) const override {
    return std::string(tokens.size(), 'x');
  }
  absl::StatusOr<std::string> ApplyTemplate(const std::optional<std::string>&,
                                            const std::vector<ChatMessage>& messages) const override {
    if (messages.size() == 2) return Error(ErrorCode::kTemplateRefused, "roles must alternate", "messages");
    return std::string("<prompt>");
  }

 private:
  static ModelInfo Info() {
    ModelInfo info;
    info.id = "fake";
    info.created = 1'700'000'000;
    info.max_model_len = 2048;
    return info;
  }
};

class FakeNode : public NodeApi {
 public:
  HealthReport health{true, "ok", {}};
  HealthReport Health() const override { return health; }
  std::vector<InFlightRequest> InFlight() const override { return {{"req-1", "chat", "decode", 5}}; }
  std::string MetricsText() const override { return "epic_up 1\n"; }
};

struct FakeApis {
  FakeContexts contexts;
  FakeChat chat;
  FakeModels models;
  FakeNode node;
  Apis apis() { return {&contexts, &chat, &models, &node}; }
};

}  // namespace epic::testing

#endif  // EPIC_SERVICES_ROUTER_HTTP_TESTING_FAKES_H_
