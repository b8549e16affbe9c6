#include "common/http/exchange.h"

#include <utility>

namespace epic {

Exchange::Exchange(size_t stream_buffer_bytes, std::function<void()> wake)
    : stream_buffer_bytes_(stream_buffer_bytes), wake_(std::move(wake)) {}

void Exchange::WakeLocked() {
  if (detached_ || woken_ || !wake_) return;
  woken_ = true;
  wake_();
}

void Exchange::Answer(HttpAnswer answer) {
  MutexLock lock(&mu_);
  if (answered_ || detached_) return;
  answered_ = true;
  complete_ = true;
  head_ = std::move(answer);
  WakeLocked();
}

void Exchange::StartStream(HttpAnswer head) {
  MutexLock lock(&mu_);
  if (answered_ || detached_) return;
  answered_ = true;
  streamed_ = true;
  head_ = std::move(head);
  WakeLocked();
}

bool Exchange::Write(std::string_view bytes) {
  MutexLock lock(&mu_);
  if (detached_ || overflowed_ || complete_ || !streamed_) return false;
  const size_t unsent = pending_.size() + in_flight_bytes_;
  // One event always fits into an empty buffer, so that a small bound cannot make a stream impossible.
  if (unsent > 0 && unsent + bytes.size() > stream_buffer_bytes_) {
    overflowed_ = true;
    cancel_.Cancel();
    woken_ = false;  // a wake may wait for a write to end, and that write for the reader
    WakeLocked();
    return false;
  }
  pending_.append(bytes);
  WakeLocked();
  return true;
}

void Exchange::EndStream(std::string_view code, std::string cause) {
  MutexLock lock(&mu_);
  if (!streamed_ || complete_) return;
  code_ = code;
  cause_ = std::move(cause);
  complete_ = true;
  WakeLocked();
}

Exchange::Output Exchange::Take() {
  MutexLock lock(&mu_);
  woken_ = false;
  Output output;
  output.head = std::exchange(head_, std::nullopt);
  output.streamed = streamed_;
  output.bytes = std::exchange(pending_, std::string());
  output.complete = complete_;
  output.overflowed = overflowed_;
  output.code = code_;
  output.cause = cause_;
  in_flight_bytes_ = output.bytes.size();
  return output;
}

bool Exchange::overflowed() const {
  MutexLock lock(&mu_);
  return overflowed_;
}

void Exchange::Detach() {
  MutexLock lock(&mu_);
  detached_ = true;
  wake_ = nullptr;
  pending_ = std::string();
}

}  // namespace epic
