// Random calls against the store and against a simple model of it: every answer is the model's, every hit is
// exactly what was committed, leases stay readable; through evictions, orderly restarts, crashes and a disk
// that fails, reads short and flips bits; slabs in rows and in extents. Replay one seed with --gtest_filter
// and the seed printed on failure.
#include <cstdio>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/extents/extent_slab_store.h"
#include "services/kv_store/testing/faulty_file_system.h"
#include "services/kv_store/testing/faulty_table_store.h"
#include "services/kv_store/testing/store_fixtures.h"
#include "services/kv_store/testing/store_model.h"

namespace epic::kv_store {
namespace {

constexpr int kSteps = 150;
constexpr uint32_t kTokens = 8;
constexpr uint64_t kContexts = 6;
constexpr uint64_t kPage = 4096;
constexpr FaultRates kBadDisk = {
    .read_error = 5, .short_read = 5, .bit_flip = 5, .write_error = 8, .disk_full = 8};

constexpr FileFaults kBadFiles = {.read_error = 5,
                                  .short_read = 5,
                                  .bit_flip = 5,
                                  .write_error = 5,
                                  .torn_write = 5,
                                  .short_write = 5,
                                  .sync_error = 5,
                                  .disk_full = 5};

class Run {
 public:
  // Every other seed writes its objects through the log, every third evicts by LRU, every fourth has a quota.
  Run(uint64_t seed, bool bad_disk, bool extents)
      : bad_disk_(bad_disk),
        files_(extents ? std::make_shared<FaultyFileSystem>(seed + 2) : nullptr),
        eviction_(seed % 3 == 0 ? EvictionKind::kLru : EvictionKind::kS3Fifo),
        quotas_(seed % 4 == 0 ? Quotas{{"b", {.memory_bytes = 2 * kPage, .disk_bytes = 8 * kPage}}}
                              : Quotas{}),
        small_object_bytes_(seed % 2 == 0 ? uint64_t{1} << 20 : 0),
        rng_(seed),
        faults_(std::make_shared<Faults>(seed + 1)) {
    Open();
  }
  ~Run() { CheckLeases(); }

  void Step() {
    switch (rng_.Below(16)) {
      case 0:
      case 1:
      case 2:
        return Create();
      case 3:
        return Update();
      case 4:
        Delete(AnyKey());
        return;
      case 5:
        return SetState();
      case 6:
        return List();
      case 7:
      case 8:
      case 9:
        return Put();
      case 10:
      case 11:
      case 12:
        return Acquire();
      case 13:
        return clock_.AdvanceMs(static_cast<int64_t>(rng_.Below(3) * rng_.Below(1'200'000)));
      case 14:
        return Restart();
      default:
        return CheckAll();
    }
  }
  void CheckAll() {
    for (const char* tenant : {"a", "b"}) {
      for (uint64_t context = 0; context < kContexts; ++context)
        CheckContext(KeyOf(tenant, context), context);
    }
    CheckLeases();
    const StoreUsage usage = store_->Usage();
    EXPECT_LE(usage.memory_bytes, usage.memory_capacity_bytes);
    EXPECT_EQ(usage.reservations, 0u);
  }
  int hits() const { return hits_; }

 private:
  using Key = StoreModel::Key;
  using Quotas = std::map<std::string, TenantQuota>;

  static Key KeyOf(const std::string& tenant, uint64_t context) {
    return {tenant, CacheId::Of(tenant, {}, TokensOf(context, kTokens))};
  }
  Key AnyKey() { return KeyOf(rng_.Below(2) == 0 ? "a" : "b", rng_.Below(kContexts)); }
  std::string AnyName() { return rng_.Below(2) == 0 ? "" : "name" + std::to_string(rng_.Below(3)); }
  int64_t now() const { return clock_.UnixMs(); }
  // Whether a call that failed did so for a fault that this run injects: then nothing happened.
  bool Excused(const absl::Status& status) const {
    const auto code = status.code();
    return bad_disk_ &&
           (code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDataLoss ||
            CodeOf(status) == ErrorCode::kContextObjectMissing || CodeOf(status) == ErrorCode::kStorageFull);
  }

  void Open() {
    faults_->Set({});
    if (files_ != nullptr) files_->SetFaults({});
    auto store = StoreCore::Open(
        std::make_unique<FaultyTableStore>(std::make_unique<MemoryTableStore>(disk_), faults_),
        {.memory_bytes = 6 * kPage,
         .disk_bytes_max = 30 * kPage,
         .make_slabs = SlabMaker(),
         .small_object_bytes = small_object_bytes_,
         .eviction = eviction_,
         .quotas = quotas_,
         .clock = &clock_,
         .writer = {}});
    ASSERT_OK(store);
    store_ = *std::move(store);
    if (bad_disk_) faults_->Set(kBadDisk);
    if (bad_disk_ && files_ != nullptr) files_->SetFaults(kBadFiles);
  }
  SlabStoreMaker SlabMaker() const {
    if (files_ == nullptr) return nullptr;
    return
        [files = files_](std::function<absl::Status()> sync) -> absl::StatusOr<std::unique_ptr<SlabStore>> {
          return ExtentSlabStore::Open(files,
                                       {.folder = "/slabs",
                                        .max_bytes = 27 * kPage,
                                        .file_bytes = 16 * kPage,
                                        .grow_bytes = 4 * kPage,
                                        .piece_bytes = kPage},
                                       std::move(sync));
        };
  }
  void Restart() {
    const bool crash = rng_.Below(2) == 0;
    if (crash) {
      faults_->Set({.write_error = 100});  // the moment of the crash: nothing more gets through
      if (files_ != nullptr) files_->CutPowerAfter(rng_.Below(8));
      store_.reset();
      disk_->Crash(&rng_);
      if (files_ != nullptr) files_->Crash(&rng_);
    } else {
      store_.reset();
    }
    Open();
    for (auto& [key, context] : model_.contexts()) {
      const auto record = store_->GetContext(key.first, key.second);
      if (!record.ok()) continue;  // expired; CheckAll compares
      EXPECT_TRUE(context.states.contains(record->state)) << "a state that was never set";
      context.state = record->state;
      context.states = {record->state};
    }
  }

  void Create() {
    const std::string tenant = rng_.Below(2) == 0 ? "a" : "b";
    NewContext context = ContextOf(rng_.Below(kContexts), kTokens, tenant);
    if (rng_.Below(2) == 0) context.ttl_seconds = 1 + static_cast<int64_t>(rng_.Below(3600));
    context.pin = static_cast<Pin>(rng_.Below(3));
    if (rng_.Below(2) == 0) context.tags = {"t" + std::to_string(rng_.Below(3)), "t0"};
    context.name = AnyName();
    const Key key{tenant, CacheId::Of(tenant, {}, context.tokens)};
    const bool live = model_.Live(key, now());
    const auto result = store_->CreateContext(context);
    if (model_.NameTaken(key, context.name, now())) {
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(CodeOf(result.status()), ErrorCode::kNameInUse);
    } else if (result.ok()) {
      EXPECT_EQ(result->created, !live);
      model_.Create(key, context, now());
      Compare(result->record, *model_.Find(key));
    } else {
      EXPECT_TRUE(Excused(result.status())) << result.status();
    }
  }
  void Update() {
    const Key key = AnyKey();
    ContextPatch patch;
    if (rng_.Below(2) == 0) patch.ttl_seconds = std::optional<int64_t>(1 + rng_.Below(3600));
    if (rng_.Below(3) == 0) patch.ttl_seconds = std::optional<int64_t>();
    if (rng_.Below(2) == 0) patch.pin = static_cast<Pin>(rng_.Below(3));
    if (rng_.Below(2) == 0) patch.tags = std::vector<std::string>{"t1"};
    if (rng_.Below(2) == 0) patch.name = AnyName();
    const auto record = store_->UpdateContext(key.first, key.second, patch);
    if (!model_.Live(key, now())) {
      EXPECT_EQ(CodeOf(record.status()), model_.WhyNot(key));
    } else if (patch.name.has_value() && model_.NameTaken(key, *patch.name, now())) {
      EXPECT_EQ(CodeOf(record.status()), ErrorCode::kNameInUse);
    } else if (record.ok()) {
      ModelContext* model = model_.Find(key);
      if (patch.ttl_seconds.has_value()) {
        model->expires_at_ms = patch.ttl_seconds->has_value()
                                   ? std::optional<int64_t>(now() + **patch.ttl_seconds * 1000)
                                   : std::nullopt;
      }
      if (patch.pin.has_value()) model->created.pin = *patch.pin;
      if (patch.tags.has_value()) model->created.tags = *patch.tags;
      if (patch.name.has_value()) model->created.name = *patch.name;
      model->states = {model->state};  // the synced row carries the state
      Compare(*record, *model);
    } else {
      EXPECT_TRUE(Excused(record.status())) << record.status();
    }
  }
  // False: the disk did not let it.
  bool Delete(const Key& key) {
    const bool live = model_.Live(key, now());
    const auto existed = store_->DeleteContext(key.first, key.second);
    if (existed.ok()) {
      EXPECT_EQ(*existed, live);
      model_.Delete(key, now());
    } else {
      EXPECT_TRUE(Excused(existed.status())) << existed.status();
    }
    return existed.ok();
  }
  void SetState() {
    const Key key = AnyKey();
    const auto state = static_cast<ContextState>(rng_.Below(3));
    const absl::Status status = store_->SetState(key.first, key.second, state, 5, "e");
    if (!model_.Live(key, now())) {
      EXPECT_EQ(CodeOf(status), model_.WhyNot(key));
    } else if (status.ok()) {
      model_.Find(key)->state = state;
      model_.Find(key)->states.insert(state);
    } else {
      EXPECT_TRUE(Excused(status)) << status;
    }
  }
  void List() {
    const std::string tenant = rng_.Below(2) == 0 ? "a" : "b";
    ContextQuery query{.limit = static_cast<uint32_t>(1 + rng_.Below(3))};
    if (rng_.Below(2) == 0) query.tag = "t0";
    std::vector<CacheId> ids;
    bool more = true;
    while (more) {
      const auto page = store_->ListContexts(tenant, query);
      ASSERT_OK(page);
      for (const ContextRecord& record : page->records) ids.push_back(record.id);
      more = page->has_more;
      if (!more) break;
      query.after = ids.back();
      // The list goes on where a context was that is gone.
      if (rng_.Below(4) == 0 && Delete({tenant, ids.back()})) ids.pop_back();
    }
    EXPECT_EQ(ids, model_.List(tenant, query.tag, now()));
  }

  ObjectVariant AnyVariant() {
    return {.prefix = rng_.Below(2) == 0 ? CompilePrefixKind::kNone : CompilePrefixKind::kBos,
            .dtype = rng_.Below(4) == 0 ? KvDtype::kF32 : KvDtype::kBf16};
  }
  static KvLayout LayoutFor(const ObjectVariant& variant, uint32_t kv_heads = 2, uint32_t head_dim = 8) {
    KvLayout layout = LayoutOf(kTokens, 2, kv_heads, head_dim);
    layout.dtype = variant.dtype;
    return layout;
  }
  void Put() {
    const Key key = AnyKey();
    const ObjectVariant variant = AnyVariant();
    const uint64_t content = 1 + rng_.Below(1'000'000);
    const KvLayout layout = LayoutFor(variant);
    const auto object = PutObject(store_.get(), key.first, {key.second, variant}, layout, content);
    if (!model_.Live(key, now())) {
      EXPECT_EQ(CodeOf(object.status()), model_.WhyNot(key));
      return;
    }
    if (!object.ok()) {
      const bool all_leased = CodeOf(object.status()) == ErrorCode::kStorageFull && leases_.size() >= 4;
      EXPECT_TRUE(all_leased || Excused(object.status())) << object.status();
      return;
    }
    auto& committed = model_.Find(key)->committed[variant];
    committed.insert(content);
    CheckHit(**object, committed);
    if (rng_.Below(4) == 0) Lease(*object, committed);
  }
  void Acquire() {
    const Key key = AnyKey();
    const ObjectVariant variant = AnyVariant();
    const bool other_layout = rng_.Below(10) == 0;
    const KvLayout layout = other_layout ? LayoutFor(variant, 1, 16) : LayoutFor(variant);
    const auto result = store_->Acquire(key.first, {key.second, variant}, layout);
    ASSERT_OK(result);
    if (result->object == nullptr) return;
    EXPECT_FALSE(other_layout) << "an object of another layout";
    ASSERT_TRUE(model_.Live(key, now())) << "an object of a context that is gone";
    ++hits_;
    const auto& committed = model_.Find(key)->committed[variant];
    CheckHit(*result->object, committed);
    if (rng_.Below(4) == 0) Lease(result->object, committed);
  }
  static uint64_t ContentOf(const KvObject& object, const std::set<uint64_t>& committed) {
    for (const uint64_t content : committed) {
      if (Holds(object, content)) return content;
    }
    return 0;
  }
  static void CheckHit(const KvObject& object, const std::set<uint64_t>& committed) {
    EXPECT_NE(ContentOf(object, committed), 0u) << "bytes that were never committed under this key";
  }
  void Lease(const std::shared_ptr<const KvObject>& object, const std::set<uint64_t>& committed) {
    leases_.emplace_back(object, ContentOf(*object, committed));
    if (leases_.size() > 4) leases_.erase(leases_.begin());
  }
  void CheckLeases() {
    for (const auto& [object, content] : leases_)
      EXPECT_TRUE(Holds(*object, content)) << "a lease was broken";
  }

  static void Compare(const ContextRecord& record, const ModelContext& model) {
    EXPECT_EQ(record.created_at_ms, model.created_at_ms);
    EXPECT_EQ(record.expires_at_ms, model.expires_at_ms);
    EXPECT_EQ(record.pin, model.created.pin);
    EXPECT_EQ(record.tags, model.created.tags);
    EXPECT_EQ(record.name, model.created.name);
    EXPECT_EQ(record.state, model.state);
  }
  void CheckContext(const Key& key, uint64_t context) {
    const auto record = store_->GetContext(key.first, key.second);
    if (!model_.Live(key, now())) {
      ASSERT_FALSE(record.ok());
      EXPECT_EQ(CodeOf(record.status()), model_.WhyNot(key));
      return;
    }
    ASSERT_OK(record);
    Compare(*record, *model_.Find(key));
    const auto tokens = store_->GetTokens(key.first, key.second);
    if (tokens.ok()) {
      EXPECT_EQ(*tokens, TokensOf(context, kTokens));
    } else {
      EXPECT_TRUE(Excused(tokens.status())) << tokens.status();
    }
    if (record->name.empty()) return;
    const auto named = store_->FindByName(key.first, {}, record->name);
    ASSERT_OK(named);
    EXPECT_EQ(named->id, key.second);
  }

  const bool bad_disk_;
  const std::shared_ptr<FaultyFileSystem> files_;  // nullptr: slabs are rows
  const EvictionKind eviction_;
  const Quotas quotas_;
  const uint64_t small_object_bytes_;
  Rng rng_;
  ManualClock clock_;
  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  std::shared_ptr<Faults> faults_;
  std::unique_ptr<StoreCore> store_;
  StoreModel model_;
  std::vector<std::pair<std::shared_ptr<const KvObject>, uint64_t>> leases_;
  int hits_ = 0;
};

// At least `count` seeds, and more, up to four times as many, until there are more hits than that: how many
// objects are hit depends on how far the write-behind thread gets, and too few hits would prove nothing.
void RunSeeds(uint64_t first, uint64_t count, bool bad_disk, bool extents = false) {
  uint64_t hits = 0;
  uint64_t seed = first;
  for (; seed < first + count || (hits <= count && seed < first + 4 * count); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Run run(seed, bad_disk, extents);
    for (int step = 0; step < kSteps && !::testing::Test::HasFailure(); ++step) run.Step();
    run.CheckAll();
    hits += static_cast<uint64_t>(run.hits());
    if (::testing::Test::HasFailure()) {
      std::printf("seed %llu fails\n", static_cast<unsigned long long>(seed));
      return;
    }
  }
  std::printf("seeds %llu..%llu: %llu hits\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(seed - 1), static_cast<unsigned long long>(hits));
  EXPECT_GT(hits, count) << "too few hits to prove anything";
}

TEST(StoreModelTest, AgreesWithTheModelThroughRestartsAndCrashes) { RunSeeds(1, 120, /*bad_disk=*/false); }
TEST(StoreModelTest, AgreesWithTheModelOnABadDisk) { RunSeeds(1001, 120, /*bad_disk=*/true); }
TEST(StoreModelTest, AgreesWithTheModelWithSlabsInExtents) {
  RunSeeds(2001, 200, /*bad_disk=*/false, /*extents=*/true);
}
TEST(StoreModelTest, AgreesWithTheModelWithSlabsInExtentsOnABadDisk) {
  RunSeeds(3001, 200, /*bad_disk=*/true, /*extents=*/true);
}

}  // namespace
}  // namespace epic::kv_store
