#include "common/rpc/grpc_runtime.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>

#include "common/rpc/credentials.h"

namespace epic {
namespace {

// All that holds the channel, the call itself included.
struct LastCall {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<grpc::GenericStub> stub;
  grpc::ClientContext context;
  grpc::Slice empty;
  grpc::ByteBuffer nothing{&empty, 1};
  grpc::ByteBuffer answer;
};

TEST(GrpcRuntimeTest, TheLastChannelMayEndInTheEndOfItsCall) {
  for (int i = 0; i < 50; ++i) {
    auto call = std::make_unique<LastCall>();
    call->channel = MakeChannel("127.0.0.1:1", nullptr, grpc::ChannelArguments());
    call->stub = std::make_unique<grpc::GenericStub>(call->channel);
    call->channel = nullptr;
    auto over = std::make_shared<std::promise<void>>();
    LastCall* const last = call.release();
    last->stub->UnaryCall(&last->context, "/epic.v1.Nothing/Nothing", grpc::StubOptions(), &last->nothing,
                          &last->answer, [last, over](const grpc::Status& status) {
                            EXPECT_FALSE(status.ok());
                            delete last;
                            over->set_value();
                          });
    over->get_future().wait();
  }
}

}  // namespace
}  // namespace epic
