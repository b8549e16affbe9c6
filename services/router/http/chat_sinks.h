// The two ways a chat answer goes out: whole, or as a stream of events. Each is the ChatSink of one request.
//
// Called by the core on any thread, one call at a time; held by the core until OnDone. Never blocks: events
// go into the Exchange's bounded buffer.
#ifndef EPIC_SERVICES_ROUTER_HTTP_CHAT_SINKS_H_
#define EPIC_SERVICES_ROUTER_HTTP_CHAT_SINKS_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/http/exchange.h"
#include "services/router/core/api.h"
#include "services/router/http/json_answers.h"

namespace epic {

struct ChatSinkOptions {
  bool include_usage = false;
  bool logprobs = false;
  int64_t retry_after_ms = 1000;
};

class WholeChatSink final : public ChatSink {
 public:
  WholeChatSink(std::shared_ptr<Exchange> exchange, ChatSinkOptions options)
      : exchange_(std::move(exchange)), options_(options) {}

  void OnStart(const ChatStart& start) override;
  bool OnDelta(ChatDelta delta) override;
  void OnFinish(uint32_t choice, const std::string& reason) override;
  void OnDone(const absl::Status& status, const ChatUsage& usage, const ChatTimings& timings) override;

 private:
  const std::shared_ptr<Exchange> exchange_;
  const ChatSinkOptions options_;
  // One caller at a time.
  std::optional<ChatStart> start_;
  std::vector<ChatChoice> choices_;
};

class StreamChatSink final : public ChatSink {
 public:
  StreamChatSink(std::shared_ptr<Exchange> exchange, ChatSinkOptions options)
      : exchange_(std::move(exchange)), options_(options) {}

  void OnStart(const ChatStart& start) override;
  bool OnDelta(ChatDelta delta) override;
  // The last choice's finish is held until OnDone, which brings the timings it carries.
  void OnFinish(uint32_t choice, const std::string& reason) override;
  void OnDone(const absl::Status& status, const ChatUsage& usage, const ChatTimings& timings) override;

 private:
  bool Send(const std::string& data);

  const std::shared_ptr<Exchange> exchange_;
  const ChatSinkOptions options_;
  // One caller at a time.
  std::optional<ChatStart> start_;
  uint32_t finished_ = 0;
  std::optional<std::pair<uint32_t, std::string>> held_finish_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_HTTP_CHAT_SINKS_H_
