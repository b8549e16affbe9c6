#include "common/rpc/kv_store/byte_stream.h"

#include <chrono>

#include "common/rpc/grpc_status.h"

namespace epic {

ByteStream::ByteStream(const StoreChannel& channel, const std::string& method, int64_t call_ms)
    : stub_(channel.channel()) {
  context_.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(call_ms));
  call_ = stub_.PrepareCall(&context_, "/epic.v1.KvStoreService/" + method, &queue_);
  call_->StartCall(this);
  Await();
}

ByteStream::~ByteStream() {
  if (!finished_) {
    context_.TryCancel();
    grpc::Status status;
    call_->Finish(&status, this);
    Await();
  }
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

bool ByteStream::Await() {
  void* tag = nullptr;
  bool ok = false;
  return queue_.Next(&tag, &ok) && ok;
}

bool ByteStream::Write(const grpc::ByteBuffer& bytes) {
  call_->Write(bytes, this);
  return Await();
}

bool ByteStream::WritesDone() {
  call_->WritesDone(this);
  return Await();
}

bool ByteStream::Read(grpc::ByteBuffer* bytes) {
  call_->Read(bytes, this);
  return Await();
}

absl::Status ByteStream::Finish() {
  grpc::Status status;
  call_->Finish(&status, this);
  Await();
  finished_ = true;
  return FromGrpcStatus(status);
}

}  // namespace epic
