// epic-link-worker: links prompts of contexts and text for routers, and decodes. Serves until SIGINT or
// SIGTERM, then drains and exits with 0.
#include "common/process/part_process.h"
#include "services/link_worker/link_server.h"

int main(int argc, char** argv) {
  return epic::RunPart({.name = "epic-link-worker",
                        .about = "A link worker of EPIC: links contexts and text, and decodes",
                        .flags = {"--model", "--model-alias", "--grpc", "--admin", "--insecure"},
                        .start = &epic::StartLinkServer},
                       argc, argv);
}
