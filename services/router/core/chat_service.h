// ChatApi: checks a request, builds its prompt, has it linked and reports to the door.
//
// State: none but the random numbers for ids and seeds; each request is a ChatTask that lives in the
// executor, the registry and the linker until it ends. Complete never blocks. Thread-safe.
#ifndef EPIC_SERVICES_ROUTER_CORE_CHAT_SERVICE_H_
#define EPIC_SERVICES_ROUTER_CORE_CHAT_SERVICE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "common/base/digest.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/metrics/metrics.h"
#include "services/router/core/api.h"
#include "services/router/core/router_parts.h"

namespace epic {

class ChatService final : public ChatApi {
 public:
  // `seed` begins the sequence of ids and of seeds where a request has none.
  ChatService(const RouterParts& parts, uint64_t seed);
  void Complete(const RequestScope& scope, ChatRequest request, std::shared_ptr<ChatSink> sink) override;

  // Covers the model, the build, the arithmetic, the strategy and the compile prefix that the request names:
  // the same fingerprint, seed and prompt give the same answer.
  static std::string Fingerprint(const RouterParts& parts, const LinkStrategy& strategy,
                                 const Digest& named_prefix);

 private:
  class ChatTask;
  // What tasks share. Members synchronise themselves.
  struct Shared {
    Shared(const RouterParts& parts, uint64_t seed);
    uint64_t NextRandom();
    void Observe(const absl::Status& status, const LinkUsage& usage, const LinkTimings& timings,
                 uint32_t choices, int64_t took_ns) const;

    const RouterParts parts;
    Mutex mu;
    Rng rng ABSL_GUARDED_BY(mu);
    struct Series {
      Histogram duration, ttft, tpot, queue, fetch, decide, link, decode;
      Counter cached, recomputed, fresh, generated;
    };
    std::optional<Series> series;  // none without metrics
  };
  const std::shared_ptr<Shared> shared_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_CORE_CHAT_SERVICE_H_
