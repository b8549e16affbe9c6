// Requests of the simulation of scale: documents by Zipf's law, several contexts of them in each request. A
// seed gives the same requests whoever they are routed by. One thread at a time. Benches and tests only.
#ifndef EPIC_SERVICES_ROUTER_PLACEMENT_BENCH_SIM_TRACE_H_
#define EPIC_SERVICES_ROUTER_PLACEMENT_BENCH_SIM_TRACE_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>

#include "common/base/random.h"
#include "services/router/placement/place_types.h"

namespace epic::router {

using ContextNumber = uint32_t;

struct TraceOptions {
  uint32_t contexts = 10'000'000;
  uint32_t contexts_per_document = 8;
  uint32_t documents_per_request = 2;  // on average: from 1 to twice as many, less one
  uint32_t taken_of_document = 2;      // contexts, any of the document's
  double zipf = 0.9;                   // exponent of the popularity of documents, not 1
  double new_share = 0.01;             // of contexts that nobody has used before
};

struct TraceRequest {
  static constexpr size_t kMost = 8;
  double at_s = 0;
  uint32_t count = 0;
  std::array<ContextNumber, kMost> contexts{};
};

class SimTrace {
 public:
  SimTrace(const TraceOptions& options, uint64_t seed) : options_(options), rng_(seed) {}

  // The next one of a Poisson stream. `fresh` numbers contexts that are new.
  TraceRequest Next(double per_s, ContextNumber* fresh) {
    now_s_ += -std::log(1.0 - rng_.Uniform()) / per_s;
    TraceRequest request{.at_s = now_s_};
    const uint64_t documents = 1 + rng_.Below(2 * options_.documents_per_request - 1);
    for (uint64_t document = 0; document < documents; ++document) {
      const uint32_t first = Document() * options_.contexts_per_document;
      const uint64_t at = rng_.Below(options_.contexts_per_document);
      for (uint32_t taken = 0; taken < options_.taken_of_document; ++taken) {
        if (request.count == TraceRequest::kMost) break;
        const bool is_new = rng_.Uniform() < options_.new_share;
        request.contexts[request.count++] =
            is_new ? (*fresh)++
                   : first + static_cast<uint32_t>((at + 3 * taken) % options_.contexts_per_document);
      }
    }
    // The order of contexts in a prompt is anything.
    for (size_t at = request.count; at > 1; --at) {
      std::swap(request.contexts[at - 1], request.contexts[rng_.Below(at)]);
    }
    return request;
  }

 private:
  // The whole part of a bounded Pareto variable: rank k has a share of about k^-zipf.
  uint32_t Document() {
    const double documents = static_cast<double>(options_.contexts) / options_.contexts_per_document;
    const double power = 1 - options_.zipf;
    const double top = std::pow(documents, power);
    const double rank = std::pow(1 + rng_.Uniform() * (top - 1), 1 / power);
    return static_cast<uint32_t>(std::min(rank, documents - 1)) - (rank >= 1 ? 1 : 0);
  }

  const TraceOptions options_;
  Rng rng_;
  double now_s_ = 0;
};

inline PlaceKey SimKey(ContextNumber context) {
  Rng rng(uint64_t{context} * 0x9E3779B97F4A7C15ull);
  const uint64_t high = rng.Next();
  return {high, rng.Next()};
}

}  // namespace epic::router

#endif  // EPIC_SERVICES_ROUTER_PLACEMENT_BENCH_SIM_TRACE_H_
