#include "services/router/rpc/chat_service.h"

#include <memory>
#include <utility>

#include "common/rpc/event_stream.h"
#include "services/router/rpc/convert.h"

namespace epic {
namespace {

using Stream = EventStream<v1::ChatEvent>;

// What the core tells of one chat, onto its stream.
class StreamSink final : public ChatSink {
 public:
  explicit StreamSink(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}
  void OnStart(const ChatStart& start) override { stream_->Push(ToProto(start)); }
  bool OnDelta(ChatDelta delta) override { return stream_->Push(ToProto(delta)); }
  void OnFinish(uint32_t choice, const std::string& reason) override {
    v1::ChatEvent event;
    event.mutable_finish()->set_choice(choice);
    event.mutable_finish()->set_reason(reason);
    stream_->Push(std::move(event));
  }
  void OnDone(const absl::Status& status, const ChatUsage& usage, const ChatTimings& timings) override {
    if (status.ok()) stream_->Push(DoneEvent(usage, timings));
    stream_->End(status);
  }

 private:
  const std::shared_ptr<Stream> stream_;
};

}  // namespace

grpc::ServerWriteReactor<v1::ChatEvent>* ChatRpcService::Complete(grpc::CallbackServerContext* context,
                                                                  const v1::ChatRequest* request) {
  auto stream = Stream::Make(parts_, context, "chat", max_buffer_bytes_);
  absl::StatusOr<ChatRequest> parsed = FromProto(*request);
  if (!parsed.ok()) {
    stream->End(parsed.status());
  } else {
    chat_->Complete(stream->scope(), std::move(parsed).value(), std::make_shared<StreamSink>(stream));
  }
  return stream.get();
}

}  // namespace epic
