#include "common/transport/ucx/registration_cache.h"

#include <map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/testing/status_matchers.h"

namespace epic::transport {
namespace {

using ::epic::testing::StatusIs;

// Counts, and refuses beyond a number of bytes as a device does.
class CountingRegistrar final : public Registrar {
 public:
  explicit CountingRegistrar(uint64_t max_bytes = ~uint64_t{0}) : max_bytes_(max_bytes) {}
  absl::StatusOr<void*> Register(ByteSpan memory, MemoryKind kind) override {
    if (bytes_ + memory.size() > max_bytes_) return absl::ResourceExhaustedError("the device is full");
    bytes_ += memory.size();
    made_ += 1;
    void* handle = reinterpret_cast<void*>(static_cast<uintptr_t>(made_));
    live_[handle] = memory;
    return handle;
  }
  void Unregister(void* handle) override {
    const auto found = live_.find(handle);
    ASSERT_NE(found, live_.end()) << "unregistered twice";
    bytes_ -= found->second.size();
    live_.erase(found);
  }
  bool Covers(void* handle, ByteSpan memory) const {
    const auto found = live_.find(handle);
    return found != live_.end() && found->second.data() <= memory.data() &&
           memory.data() + memory.size() <= found->second.data() + found->second.size();
  }
  int made() const { return made_; }
  size_t live() const { return live_.size(); }

 private:
  const uint64_t max_bytes_;
  uint64_t bytes_ = 0;
  int made_ = 0;
  std::map<void*, ByteSpan> live_;
};

class RegistrationCacheTest : public ::testing::Test {
 protected:
  ByteSpan At(size_t offset, size_t size) const { return ByteSpan(memory_).subspan(offset, size); }
  std::vector<std::byte> memory_ = std::vector<std::byte>(1 << 16);
  CountingRegistrar registrar_;
};

TEST_F(RegistrationCacheTest, AnArenaIsRegisteredOnceAndServesEveryPartOfIt) {
  RegistrationCache cache(&registrar_, 0, 0);
  ASSERT_OK_AND_ASSIGN(void* const arena, cache.Pin(At(0, 4096), MemoryKind::kHost));
  ASSERT_OK_AND_ASSIGN(void* const again, cache.Pin(At(0, 4096), MemoryKind::kHost));
  EXPECT_EQ(arena, again);
  for (size_t offset = 0; offset < 4096; offset += 512) {
    ASSERT_OK_AND_ASSIGN(const auto use, cache.Acquire(At(offset, 512), MemoryKind::kHost));
    EXPECT_EQ(use.handle(), arena);
  }
  EXPECT_EQ(registrar_.made(), 1);
  EXPECT_EQ(cache.unpinned_bytes(), 0u);
}

TEST_F(RegistrationCacheTest, TheLeastRecentlyUsedGoesFirst) {
  RegistrationCache cache(&registrar_, 200, 100);
  void* first = nullptr;
  {
    ASSERT_OK_AND_ASSIGN(const auto a, cache.Acquire(At(0, 100), MemoryKind::kHost));
    first = a.handle();
  }
  { ASSERT_OK_AND_ASSIGN(const auto b, cache.Acquire(At(100, 100), MemoryKind::kHost)); }
  {
    ASSERT_OK_AND_ASSIGN(const auto a, cache.Acquire(At(0, 100), MemoryKind::kHost));
    EXPECT_EQ(a.handle(), first);
  }
  { ASSERT_OK_AND_ASSIGN(const auto c, cache.Acquire(At(200, 100), MemoryKind::kHost)); }
  EXPECT_EQ(registrar_.made(), 3);
  EXPECT_EQ(registrar_.live(), 2u);
  ASSERT_OK_AND_ASSIGN(const auto a, cache.Acquire(At(0, 100), MemoryKind::kHost));
  EXPECT_EQ(a.handle(), first) << "b was the one to go";
}

TEST_F(RegistrationCacheTest, WhatIsInUseStays) {
  RegistrationCache cache(&registrar_, 100, 1);
  ASSERT_OK_AND_ASSIGN(auto a, cache.Acquire(At(0, 100), MemoryKind::kHost));
  ASSERT_OK_AND_ASSIGN(auto b, cache.Acquire(At(100, 100), MemoryKind::kHost));
  EXPECT_TRUE(registrar_.Covers(a.handle(), At(0, 100)));
  EXPECT_TRUE(registrar_.Covers(b.handle(), At(100, 100)));
  a = RegistrationCache::Use();
  EXPECT_EQ(registrar_.live(), 1u);
  EXPECT_TRUE(registrar_.Covers(b.handle(), At(100, 100)));
}

TEST_F(RegistrationCacheTest, ADeviceThatIsFullGetsRoomFromTheIdle) {
  CountingRegistrar small(250);
  RegistrationCache cache(&small, 1'000'000, 100);
  { ASSERT_OK_AND_ASSIGN(const auto a, cache.Acquire(At(0, 100), MemoryKind::kHost)); }
  { ASSERT_OK_AND_ASSIGN(const auto b, cache.Acquire(At(100, 100), MemoryKind::kHost)); }
  ASSERT_OK_AND_ASSIGN(const auto c, cache.Acquire(At(200, 200), MemoryKind::kHost));
  EXPECT_THAT(cache.Acquire(At(400, 100), MemoryKind::kHost), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(small.live(), 1u);
}

TEST_F(RegistrationCacheTest, ForgottenMemoryIsRegisteredAnew) {
  RegistrationCache cache(&registrar_, 1'000'000, 100);
  { ASSERT_OK_AND_ASSIGN(const auto a, cache.Acquire(At(0, 100), MemoryKind::kHost)); }
  ASSERT_OK_AND_ASSIGN(auto used, cache.Acquire(At(100, 100), MemoryKind::kHost));
  ASSERT_OK(cache.Pin(At(300, 100), MemoryKind::kHost));
  cache.Forget(At(50, 300));
  EXPECT_EQ(registrar_.live(), 1u) << "only what is in use";
  EXPECT_TRUE(registrar_.Covers(used.handle(), At(100, 100)));
  ASSERT_OK_AND_ASSIGN(const auto fresh, cache.Acquire(At(100, 100), MemoryKind::kHost));
  EXPECT_NE(fresh.handle(), used.handle());
  used = RegistrationCache::Use();
  EXPECT_EQ(registrar_.live(), 1u);
  EXPECT_EQ(cache.unpinned_bytes(), 100u);
}

TEST_F(RegistrationCacheTest, RandomUseAlwaysGetsMemoryThatIsRegisteredAndKeepsItsBounds) {
  const uint64_t seed = 41;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  {
    RegistrationCache cache(&registrar_, 8000, 12);
    std::vector<std::pair<RegistrationCache::Use, ByteSpan>> uses;
    for (int step = 0; step < 20'000; ++step) {
      const ByteSpan memory = At(rng.Below(60) * 1000, 1 + rng.Below(2000));
      switch (rng.Below(uses.size() > 4 ? 3 : 2)) {
        case 0: {
          ASSERT_OK_AND_ASSIGN(auto use, cache.Acquire(memory, MemoryKind::kHost));
          uses.emplace_back(std::move(use), memory);
          break;
        }
        case 1:
          if (rng.Below(20) == 0) cache.Forget(memory);
          break;
        default:
          uses.erase(uses.begin() + static_cast<int64_t>(rng.Below(uses.size())));
      }
      uint64_t used = 0;
      for (const auto& [use, span] : uses) {
        ASSERT_TRUE(registrar_.Covers(use.handle(), span));
        used += 2000;
      }
      ASSERT_LE(cache.unpinned_bytes(), 8000 + used);
      ASSERT_LE(cache.entries(), 12 + uses.size());
    }
    uses.clear();
    EXPECT_LE(cache.unpinned_bytes(), 8000u);
    EXPECT_LE(cache.entries(), 12u);
  }
  EXPECT_EQ(registrar_.live(), 0u);
}

}  // namespace
}  // namespace epic::transport
