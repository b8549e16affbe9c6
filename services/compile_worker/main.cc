// epic-compile-worker: compiles contexts for routers and link workers, and puts the KV objects to a store.
// Serves until SIGINT or SIGTERM, then drains and exits with 0.
#include "common/process/part_process.h"
#include "services/compile_worker/compile_server.h"

int main(int argc, char** argv) {
  return epic::RunPart({.name = "epic-compile-worker",
                        .about = "A compile worker of EPIC: turns contexts into KV objects",
                        .flags = {"--model", "--grpc", "--admin", "--insecure"},
                        .start = &epic::StartCompileServer},
                       argc, argv);
}
