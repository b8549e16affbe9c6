// Random calls of a remote store over loopback against the model of a store (testing/store_model.h): what a
// KvStore promises it keeps over gRPC too, through restarts of the node. Replay one seed with the seed
// printed on failure.
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/rpc/kv_store/remote_kv_store.h"
#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/rpc/testing/store_process.h"
#include "services/kv_store/testing/store_fixtures.h"
#include "services/kv_store/testing/store_model.h"

namespace epic::kv_store {
namespace {

constexpr int kSteps = 120;
constexpr uint32_t kTokens = 8;
constexpr uint64_t kContexts = 5;
constexpr uint64_t kPage = 4096;

class RemoteRun {
 public:
  explicit RemoteRun(uint64_t seed) : rng_(seed) {
    auto store = MakeRemoteKvStore({.address = process_.address(), .reconnect_ms = 5000});
    EXPECT_OK(store);
    store_ = *std::move(store);
  }

  void Step() {
    switch (rng_.Below(12)) {
      case 0:
      case 1:
        return Create();
      case 2:
        return Update();
      case 3:
        return Delete();
      case 4:
        return List();
      case 5:
      case 6:
      case 7:
        return Put();
      case 8:
      case 9:
        return Acquire();
      case 10:
        return process_.clock()->AdvanceMs(static_cast<int64_t>(rng_.Below(1'200'000)));
      default:
        if (rng_.Below(4) == 0) Restart();
    }
  }
  void CheckAll() {
    for (uint64_t context = 0; context < kContexts; ++context) {
      const Key key = KeyOf(context);
      const auto record = store_->GetContext(key.first, key.second);
      if (!model_.Live(key, now())) {
        EXPECT_EQ(CodeOf(record.status()), model_.WhyNot(key));
        continue;
      }
      ASSERT_OK(record);
      const ModelContext& model = *model_.Find(key);
      EXPECT_EQ(record->name, model.created.name);
      EXPECT_EQ(record->tags, model.created.tags);
      EXPECT_EQ(record->pin, model.created.pin);
      EXPECT_EQ(record->expires_at_ms, model.expires_at_ms);
      EXPECT_EQ(*store_->GetTokens(key.first, key.second), TokensOf(context, kTokens));
    }
    for (const auto& [object, content] : kept_) EXPECT_TRUE(Holds(*object, content));
    EXPECT_EQ(store_->Usage().reservations, 0u);
  }
  int hits() const { return hits_; }

 private:
  using Key = StoreModel::Key;

  static Key KeyOf(uint64_t context) { return {"a", CacheId::Of("a", {}, TokensOf(context, kTokens))}; }
  Key AnyKey() { return KeyOf(rng_.Below(kContexts)); }
  int64_t now() { return process_.clock()->UnixMs(); }

  void Restart() {
    process_.Stop();
    process_.Start();
  }
  void Create() {
    NewContext context = ContextOf(rng_.Below(kContexts), kTokens, "a");
    if (rng_.Below(2) == 0) context.ttl_seconds = 1 + static_cast<int64_t>(rng_.Below(3600));
    context.pin = static_cast<Pin>(rng_.Below(3));
    if (rng_.Below(2) == 0) context.tags = {"t" + std::to_string(rng_.Below(3)), "t0"};
    if (rng_.Below(2) == 0) context.name = "name" + std::to_string(rng_.Below(3));
    const Key key{"a", CacheId::Of("a", {}, context.tokens)};
    const bool live = model_.Live(key, now());
    const auto result = store_->CreateContext(context);
    if (model_.NameTaken(key, context.name, now())) {
      EXPECT_EQ(CodeOf(result.status()), ErrorCode::kNameInUse);
      return;
    }
    ASSERT_OK(result);
    EXPECT_EQ(result->created, !live);
    model_.Create(key, context, now());
  }
  void Update() {
    const Key key = AnyKey();
    const std::string name = rng_.Below(2) == 0 ? "" : "name" + std::to_string(rng_.Below(3));
    const auto record = store_->UpdateContext(key.first, key.second, {.name = name});
    if (!model_.Live(key, now())) {
      EXPECT_EQ(CodeOf(record.status()), model_.WhyNot(key));
    } else if (model_.NameTaken(key, name, now())) {
      EXPECT_EQ(CodeOf(record.status()), ErrorCode::kNameInUse);
    } else {
      ASSERT_OK(record);
      model_.Find(key)->created.name = name;
    }
  }
  void Delete() {
    const Key key = AnyKey();
    const bool live = model_.Live(key, now());
    const auto existed = store_->DeleteContext(key.first, key.second);
    ASSERT_OK(existed);
    EXPECT_EQ(*existed, live);
    model_.Delete(key, now());
  }
  void List() {
    std::vector<CacheId> ids;
    ContextQuery query{.limit = 2};
    for (bool more = true; more;) {
      const auto page = store_->ListContexts("a", query);
      ASSERT_OK(page);
      for (const ContextRecord& record : page->records) ids.push_back(record.id);
      more = page->has_more;
      if (more) query.after = ids.back();
    }
    EXPECT_EQ(ids, model_.List("a", std::nullopt, now()));
  }
  void Put() {
    const Key key = AnyKey();
    const uint64_t content = 1 + rng_.Below(1'000'000);
    const auto object = PutObject(store_.get(), key.first, {key.second, {}}, LayoutOf(kTokens), content);
    if (!model_.Live(key, now())) {
      EXPECT_EQ(CodeOf(object.status()), model_.WhyNot(key));
      return;
    }
    ASSERT_OK(object);
    model_.Find(key)->committed[{}].insert(content);
    CheckHit(*object, key);
  }
  void Acquire() {
    const Key key = AnyKey();
    const bool other_layout = rng_.Below(10) == 0;
    const KvLayout layout = other_layout ? LayoutOf(kTokens, 2, 1, 16) : LayoutOf(kTokens);
    const auto result = store_->Acquire(key.first, {key.second, {}}, layout);
    ASSERT_OK(result);
    if (result->object == nullptr) return;
    EXPECT_FALSE(other_layout) << "an object of another layout";
    ASSERT_TRUE(model_.Live(key, now())) << "an object of a context that is gone";
    ++hits_;
    CheckHit(result->object, key);
  }
  void CheckHit(const std::shared_ptr<const KvObject>& object, const Key& key) {
    for (const uint64_t content : model_.Find(key)->committed[{}]) {
      if (!Holds(*object, content)) continue;
      if (kept_.size() < 8) kept_.emplace_back(object, content);
      return;
    }
    ADD_FAILURE() << "bytes that were never committed under this key";
  }

  Rng rng_;
  StoreProcess process_{6 * kPage};
  std::unique_ptr<KvStore> store_;
  StoreModel model_;
  std::vector<std::pair<std::shared_ptr<const KvObject>, uint64_t>> kept_;
  int hits_ = 0;
};

TEST(RemoteModelTest, AgreesWithTheModelThroughRestartsOfTheNode) {
  int hits = 0;
  for (uint64_t seed = 1; seed <= 12 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RemoteRun run(seed);
    for (int step = 0; step < kSteps && !::testing::Test::HasFailure(); ++step) run.Step();
    run.CheckAll();
    hits += run.hits();
    if (::testing::Test::HasFailure())
      std::printf("seed %llu fails\n", static_cast<unsigned long long>(seed));
  }
  EXPECT_GT(hits, 12) << "too few hits to prove anything";
}

}  // namespace
}  // namespace epic::kv_store
