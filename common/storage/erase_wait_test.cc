#include "common/storage/erase_wait.h"

#include <gtest/gtest.h>

#include "common/testing/manual_timers.h"

namespace epic {
namespace {

using Names = std::vector<std::string>;

class EraseWaitTest : public ::testing::Test {
 protected:
  ErasedDone Note() {
    return [this](Names pending) { answers_.push_back(std::move(pending)); };
  }
  int64_t InMs(int64_t ms) const { return clock_.SteadyNs() + ms * 1'000'000; }

  ManualClock clock_;
  testing::ManualTimers timers_{&clock_};
  std::shared_ptr<EraseWait> wait_ = EraseWait::Make(&timers_, &clock_);
  CancelSource cancel_;
  std::vector<Names> answers_;
};

TEST_F(EraseWaitTest, TheEndIsToldWhetherItComesBeforeTheWaitOrAfterItBegan) {
  wait_->Receiver()({});
  wait_->Await(InMs(1000), cancel_.token(), Note());
  EXPECT_EQ(answers_, (std::vector<Names>{{}}));
  wait_ = EraseWait::Make(&timers_, &clock_);
  wait_->Await(InMs(1000), cancel_.token(), Note());
  EXPECT_EQ(answers_.size(), 1u);
  wait_->Receiver()({"a", "b"});
  EXPECT_EQ(answers_, (std::vector<Names>{{}, {"a", "b"}}));
  timers_.AdvanceMs(2000);
  EXPECT_EQ(answers_.size(), 2u) << "once";
}

TEST_F(EraseWaitTest, WhenItsTimeIsOverTheNodeIsPending) {
  wait_->Await(InMs(1000), cancel_.token(), Note());
  timers_.AdvanceMs(999);
  EXPECT_TRUE(answers_.empty());
  timers_.AdvanceMs(1);
  EXPECT_EQ(answers_, (std::vector<Names>{{"local"}}));
  wait_->Receiver()({});
  EXPECT_EQ(answers_.size(), 1u) << "once";
}

TEST_F(EraseWaitTest, WhoGoesAwayIsLetGoWithinASecond) {
  wait_->Await(InMs(1'000'000), cancel_.token(), Note());
  timers_.AdvanceMs(500);
  cancel_.Cancel();
  timers_.AdvanceMs(1000);
  EXPECT_EQ(answers_.size(), 1u);
}

}  // namespace
}  // namespace epic
