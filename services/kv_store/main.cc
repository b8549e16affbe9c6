// epic-kv-store: one node of the KV store as a process. Serves until SIGINT or SIGTERM, then drains and exits
// with 0.
#include "common/process/part_process.h"
#include "services/kv_store/store_server.h"

int main(int argc, char** argv) {
  return epic::RunPart({.name = "epic-kv-store",
                        .about = "A node of EPIC's KV store: context records and KV objects over gRPC",
                        .flags = {"--grpc", "--admin", "--insecure", "--data-dir"},
                        .start = &epic::kv_store::StartStoreServer},
                       argc, argv);
}
