// A real kill -9: a child process creates contexts and commits objects in several threads and tells through a
// pipe what was acknowledged; it is killed at a random moment. After that every acknowledged record is there
// with its token ids, every deletion holds, and every object is exactly right or a miss. The same directory
// goes through many lives. Prints its seed.
//
// faults/process_kill_test.cc kills the whole process behind its gRPC door, with random settings;
// erase_kill_test.cc kills one erasure at known steps. Here alone the store is killed that `epic serve`
// embeds, with no door before it: what its own calls acknowledged counts, as soon as they return. And without
// waits of bounded time: each call is made on its caller's thread.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/status/error.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/embedded_store.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr std::string_view kTenant = "default";
constexpr uint32_t kTokens = 40;
constexpr int kLives = 5;
constexpr int kWriters = 4;
constexpr uint64_t kSeedsPerWriter = 100'000;
constexpr uint64_t kSeed = 20'260'101;

enum class Event : uint64_t { kCreated = 1, kDurable = 2, kDeleted = 3 };
struct Message {
  Event event;
  uint64_t seed;
};

// By turns small, through the log (slabs of 20 KiB), and not (40 KiB).
KvLayout LayoutFor(uint64_t seed) { return LayoutOf(kTokens, 4, 2, seed % 2 == 0 ? 64 : 128); }
CacheId IdOf(uint64_t seed) { return CacheId::Of(kTenant, {}, TokensOf(seed, kTokens)); }

EmbeddedStoreOptions Options(const std::string& dir) {
  return {.dir = dir, .store = {.memory_bytes = 4 << 20, .disk_bytes_max = 256 << 20, .writer = {}}};
}

// Writes of a message this small to a pipe are atomic.
void Tell(int pipe, Event event, uint64_t seed) {
  const Message message{event, seed};
  if (write(pipe, &message, sizeof(message)) != sizeof(message)) _exit(3);
}

// Creates contexts, commits an object for each, deletes every fifth; until it is killed.
void WriteForEver(KvStore* store, int pipe, uint64_t first_seed) {
  for (uint64_t seed = first_seed;; ++seed) {
    NewContext context = ContextOf(seed, kTokens);
    const bool durable = seed % 3 == 0;
    if (durable) context.durability = Durability::kObject;
    if (!store->CreateContext(context).ok()) _exit(4);
    Tell(pipe, Event::kCreated, seed);
    if (!PutObject(store, kTenant, {IdOf(seed), {}}, LayoutFor(seed), seed).ok()) _exit(5);
    if (durable) Tell(pipe, Event::kDurable, seed);
    if (seed % 5 == 0) {
      if (!store->DeleteContext(kTenant, IdOf(seed)).ok()) _exit(6);
      Tell(pipe, Event::kDeleted, seed);
    }
  }
}

[[noreturn]] void Child(const std::string& dir, int pipe, uint64_t life) {
  auto store = EmbeddedStore::Open(Options(dir));
  if (!store.ok()) _exit(2);
  std::vector<std::thread> writers;
  for (uint64_t writer = 0; writer < kWriters; ++writer) {
    const uint64_t first_seed = (life * kWriters + writer) * kSeedsPerWriter + 1;
    writers.emplace_back([&store, pipe, first_seed] { WriteForEver(store->get(), pipe, first_seed); });
  }
  for (std::thread& writer : writers) writer.join();
  _exit(0);
}

struct Acknowledged {
  std::set<uint64_t> created, durable, deleted;
};

// A child that waits for a byte before it opens the store. All are forked before this process opens one
// itself: RocksDB's threads would not survive the fork.
struct Life {
  pid_t child = -1;
  int start = -1;   // write a byte here
  int events = -1;  // read its messages here
};

std::vector<Life> ForkLives(const std::string& dir) {
  std::vector<Life> lives;
  for (uint64_t life = 0; life < kLives; ++life) {
    int start[2];
    int events[2];
    EPIC_CHECK(pipe(start) == 0 && pipe(events) == 0);
    const pid_t child = fork();
    EPIC_CHECK(child >= 0);
    if (child == 0) {
      for (const Life& other : lives) {
        close(other.start);
        close(other.events);
      }
      close(start[1]);
      close(events[0]);
      char go;
      if (read(start[0], &go, 1) != 1) _exit(0);
      Child(dir, events[1], life);
    }
    close(start[0]);
    close(events[1]);
    lives.push_back({.child = child, .start = start[1], .events = events[0]});
  }
  return lives;
}

// Starts a life, kills it after `messages` acknowledgements, reads what it still told.
void LiveAndDie(const Life& life, uint64_t messages, Acknowledged* acknowledged) {
  ASSERT_EQ(write(life.start, "g", 1), 1);
  Message message;
  while (read(life.events, &message, sizeof(message)) == sizeof(message)) {
    if (message.event == Event::kCreated) acknowledged->created.insert(message.seed);
    if (message.event == Event::kDurable) acknowledged->durable.insert(message.seed);
    if (message.event == Event::kDeleted) acknowledged->deleted.insert(message.seed);
    if (messages-- == 1) kill(life.child, SIGKILL);
  }
  close(life.start);
  close(life.events);
  int status = 0;
  ASSERT_EQ(waitpid(life.child, &status, 0), life.child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself with " << WEXITSTATUS(status);
}

// Compares with the store; returns the number of hits.
int Verify(KvStore* store, const Acknowledged& acknowledged) {
  int hits = 0;
  for (const uint64_t seed : acknowledged.created) {
    const auto record = store->GetContext(kTenant, IdOf(seed));
    if (acknowledged.deleted.contains(seed)) {
      EXPECT_EQ(CodeOf(record.status()), ErrorCode::kContextDeleted) << seed;
      continue;
    }
    // The deletion of every fifth may have reached the disk without having been told.
    if (seed % 5 == 0 && !record.ok()) continue;
    EXPECT_OK(record) << seed;
    const auto tokens = store->GetTokens(kTenant, IdOf(seed));
    EXPECT_OK(tokens) << seed;
    if (tokens.ok()) {
      EXPECT_EQ(*tokens, TokensOf(seed, kTokens)) << seed;
    }
    const auto result = store->Acquire(kTenant, {IdOf(seed), {}}, LayoutFor(seed));
    EXPECT_OK(result);
    if (!result.ok() || result->object == nullptr) {
      EXPECT_FALSE(acknowledged.durable.contains(seed)) << "a durable object is lost: " << seed;
      continue;
    }
    EXPECT_TRUE(Holds(*result->object, seed)) << "wrong bytes: " << seed;
    ++hits;
  }
  return hits;
}

TEST(KillTest, EverythingAcknowledgedSurvivesAKill) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  Rng rng(kSeed);
  const epic::testing::TempDir dir;
  const std::string data = dir.path() + "/data";
  Acknowledged acknowledged;
  int hits = 0;
  for (const Life& life : ForkLives(data)) {
    ASSERT_NO_FATAL_FAILURE(LiveAndDie(life, 1 + rng.Below(120), &acknowledged));
    ASSERT_OK_AND_ASSIGN(const auto store, EmbeddedStore::Open(Options(data)));
    hits = Verify(store.get(), acknowledged);
  }
  std::printf("%zu records acknowledged, %zu deleted, %d objects on disk\n", acknowledged.created.size(),
              acknowledged.deleted.size(), hits);
  EXPECT_GT(acknowledged.created.size(), 50u);
  EXPECT_GT(hits, 20);
}

}  // namespace
}  // namespace epic::kv_store
