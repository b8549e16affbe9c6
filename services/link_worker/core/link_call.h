// One call of the link worker, from leasing objects to the last token.
//
// Phases: fetch (lease objects, wait for compiles) → engine → over; and back to fetch when an object is lost
// on its way to the engine, which is before anything is reported. Owned by shared_ptr: by the caller, the
// compiles it waits for, and the engine. Cancel may come in any phase and from any thread; whatever ends the
// call first frees its waiters and leases and reports once.
#ifndef EPIC_SERVICES_LINK_WORKER_CORE_LINK_CALL_H_
#define EPIC_SERVICES_LINK_WORKER_CORE_LINK_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/cancel.h"
#include "common/base/mutex.h"
#include "services/link_worker/core/link_service.h"
#include "services/link_worker/core/text_stream.h"
#include "services/link_worker/core/usage.h"

namespace epic {

class LinkCallImpl final : public LinkCall, public std::enable_shared_from_this<LinkCallImpl> {
 public:
  LinkCallImpl(std::shared_ptr<LinkService::Shared> shared, LinkJob job, std::shared_ptr<LinkEvents> events);
  ~LinkCallImpl() override;

  // Once, before anything else.
  void Start();
  void Cancel() override;

 private:
  class EngineSink;
  enum class Phase : uint8_t { kFetch, kEngine, kOver };
  // What is known of a piece's object.
  struct PieceState {
    std::shared_ptr<const KvObject> object;
    ObjectKey key;               // empty id: own text
    std::optional<size_t> same;  // an earlier piece with the same key
    bool compiling = false;      // until its object is there
    bool computed_now = false;
    bool was_lost = false;  // once, on its way
    bool as_text = false;   // it was lost again
  };

  // --- fetch
  absl::Status LeaseAll();
  // False: the piece's object is missing and must be compiled.
  absl::StatusOr<bool> Lease(size_t index);
  absl::Status CompileMissing(size_t index);
  void OnCompiled(size_t index, absl::StatusOr<CompileOutcome> outcome);
  void PieceDone();
  // The engine lost the object of this piece. On the executor: has another one, or has it compiled, or does
  // without.
  void ReplaceLost(size_t index);
  // Ends the call if the job's cancel says so; true then.
  bool EndIfCancelled();
  // The place of the first context whose compile is waited for; empty when none is.
  std::string PlaceWaitedFor();
  // --- engine
  void Submit();
  LinkRequest MakeRequest();
  void Admit();
  // --- engine's thread
  void OnLinked(const LinkStats& stats);
  bool OnToken(const GeneratedToken& token);
  void OnFinish(uint32_t choice, FinishReason reason);
  void OnObjectLost(size_t index) { lost_ = index; }
  void OnEngineDone(const absl::Status& status);
  std::optional<LinkLogprob> LogprobOf(const GeneratedToken& token) const;
  bool Deliver(uint32_t choice, ChoiceText::Piece piece);
  // False when the call is cancelled.
  bool FetchAgain(size_t lost);
  // --- the end
  void EndAfterEngine(const absl::Status& status);
  // Ends the call if it is in `phase`: two threads may want to end it, or one to end what the other submits.
  void EndFrom(Phase phase, const absl::Status& status);

  const std::shared_ptr<LinkService::Shared> shared_;
  const std::shared_ptr<LinkEvents> events_;
  const LinkJob job_;
  bool reads_objects_ = false;    // constant after Start
  int64_t fetch_started_ns_ = 0;  // constant after Start
  CancelSource cancel_;           // synchronises itself; the engine's

  // Held while OnAdmitted is delivered, so that the engine's first call waits for it.
  Mutex admit_mu_;
  bool admitted_ ABSL_GUARDED_BY(admit_mu_) = false;

  Mutex mu_;
  Phase phase_ ABSL_GUARDED_BY(mu_) = Phase::kFetch;
  uint32_t waiting_ ABSL_GUARDED_BY(mu_) = 1;  // compiles under way, and one for Start itself
  std::set<CompileTicket> tickets_ ABSL_GUARDED_BY(mu_);
  std::vector<PieceState> pieces_ ABSL_GUARDED_BY(mu_);  // until the prompt is linked

  // Written in phase kEngine only: by Submit before the engine knows the call, then on the engine's thread.
  std::vector<PieceAccount> accounts_;
  std::vector<StoredObject> read_;  // each object that the engine was given, once
  std::optional<uint32_t> planned_recomputed_;
  std::optional<size_t> lost_;  // the piece whose object ended the engine's run
  std::vector<ChoiceText> choices_;
  LinkUsage usage_;
  LinkTimings timings_;
  int64_t first_token_ns_ = 0;
  std::vector<int64_t> last_token_ns_;  // by choice
  bool reader_gone_ = false;
};

}  // namespace epic

#endif  // EPIC_SERVICES_LINK_WORKER_CORE_LINK_CALL_H_
