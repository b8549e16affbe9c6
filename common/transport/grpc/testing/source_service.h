// ReadLayers and Confirm of a store node over a KvSource, a thread for each call: the other end of the grpc
// path in its tests. The real one is services/kv_store/rpc. Thread-safe. Tests only.
#ifndef EPIC_COMMON_TRANSPORT_GRPC_TESTING_SOURCE_SERVICE_H_
#define EPIC_COMMON_TRANSPORT_GRPC_TESTING_SOURCE_SERVICE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "common/base/crc32c.h"
#include "common/base/mutex.h"
#include "common/rpc/kv_store/item_status.h"
#include "common/transport/kv_source.h"
#include "epic/v1/kv_store.grpc.pb.h"

namespace epic::transport {

class SourceService final : public v1::KvStoreService::Service {
 public:
  // `source` outlives it.
  explicit SourceService(KvSource* source) : source_(source) {}

  grpc::Status ReadLayers(grpc::ServerContext* context, const v1::ReadLayersRequest* request,
                          grpc::ServerWriter<v1::LayerPart>* writer) override {
    const auto object = source_->Open(
        {.incarnation = request->incarnation(), .holder = request->peer(), .number = request->lease()});
    if (!object.ok()) return ToStoreGrpcStatus(object.status());
    const uint32_t layers = (*object)->layout().layers;
    const uint32_t end = request->layers() == 0 ? layers : request->first_layer() + request->layers();
    if (end > layers) return {grpc::StatusCode::INVALID_ARGUMENT, "no such layers"};
    for (uint32_t layer = request->first_layer(); layer < end; ++layer) {
      const absl::Status status = WaitLayer(object->get(), layer, context);
      if (!status.ok()) return ToStoreGrpcStatus(status);
      if (!Send(**object, layer, writer)) return grpc::Status::CANCELLED;
    }
    return grpc::Status::OK;
  }

  grpc::Status Confirm(grpc::ServerContext*, const v1::ConfirmRequest* request,
                       v1::LeaseStatesResponse* response) override {
    response->set_incarnation(source_->incarnation());
    for (const uint64_t number : request->leases().numbers()) {
      const auto object = source_->Open(
          {.incarnation = request->leases().incarnation(), .holder = request->peer(), .number = number});
      response->add_held(object.ok() && (*object)->StillLeased());
    }
    return grpc::Status::OK;
  }

 private:
  static constexpr uint64_t kPartBytes = uint64_t{1} << 20;
  static constexpr int64_t kLookMs = 2;

  static absl::Status WaitLayer(SourceObject* object, uint32_t layer, grpc::ServerContext* context) {
    struct Waiting {
      Mutex mu;
      CondVar changed;
      std::optional<absl::Status> status ABSL_GUARDED_BY(mu);
    };
    auto waiting = std::make_shared<Waiting>();
    object->WhenLayer(layer, [waiting](const absl::Status& status) {
      MutexLock lock(&waiting->mu);
      waiting->status = status;
      waiting->changed.SignalAll();
    });
    MutexLock lock(&waiting->mu);
    while (!waiting->status.has_value()) {
      if (context->IsCancelled()) return CancelledStatus();
      waiting->changed.WaitForMs(&waiting->mu, kLookMs);
    }
    return *waiting->status;
  }

  static bool Send(const SourceObject& object, uint32_t layer, grpc::ServerWriter<v1::LayerPart>* writer) {
    const ByteSpan slab = object.Layer(layer);
    for (uint64_t at = 0; at < slab.size(); at += kPartBytes) {
      const ByteSpan data = slab.subspan(at, std::min(kPartBytes, slab.size() - at));
      v1::LayerPart part;
      part.set_layer(layer);
      part.set_offset(at);
      if (at == 0) {
        for (const uint32_t crc : object.LayerCrcs(layer)) part.add_block_crcs(crc);
      }
      part.set_data_crc32c(Crc32c(0, data));
      part.set_data(data.data(), data.size());
      if (!writer->Write(part)) return false;
    }
    return true;
  }

  KvSource* const source_;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_GRPC_TESTING_SOURCE_SERVICE_H_
