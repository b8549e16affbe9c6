#include "common/rpc/kv_store/attachment.h"

#include <vector>

#include "common/base/clock.h"
#include "epic/v1/kv_store.grpc.pb.h"

namespace epic {
namespace {

constexpr int64_t kRetryMs = 200;

}  // namespace

Attachment::Attachment(std::shared_ptr<StoreChannel> channel, ObjectClient* objects, int64_t heartbeat_ms)
    : channel_(std::move(channel)),
      objects_(objects),
      heartbeat_ms_(heartbeat_ms),
      attacher_([this] { AttachLoop(); }),
      heart_([this] { HeartbeatLoop(); }) {}

Attachment::Node Attachment::node() const {
  MutexLock lock(&mu_);
  return node_;
}

void Attachment::AwaitLife(uint64_t incarnation, int64_t ms) const {
  const Clock* const clock = SystemClock::Get();
  const int64_t end_ns = clock->SteadyNs() + ms * 1'000'000;
  MutexLock lock(&mu_);
  while (node_.incarnation != incarnation && !stopping_) {
    const int64_t left_ms = (end_ns - clock->SteadyNs()) / 1'000'000;
    if (left_ms <= 0) return;
    told_.WaitForMs(&mu_, left_ms);
  }
}

void Attachment::KeepAlive(const std::string& token) {
  MutexLock lock(&mu_);
  tokens_.insert(token);
}

void Attachment::LetGo(const std::string& token) {
  MutexLock lock(&mu_);
  tokens_.erase(token);
}

void Attachment::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    if (running_ != nullptr) running_->TryCancel();
    changed_.SignalAll();
    told_.SignalAll();
  }
  if (attacher_.joinable()) attacher_.join();
  if (heart_.joinable()) heart_.join();
}

bool Attachment::Pause(int64_t ms) {
  MutexLock lock(&mu_);
  if (!stopping_) changed_.WaitForMs(&mu_, ms);
  return !stopping_;
}

void Attachment::AttachLoop() {
  v1::AttachRequest request;
  request.set_peer(objects_->peer());
  do {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    {
      MutexLock lock(&mu_);
      if (stopping_) return;
      running_ = &context;
    }
    const auto stream = channel_->stub()->Attach(&context, request);
    v1::AttachResponse answer;
    while (stream->Read(&answer)) {
      MutexLock lock(&mu_);
      node_ = {.incarnation = answer.incarnation(),
               .boot_id = answer.hand_over().boot_id(),
               .hand_over_socket = answer.hand_over().socket()};
      told_.SignalAll();
    }
    const grpc::Status ended = stream->Finish();
    MutexLock lock(&mu_);
    node_ = {};
    running_ = nullptr;
  } while (Pause(kRetryMs));
}

void Attachment::HeartbeatLoop() {
  while (Pause(heartbeat_ms_)) {
    std::vector<std::string> tokens;
    {
      MutexLock lock(&mu_);
      tokens.assign(tokens_.begin(), tokens_.end());
    }
    constexpr size_t kBatch = 1024;
    for (size_t at = 0; at < tokens.size(); at += kBatch) {
      const auto batch = std::span(tokens).subspan(at, std::min(kBatch, tokens.size() - at));
      const auto alive = objects_->Heartbeat(batch);
      if (!alive.ok()) break;  // the next one tells; a writer notices at its own calls
      for (size_t i = 0; i < batch.size(); ++i) {
        if (!(*alive)[i]) LetGo(batch[i]);
      }
    }
  }
}

}  // namespace epic
