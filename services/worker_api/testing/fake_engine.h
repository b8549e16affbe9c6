// An engine that computes nothing: each Step moves every running request by one layer, link or token, on the
// caller's thread. Rows are planned as the real engine plans them, so usage is real. Submissions may come
// from any thread; Step from one thread at a time, which is "the engine's thread".
#ifndef EPIC_SERVICES_WORKER_API_TESTING_FAKE_ENGINE_H_
#define EPIC_SERVICES_WORKER_API_TESTING_FAKE_ENGINE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "services/engine/engine.h"

namespace epic::testing {

class FakeEngine final : public Engine {
 public:
  struct Options {
    uint32_t layers = 2;
    uint32_t vocab = 512;
    uint32_t context_length = 4096;
    uint32_t max_queue = 1000;
  };
  FakeEngine() : FakeEngine(Options()) {}
  explicit FakeEngine(const Options& options);

  const ModelConfig& config() const override { return config_; }
  ComputeFormat compute() const override { return ComputeFormat::kF32; }
  KvDtype kv_dtype() const override { return KvDtype::kF32; }
  KvLayout LayoutOf(uint32_t tokens, uint32_t first_position) const override;
  absl::Status SubmitLink(LinkRequest request, std::shared_ptr<LinkSink> sink) override;
  absl::Status SubmitCompile(CompileRequest request, std::shared_ptr<CompileSink> sink) override;
  absl::Status SubmitScore(ScoreRequest request, std::shared_ptr<ScoreSink> sink) override;
  EngineGauges Gauges() const override;
  void Stop() override;

  // One step of every running request. Returns false when there was none.
  bool Step();
  void RunAll() {
    while (Step()) {
    }
  }

  // --- what the test says and asks
  void set_answer(std::vector<TokenId> answer);  // each choice says it, then stops
  void set_link_status(absl::Status status);     // every link ends with it after OnLinked
  // The next `times` links lose the object of this piece before they are linked.
  void LoseObject(size_t piece, uint32_t times);
  void set_compile_status(absl::Status status);  // every compile ends with it
  void set_submit_status(absl::Status status);   // every submission returns it
  void set_last_progress_ns(int64_t ns);         // of a steady clock, as gauges show it
  uint64_t compiles_started() const;
  uint64_t compiles_finished() const;
  uint64_t links_started() const;
  std::vector<LinkRequest> links() const;  // as submitted, objects dropped

 private:
  struct Link {
    LinkRequest request;
    std::shared_ptr<LinkSink> sink;
    bool linked = false;
    size_t position = 0;
    std::vector<bool> finished;
  };
  struct Compile {
    CompileRequest request;
    std::shared_ptr<CompileSink> sink;
    uint32_t layer = 0;
  };
  // True when the request is over.
  bool StepLink(Link& link);
  bool StepCompile(Compile& compile);

  ModelConfig config_;
  const Options options_;
  mutable Mutex mu_;
  std::list<Link> links_ ABSL_GUARDED_BY(mu_);  // elements are touched by Step only
  std::list<Compile> compiles_ ABSL_GUARDED_BY(mu_);
  std::vector<TokenId> answer_ ABSL_GUARDED_BY(mu_);
  absl::Status link_status_ ABSL_GUARDED_BY(mu_);
  size_t lost_piece_ ABSL_GUARDED_BY(mu_) = 0;
  uint32_t times_lost_ ABSL_GUARDED_BY(mu_) = 0;  // that are left
  absl::Status compile_status_ ABSL_GUARDED_BY(mu_);
  absl::Status submit_status_ ABSL_GUARDED_BY(mu_);
  std::vector<LinkRequest> seen_ ABSL_GUARDED_BY(mu_);
  uint64_t compiles_started_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t compiles_finished_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t steps_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t last_progress_ns_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace epic::testing

#endif  // EPIC_SERVICES_WORKER_API_TESTING_FAKE_ENGINE_H_
