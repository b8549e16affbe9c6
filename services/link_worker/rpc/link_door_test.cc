// The door against a client on loopback, with a linker that does what the test says.
#include "services/link_worker/rpc/link_door.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/status/error.h"
#include "epic/v1/link.grpc.pb.h"

namespace epic {
namespace {

constexpr int kBoundS = 20;

class NoCall final : public LinkCall {
 public:
  void Cancel() override {}
};

// Fetches objects of a prompt until its client is gone.
class FetchingLinker final : public Linker {
 public:
  std::shared_ptr<LinkCall> Link(LinkJob job, std::shared_ptr<LinkEvents> events) override {
    {
      MutexLock lock(&mu_);
      begun_ = true;
      changed_.SignalAll();
    }
    const int64_t end_ns = SystemClock::Get()->SteadyNs() + int64_t{kBoundS} * 1'000'000'000;
    bool gone = false;
    while (!gone && SystemClock::Get()->SteadyNs() < end_ns) {
      std::this_thread::yield();
      gone = job.cancel.cancelled();
    }
    {
      MutexLock lock(&mu_);
      saw_cancel_ = gone;
      changed_.SignalAll();
    }
    events->OnDone(Error(gone ? ErrorCode::kClientGone : ErrorCode::kInternal, "the end"), {}, {});
    return std::make_shared<NoCall>();
  }

  void WaitUntilBegun() {
    MutexLock lock(&mu_);
    while (!begun_) changed_.Wait(&mu_);
  }
  bool SawCancel() {
    MutexLock lock(&mu_);
    return saw_cancel_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool begun_ ABSL_GUARDED_BY(mu_) = false;
  bool saw_cancel_ ABSL_GUARDED_BY(mu_) = false;
};

TEST(LinkDoorTest, ALinkerThatFetchesHearsThatTheClientIsGone) {
  FetchingLinker linker;
  auto door = LinkDoor::Start({.drain_ms = kBoundS * 1000}, &linker, Digest());
  ASSERT_TRUE(door.ok()) << door.status();
  const auto stub = v1::LinkWorkerService::NewStub(grpc::CreateChannel(
      "127.0.0.1:" + std::to_string((*door)->port()), grpc::InsecureChannelCredentials()));
  v1::LinkPromptRequest request;
  request.set_tenant("default");
  request.set_strategy("full");
  v1::PromptPiece* piece = request.add_pieces();
  piece->set_kind(v1::PromptPiece::KIND_TEXT);
  piece->add_tokens(1);
  request.mutable_sampling()->set_top_p(1);
  request.mutable_sampling()->set_repetition_penalty(1);
  request.set_choices(1);
  request.set_max_tokens(1);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(kBoundS));
  const auto stream = stub->Link(&context, request);
  linker.WaitUntilBegun();
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  (*door)->Stop();  // waits for the linker
  EXPECT_TRUE(linker.SawCancel());
}

}  // namespace
}  // namespace epic
