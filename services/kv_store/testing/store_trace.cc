#include "services/kv_store/testing/store_trace.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/extents/extent_slab_store.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr int kMoves = 70;
constexpr int kMostBuilds = 8;
constexpr uint32_t kTokens = 8;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kShortDiskBytes = 2500;
constexpr uint64_t kShortExtentBytes = 5 * kPage;
const char* const kTenant = "default";

KvLayout Layout() { return LayoutOf(kTokens, ObjectsModel::kLayers); }

std::string Numbered(const char* what, int who) { return std::string(what) + " " + std::to_string(who); }
std::string Numbered(const char* what, int who, int whom) {
  return Numbered(what, who) + " <- " + std::to_string(whom);
}

}  // namespace

StoreTrace::StoreTrace(uint64_t seed, TraceCounts* counts)
    : seed_(seed),
      counts_(counts),
      rng_(seed),
      tracker_(/*disk_evicts=*/seed % 2 != 0),
      faults_(std::make_shared<Faults>(seed + 1)),
      files_(seed % 3 == 0 ? std::make_shared<FaultyFileSystem>(seed + 2) : nullptr) {
  Open();
  for (int key = 0; key < ObjectsModel::kKeys; ++key) {
    EXPECT_OK(store_->CreateContext(ContextOf(static_cast<uint64_t>(key), kTokens, kTenant)));
  }
}

void StoreTrace::Run(int moves) {
  for (int move = 0; move < moves && !::testing::Test::HasFailure(); ++move) Move();
  if (!::testing::Test::HasFailure()) Restart(/*crash=*/true);
  for (int key = 0; key < ObjectsModel::kKeys && !::testing::Test::HasFailure(); ++key) Acquire(key, key);
  if (!::testing::Test::HasFailure()) CheckAtRest();
  if (!::testing::Test::HasFailure()) return;
  std::printf("seed %llu fails. Its moves:\n%sThe model before the last of them, a few states of %zu:\n%s",
              static_cast<unsigned long long>(seed_), said_.c_str(), tracker_.states(),
              tracker_.before().c_str());
}

SlabStoreMaker StoreTrace::MakeSlabs() const {
  if (files_ == nullptr) return nullptr;
  return [files = files_](std::function<absl::Status()> sync) -> absl::StatusOr<std::unique_ptr<SlabStore>> {
    return ExtentSlabStore::Open(files,
                                 {.folder = "/slabs",
                                  .max_bytes = 27 * kPage,
                                  .file_bytes = 16 * kPage,
                                  .grow_bytes = kPage,
                                  .piece_bytes = kPage},
                                 std::move(sync));
  };
}

void StoreTrace::Open() {
  faults_->Set({});
  const uint64_t short_bytes = files_ == nullptr ? kShortDiskBytes : kShortExtentBytes;
  const bool small = files_ == nullptr && seed_ / 2 % 2 == 0;
  auto store =
      StoreCore::Open(std::make_unique<FaultyTableStore>(std::make_unique<MemoryTableStore>(disk_), faults_),
                      {.memory_bytes = ObjectsModel::kRegions * kPage,
                       .disk_bytes_max = seed_ % 2 == 0 ? uint64_t{1} << 30 : short_bytes,
                       .make_slabs = MakeSlabs(),
                       .small_object_bytes = small ? uint64_t{1} << 20 : 0,
                       .eviction = seed_ / 4 % 2 == 0 ? EvictionKind::kS3Fifo : EvictionKind::kLru,
                       .clock = &clock_,
                       .writer = {}});
  ASSERT_OK(store);
  store_ = *std::move(store);
  leases_ = std::make_unique<StoreLeases>(store_.get());
}

void StoreTrace::Move() {
  ++counts_->moves;
  const int key = static_cast<int>(rng_.Below(ObjectsModel::kKeys));
  const int writer = static_cast<int>(rng_.Below(ObjectsModel::kWriters));
  const int reader = static_cast<int>(rng_.Below(ObjectsModel::kReaders));
  // While the disk stands still contexts come and go, and mostly nobody asks for what would have to wait.
  if (stalled_ && rng_.Below(3) == 0) return IsLive(key) ? Delete(key) : Create(key);
  const uint64_t move = rng_.Below(40);
  const Writing& writing = writers_[writer];
  const bool committed = writing.committed_at.has_value();
  if (move < 20) {
    if (writing.writer == nullptr || (committed && move < 12)) {
      Reserve(writer, key);
    } else if (committed) {
      CommitAgain(writer);
    } else if (writing.written < ObjectsModel::kLayers && move < 18) {
      Write(writer);
    } else {
      Commit(writer);
    }
  } else if (move < 27) {
    if (!Idle(reader)) {
      Release(reader);
    } else if (move < 25) {
      Acquire(reader, key);
    } else {
      Hold(reader, key);
    }
  } else if (move < 33) {
    Copy(key);
  } else if (move < 36) {
    if (!IsLive(key)) {
      Create(key);
    } else if (move == 33) {
      Delete(key);
    } else if (move == 34 && rng_.Below(2) == 0) {
      Drop(key);
    }
  } else if (move == 36) {
    if (rng_.Below(2) == 0) Discard(writer);
  } else if (move == 37) {
    if (rng_.Below(2) == 0) Restart(rng_.Below(3) != 0);
  } else if (move == 38 && files_ != nullptr) {
    Stall();
  } else if (MayWait()) {
    Say("drain");
    store_->DrainWrites();
  }
  CheckUse();
}

// Whoever waits for the disk from now on waits until Resume().
void StoreTrace::Stall() {
  Say("the disk stands still");
  ++counts_->stalls;
  files_->SetGate(false);
  stalled_ = true;
}

void StoreTrace::Resume() {
  if (!stalled_) return;
  Say("the disk goes on");
  files_->SetGate(true);
  stalled_ = false;
}

bool StoreTrace::MayWait() {
  if (stalled_ && rng_.Below(4) != 0) return false;
  Resume();
  return true;
}

void StoreTrace::Expect(bool possible, const std::string& answer) {
  Say("  " + answer);
  counts_->most_states = std::max<uint64_t>(counts_->most_states, tracker_.states());
  EXPECT_TRUE(possible) << "no node answers so that keeps the rules: " << answer;
}

ObjectKey StoreTrace::KeyOf(int key) const {
  return {CacheId::Of(kTenant, {}, TokensOf(static_cast<uint64_t>(key), kTokens)), {}};
}

// --- bytes

std::vector<std::string> StoreTrace::LayersOf(const KvObject& object) {
  std::vector<std::string> layers;
  for (uint32_t l = 0; l < object.layout().layers; ++l) layers.emplace_back(AsText(object.Layer(l)));
  return layers;
}

std::string StoreTrace::LayerAt(int arena_fd, uint64_t offset) {
  std::string layer(Layout().LayerBytes(), '\0');
  const ssize_t got = pread(arena_fd, layer.data(), layer.size(), static_cast<off_t>(offset));
  EXPECT_EQ(got, static_cast<ssize_t>(layer.size()));
  return layer;
}

std::vector<std::string> StoreTrace::LayersAt(int arena_fd, const std::vector<uint64_t>& offsets) {
  std::vector<std::string> layers;
  for (const uint64_t offset : offsets) layers.push_back(LayerAt(arena_fd, offset));
  return layers;
}

uint8_t StoreTrace::BuildOf(int key, const std::vector<std::string>& layers) const {
  for (size_t b = 1; b <= key_of_.size(); ++b) {
    const auto build = static_cast<uint8_t>(b);
    bool same = key_of_[b - 1] == key;
    for (uint32_t l = 0; same && l < layers.size(); ++l)
      same = layers[l] == SlabOf(Layout(), l, ContentOf(build));
    if (same) return build;
  }
  ADD_FAILURE() << "bytes that no build of key " << key << " has";
  return 0;
}

// StoreCore has no other objects.
uint64_t StoreTrace::PlaceOf(const KvObject& object) {
  return SlabOffsetIn(static_cast<const HostObject&>(object).region(), object.layout(), 0);
}

void StoreTrace::ExpectKept(const Reading& reading) const {
  const auto layers =
      reading.object != nullptr ? LayersOf(*reading.object) : LayersAt(reading.arena_fd, reading.offsets);
  EXPECT_EQ(BuildOf(reading.key, layers), reading.build) << "bytes changed under a reader";
}

// That cannot be had for anything else now.
int StoreTrace::RegionsInUse() const {
  std::set<uint64_t> places;
  int open = 0;
  for (const Writing& writing : writers_) {
    if (writing.committed_at.has_value()) places.insert(*writing.committed_at);
    open += writing.writer != nullptr && !writing.committed_at.has_value() ? 1 : 0;
  }
  for (const Reading& reading : readers_) {
    if (reading.build != 0) places.insert(reading.offsets[0]);
  }
  return open + static_cast<int>(places.size());
}

// --- contexts

void StoreTrace::Create(int key) {
  Say(Numbered("create", key));
  const auto created = store_->CreateContext(ContextOf(static_cast<uint64_t>(key), kTokens, kTenant));
  ASSERT_OK(created);
  EXPECT_TRUE(created->created);
  live_ |= 1u << key;
  Expect(tracker_.Took({"create", key}), "created");
}

void StoreTrace::Delete(int key) {
  Say(Numbered("delete", key));
  const auto deleted = store_->DeleteContext(kTenant, KeyOf(key).id);
  ASSERT_OK(deleted);
  EXPECT_TRUE(*deleted);
  live_ &= ~(1u << key);
  for (const Reading& reading : readers_) {
    if (reading.build != 0 && reading.key == key) ++counts_->held_deletes;
  }
  Expect(tracker_.Took({"delete", key}), "deleted");
}

void StoreTrace::Drop(int key) {
  Say(Numbered("drop", key));
  ASSERT_OK(store_->DropObject(kTenant, KeyOf(key)));
  Expect(tracker_.Dropped(key), "dropped");
}

// --- writers

void StoreTrace::Reserve(int writer, int key) {
  if (key_of_.size() == kMostBuilds || !MayWait()) return;
  if (key_of_.empty()) writer = 0;  // in the model the first writer is the first to write
  Say(Numbered("reserve", writer, key));
  if (writers_[writer].writer != nullptr) Say("  and forget what was committed before");
  writers_[writer] = {};
  auto reserved = store_->Reserve(kTenant, KeyOf(key), Layout());
  if (!reserved.ok()) {
    Say("  refused");
    if (IsLive(key)) {
      EXPECT_EQ(CodeOf(reserved.status()), ErrorCode::kStorageFull) << reserved.status();
      EXPECT_EQ(RegionsInUse(), ObjectsModel::kRegions) << "no room where there should be some";
    } else {
      EXPECT_EQ(CodeOf(reserved.status()), ErrorCode::kContextDeleted) << reserved.status();
    }
    return;
  }
  key_of_.push_back(key);
  writers_[writer] = {
      .writer = *std::move(reserved), .key = key, .build = static_cast<uint8_t>(key_of_.size())};
  Expect(tracker_.Took({"reserve", writer, key}), Numbered("reserved, for build", writers_[writer].build));
}

void StoreTrace::Write(int writer) {
  Writing& writing = writers_[writer];
  const auto layer = writing.written++;
  Say(Numbered("write", writer, static_cast<int>(layer)));
  const std::string slab = SlabOf(Layout(), layer, ContentOf(writing.build));
  ASSERT_OK(writing.writer->WriteLayer(layer, AsBytes(slab)));
  EXPECT_FALSE(writing.writer->WriteLayer(layer, AsBytes(slab)).ok()) << "a layer is written once";
  Expect(tracker_.Took({"announce", writer, static_cast<int>(layer)}), "written");
}

void StoreTrace::Commit(int writer) {
  Writing& writing = writers_[writer];
  Say(Numbered("commit", writer));
  const auto object = writing.writer->Commit();
  if (!object.ok()) {
    Say("  refused");
    if (writing.written < ObjectsModel::kLayers) {
      EXPECT_TRUE(absl::IsFailedPrecondition(object.status())) << object.status();
    } else {
      EXPECT_FALSE(IsLive(writing.key)) << object.status();
      ++counts_->late_commits;
    }
    return;
  }
  const uint8_t build = BuildOf(writing.key, LayersOf(**object));
  writing.committed_at = PlaceOf(**object);
  ++counts_->commits;
  if (build != writing.build) ++counts_->second_builds;
  const auto fits = [&](const ObjectsModel::State& after) {
    return after.objects[writing.key].build == build;
  };
  Expect(tracker_.Took({"commit", writer}, fits), Numbered("committed, there is build", build));
}

void StoreTrace::CommitAgain(int writer) {
  Writing& writing = writers_[writer];
  Say(Numbered("commit again", writer));
  const auto object = writing.writer->Commit();
  ++counts_->repeated_commits;
  if (object.ok()) {
    BuildOf(writing.key, LayersOf(**object));
    writing.committed_at = PlaceOf(**object);
    Expect(tracker_.Took({"commit again", writer}), "committed");
  } else {
    Say("  refused");
    EXPECT_FALSE(IsLive(writing.key)) << object.status();
  }
}

void StoreTrace::Discard(int writer) {
  Writing& writing = writers_[writer];
  if (writing.writer == nullptr) return;
  Say(Numbered("discard", writer));
  const bool open = !writing.committed_at.has_value();
  writing = {};
  if (open) Expect(tracker_.Took({"preempt", writer}), "discarded");
}

// --- readers

void StoreTrace::Acquire(int reader, int key) {
  if (!MayWait()) return;
  Say(Numbered("acquire", reader, key));
  const bool streaming = rng_.Below(2) == 0;
  const auto result = streaming ? store_->AcquireStreaming(kTenant, KeyOf(key), Layout())
                                : store_->Acquire(kTenant, KeyOf(key), Layout());
  ASSERT_OK(result);
  if (result->object == nullptr) {
    ++counts_->misses;
    const bool no_memory = result->cause == MissCause::kNoMemory;
    EXPECT_TRUE(!no_memory || RegionsInUse() == ObjectsModel::kRegions)
        << "no room where there should be some";
    Expect(tracker_.Missed(key, no_memory), no_memory ? "no memory" : "missed");
    return;
  }
  if (result->object->ReadyLayers() < ObjectsModel::kLayers) ++counts_->streamed;
  for (uint32_t l = 0; l < ObjectsModel::kLayers; ++l) ASSERT_OK(result->object->WaitLayer(l));
  store_->DrainLoads();  // which have a region, too
  const uint8_t build = BuildOf(key, LayersOf(*result->object));
  ++counts_->hits;
  if (build <= builds_before_restart_) ++counts_->hits_after_restart;
  const auto fits = [&](const ObjectsModel::State& after) { return after.readers[reader].build == build; };
  Expect(tracker_.Took({"acquire", reader, key}, fits), Numbered("got build", build));
  readers_[reader] = {
      .object = result->object, .offsets = {PlaceOf(*result->object)}, .key = key, .build = build};
  if (rng_.Below(2) == 0) Release(reader);
}

void StoreTrace::Hold(int reader, int key) {
  if (!MayWait()) return;
  Say(Numbered("hold", reader, key));
  auto lease = leases_->Find({.zero_copy = true, .tenant = kTenant, .key = KeyOf(key), .layout = Layout()});
  if (lease.answer.outcome != shm::LeaseOutcome::kLeased) {
    const bool must_copy = lease.answer.outcome == shm::LeaseOutcome::kMustCopy;
    Say(must_copy ? "  must copy" : "  missed");
    EXPECT_TRUE(must_copy || lease.answer.outcome == shm::LeaseOutcome::kMiss);
    return;
  }
  Reading reading{.object = nullptr,
                  .hold = std::move(lease.hold),
                  .offsets = lease.answer.object.layer_offsets,
                  .arena_fd = store_->arena().read_only_fd(),
                  .key = key};
  reading.build = BuildOf(key, LayersAt(reading.arena_fd, reading.offsets));
  const uint8_t build = reading.build;
  const auto fits = [&](const ObjectsModel::State& after) { return after.readers[reader].build == build; };
  Expect(tracker_.Took({"acquire", reader, key}, fits), Numbered("holds build", build));
  readers_[reader] = std::move(reading);
}

void StoreTrace::Release(int reader) {
  Say(Numbered("release", reader));
  ExpectKept(readers_[reader]);
  readers_[reader] = {};
  Expect(tracker_.Took({"release", reader}), "released");
}

// The next step of the one copy that is under way, from whatever is in the memory by now.
void StoreTrace::Copy(int key) {
  if (!copying_.has_value()) {
    if (!MayWait()) return;
    Say(Numbered("begin to copy", key));
    const auto lease = leases_->Find({.tenant = kTenant, .key = KeyOf(key), .layout = Layout()});
    if (lease.answer.outcome != shm::LeaseOutcome::kLeased) return;
    copying_ = {.key = key,
                .generation = lease.answer.object.generation,
                .offsets = lease.answer.object.layer_offsets,
                .layers = {}};
  } else if (copying_->layers.size() < ObjectsModel::kLayers) {
    Say("copy");
    const uint64_t offset = copying_->offsets[copying_->layers.size()];
    copying_->layers.push_back(LayerAt(store_->arena().read_only_fd(), offset));
  } else {
    Say("confirm");
    const bool current = leases_->IsCurrent(kTenant, KeyOf(copying_->key), copying_->generation);
    ++(current ? counts_->confirmed : counts_->denied);
    if (current) BuildOf(copying_->key, copying_->layers);  // fails where there is none
    copying_.reset();
  }
}

// --- the store

void StoreTrace::Restart(bool crash) {
  Resume();
  Say(crash ? "crash" : "restart");
  ++counts_->crashes;
  if (crash) faults_->Set({.write_error = 100});  // the moment of the crash: nothing more gets through
  for (Writing& writing : writers_) writing = {};
  // Leases of the hand-over end with their connection.
  copying_.reset();
  leases_.reset();
  if (crash && files_ != nullptr) files_->CutPowerAfter(rng_.Below(8));
  store_.reset();
  for (Reading& reading : readers_) {
    if (reading.build != 0) outlived_.push_back(std::exchange(reading, {}));
  }
  if (crash) disk_->Crash(&rng_);
  if (crash && files_ != nullptr) files_->Crash(&rng_);
  Open();
  builds_before_restart_ = static_cast<uint8_t>(key_of_.size());
  Expect(tracker_.Restarted(crash), "opened");
}

void StoreTrace::CheckUse() {
  for (const Reading& reading : readers_) {
    if (reading.build != 0) ExpectKept(reading);
  }
  EXPECT_LE(store_->Usage().memory_bytes, ObjectsModel::kRegions * kPage);
}

// Nobody writes and nobody reads: what is used of the memory is what can be found.
void StoreTrace::CheckAtRest() {
  Resume();
  for (int writer = 0; writer < ObjectsModel::kWriters; ++writer) Discard(writer);
  for (int reader = 0; reader < ObjectsModel::kReaders; ++reader) {
    if (!Idle(reader)) Release(reader);
  }
  for (const Reading& reading : outlived_) ExpectKept(reading);
  store_->DrainWrites();
  const StoreUsage usage = store_->Usage();
  EXPECT_EQ(usage.reservations, 0u);
  EXPECT_EQ(usage.leased_objects, 0u);
  EXPECT_EQ(usage.memory_bytes, usage.objects_in_memory * kPage) << "a region is kept for nobody";
}

void RunTraces(uint64_t first, uint64_t count) {
  const auto one = static_cast<uint64_t>(::testing::GTEST_FLAG(random_seed));
  if (one != 0) first = one;
  if (one != 0) count = 1;
  TraceCounts counts;
  uint64_t seed = first;
  for (; seed < first + count && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("replay with --gtest_random_seed=" + std::to_string(seed));
    StoreTrace(seed, &counts).Run(kMoves);
  }
  const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf(
      "seeds %llu..%llu: %llu moves, %llu commits, %llu second builds, %llu repeated, %llu late; %llu hits, "
      "%llu of before a restart, %llu misses, %llu deletions of what was held; %llu copies confirmed, %llu "
      "not; %llu restarts, %llu stalls; at most %llu states\n",
      number(first), number(seed - 1), number(counts.moves), number(counts.commits),
      number(counts.second_builds), number(counts.repeated_commits), number(counts.late_commits),
      number(counts.hits), number(counts.hits_after_restart), number(counts.misses),
      number(counts.held_deletes), number(counts.confirmed), number(counts.denied), number(counts.crashes),
      number(counts.stalls), number(counts.most_states));
  if (one != 0) return;
  for (const uint64_t seen : {counts.commits, counts.second_builds, counts.repeated_commits,
                              counts.late_commits, counts.hits_after_restart, counts.misses,
                              counts.held_deletes, counts.confirmed, counts.denied, counts.stalls}) {
    EXPECT_GE(seen, count / 20) << "too few to prove anything";
  }
}

}  // namespace epic::kv_store
