// Many contexts uploaded at once through a real HTTP door: their compiles share the engine's steps, and what
// is stored has the bytes of each compiled alone.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/clock.h"
#include "common/http/http_server.h"
#include "common/status/status_macros.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/engine/testing/batch_harness.h"
#include "services/engine/testing/engine_harness.h"
#include "services/engine/testing/tiny_engines.h"
#include "services/node/node.h"
#include "services/router/http/router_site.h"
#include "services/router/http/testing/raw_client.h"
#include "services/worker_api/served_model.h"

namespace epic {
namespace {

using nlohmann::json;

constexpr size_t kContexts = 24;
constexpr size_t kContextTokens = 20;
constexpr uint32_t kPanel = 256;

class NodeBatchTest : public ::testing::Test {
 protected:
  NodeBatchTest() {
    options_.config = DefaultConfig();
    options_.config.model.path = dir_.path() + "/tiny.gguf";
    options_.config.store.data_dir = dir_.path() + "/store";
    options_.config.engine.threads = 2;
    options_.config.engine.panel_tokens = kPanel;
    options_.config.engine.max_sequences = 4;
    testing::WriteFileOrDie(options_.config.model.path, testing::PoisonedTiny(kPoison).Finish());
    node_ = std::make_unique<Node>(
        options_, SystemClock::Get(), &metrics_, [this](PackProgress* progress) -> absl::StatusOr<NodeParts> {
          EPIC_ASSIGN_OR_RETURN(NodeParts parts, LoadParts(options_.config, SystemClock::Get(), progress));
          store_ = parts.store.get();
          engine_ = parts.engine.get();
          return parts;
        });
    auto server = StartHttpDoor({}, node_->apis(), SystemClock::Get(), 1);
    EXPECT_OK(server);
    server_ = *std::move(server);
    EXPECT_OK(node_->Start());
  }
  ~NodeBatchTest() override { server_.reset(); }

  // Ids of contexts for which the model computes numbers.
  static std::vector<TokenId> TokensOf(size_t context) {
    std::vector<TokenId> tokens = testing::RandomTokens(500 + context, kContextTokens, 200);
    for (TokenId& token : tokens) token = token == kPoison ? kPoison + 1 : token;
    return tokens;
  }
  json Create(const std::vector<TokenId>& tokens) const {
    const auto answer =
        testing::Ask(server_->port(), "POST", "/v1/contexts", json({{"tokens", tokens}}).dump());
    return answer.has_value() ? json::parse(answer->body, nullptr, false) : json();
  }
  // Waits, ten seconds at most, until so many requests wait for the engine.
  bool WaitsForEngine(uint32_t requests) const {
    const int64_t end_ns = SystemClock::Get()->SteadyNs() + 10'000'000'000;
    while (engine_->Gauges().waiting < requests) {
      if (SystemClock::Get()->SteadyNs() > end_ns) return false;
      std::this_thread::yield();
    }
    return true;
  }

  static constexpr TokenId kPoison = 3 + 'Q';
  testing::TempDir dir_;
  NodeOptions options_;
  Metrics metrics_;
  std::unique_ptr<Node> node_;
  std::unique_ptr<HttpServer> server_;
  KvStore* store_ = nullptr;
  Engine* engine_ = nullptr;
};

TEST_F(NodeBatchTest, ContextsUploadedAtOnceFillStepsTogetherAndAreStoredAsCompiledAlone) {
  ASSERT_TRUE(testing::BecomesIdle(*engine_));
  const uint64_t before = engine_->Gauges().steps;
  std::vector<json> created(kContexts);
  {
    testing::EngineHold hold(engine_);
    std::vector<std::thread> clients;
    for (size_t i = 0; i < kContexts; ++i) {
      clients.emplace_back([&, i] { created[i] = Create(TokensOf(i)); });
    }
    EXPECT_TRUE(WaitsForEngine(kContexts)) << "all of them at once, though only four sequences may run";
    hold.Release();
    for (std::thread& client : clients) client.join();
  }
  ASSERT_TRUE(testing::BecomesIdle(*engine_));
  // One step was the hold's.
  EXPECT_EQ(engine_->Gauges().steps - before - 1, (kContexts * kContextTokens + kPanel - 1) / kPanel);
  for (size_t i = 0; i < kContexts; ++i) {
    ASSERT_EQ(created[i].value("state", ""), "ready") << created[i];
    ASSERT_OK_AND_ASSIGN(const CacheId id, CacheId::Parse(created[i].value("id", "")));
    const ObjectKey key{id, VariantOf(*engine_, CompilePrefixKind::kNone, {})};
    ASSERT_OK_AND_ASSIGN(const AcquireResult stored,
                         store_->Acquire("default", key, engine_->LayoutOf(kContextTokens, 0)));
    ASSERT_NE(stored.object, nullptr);
    ASSERT_OK_AND_ASSIGN(const auto alone, testing::Compile(engine_, TokensOf(i)));
    for (uint32_t layer = 0; layer < engine_->config().layers; ++layer) {
      EXPECT_EQ(AsText(stored.object->Layer(layer)), AsText(alone->Layer(layer)))
          << "context " << i << ", layer " << layer;
    }
  }
}

}  // namespace
}  // namespace epic
