#include "services/link_worker/rpc/link_rpc_service.h"

#include <memory>
#include <utility>

#include "common/rpc/event_stream.h"
#include "services/link_worker/rpc/link_convert.h"

namespace epic {
namespace {

using Stream = EventStream<v1::LinkEvent>;

// What the core tells of one call, onto its stream.
class StreamEvents final : public LinkEvents {
 public:
  explicit StreamEvents(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}
  void OnAdmitted(std::optional<uint32_t> planned_recomputed) override {
    stream_->Push(AdmittedEvent(planned_recomputed));
  }
  bool OnDelta(LinkDelta delta) override { return stream_->Push(ToProto(delta)); }
  void OnFinish(uint32_t choice, FinishReason reason) override { stream_->Push(FinishEvent(choice, reason)); }
  void OnDone(const absl::Status& status, const LinkUsage& usage, const LinkTimings& timings) override {
    if (status.ok()) stream_->Push(DoneEvent(usage, timings));
    stream_->End(status);
  }

 private:
  const std::shared_ptr<Stream> stream_;
};

}  // namespace

grpc::ServerWriteReactor<v1::LinkEvent>* LinkRpcService::Link(grpc::CallbackServerContext* context,
                                                              const v1::LinkPromptRequest* request) {
  auto stream = Stream::Make(parts_, context, "link", max_buffer_bytes_);
  absl::StatusOr<LinkJob> job = JobFromProto(*request, model_identity_);
  if (!job.ok()) {
    stream->End(job.status());
    return stream.get();
  }
  job->received_steady_ns = stream->scope().received_steady_ns;
  job->cancel = stream->scope().cancel;
  const bool taken = parts_->executor->TrySubmit([this, stream, job = *std::move(job)]() mutable {
    const std::shared_ptr<LinkCall> call =
        linker_->Link(std::move(job), std::make_shared<StreamEvents>(stream));
    stream->OnCancelDo([call] { call->Cancel(); });
  });
  if (!taken) stream->End(DoorIsFull());
  return stream.get();
}

}  // namespace epic
