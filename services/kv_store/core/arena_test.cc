// The arena's memory: what another process may do with its descriptor, which regions are free, which are
// held.
#include "services/kv_store/core/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/testing/status_matchers.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kPage = ArenaAllocator::kGranuleBytes;

std::shared_ptr<Arena> NewArena(uint64_t pages, uint32_t held_percent = 50) {
  auto arena = Arena::Create({.capacity_bytes = pages * kPage, .held_percent_max = held_percent});
  EXPECT_OK(arena);
  return *std::move(arena);
}

void Fill(MutableByteSpan bytes, int value) { std::memset(bytes.data(), value, bytes.size()); }
bool AllAre(ByteSpan bytes, int value) {
  return std::all_of(bytes.begin(), bytes.end(), [=](std::byte b) { return b == std::byte(value); });
}

TEST(ArenaTest, RegionsHoldTheirBytesAndShareNone) {
  const auto arena = NewArena(8);
  const auto a = arena->Allocate(kPage);
  const auto b = arena->Allocate(100, 5);
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);
  Fill(a->piece(0), 1);
  for (int piece = 0; piece < 5; ++piece) Fill(b->piece(piece), 10 + piece);
  EXPECT_TRUE(AllAre(a->piece(0), 1));
  for (int piece = 0; piece < 5; ++piece) EXPECT_TRUE(AllAre(b->piece(piece), 10 + piece));
  EXPECT_EQ(b->piece_offset(3), b->piece_offset(0) + 300);
  EXPECT_NE(a->generation(), b->generation());
  EXPECT_EQ(arena->numbers().used_bytes, 2 * kPage);
  EXPECT_EQ(arena->numbers().regions, 2u);
}

TEST(ArenaTest, CapacityIsAWholeNumberOfPagesAndOneAtLeast) {
  EXPECT_EQ(Arena::Create({.capacity_bytes = 3 * kPage + 5})->get()->capacity_bytes(), 3 * kPage);
  EXPECT_EQ(Arena::Create({.capacity_bytes = 0})->get()->capacity_bytes(), kPage);
}

TEST(ArenaTest, WhatTheSystemCannotMapIsAnErrorAtTheStart) {
  EXPECT_THAT(Arena::Create({.capacity_bytes = uint64_t{1} << 60}),
              epic::testing::StatusIs(absl::StatusCode::kUnavailable, ::testing::HasSubstr("memory")));
}

TEST(ArenaTest, FullMeansNullAndFreedMemoryIsUsedAgainUnderAnotherGeneration) {
  const auto arena = NewArena(4);
  auto all = arena->Allocate(4 * kPage);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(arena->Allocate(1), nullptr);
  const uint64_t generation = all->generation();
  all.reset();
  EXPECT_EQ(arena->numbers().used_bytes, 0u);
  const auto again = arena->Allocate(4 * kPage);
  ASSERT_NE(again, nullptr);
  EXPECT_GT(again->generation(), generation);
}

TEST(ArenaTest, ARegionOfSeveralExtentsIsWhole) {
  const auto arena = NewArena(8);
  std::vector<std::unique_ptr<ArenaRegion>> regions;
  for (int region = 0; region < 8; ++region) regions.push_back(arena->Allocate(kPage));
  for (const int freed : {1, 4, 6}) regions[freed].reset();
  const auto spread = arena->Allocate(kPage, 3);
  ASSERT_NE(spread, nullptr);
  EXPECT_EQ(spread->extents().size(), 3u);
  EXPECT_EQ(spread->footprint_bytes(), 3 * kPage);
  for (int piece = 0; piece < 3; ++piece) Fill(spread->piece(piece), 20 + piece);
  for (int piece = 0; piece < 3; ++piece) EXPECT_TRUE(AllAre(spread->extent(piece), 20 + piece));
  EXPECT_EQ(arena->numbers().largest_hole_bytes, 0u);
}

TEST(ArenaTest, MemoryIsTakenFromTheSystemWhenItIsFirstNeeded) {
  const auto arena = NewArena((64 << 20) / kPage);
  EXPECT_EQ(arena->numbers().resident_bytes, 0u);
  const auto region = arena->Allocate(3 << 20);
  EXPECT_EQ(arena->numbers().resident_bytes, uint64_t{4} << 20);
  struct stat info = {};
  ASSERT_EQ(fstat(arena->read_only_fd(), &info), 0);
  EXPECT_EQ(static_cast<uint64_t>(info.st_size), arena->capacity_bytes());
  EXPECT_LE(info.st_blocks * 512, 5 << 20);
}

TEST(ArenaTest, AHeldRegionIsQuarantinedUntilTheLastHoldIsGone) {
  const auto arena = NewArena(4);
  auto region = arena->Allocate(2 * kPage);
  Fill(region->piece(0), 7);
  const ByteSpan bytes = region->piece(0);
  EXPECT_FALSE(region->IsHeld());
  auto first = region->TryHold();
  auto second = region->TryHold();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(region->IsHeld());
  EXPECT_EQ(arena->numbers().held_bytes, 2 * kPage);
  EXPECT_EQ(arena->numbers().quarantined_bytes, 0u);
  region.reset();
  EXPECT_EQ(arena->numbers().quarantined_bytes, 2 * kPage);
  EXPECT_EQ(arena->numbers().used_bytes, 2 * kPage);
  EXPECT_EQ(arena->numbers().regions, 0u);
  EXPECT_EQ(arena->numbers().quarantined_regions, 1u);
  EXPECT_EQ(arena->Allocate(3 * kPage), nullptr);
  const auto other = arena->Allocate(2 * kPage);
  Fill(other->piece(0), 9);
  first.reset();
  EXPECT_TRUE(AllAre(bytes, 7));
  second.reset();
  const Arena::Numbers after = arena->numbers();
  EXPECT_EQ(after.held_bytes, 0u);
  EXPECT_EQ(after.quarantined_bytes, 0u);
  EXPECT_EQ(after.used_bytes, 2 * kPage);
}

TEST(ArenaTest, AHoldThatEndsBeforeItsRegionFreesNothing) {
  const auto arena = NewArena(2);
  const auto region = arena->Allocate(kPage);
  region->TryHold().reset();
  EXPECT_FALSE(region->IsHeld());
  EXPECT_EQ(arena->numbers().held_bytes, 0u);
  EXPECT_EQ(arena->numbers().used_bytes, kPage);
}

TEST(ArenaTest, HoldsCoverABoundedShareOfTheArena) {
  const auto arena = NewArena(8, /*held_percent=*/50);
  const auto a = arena->Allocate(3 * kPage);
  const auto b = arena->Allocate(2 * kPage);
  auto hold = a->TryHold();
  ASSERT_NE(hold, nullptr);
  EXPECT_EQ(b->TryHold(), nullptr) << "5 pages of 8";
  EXPECT_NE(a->TryHold(), nullptr) << "a region counts once";
  EXPECT_EQ(arena->numbers().holds_refused, 1u);
  hold.reset();
  EXPECT_NE(b->TryHold(), nullptr);
}

TEST(ArenaTest, RegionsAndHoldsOutliveTheirArenasOwner) {
  auto arena = NewArena(4);
  auto region = arena->Allocate(kPage);
  Fill(region->piece(0), 5);
  auto hold = region->TryHold();
  const ByteSpan bytes = region->piece(0);
  arena.reset();
  EXPECT_TRUE(AllAre(region->piece(0), 5));
  region.reset();
  EXPECT_TRUE(AllAre(bytes, 5));
}

// What a process that was handed the descriptor may try. Returns the number of the first attempt that worked,
// or that failed where it should not; 0: everything is as it should be.
int TryToHarm(int fd, uint64_t bytes) {
  void* pages = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (pages == MAP_FAILED || !AllAre({static_cast<std::byte*>(pages), kPage}, 7)) return 1;
  if (mprotect(pages, bytes, PROT_READ | PROT_WRITE) == 0) return 2;
  if (mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED) return 3;
  // The file behind it can be opened for writing by the same user, but takes no writes.
  const int again = open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR);
  for (const int each : {fd, again}) {
    if (each < 0) continue;
    if (mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, each, 0) != MAP_FAILED) return 4;
    if (pwrite(each, "x", 1, 0) > 0) return 5;
    if (ftruncate(each, 0) == 0) return 6;
    if (ftruncate(each, static_cast<off_t>(2 * bytes)) == 0) return 7;
    if (fallocate(each, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage) == 0) return 8;
    if (fallocate(each, 0, static_cast<off_t>(bytes), kPage) == 0) return 9;
    if (fcntl(each, F_ADD_SEALS, F_SEAL_WRITE) == 0) return 10;
  }
  if (madvise(pages, bytes, MADV_REMOVE) == 0) return 11;
  if (!AllAre({static_cast<std::byte*>(pages), kPage}, 7)) return 12;
  return 0;
}

TEST(ArenaTest, AnotherProcessCanReadTheMemoryButNeitherWriteNorResizeIt) {
  const auto arena = NewArena(4);
  const auto region = arena->Allocate(kPage);
  ASSERT_EQ(region->piece_offset(0), 0u);
  Fill(region->piece(0), 7);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(TryToHarm(arena->read_only_fd(), arena->capacity_bytes()));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the attempt of that number did what it should not";
  EXPECT_TRUE(AllAre(region->piece(0), 7));
  EXPECT_EQ(fcntl(arena->read_only_fd(), F_GET_SEALS),
            F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
}

// What the owner writes is seen by others, and a forked child has no mapping of its own to write to.
TEST(ArenaTest, AForkedChildDoesNotInheritTheWritableMapping) {
  const auto arena = NewArena(4);
  const auto region = arena->Allocate(kPage);
  void* const memory = region->piece(0).data();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    unsigned char present = 0;
    _exit(mincore(memory, kPage, &present) != 0 && errno == ENOMEM ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Threads take, fill, hold and drop regions; nobody ever sees bytes of somebody else. For ThreadSanitizer.
TEST(ArenaTest, ThreadsNeverShareMemory) {
  constexpr int kThreads = 4;
  constexpr int kSteps = 2000;
  const auto arena = NewArena(64);
  const auto work = [&arena](int thread) {
    Rng rng(100 + thread);
    std::vector<std::unique_ptr<ArenaRegion>> regions;
    std::vector<std::shared_ptr<const void>> holds;
    for (int step = 0; step < kSteps; ++step) {
      if (auto region = arena->Allocate((1 + rng.Below(3)) * kPage, 1 + rng.Below(3))) {
        for (size_t extent = 0; extent < region->extents().size(); ++extent)
          Fill(region->extent(extent), thread);
        if (rng.Below(3) == 0) holds.push_back(region->TryHold());
        regions.push_back(std::move(region));
      }
      if (!regions.empty() && (regions.size() > 4 || rng.Below(2) == 0)) {
        const auto& oldest = regions.front();
        for (size_t extent = 0; extent < oldest->extents().size(); ++extent) {
          EXPECT_TRUE(AllAre(oldest->extent(extent), thread));
        }
        regions.erase(regions.begin());
      }
      if (holds.size() > 3) holds.erase(holds.begin());
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(work, thread);
  for (std::thread& thread : threads) thread.join();
  const Arena::Numbers numbers = arena->numbers();
  EXPECT_EQ(numbers.used_bytes, 0u);
  EXPECT_EQ(numbers.held_bytes, 0u);
  EXPECT_EQ(numbers.quarantined_bytes, 0u);
  EXPECT_EQ(numbers.largest_hole_bytes, arena->capacity_bytes());
}

}  // namespace
}  // namespace epic::kv_store
