// The router's cores over fakes: an engine stepped by hand, a store in memory, workers that a test plugs in.
// One thread at a time.
#ifndef EPIC_SERVICES_ROUTER_CORE_TESTING_WORLD_H_
#define EPIC_SERVICES_ROUTER_CORE_TESTING_WORLD_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/manual_executor.h"
#include "common/testing/manual_timers.h"
#include "services/router/core/chat_service.h"
#include "services/router/core/context_service.h"
#include "services/router/core/model_service.h"
#include "services/worker_api/testing/fake_engine.h"
#include "services/worker_api/testing/fake_text.h"
#include "services/worker_api/testing/faulty_kv_store.h"

namespace epic::testing {

// What a chat said to its door.
class RecordingChatSink final : public ChatSink {
 public:
  void OnStart(const ChatStart& started) override {
    EXPECT_FALSE(start.has_value() || done);
    start = started;
  }
  bool OnDelta(ChatDelta delta) override {
    EXPECT_TRUE(start.has_value() && !done);
    text[delta.choice] += delta.text;
    return !gone;
  }
  void OnFinish(uint32_t choice, const std::string& reason) override { finished[choice] = reason; }
  void OnDone(const absl::Status& end, const ChatUsage& used, const ChatTimings& took) override {
    EXPECT_FALSE(done);
    done = true;
    status = end;
    usage = used;
    timings = took;
  }
  std::optional<ChatStart> start;
  std::map<uint32_t, std::string> text, finished;
  bool done = false, gone = false;
  absl::Status status;
  ChatUsage usage;
  ChatTimings timings;
};

// Everything below the router's cores but the workers.
struct World {
  World() {
    parts.model = &model;
    parts.store = &store;
    parts.executor = &executor;
    parts.timers = &timers;
    parts.clock = &clock;
    parts.registry = &registry;
    parts.build_version = "test";
  }
  RequestScope Scope() {
    RequestScope scope;
    scope.request_id = "r";
    scope.cancel = cancel.token();
    scope.received_steady_ns = clock.SteadyNs();
    return scope;
  }
  // Runs executor and engine until nothing moves.
  void Settle() {
    do {
      executor.RunAll();
    } while (engine.Step());
    executor.RunAll();
  }

  ManualClock clock;
  ManualTimers timers{&clock};
  ManualExecutor executor;
  FakeEngine engine;
  ByteTokenizer tokenizer;
  ChatMlTemplate chat_template;
  FaultyKvStore store{&clock};
  RequestRegistry registry{100, &clock};
  CancelSource cancel;
  ServedModel model{.alias = "m",
                    .identity = Sha256Of(AsBytes("m")),
                    .architecture = "llama",
                    .tokenizer = &tokenizer,
                    .chat_template = &chat_template,
                    .engine = &engine};
  RouterParts parts;
};

}  // namespace epic::testing

#endif  // EPIC_SERVICES_ROUTER_CORE_TESTING_WORLD_H_
