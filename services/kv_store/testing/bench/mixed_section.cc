// Percentiles of what clients wait for while others read, write and delete: four clients on a store on disk
// whose memory holds half of the objects. Of the calls, 90 % are reads of one set of contexts (Zipf 0.99,
// each word of one layer compared), 5 % create a context with an object, 5 % delete one of those again.
#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/base/random.h"
#include "services/kv_store/core/eviction/traces.h"
#include "services/kv_store/testing/bench/bench_store.h"
#include "services/kv_store/testing/bench/sections.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kClients = 4;
constexpr uint64_t kObjectBytes = uint64_t{256} << 10;

enum Kind : size_t { kFromMemory, kFromDisk, kCreate, kCommit, kDelete, kKinds };
constexpr const char* kNames[kKinds] = {"get from memory", "get from disk", "create", "put", "delete"};

struct Waits {
  std::array<std::vector<float>, kKinds> us;
  void Add(Kind kind, int64_t begin_ns) {
    us[kind].push_back(static_cast<float>(SecondsSince(begin_ns) * 1e6));
  }
};

double Percentile(const std::vector<float>& sorted, double share) {
  const auto at = static_cast<size_t>(share * static_cast<double>(sorted.size()));
  return sorted[std::min(at, sorted.size() - 1)];
}

class Client {
 public:
  Client(StoreCore* store, uint64_t number, const std::vector<ObjectKey>& set,
         const std::vector<uint64_t>& trace)
      : store_(store),
        set_(set),
        trace_(trace),
        next_read_(number * trace.size() / kClients),
        next_own_(set.size() + (number << 24)),
        rng_(number) {}

  void Step() {
    const uint64_t dice = rng_.Below(100);
    if (dice < 90) {
      Read();
    } else if (dice < 95 || own_.empty()) {
      Write();
    } else {
      Delete();
    }
  }
  const Waits& waits() const { return waits_; }
  bool good() const { return good_; }
  uint64_t misses() const { return misses_; }

 private:
  void Read() {
    const uint64_t number = trace_[next_read_++ % trace_.size()];
    const int64_t begin_ns = SystemClock::Get()->SteadyNs();
    const auto acquired = store_->Acquire(kBenchTenant, set_[number], layout_);
    good_ = good_ && acquired.ok();
    if (!acquired.ok() || acquired->object == nullptr) {
      ++misses_;
      return;
    }
    waits_.Add(acquired->cause == MissCause::kEvicted ? kFromDisk : kFromMemory, begin_ns);
    const auto layer = static_cast<uint32_t>(rng_.Below(layout_.layers));
    good_ = good_ && IsSlabOf(number, layer, acquired->object->Layer(layer));
  }
  void Write() {
    const uint64_t number = next_own_++;
    const NewContext context = ContextOf(number, layout_.tokens);
    const int64_t begin_ns = SystemClock::Get()->SteadyNs();
    good_ = good_ && store_->CreateContext(context).ok();
    waits_.Add(kCreate, begin_ns);
    const int64_t put_ns = SystemClock::Get()->SteadyNs();
    good_ = PutNumbered(store_, number, layout_, &slab_) && good_;
    waits_.Add(kCommit, put_ns);
    own_.push_back(KeyOfObject(number, layout_));
  }
  void Delete() {
    const ObjectKey key = own_.front();
    own_.pop_front();
    const int64_t begin_ns = SystemClock::Get()->SteadyNs();
    const auto deleted = store_->DeleteContext(kBenchTenant, key.id);
    waits_.Add(kDelete, begin_ns);
    good_ = good_ && deleted.ok() && *deleted;
    const auto acquired = store_->Acquire(kBenchTenant, key, layout_);
    good_ = good_ && acquired.ok() && acquired->object == nullptr;
  }

  StoreCore* const store_;
  const std::vector<ObjectKey>& set_;
  const std::vector<uint64_t>& trace_;
  const KvLayout layout_ = LayoutOfBytes(kObjectBytes);
  uint64_t next_read_;
  uint64_t next_own_;
  Rng rng_;
  std::string slab_;
  std::deque<ObjectKey> own_;
  Waits waits_;
  bool good_ = true;
  uint64_t misses_ = 0;
};

void Report(const std::vector<std::unique_ptr<Client>>& clients, double seconds, BenchReport* report) {
  bool good = true;
  uint64_t misses = 0, calls = 0;
  std::array<std::vector<float>, kKinds> waits;
  for (const auto& client : clients) {
    good = good && client->good();
    misses += client->misses();
    for (size_t kind = 0; kind < kKinds; ++kind) {
      const auto& us = client->waits().us[kind];
      waits[kind].insert(waits[kind].end(), us.begin(), us.end());
      calls += us.size();
    }
  }
  report->Check("mixed: every byte was right, and nothing deleted came back", good);
  report->AtMost("mixed: reads that missed", static_cast<double>(misses), "", 0);
  report->Add("mixed: calls", static_cast<double>(calls) / seconds, "/s");
  for (size_t kind = 0; kind < kKinds; ++kind) {
    std::vector<float>& us = waits[kind];
    if (us.empty()) continue;
    std::sort(us.begin(), us.end());
    const std::string name = std::string("mixed: ") + kNames[kind] + ", ";
    report->Add(name + "calls", static_cast<double>(us.size()), "");
    report->Add(name + "p50", Percentile(us, 0.5), "us");
    report->Add(name + "p99", Percentile(us, 0.99), "us");
    report->Add(name + "p99.9", Percentile(us, 0.999), "us");
  }
}

}  // namespace

void BenchMixed(const BenchOptions& options, BenchReport* report) {
  const uint64_t objects = options.quick ? 256 : 2048;
  const KvLayout layout = LayoutOfBytes(kObjectBytes);
  BenchStore store({.dir = options.dir + "/store",
                    .memory_bytes = objects * kObjectBytes / 2,
                    .disk_bytes_max = uint64_t{8} << 30});
  std::vector<ObjectKey> set;
  std::string slab;
  for (uint64_t number = 0; number < objects; ++number) {
    EPIC_CHECK(store.get()->CreateContext(ContextOf(number, layout.tokens)).ok());
    EPIC_CHECK(PutNumbered(store.get(), number, layout, &slab));
    set.push_back(KeyOfObject(number, layout));
  }
  store.get()->DrainWrites();
  const auto trace = MakeTrace({.keys = objects, .requests = 200'000, .seed = 1});
  std::vector<std::unique_ptr<Client>> clients;
  for (uint64_t number = 0; number < kClients; ++number) {
    clients.push_back(std::make_unique<Client>(store.get(), number, set, trace));
  }
  const int64_t begin_ns = SystemClock::Get()->SteadyNs();
  const double limit_s = options.quick ? 2 : 20;
  std::vector<std::thread> threads;
  for (const auto& client : clients) {
    threads.emplace_back([&client, begin_ns, limit_s] {
      while (SecondsSince(begin_ns) < limit_s) client->Step();
    });
  }
  for (std::thread& thread : threads) thread.join();
  Report(clients, SecondsSince(begin_ns), report);
}

}  // namespace epic::kv_store
