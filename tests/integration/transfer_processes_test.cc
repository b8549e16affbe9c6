// KV objects on their way from a store process to workers, by each path that the settings can name: the same
// answers, by that path and no other; and whatever becomes of the store or of a reader meanwhile, a right
// answer or a clear error in time, and all of it usable afterwards. Skipped where the model's file is absent.
#include <signal.h>

#include <atomic>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "tests/integration/worker_cluster.h"

namespace epic {
namespace {

constexpr int64_t kNsPerS = 1'000'000'000;

// Lets so much time go by.
void Pass(int64_t ms) {
  Mutex mu;
  CondVar never;
  const int64_t end_ns = SystemClock::Get()->SteadyNs() + ms * 1'000'000;
  MutexLock lock(&mu);
  while (SystemClock::Get()->SteadyNs() < end_ns) {
    never.WaitForMs(&mu, (end_ns - SystemClock::Get()->SteadyNs()) / 1'000'000 + 1);
  }
}

// The sum of all series of a metric whose labels have each of these.
double Sum(const std::string& text, const std::string& name, const std::vector<std::string>& labels) {
  double sum = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + "{") && !line.starts_with(name + " ")) continue;
    bool has_all = true;
    for (const std::string& label : labels) has_all = has_all && line.find(label) != std::string::npos;
    if (has_all) sum += std::stod(line.substr(line.rfind(' ') + 1));
  }
  return sum;
}
double Brought(const Part& part, const std::string& path) {
  return Sum(part.Metrics(), "epic_transfer_bytes_total", {"path=\"" + path + "\"", "class=\"fetch\""});
}

class TransferProcesses : public WorkerCluster, public ::testing::WithParamInterface<std::string> {
 protected:
  using WorkerCluster::WorkerCluster;

  // A context with an object at the store, and its answer in one process.
  void Prepare() {
    const auto created = remote_->CreateContext(one_->ContextOf(context_));
    ASSERT_OK(created);
    ASSERT_OK(one_->parts().store->CreateContext(one_->ContextOf(context_)));
    key_ = Key(created->record.id);
    ASSERT_OK(Compile(key_));
    ASSERT_OK(LinkInOneProcess(key_, "legolink-16").status);  // compiles it there, too
    want_ = LinkInOneProcess(key_, "legolink-16");
    ASSERT_OK(want_.status);
    layout_ = one_->parts().engine->LayoutOf(static_cast<uint32_t>(context_.size()), 0);
  }
  double ObjectBytes() const { return static_cast<double>(layout_.TotalBytes()); }
  static bool Soon(const std::function<bool()>& condition) {
    const int64_t end_ns = SystemClock::Get()->SteadyNs() + int64_t{kBoundS} * kNsPerS;
    while (!condition()) {
      if (SystemClock::Get()->SteadyNs() > end_ns) return false;
      Pass(20);
    }
    return true;
  }
  // Right, or an error that is not that of our own patience.
  void ExpectRightOrClear(const Answer& answer, int64_t began_ns) {
    EXPECT_LT(SystemClock::Get()->SteadyNs() - began_ns, 40 * kNsPerS);
    if (answer.status.ok()) {
      EXPECT_EQ(answer.tokens, want_.tokens);
      EXPECT_EQ(answer.logprobs, want_.logprobs);
      return;
    }
    EXPECT_FALSE(answer.status.message().empty());
    EXPECT_FALSE(absl::IsInternal(answer.status)) << answer.status;
    EXPECT_FALSE(absl::IsUnknown(answer.status)) << answer.status;
  }
  // Answers, from the store again, and nothing of a transfer is left there.
  void ExpectUsableAndAtRest() {
    Answer last;
    EXPECT_TRUE(Soon([&] {
      last = Link(Prompt(key_, "legolink-16"));
      return last.status.ok();
    })) << last.status;
    EXPECT_EQ(last.tokens, want_.tokens);
    EXPECT_EQ(last.logprobs, want_.logprobs);
    EXPECT_TRUE(Soon([&] {
      const std::string metrics = store_->Metrics();
      return Sum(metrics, "epic_store_leases", {}) == 0 &&
             Sum(metrics, "epic_store_layer_streams", {}) == 0 &&
             Sum(metrics, "epic_store_reservations", {}) == 0;
    })) << store_->Metrics();
  }

  ObjectKey key_;
  KvLayout layout_;
  Answer want_;
};

class TransferPathsTest : public TransferProcesses {
 protected:
  TransferPathsTest() : TransferProcesses({"transport.paths=" + GetParam()}) {}
};

TEST_P(TransferPathsTest, AnswersAreThoseOfOneProcessAndTheBytesCameThatWay) {
  Prepare();
  for (int i = 0; i < 3; ++i) ExpectSame(Link(Prompt(key_, "legolink-16")), want_);
  ExpectSame(Link(Prompt(key_, "naive")), LinkInOneProcess(key_, "naive"));
  for (const std::string path : {"shm", "ucx", "grpc"}) {
    EXPECT_EQ(Brought(*link_, path), path == GetParam() ? 4 * ObjectBytes() : 0) << path;
    const double sent = Sum(store_->Metrics(), "epic_transfer_sent_bytes_total", {"path=\"" + path + "\""});
    EXPECT_EQ(sent, path == GetParam() && path != "shm" ? 4 * ObjectBytes() : 0) << path;
  }
  ExpectUsableAndAtRest();
  EXPECT_EQ(link_->End(SIGTERM), 0);
  EXPECT_EQ(compile_->End(SIGTERM), 0);
  EXPECT_EQ(store_->End(SIGTERM), 0);
}

INSTANTIATE_TEST_SUITE_P(Paths, TransferPathsTest, ::testing::Values("shm", "ucx", "grpc"),
                         [](const auto& info) { return info.param; });

// So slow that an object takes some seconds.
class TransferFaultsTest : public TransferProcesses {
 protected:
  TransferFaultsTest()
      : TransferProcesses({"transport.paths=" + GetParam(), "transport.link_bytes=1MiB",
                           "transport.prefetch_bytes=1MiB"}) {}

  // Links, and has `act` called while the object is on its way.
  void LinkWhile(const std::function<void()>& act) {
    const double before = Brought(*link_, GetParam());
    const int64_t began_ns = SystemClock::Get()->SteadyNs();
    std::atomic<bool> over{false};
    Answer answer;
    std::thread caller([&] {
      answer = Link(Prompt(key_, "legolink-16"));
      over = true;
    });
    EXPECT_TRUE(Soon([&] { return over || Brought(*link_, GetParam()) > before; }));
    EXPECT_LT(Brought(*link_, GetParam()), before + ObjectBytes()) << "too late";
    act();
    caller.join();
    ExpectRightOrClear(answer, began_ns);
  }
};

TEST_P(TransferFaultsTest, AStoreThatIsKilledAmidATransferIsFoundAgain) {
  Prepare();
  const std::string place = store_->grpc;
  for (int round = 0; round < 2; ++round) {
    LinkWhile([&] {
      EXPECT_EQ(store_->End(SIGKILL), -SIGKILL);
      StartStore(place);
    });
    ExpectUsableAndAtRest();
  }
  EXPECT_EQ(link_->End(SIGTERM), 0);
}

TEST_P(TransferFaultsTest, AStoreThatStandsStillForAWhileHoldsNobodyForLonger) {
  Prepare();
  LinkWhile([&] {
    store_->Signal(SIGSTOP);
    Pass(4000);
    store_->Signal(SIGCONT);
  });
  ExpectUsableAndAtRest();
  EXPECT_EQ(link_->End(SIGTERM), 0);
  EXPECT_EQ(store_->End(SIGTERM), 0);
}

TEST_P(TransferFaultsTest, AReaderThatIsKilledOrStandsStillLeavesNothingAtTheStore) {
  Prepare();
  LinkWhile([&] {
    link_->Signal(SIGSTOP);
    Pass(3000);
    link_->Signal(SIGCONT);
  });
  LinkWhile([&] { EXPECT_EQ(link_->End(SIGKILL), -SIGKILL); });
  StartLinkWorker();
  ExpectUsableAndAtRest();
  EXPECT_EQ(store_->End(SIGTERM), 0);
}

INSTANTIATE_TEST_SUITE_P(Paths, TransferFaultsTest, ::testing::Values("shm", "ucx", "grpc"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace epic
