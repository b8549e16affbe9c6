// What `erase=wait` promises, on a real directory with slabs in extents and in blob files: once it is
// answered the bytes of what was deleted are in no file below it. Also with readers and writers at work, and
// with a disk that refuses. A kill in the middle is in erase_kill_test.cc.
#include <atomic>
#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/testing/erase_store.h"

namespace epic::kv_store {
namespace {

// Made before the store, and gone after it.
struct Folder {
  epic::testing::TempDir temp_;
};

class EraseTest : public ::testing::TestWithParam<bool>, Folder, public EraseStore {
 protected:
  EraseTest() : EraseStore(temp_.path() + "/data", GetParam()) {}
};

TEST_P(EraseTest, WhenItIsAnsweredTheBytesAreInNoFile) {
  Open();
  for (uint64_t seed = 1; seed <= 3; ++seed) Put(seed);
  for (uint64_t seed = 1; seed <= 3; ++seed) ExpectOnDisk(seed, true);
  EXPECT_EQ(Erase(2), Names());
  ExpectOnDisk(2, false);
  EXPECT_EQ(CodeOf(store_->GetContext(kTenant, IdOf(2)).status()), ErrorCode::kContextDeleted);
  // One that was deleted before, by a call that did not wait.
  ASSERT_OK(store_->DeleteContext(kTenant, IdOf(3)));
  EXPECT_EQ(Erase(3, /*existed=*/false), Names());
  ExpectOnDisk(3, false);
  ExpectOnDisk(1, true);
  EXPECT_EQ(Erase(9, /*existed=*/false), Names()) << "never there";
  Open();
  const auto hit = store_->Acquire(kTenant, {IdOf(1), {}}, large_);
  ASSERT_OK(hit);
  ASSERT_NE(hit->object, nullptr);
  EXPECT_TRUE(Holds(*hit->object, 1));
}

TEST_P(EraseTest, AnObjectOnItsWayToTheDiskDoesNotGetThereBehindTheErasure) {
  Open();
  ASSERT_OK(store_->CreateContext(ContextOf(1, kTokens)));
  for (int round = 0; round < 6; ++round) {
    // Not waited for: written while the context goes.
    ASSERT_OK(PutObject(store_.get(), kTenant, {IdOf(1), {}}, large_, 1));
    ASSERT_OK(PutObject(store_.get(), kTenant, {IdOf(1), Other()}, small_, 1));
    EXPECT_EQ(Erase(1), Names());
    ExpectOnDisk(1, false);
    if (HasFailure()) return;
    ASSERT_OK(store_->CreateContext(ContextOf(1, kTokens)));
  }
}

TEST_P(EraseTest, ItHoldsBesideReadersAndWritersOfOtherContexts) {
  Open();
  constexpr uint64_t kOthers = 12;  // more than memory holds: they are read from the disk and written to it
  for (uint64_t seed = 100; seed < 100 + kOthers; ++seed) Put(seed);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      Rng rng(thread);
      while (!stop) {
        const uint64_t seed = 100 + rng.Below(kOthers);
        if (thread == 0) {
          store_->DropObject(kTenant, {IdOf(seed), {}}).IgnoreError();
          PutObject(store_.get(), kTenant, {IdOf(seed), {}}, large_, seed).IgnoreError();
          continue;
        }
        const auto hit = store_->Acquire(kTenant, {IdOf(seed), {}}, large_);
        if (hit.ok() && hit->object != nullptr) {
          EXPECT_TRUE(Holds(*hit->object, seed));
        }
        store_->GetTokens(kTenant, IdOf(seed)).status().IgnoreError();
      }
    });
  }
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Put(seed);
    std::thread reader([&] { store_->Acquire(kTenant, {IdOf(seed), {}}, large_).status().IgnoreError(); });
    EXPECT_EQ(Erase(seed), Names());
    ExpectOnDisk(seed, false);
    reader.join();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

TEST_P(EraseTest, ADiskThatRefusesLeavesItPendingAndItIsTriedAgain) {
  Open();
  Put(1);
  gate_.Fail(absl::UnavailableError("EIO"));
  EXPECT_EQ(Erase(1), Names{"local"});
  ExpectOnDisk(1, true);
  EXPECT_EQ(CodeOf(store_->GetContext(kTenant, IdOf(1)).status()), ErrorCode::kContextDeleted);
  gate_.Fail({});
  store_->Housekeep();
  store_->DrainErasures();
  ExpectOnDisk(1, true);  // not at once
  clock_.AdvanceMs(60'000);
  store_->Housekeep();
  store_->DrainErasures();
  ExpectOnDisk(1, false);
}

TEST_P(EraseTest, ManyThatAskAtATimeShareARun) {
  Open();
  for (uint64_t seed = 1; seed <= 8; ++seed) Put(seed);
  gate_.Close();
  std::vector<std::future<Names>> answers;
  const auto ask = [&](uint64_t seed) {
    answers.push_back(std::async(std::launch::async, [this, seed] { return Erase(seed); }));
  };
  ask(1);
  gate_.AwaitRuns(1);
  for (uint64_t seed = 2; seed <= 8; ++seed) ask(seed);
  // Those that came meanwhile are deleted, and wait for the next run.
  for (uint64_t seed = 2; seed <= 8; ++seed) {
    while (store_->GetContext(kTenant, IdOf(seed)).ok()) std::this_thread::yield();
  }
  gate_.Open();
  for (auto& answer : answers) EXPECT_EQ(answer.get(), Names());
  for (uint64_t seed = 1; seed <= 8; ++seed) ExpectOnDisk(seed, false);
}

TEST_P(EraseTest, WhenTheStoreStopsThoseThatWaitAreToldAndTheNextLifeFinishesIt) {
  Open();
  Put(1);
  Put(2);
  gate_.Close();
  std::vector<std::future<Names>> answers;
  answers.push_back(std::async(std::launch::async, [this] { return Erase(1); }));
  gate_.AwaitRuns(1);
  std::promise<Names> second;
  ASSERT_OK(store_->EraseContext(kTenant, IdOf(2), [&](Names names) { second.set_value(std::move(names)); }));
  gate_.Fail(absl::UnavailableError("EIO"));
  std::thread stopper([this] { store_->Stop(); });
  gate_.Open();
  stopper.join();
  EXPECT_EQ(answers[0].get(), Names{"local"});
  EXPECT_EQ(second.get_future().get(), Names{"local"});
  ExpectOnDisk(1, true);
  gate_.Fail({});
  Open();
  store_->DrainErasures();
  ExpectOnDisk(1, false);
  ExpectOnDisk(2, false);
}

INSTANTIATE_TEST_SUITE_P(BackEnds, EraseTest, ::testing::Bool(), [](const auto& param) {
  return std::string(param.param ? "Extents" : "BlobFiles");
});

}  // namespace
}  // namespace epic::kv_store
