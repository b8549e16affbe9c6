// Lives of a store process that end by kill -9: in each it has other settings, several clients create, put,
// read and delete over gRPC, and after each all that was acknowledged is compared. Everything but the timing
// follows from the seed. Tests only; one thread, beside its own clients.
#ifndef EPIC_SERVICES_KV_STORE_FAULTS_TESTING_PROCESS_LIVES_H_
#define EPIC_SERVICES_KV_STORE_FAULTS_TESTING_PROCESS_LIVES_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/storage/kv_store.h"
#include "common/testing/paths.h"

namespace epic::kv_store {

struct LifeCounts {
  uint64_t kills = 0;
  uint64_t created = 0;  // acknowledged, as are the others
  uint64_t durable = 0;
  uint64_t deleted = 0;
  uint64_t hits = 0;    // objects whose bytes were compared
  uint64_t misses = 0;  // of objects that were put
};

class ProcessLives {
 public:
  ProcessLives(uint64_t seed, LifeCounts* counts);

  // Goes through so many lives, and compares at the end. Returns the first complaint; empty: all was right.
  std::string Run(int lives);
  const std::string& dir() const { return dir_.path(); }

 private:
  // What the clients know of one context.
  struct Fact {
    bool created = false;
    bool put = false;      // tried
    bool durable = false;  // the object, acknowledged
    bool delete_tried = false;
    bool deleted = false;
  };
  static constexpr uint64_t kClients = 4;

  std::vector<std::string> DrawSettings();
  void Live(uint64_t life);
  void BeClient(uint64_t client, uint64_t life, KvStore* store);
  void CreateOne(uint64_t seed, bool durable, KvStore* store);
  void DeleteOne(uint64_t seed, KvStore* store);
  // Compares one context with what is known of it.
  void Check(uint64_t seed, KvStore* store);
  void CheckObject(uint64_t seed, const Fact& fact, bool is_gone, KvStore* store);
  void CheckAll(KvStore* store);
  // Whether a call that failed may have: the process is being killed, or said why it could not.
  bool MayFail(const absl::Status& status) const;
  void Complain(const std::string& text) ABSL_LOCKS_EXCLUDED(mu_);
  bool wrong() ABSL_LOCKS_EXCLUDED(mu_);
  void Note(uint64_t seed, void (*change)(Fact* fact)) ABSL_LOCKS_EXCLUDED(mu_);
  // Acknowledged contexts of a client.
  std::vector<uint64_t> KnownTo(uint64_t client) ABSL_LOCKS_EXCLUDED(mu_);

  const uint64_t seed_;
  LifeCounts* const counts_;
  const epic::testing::TempDir dir_;
  Rng rng_;
  bool roomy_ = false;  // nothing has to leave the disk
  std::string settings_;
  std::atomic<bool> dying_{false};

  Mutex mu_;
  CondVar acknowledged_;
  uint64_t acknowledgements_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Fact> facts_ ABSL_GUARDED_BY(mu_);
  std::string complaint_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_FAULTS_TESTING_PROCESS_LIVES_H_
