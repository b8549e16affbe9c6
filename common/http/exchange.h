// One request's way back to its connection: a whole answer, or a stream of events with a bounded buffer.
//
// The connection makes one per request and shares it with the handler, the sinks and the callbacks behind it,
// which may outlive the connection. Thread-safe; nothing here blocks. No sockets here.
#ifndef EPIC_COMMON_HTTP_EXCHANGE_H_
#define EPIC_COMMON_HTTP_EXCHANGE_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "common/base/cancel.h"
#include "common/base/mutex.h"
#include "common/http/http_message.h"

namespace epic {

class Exchange {
 public:
  // `wake` is called, under the exchange's lock, whenever the connection has something to take; it only
  // posts.
  Exchange(size_t stream_buffer_bytes, std::function<void()> wake);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // --- the handler's side, any thread

  // Cancelled once the client is gone or the stream was cut.
  CancelToken cancel_token() const { return cancel_.token(); }
  // The whole answer. Only the first of Answer and StartStream counts.
  void Answer(HttpAnswer answer) ABSL_LOCKS_EXCLUDED(mu_);
  // The head of a stream; its body is not used.
  void StartStream(HttpAnswer head) ABSL_LOCKS_EXCLUDED(mu_);
  // Appends to the stream. False when the client is gone or more than the buffer is unsent: the stream is
  // over then. REQUIRES: StartStream before, EndStream not before.
  bool Write(std::string_view bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // `code`: ok, or the name of the error that ended it; a constant.
  // `cause`: of an unexpected error, for the log.
  void EndStream(std::string_view code = "ok", std::string cause = {}) ABSL_LOCKS_EXCLUDED(mu_);

  // --- the connection's side

  struct Output {
    std::optional<HttpAnswer> head;  // once, the first time that there is one
    bool streamed = false;
    std::string bytes;      // of the stream
    bool complete = false;  // nothing will follow
    bool overflowed = false;
    std::string_view code = "ok";  // of a stream that is complete
    std::string cause;             // the same
  };
  // What came since the last call. The bytes of the call before are taken as sent.
  Output Take() ABSL_LOCKS_EXCLUDED(mu_);
  // True once Write refused for want of room: the reader has stopped.
  bool overflowed() const ABSL_LOCKS_EXCLUDED(mu_);
  // The client is gone: whatever runs for the request should end.
  void Cancel() { cancel_.Cancel(); }
  // Ends the connection's part; `wake` is never called after it returned. Cancels nothing by itself: work
  // that was accepted with a 202 goes on.
  void Detach() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void WakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Constant after construction.
  const size_t stream_buffer_bytes_;
  // Synchronises itself.
  CancelSource cancel_;
  // Guarded by mu_.
  mutable Mutex mu_;
  std::function<void()> wake_ ABSL_GUARDED_BY(mu_);
  bool woken_ ABSL_GUARDED_BY(mu_) = false;  // a wake is on its way; no second one is needed
  std::optional<HttpAnswer> head_ ABSL_GUARDED_BY(mu_);
  bool answered_ ABSL_GUARDED_BY(mu_) = false;
  bool streamed_ ABSL_GUARDED_BY(mu_) = false;
  bool complete_ ABSL_GUARDED_BY(mu_) = false;
  std::string_view code_ ABSL_GUARDED_BY(mu_) = "ok";
  std::string cause_ ABSL_GUARDED_BY(mu_);
  bool overflowed_ ABSL_GUARDED_BY(mu_) = false;
  bool detached_ ABSL_GUARDED_BY(mu_) = false;
  std::string pending_ ABSL_GUARDED_BY(mu_);
  size_t in_flight_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace epic

#endif  // EPIC_COMMON_HTTP_EXCHANGE_H_
