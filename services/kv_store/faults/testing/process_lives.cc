#include "services/kv_store/faults/testing/process_lives.h"

#include <signal.h>

#include <string_view>
#include <thread>
#include <utility>

#include "common/rpc/kv_store/remote_kv_store.h"
#include "common/status/error.h"
#include "common/testing/child_process.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr char kTenant[] = "default";
constexpr uint32_t kTokens = 40;
constexpr int kConnectTries = 1000;  // of 50 ms and more
constexpr uint64_t kSeedsOfAClient = 1'000'000;
constexpr uint64_t kMaxAcknowledgements = 160;  // of one life

// By turns small, through the log (slabs of 20 KiB), and not (40 KiB).
KvLayout LayoutFor(uint64_t seed) { return LayoutOf(kTokens, 4, 2, seed % 2 == 0 ? 64 : 128); }
CacheId IdOf(uint64_t seed) { return CacheId::Of(kTenant, {}, TokensOf(seed, kTokens)); }

// One run of the binary, and where it listens; empty: it did not start.
class StoreProcess {
 public:
  explicit StoreProcess(const std::vector<std::string>& arguments)
      : child_("epic-kv-store", arguments), grpc_(child_.Behind("gRPC  ")), shm_(child_.Behind("shm   ")) {}
  const std::string& grpc() const { return grpc_; }
  int End(int signal) { return child_.End(signal); }

 private:
  epic::testing::ChildProcess child_;
  const std::string grpc_;
  const std::string shm_;  // the last thing that it says
};

// Null: nobody answers there.
std::unique_ptr<KvStore> Connect(const StoreProcess& process) {
  // Who was killed does not come back at the same address: nothing to wait for, once it was reached.
  auto client = MakeRemoteKvStore({.address = process.grpc(), .call_ms = 60'000, .reconnect_ms = 50});
  if (!client.ok()) return nullptr;
  for (int tries = 0; tries < kConnectTries; ++tries) {
    const absl::Status status = (*client)->GetContext(kTenant, IdOf(0)).status();
    if (CodeOf(status) == ErrorCode::kContextNotFound) return *std::move(client);
  }
  return nullptr;
}

}  // namespace

ProcessLives::ProcessLives(uint64_t seed, LifeCounts* counts) : seed_(seed), counts_(counts), rng_(seed) {
  roomy_ = rng_.Below(2) == 0;
}

std::vector<std::string> ProcessLives::DrawSettings() {
  const auto one_of = [this](std::vector<std::string> values) { return values[rng_.Below(values.size())]; };
  const std::vector<std::string> settings = {
      "store.slabs=" + one_of({"extents", "blob_files"}),
      "store.eviction=" + one_of({"s3fifo", "lru"}),
      "store.memory_bytes=" + std::to_string(2 + rng_.Below(8)) + "MiB",
      "store.evict_to_percent=" + std::to_string(50 + rng_.Below(51)),
      std::string("store.disk_bytes=") + (roomy_ ? "1GiB" : "16MiB"),
      "store.workers=" + std::to_string(1 + rng_.Below(8)),
      "store.scrub_bytes=" + one_of({"0", "64MiB"}),
      "store.warm_up_bytes=" + one_of({"0", "128MiB"}),
      "store.disk_wait_ms=" + one_of({"0", "10s"}),
  };
  std::vector<std::string> arguments = {"--data-dir",  dir_.path(), "--grpc",
                                        "127.0.0.1:0", "--admin",   "127.0.0.1:0"};
  settings_.clear();
  for (const std::string& setting : settings) {
    arguments.insert(arguments.end(), {"--set", setting});
    settings_ += " " + setting;
  }
  return arguments;
}

std::string ProcessLives::Run(int lives) {
  for (int life = 0; life < lives && !wrong(); ++life) Live(static_cast<uint64_t>(life));
  if (!wrong()) {
    dying_ = false;
    const StoreProcess process(DrawSettings());
    const auto store = Connect(process);
    if (process.grpc().empty() || store == nullptr) {
      Complain("it does not start");
    } else {
      CheckAll(store.get());
    }
  }
  const MutexLock lock(&mu_);
  return complaint_;
}

void ProcessLives::Live(uint64_t life) {
  dying_ = false;
  StoreProcess process(DrawSettings());
  const auto store = Connect(process);
  if (process.grpc().empty() || store == nullptr) return Complain("it does not start");
  CheckAll(store.get());
  std::vector<std::thread> clients;
  uint64_t until = 0;
  {
    const MutexLock lock(&mu_);
    until = acknowledgements_ + 1 + rng_.Below(kMaxAcknowledgements);
  }
  for (uint64_t client = 0; client < kClients; ++client) {
    clients.emplace_back([this, client, life, &store] { BeClient(client, life, store.get()); });
  }
  {
    const MutexLock lock(&mu_);
    while (acknowledgements_ < until && complaint_.empty()) acknowledged_.Wait(&mu_);
  }
  dying_ = true;
  if (process.End(SIGKILL) == -SIGKILL) ++counts_->kills;
  for (std::thread& client : clients) client.join();
}

void ProcessLives::BeClient(uint64_t client, uint64_t life, KvStore* store) {
  Rng rng((seed_ * 1000 + life) * kClients + client);
  uint64_t next = client * kSeedsOfAClient + life * 10'000 + 1;
  while (!dying_ && !wrong()) {
    const std::vector<uint64_t> known = KnownTo(client);
    const uint64_t move = known.empty() ? 0 : rng.Below(10);
    if (move < 5) {
      CreateOne(next++, rng.Below(3) == 0, store);
    } else if (move < 8) {
      Check(known[rng.Below(known.size())], store);
    } else {
      DeleteOne(known[rng.Below(known.size())], store);
    }
  }
}

void ProcessLives::CreateOne(uint64_t seed, bool durable, KvStore* store) {
  NewContext context = ContextOf(seed, kTokens);
  if (durable) context.durability = Durability::kObject;
  Note(seed, [](Fact*) {});
  if (const auto created = store->CreateContext(context); !created.ok()) {
    if (!MayFail(created.status())) Complain("create: " + created.status().ToString());
    return;
  }
  Note(seed, [](Fact* fact) { fact->created = true; });
  Note(seed, [](Fact* fact) { fact->put = true; });
  const auto put = PutObject(store, kTenant, {IdOf(seed), {}}, LayoutFor(seed), seed);
  if (!put.ok()) {
    if (!MayFail(put.status())) Complain("put: " + put.status().ToString());
    return;
  }
  if (durable) Note(seed, [](Fact* fact) { fact->durable = true; });
}

void ProcessLives::DeleteOne(uint64_t seed, KvStore* store) {
  Note(seed, [](Fact* fact) { fact->delete_tried = true; });
  const auto deleted = store->DeleteContext(kTenant, IdOf(seed));
  if (deleted.ok()) {
    Note(seed, [](Fact* fact) { fact->deleted = true; });
  } else if (!MayFail(deleted.status())) {
    Complain("delete: " + deleted.status().ToString());
  }
}

void ProcessLives::Check(uint64_t seed, KvStore* store) {
  Fact fact;
  {
    const MutexLock lock(&mu_);
    fact = facts_[seed];
  }
  const std::string of = " context " + std::to_string(seed) + ": ";
  const auto record = store->GetContext(kTenant, IdOf(seed));
  if (!record.ok() && MayFail(record.status())) return;
  const bool is_deleted = !record.ok() && CodeOf(record.status()) == ErrorCode::kContextDeleted;
  const bool is_unknown = !record.ok() && CodeOf(record.status()) == ErrorCode::kContextNotFound;
  if (!record.ok() && !is_deleted && !is_unknown) return Complain(of + record.status().ToString());
  if (fact.deleted && is_unknown) return Complain("a lost deletion of" + of + "it was acknowledged");
  if (fact.deleted && !is_deleted) return Complain("a resurrected" + of + "it was deleted");
  if (fact.created && is_unknown) return Complain("a lost" + of + "it was acknowledged");
  if (is_deleted && !fact.delete_tried) return Complain("a deleted" + of + "nobody asked for that");
  if (record.ok()) {
    const auto tokens = store->GetTokens(kTenant, IdOf(seed));
    if (!tokens.ok() && MayFail(tokens.status())) return;
    if (!tokens.ok()) return Complain("token ids of" + of + tokens.status().ToString());
    if (*tokens != TokensOf(seed, kTokens)) return Complain("wrong token ids of" + of);
  }
  CheckObject(seed, fact, !record.ok(), store);
}

void ProcessLives::CheckObject(uint64_t seed, const Fact& fact, bool is_gone, KvStore* store) {
  const std::string of = " object of context " + std::to_string(seed);
  const auto result = store->Acquire(kTenant, {IdOf(seed), {}}, LayoutFor(seed));
  if (!result.ok()) {
    if (!MayFail(result.status())) Complain("reading the" + of + ": " + result.status().ToString());
    return;
  }
  if (result->object == nullptr) {
    const bool no_room = result->cause == MissCause::kNoMemory || result->cause == MissCause::kDiskSlow;
    if (!is_gone && fact.durable && roomy_ && !no_room && !dying_) Complain("a lost durable" + of);
    if (fact.put) ++counts_->misses;
    return;
  }
  if (is_gone) return Complain("a resurrected" + of);
  if (!fact.put) return Complain("nobody put the" + of);
  if (!Holds(*result->object, seed)) return Complain("wrong bytes in the" + of);
  ++counts_->hits;
}

void ProcessLives::CheckAll(KvStore* store) {
  std::vector<uint64_t> seeds;
  {
    const MutexLock lock(&mu_);
    for (const auto& [seed, fact] : facts_) seeds.push_back(seed);
  }
  for (const uint64_t seed : seeds) {
    if (wrong()) return;
    Check(seed, store);
  }
}

bool ProcessLives::MayFail(const absl::Status& status) const {
  if (dying_) return true;
  const ErrorCode code = CodeOf(status);
  return code == ErrorCode::kStorageFull || code == ErrorCode::kDeadline || code == ErrorCode::kQueueFull;
}

void ProcessLives::Complain(const std::string& text) {
  const MutexLock lock(&mu_);
  if (complaint_.empty()) complaint_ = "seed " + std::to_string(seed_) + ", with" + settings_ + ":\n" + text;
  acknowledged_.SignalAll();
}

bool ProcessLives::wrong() {
  const MutexLock lock(&mu_);
  return !complaint_.empty();
}

void ProcessLives::Note(uint64_t seed, void (*change)(Fact* fact)) {
  const MutexLock lock(&mu_);
  Fact& fact = facts_[seed];
  const Fact before = fact;
  change(&fact);
  const uint64_t created = fact.created && !before.created ? 1 : 0;
  const uint64_t durable = fact.durable && !before.durable ? 1 : 0;
  const uint64_t deleted = fact.deleted && !before.deleted ? 1 : 0;
  counts_->created += created;
  counts_->durable += durable;
  counts_->deleted += deleted;
  acknowledgements_ += created + durable + deleted;
  acknowledged_.SignalAll();
}

std::vector<uint64_t> ProcessLives::KnownTo(uint64_t client) {
  const MutexLock lock(&mu_);
  std::vector<uint64_t> known;
  const auto end = facts_.lower_bound((client + 1) * kSeedsOfAClient);
  for (auto fact = facts_.lower_bound(client * kSeedsOfAClient); fact != end; ++fact) {
    if (fact->second.created) known.push_back(fact->first);
  }
  return known;
}

}  // namespace epic::kv_store
