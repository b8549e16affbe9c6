// The link worker as its users see it: takes a prompt in pieces, links it and streams the answer's text.
//
// services/link_worker/core implements it in process; in a cluster a client of its RPC does. The caller has
// validated the request; the linker leases objects, has missing ones compiled, runs the engine, and turns
// tokens into text. Thread-safe.
#ifndef EPIC_SERVICES_WORKER_API_LINKER_H_
#define EPIC_SERVICES_WORKER_API_LINKER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/cancel.h"
#include "common/storage/cache_id.h"
#include "common/storage/kv_object.h"
#include "services/engine/engine.h"

namespace epic {

// What to do when a context's object is not stored.
enum class OnMissing : uint8_t { kRecompile, kError };

struct LinkPiece {
  enum class Kind : uint8_t {
    kText,     // own text
    kContext,  // a context of the user's
    kHead,     // the template's head: covered by a hidden context where that can be had, else own text
  };
  Kind kind = Kind::kText;
  std::vector<TokenId> tokens;  // not empty
  // kContext only.
  CacheId context;
  ObjectVariant variant;               // which compile to read
  std::vector<TokenId> prefix_tokens;  // the compile prefix of that variant
  bool sets_state = false;             // see CompileJob
  OnMissing on_missing = OnMissing::kRecompile;
  std::string place;  // where the request names it, such as context_ids[0]; errors about it carry it
};

struct LinkJob {
  std::string tenant;
  std::vector<LinkPiece> pieces;  // not empty
  LinkStrategy strategy;
  SamplingParams sampling;
  uint32_t choices = 1;
  uint32_t max_tokens = 0;  // per choice, >= 1
  std::vector<TokenId> stop_tokens;
  std::vector<std::string> stop;   // not empty strings
  bool ignore_eos = false;         // false: the model's end tokens end a choice too
  int64_t received_steady_ns = 0;  // when the request reached the door; TTFT counts from it
  CancelToken cancel;              // looked at while Link leases objects; Cancel serves from then on
};

struct LinkLogprob {
  std::string bytes;  // raw bytes of the token
  float logprob = 0;
  std::vector<std::pair<std::string, float>> top;
};

struct LinkDelta {
  uint32_t choice = 0;
  std::string text;                   // whole characters
  std::vector<LinkLogprob> logprobs;  // of the tokens whose text ended here
};

struct LinkUsage {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;      // KV read, not computed
  uint32_t recomputed_tokens = 0;  // of contexts, computed for this request
  uint32_t fresh_tokens = 0;       // all else
};

struct LinkTimings {
  int64_t queue_ns = 0;  // in the engine's queue
  int64_t fetch_ns = 0;  // leasing objects, missing ones compiled
  int64_t decide_ns = 0;
  int64_t link_ns = 0;
  int64_t ttft_ns = 0;  // from received_steady_ns
  int64_t decode_ns = 0;
  uint64_t fetched_bytes = 0;       // of the objects that were leased
  uint32_t recompiled_objects = 0;  // that were missing
};

// One call's output. Called on any thread, one call at a time; must not block.
class LinkEvents {
 public:
  virtual ~LinkEvents() = default;
  // The engine took the request; no row of the prompt was computed before it. `planned_recomputed` is what
  // usage will say; nullopt where only the run can tell.
  virtual void OnAdmitted(std::optional<uint32_t> planned_recomputed) = 0;
  // False: the reader is gone; the call is cancelled.
  virtual bool OnDelta(LinkDelta delta) = 0;
  virtual void OnFinish(uint32_t choice, FinishReason reason) = 0;
  // The last call, always. Without OnAdmitted before it, it is a refusal. kClientGone after Cancel; its param
  // is then the place of the context whose compile was waited for, if one was.
  virtual void OnDone(const absl::Status& status, const LinkUsage& usage, const LinkTimings& timings) = 0;
};

class LinkCall {
 public:
  virtual ~LinkCall() = default;
  // Ends the call: waiters, leases and rows are free within one engine step, then OnDone comes. Idempotent.
  virtual void Cancel() = 0;
};

class Linker {
 public:
  virtual ~Linker() = default;
  // May block on the disk while it leases objects: call it on an executor. The call may be over when it
  // returns, with kClientGone where job.cancel was set meanwhile: no more objects are leased then, and the
  // engine is not asked. Dropping the returned pointer does not cancel.
  virtual std::shared_ptr<LinkCall> Link(LinkJob job, std::shared_ptr<LinkEvents> events) = 0;
};

}  // namespace epic

#endif  // EPIC_SERVICES_WORKER_API_LINKER_H_
