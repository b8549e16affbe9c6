#include "common/transport/shm/shm_path.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/storage/shm/server.h"
#include "common/testing/paths.h"
#include "common/transport/testing/transport_contract.h"

namespace epic::transport {
namespace {

// Hands over the objects of a TestSource: copies those that are asked for into an arena, once they are whole.
class SourceLeases final : public shm::LeaseSource {
 public:
  static constexpr uint64_t kArenaBytes = uint64_t{256} << 20;

  explicit SourceLeases(std::shared_ptr<TestSource> source)
      : source_(std::move(source)), file_(memfd_create("leases", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    EPIC_CHECK(file_.valid() && ftruncate(file_.get(), kArenaBytes) == 0);
    void* pages = mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    EPIC_CHECK(pages != MAP_FAILED);
    memory_ = {static_cast<std::byte*>(pages), kArenaBytes};
    EPIC_CHECK(fcntl(file_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK) == 0);
    read_only_.Reset(open(("/proc/self/fd/" + std::to_string(file_.get())).c_str(), O_RDONLY | O_CLOEXEC));
    EPIC_CHECK(read_only_.valid());
  }
  ~SourceLeases() override { munmap(memory_.data(), memory_.size()); }

  int fd() const { return read_only_.get(); }

  // Waits that are under way end as misses.
  void GiveUp() {
    MutexLock lock(&mu_);
    given_up_ = true;
    changed_.SignalAll();
  }

  Lease Find(const shm::LeaseRequest& request) override {
    Lease lease;
    const auto name = source_->LeaseOf(request.key);
    if (!name.has_value()) return lease;
    auto object = source_->Open(*name);
    if (!object.ok() || !WaitWhole(object->get())) return lease;
    if (!source_->LeaseOf(request.key).has_value()) return lease;
    lease.answer.outcome = shm::LeaseOutcome::kLeased;
    lease.answer.object.generation = name->number;
    MutexLock lock(&mu_);
    for (uint32_t layer = 0; layer < request.layout.layers; ++layer) {
      const ByteSpan slab = (*object)->Layer(layer);
      const uint64_t bytes = (request.layout.LayerBytes() + 63) / 64 * 64;
      if (bytes > memory_.size() - used_) used_ = 0;
      std::fill_n(memory_.begin() + static_cast<ptrdiff_t>(used_), bytes, std::byte{0});
      std::copy(slab.begin(), slab.end(), memory_.begin() + static_cast<ptrdiff_t>(used_));
      lease.answer.object.layer_offsets.push_back(used_);
      used_ += bytes;
      const auto crcs = (*object)->LayerCrcs(layer);
      auto& all = lease.answer.object.block_crcs;
      all.insert(all.end(), crcs.begin(), crcs.end());
    }
    lease.answer.object.build = BuildDigest(lease.answer.object.block_crcs);
    if (request.zero_copy) lease.hold = std::make_shared<int>(0);
    return lease;
  }
  bool IsCurrent(const std::string&, const ObjectKey& key, uint64_t generation) override {
    const auto name = source_->LeaseOf(key);
    return name.has_value() && name->number == generation;
  }

 private:
  bool WaitWhole(SourceObject* object) {
    struct Waiting {
      Mutex mu;
      uint32_t ready = 0;
      bool failed = false;
    };
    auto waiting = std::make_shared<Waiting>();
    for (uint32_t layer = 0; layer < object->layout().layers; ++layer) {
      object->WhenLayer(layer, [waiting](const absl::Status& status) {
        MutexLock lock(&waiting->mu);
        ++waiting->ready;
        waiting->failed = waiting->failed || !status.ok();
      });
    }
    MutexLock lock(&mu_);
    while (true) {
      {
        MutexLock ready(&waiting->mu);
        if (waiting->failed || given_up_) return false;
        if (waiting->ready == object->layout().layers) return true;
      }
      changed_.WaitForMs(&mu_, 2);
    }
  }

  const std::shared_ptr<TestSource> source_;
  shm::UniqueFd file_;
  shm::UniqueFd read_only_;
  MutableByteSpan memory_;
  Mutex mu_;
  CondVar changed_;
  bool given_up_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t used_ ABSL_GUARDED_BY(mu_) = 0;
};

class ShmSetup {
 public:
  static constexpr bool kLayerWise = false;
  static constexpr bool kTellsCrcs = true;
  static constexpr bool kKnowsLeases = false;

  explicit ShmSetup(PeerDownFn peer_down)
      : path_(MakeShmPath({.store = {.path = folder_.path() + "/s"},
                           .timers = &timers_,
                           .piece_bytes = uint64_t{100} << 10,
                           .peer_down = std::move(peer_down)})) {}
  ~ShmSetup() { Die(); }
  void Serve(std::shared_ptr<TestSource> source) {
    const uint64_t incarnation = source->incarnation();
    leases_ = std::make_unique<SourceLeases>(std::move(source));
    auto server = shm::Server::Start({.path = folder_.path() + "/s",
                                      .arena_fd = leases_->fd(),
                                      .arena_bytes = SourceLeases::kArenaBytes,
                                      .incarnation = incarnation},
                                     leases_.get());
    EPIC_CHECK(server.ok());
    server_ = *std::move(server);
  }
  void Die() {
    if (leases_ == nullptr) return;
    leases_->GiveUp();
    server_->Stop();
    server_.reset();
    leases_.reset();
  }
  Path* path() { return path_.get(); }
  void DropPath() {
    path_.reset();
    if (leases_ != nullptr) leases_->GiveUp();
  }
  std::shared_ptr<const Region> Grant(std::shared_ptr<const Region> region) { return region; }

 private:
  testing::TempDir folder_;
  TimerThread timers_{SystemClock::Get()};
  std::unique_ptr<SourceLeases> leases_;
  std::unique_ptr<shm::Server> server_;
  std::unique_ptr<Path> path_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Shm, TransportContract, ShmSetup);

class ShmPathTest : public ::testing::Test {
 protected:
  ShmPathTest() { setup_.Serve(source_); }
  int64_t Soon() const { return SystemClock::Get()->SteadyNs() + 10'000'000'000; }

  std::shared_ptr<TestSource> source_ = std::make_shared<TestSource>(3);
  ShmSetup setup_{[](const absl::Status&) {}};
};

TEST_F(ShmPathTest, ItGivesTheMemoryOfTheStore) {
  const auto region = source_->Put(1, SmallLayout());
  ASSERT_OK_AND_ASSIGN(const auto held, setup_.path()->Hold(region, Soon()));
  EXPECT_EQ(held->object().build(), *region->build);
  for (uint32_t layer = 0; layer < 4; ++layer) {
    const ByteSpan right = source_->Bytes(*region, layer);
    const ByteSpan there = held->object().Layer(layer);
    EXPECT_TRUE(std::equal(right.begin(), right.end(), there.begin(), there.end()));
    EXPECT_OK(held->CheckLayer(layer));
  }
  EXPECT_TRUE(held->StillHeld());
  setup_.Die();
  EXPECT_FALSE(held->StillHeld());
}

TEST_F(ShmPathTest, HeldBytesThatAreDamagedAreFound) {
  const auto region = source_->Put(2, SmallLayout());
  source_->Damage(*region, 1, 10);
  ASSERT_OK_AND_ASSIGN(const auto held, setup_.path()->Hold(region, Soon()));
  EXPECT_OK(held->CheckLayer(0));
  EXPECT_THAT(held->CheckLayer(1), EndsAs(FetchEnd::kDamaged));
}

TEST_F(ShmPathTest, AnotherGenerationBuildOrLifeIsNotGiven) {
  const auto region = source_->Put(3, SmallLayout());
  auto other = std::make_shared<Region>(*region);
  other->generation += 1;
  EXPECT_THAT(setup_.path()->Hold(other, Soon()).status(), EndsAs(FetchEnd::kNotOnThisPath));
  other = std::make_shared<Region>(*region);
  other->build = BuildDigest({});
  EXPECT_THAT(setup_.path()->Hold(other, Soon()).status(), EndsAs(FetchEnd::kNotOnThisPath));
  other = std::make_shared<Region>(*region);
  other->lease.incarnation += 1;
  EXPECT_THAT(setup_.path()->Hold(other, Soon()).status(), EndsAs(FetchEnd::kLeaseEnded));
  other = std::make_shared<Region>(*region);
  other->key.id = CacheId::Of("t", {}, std::vector<TokenId>{999});
  EXPECT_THAT(setup_.path()->Hold(other, Soon()).status(), EndsAs(FetchEnd::kNotOnThisPath));
  EXPECT_THAT(setup_.path()->Hold(region, 0).status(), EndsAs(FetchEnd::kDeadline));
  setup_.path()->Stop();
  EXPECT_THAT(setup_.path()->Hold(region, Soon()).status(), EndsAs(FetchEnd::kPathDown));
}

}  // namespace
}  // namespace epic::transport
