// Directories with damaged files under the check: it ends with a report or an error, changes nothing, and
// calls nothing sound that a reader would be served wrong bytes of. Prints its seed.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/status/error.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/embedded_store.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"
#include "services/kv_store/testing/store_directory.h"
#include "services/kv_store/testing/store_fixtures.h"
#include "services/kv_store/tools/isolate.h"
#include "services/kv_store/tools/store_check.h"
#include "services/kv_store/tools/store_repair.h"

namespace epic::kv_store {
namespace {

namespace fs = std::filesystem;

constexpr int kRounds = 60;
constexpr uint32_t kTokens = 20;
constexpr uint64_t kContexts = 6;
// Exit codes of a round.
constexpr int kSound = 0;
constexpr int kTold = 1;
constexpr int kFailed = 2;

const KvLayout& LayoutFor(uint64_t seed) {
  static const KvLayout large = LayoutOf(kTokens, 2, 8, 128);
  static const KvLayout small = LayoutOf(kTokens);
  return seed % 2 == 0 ? large : small;
}

absl::StatusOr<std::unique_ptr<KvStore>> Open(const std::string& dir, const Clock* clock, SlabBackEnd slabs) {
  return EmbeddedStore::Open(
      {.dir = dir,
       .store = {.memory_bytes = 4 << 20, .disk_bytes_max = 16 << 20, .clock = clock, .writer = {}},
       .slabs = slabs,
       .scrub_bytes_per_s = 0});
}

// Three lives: tables, blob files, extents and a log that was not flushed.
void Make(const std::string& dir, const Clock* clock) {
  for (uint64_t seed = 0; seed < kContexts; ++seed) {
    const auto slabs = seed < kContexts / 2 ? SlabBackEnd::kBlobFiles : SlabBackEnd::kExtents;
    ASSERT_OK_AND_ASSIGN(const auto store, Open(dir, clock, slabs));
    ASSERT_OK_AND_ASSIGN(const CreateResult made, store->CreateContext(ContextOf(seed, kTokens)));
    ASSERT_OK(PutObject(store.get(), "default", {made.record.id, {}}, LayoutFor(seed), seed));
    ASSERT_OK_AND_ASSIGN(const CreateResult gone, store->CreateContext(ContextOf(seed + 100, kTokens)));
    ASSERT_OK(store->DeleteContext("default", gone.record.id));
  }
}

// Damages a file, and returns whether it was a log, of changes or of RocksDB's files (MANIFEST): an end that
// is gone from there looks like one that was never written.
bool Damage(const std::string& dir, Rng* rng) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (entry.is_regular_file() && entry.path().filename() != "epic.lock") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  const std::string path = files[rng->Below(files.size())];
  const uint64_t size = fs::file_size(path);
  const uint64_t kind = rng->Below(20);
  if (kind == 0) {
    fs::remove(path);
  } else if (kind == 1) {
    fs::resize_file(path, rng->Below(size + 1));
  } else if (size > 0) {
    const uint64_t reach = rng->Below(2) == 0 ? size : std::min<uint64_t>(size, 300'000);
    for (uint64_t flips = 1 + rng->Below(4); flips > 0; --flips) FlipByte(path, rng->Below(reach));
  }
  return path.ends_with(".log") || path.find("/MANIFEST-") != std::string::npos;
}

// Puts or replaces a row that is one of the store's but for some bytes; half of the time with its checksum
// mended.
void MutateRow(Table table, std::string_view key, std::string_view value, Rng* rng, WriteBatch* batch) {
  std::string row(key), bytes(value);
  if (rng->Below(4) == 0 && !row.empty()) row[rng->Below(row.size())] = static_cast<char>(rng->Next());
  for (uint64_t changes = rng->Below(3); changes > 0 && !bytes.empty(); --changes) {
    const size_t at = rng->Below(rng->Below(2) == 0 ? std::min<size_t>(bytes.size(), 200) : bytes.size());
    if (rng->Below(8) == 0) {
      bytes.resize(at);
    } else {
      bytes[at] = rng->Below(3) == 0 ? static_cast<char>(0xff) : static_cast<char>(rng->Next());
    }
  }
  if (table != Table::kSlabs && rng->Below(2) == 0 && bytes.size() > sizeof(uint32_t)) {
    const size_t at = bytes.size() - sizeof(uint32_t);
    const uint32_t crc = Crc32c(0, AsBytes(bytes).first(at));
    std::memcpy(bytes.data() + at, &crc, sizeof crc);
  }
  batch->Put(table, row, bytes);
}

// What a store makes of the directory: no wrong byte, and where the check found nothing, nothing missing.
void Serve(const std::string& dir, const Clock* clock, bool sound, int round) {
  const auto store = Open(dir, clock, SlabBackEnd::kExtents);
  if (!store.ok()) {
    EXPECT_FALSE(sound) << "round " << round << ": " << store.status();
    return;
  }
  for (uint64_t seed = 0; seed < kContexts; ++seed) {
    const ObjectKey key{CacheId::Of("default", {}, TokensOf(seed, kTokens)), {}};
    const auto hit = (*store)->Acquire("default", key, LayoutFor(seed));
    ASSERT_OK(hit);
    const bool found = hit->object != nullptr;
    EXPECT_TRUE(!found || Holds(*hit->object, seed)) << "round " << round;
    EXPECT_TRUE(found || !sound) << "round " << round << ", context " << seed;
  }
}

// Whether a file of rows is among those that differ: the table library may end its process at what is in one.
bool RowsDiffer(const std::string& whole, const std::string& dir) {
  const auto before = FilesOf(whole), after = FilesOf(dir);
  for (const auto& [path, bytes] : before) {
    if (!path.ends_with(".sst")) continue;
    const auto now = after.find(dir + path.substr(whole.size()));
    if (now != after.end() && now->second != bytes) return true;
  }
  return false;
}

// Checks and serves a damaged directory; the exit code of its process.
int Round(const std::string& dir, const Clock* clock, bool log, int round) {
  const auto before = FilesOf(dir);
  const auto report = CheckStore(dir, {});
  EXPECT_TRUE(FilesOf(dir) == before) << "round " << round;
  const bool sound = report.ok() && report->damage == 0 && report->complete;
  Serve(dir, clock, sound && !log, round);
  std::fflush(stdout);
  return ::testing::Test::HasFailure() ? kFailed : sound ? kSound : kTold;
}

// Each round has a process of its own, and this one opens no store.
TEST(StoreCheckFuzzTest, DirectoriesWithDamagedFilesAreSurvivedAndTold) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Rng rng(seed);
  const ManualClock clock;
  const epic::testing::TempDir temp;
  const std::string whole = temp.path() + "/whole";
  const auto made = RunIsolated([&] {
    Make(whole, &clock);
    return ::testing::Test::HasFailure() ? kFailed : kSound;
  });
  ASSERT_TRUE(made.ok() && *made == kSound);
  int told = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::string dir = temp.path() + "/damaged";
    fs::remove_all(dir);
    fs::copy(whole, dir, fs::copy_options::recursive);
    bool log = false;
    for (uint64_t times = 1 + rng.Below(2); times > 0; --times) log = Damage(dir, &rng) || log;
    std::fflush(stdout);
    const bool rows = RowsDiffer(whole, dir);
    const auto ended = RunIsolated([&] { return Round(dir, &clock, log, round); });
    if (ended.ok()) {
      ASSERT_NE(*ended, kFailed) << "round " << round;
    } else {
      ASSERT_TRUE(rows) << "round " << round << ": " << ended.status();
    }
    told += ended.ok() && *ended == kSound ? 0 : 1;
  }
  EXPECT_GT(told, kRounds / 10);
}

// Rows that the table library vouches for and that are wrong all the same.
TEST(StoreCheckFuzzTest, RowsOfAnyBytesAreSurvived) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Rng rng(seed);
  const ManualClock clock;
  const epic::testing::TempDir temp;
  const std::string dir = temp.path() + "/store";
  Make(dir, &clock);
  uint64_t told = 0;
  for (int round = 0; round < kRounds; ++round) {
    {
      ASSERT_OK_AND_ASSIGN(const auto tables, OpenRocksDbTables({.dir = dir}));
      WriteBatch batch;
      for (size_t table = 0; table < kTables; ++table) {
        ASSERT_OK(tables->Scan(static_cast<Table>(table), [&](std::string_view key, std::string_view value) {
          if (rng.Below(8) == 0) MutateRow(static_cast<Table>(table), key, value, &rng, &batch);
          return true;
        }));
      }
      ASSERT_OK(tables->Write(batch, Sync::kYes));
    }
    ASSERT_OK_AND_ASSIGN(const StoreReport report, CheckStore(dir, {}));
    told += report.damage + report.left_over;
    // Every third round what can be dropped is, and the rest must not be told again as that.
    if (round % 3 != 0) continue;
    ASSERT_OK(RepairStore(dir, report).status());
    ASSERT_OK_AND_ASSIGN(const StoreReport after, CheckStore(dir, {}));
    EXPECT_EQ(after.counts.records, report.counts.records);
    for (const StoreFault& fault : after.faults) {
      EXPECT_FALSE(InfoOf(fault.kind).can_be_dropped) << InfoOf(fault.kind).name << ": " << fault.detail;
    }
  }
  EXPECT_GT(told, uint64_t{kRounds});
}

}  // namespace
}  // namespace epic::kv_store
