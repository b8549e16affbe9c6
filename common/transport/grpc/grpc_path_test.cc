#include "common/transport/grpc/grpc_path.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>

#include "common/base/timers.h"
#include "common/testing/paths.h"
#include "common/transport/grpc/testing/source_service.h"
#include "common/transport/testing/transport_contract.h"

namespace epic::transport {
namespace {

class GrpcSetup {
 public:
  static constexpr bool kLayerWise = true;
  static constexpr bool kTellsCrcs = true;
  static constexpr bool kAnyOrder = false;

  explicit GrpcSetup(PeerDownFn peer_down)
      : path_(
            MakeGrpcPath({.channel = std::make_shared<StoreChannel>(StoreChannelOptions{.address = address_}),
                          .peer_down = std::move(peer_down)})) {}
  ~GrpcSetup() { Die(); }
  void Serve(std::shared_ptr<TestSource> source) {
    source_ = std::move(source);
    service_ = std::make_unique<SourceService>(source_.get());
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    EPIC_CHECK(server_ != nullptr);
  }
  void Die() {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
    service_.reset();
  }
  Path* path() { return path_.get(); }
  void DropPath() { path_.reset(); }
  std::shared_ptr<const Region> Grant(std::shared_ptr<const Region> region) { return region; }

 private:
  testing::TempDir folder_;
  const std::string address_ = "unix:" + folder_.path() + "/g";
  std::shared_ptr<TestSource> source_;
  std::unique_ptr<SourceService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Path> path_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Grpc, TransportContract, GrpcSetup);

}  // namespace
}  // namespace epic::transport
