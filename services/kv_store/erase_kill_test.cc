// A process that is killed while it erases what was deleted: the next life finishes it without being asked.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/testing/erase_store.h"

namespace epic::kv_store {
namespace {

// Of a process that puts two contexts, erases the first, and is killed on the way: before the tables are
// reclaimed, or behind that.
pid_t BeginAndDie(EraseStore* store, bool before) {
  const pid_t child = fork();
  if (child != 0) return child;
  store->Open();
  store->Put(1);
  store->Put(2);
  const std::function<void()> die = [] { raise(SIGKILL); };
  store->gate_.SetHooks(before ? die : nullptr, before ? nullptr : die);
  store->Erase(1);
  _exit(1);
}

// All processes are made before this one has threads.
TEST(EraseKillTest, AKillInTheMiddleIsMadeGoodByTheNextLifeWithoutBeingAsked) {
  epic::testing::TempDir temp;
  struct Case {
    bool before;
    std::unique_ptr<EraseStore> store;
    pid_t child = 0;
  };
  std::vector<Case> cases;
  for (const bool extents : {true, false}) {
    for (const bool before : {true, false}) {
      const std::string dir = temp.path() + "/" + std::to_string(cases.size());
      cases.push_back({.before = before, .store = std::make_unique<EraseStore>(dir, extents)});
    }
  }
  for (Case& each : cases) each.child = BeginAndDie(each.store.get(), each.before);
  for (const Case& each : cases) {
    int status = 0;
    ASSERT_EQ(waitpid(each.child, &status, 0), each.child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  }
  for (const Case& each : cases) {
    EraseStore& store = *each.store;
    SCOPED_TRACE("case " + std::to_string(&each - cases.data()));
    if (each.before) store.ExpectOnDisk(1, true);
    store.Open();
    store.store_->DrainErasures();
    store.ExpectOnDisk(1, false);
    store.ExpectOnDisk(2, true);
    EXPECT_EQ(CodeOf(store.store_->GetContext(store.kTenant, store.IdOf(1)).status()),
              ErrorCode::kContextDeleted);
    const auto hit = store.store_->Acquire(store.kTenant, {store.IdOf(2), {}}, store.large_);
    ASSERT_OK(hit);
    ASSERT_NE(hit->object, nullptr);
    EXPECT_TRUE(Holds(*hit->object, 2));
    EXPECT_EQ(*store.store_->GetNodeRow(EraseRowName(1)), std::nullopt) << "done once";
  }
}

}  // namespace
}  // namespace epic::kv_store
