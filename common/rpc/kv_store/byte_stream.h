// One stream of a store node as bytes, driven by the thread that owns it: for layers, which are not copied
// into messages. Not thread-safe.
#ifndef EPIC_COMMON_RPC_KV_STORE_BYTE_STREAM_H_
#define EPIC_COMMON_RPC_KV_STORE_BYTE_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/rpc/kv_store/store_channel.h"

namespace epic {

class ByteStream {
 public:
  // Begins the call. `call_ms`: its deadline.
  ByteStream(const StoreChannel& channel, const std::string& method, int64_t call_ms);
  // Cancels what is not finished.
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  // False: the call is over; Finish says why.
  bool Write(const grpc::ByteBuffer& bytes);
  bool WritesDone();
  // False: no more.
  bool Read(grpc::ByteBuffer* bytes);
  // Once. REQUIRES: Read said false, or a write did.
  absl::Status Finish();

 private:
  // Waits for the one operation that runs.
  bool Await();

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool finished_ = false;
};

}  // namespace epic

#endif  // EPIC_COMMON_RPC_KV_STORE_BYTE_STREAM_H_
