// GB/s out of the host tier by object size, over a set that no cache holds: a copying reader with checksums,
// and a reader that sums up the words in place; beside memcpy, the same sum over plain memory, and Redis.
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/storage/object_codec.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/testing/bench/bench_store.h"
#include "services/kv_store/testing/bench/sections.h"
#include "services/kv_store/testing/redis_server.h"

namespace epic::kv_store {
namespace {

constexpr double kCopyBar = 0.80;  // of memcpy, at 8 MiB
constexpr uint64_t kBarBytes = uint64_t{8} << 20;

uint64_t SumOf(ByteSpan bytes) {
  uint64_t sum = 0;
  for (uint64_t at = 0; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    sum += word;
  }
  return sum;
}

class HostTier {
 public:
  HostTier(uint64_t object_bytes, uint64_t set_bytes)
      : layout_(LayoutOfBytes(object_bytes)),
        objects_(set_bytes / object_bytes),
        buffer_(object_bytes, '\0') {
    auto opened = StoreCore::Open(std::make_unique<MemoryTableStore>(std::make_shared<MemoryDisk>()),
                                  {.memory_bytes = (objects_ + 2) * object_bytes,
                                   .disk_bytes_max = 0,
                                   .make_slabs = nullptr,
                                   .watermarks = {},
                                   .quotas = {},
                                   .writer = {},
                                   .scrubber = {}});
    EPIC_CHECK(opened.ok());
    store_ = *std::move(opened);
    std::string slab;
    for (uint64_t object = 0; object < objects_; ++object) {
      EPIC_CHECK(store_->CreateContext(ContextOf(object, layout_.tokens)).ok());
      EPIC_CHECK(PutNumbered(store_.get(), object, layout_, &slab));
      keys_.push_back(KeyOfObject(object, layout_));
    }
  }

  uint64_t bytes() const { return objects_ * layout_.TotalBytes(); }

  bool CopiesAreExact() {
    for (uint64_t object = 0; object < objects_; ++object) {
      if (!Copy(object)) return false;
      for (uint32_t layer = 0; layer < layout_.layers; ++layer) {
        if (!IsSlabOf(object, layer, To(layer))) return false;
      }
    }
    return true;
  }
  void CopyAll() {
    for (uint64_t object = 0; object < objects_; ++object) EPIC_CHECK(Copy(object));
  }
  uint64_t ReadAllInPlace() {
    uint64_t sum = 0;
    for (const ObjectKey& key : keys_) {
      const auto object = Acquire(key);
      for (uint32_t layer = 0; layer < layout_.layers; ++layer) sum += SumOf(object->Layer(layer));
    }
    return sum;
  }

 private:
  std::shared_ptr<const KvObject> Acquire(const ObjectKey& key) {
    auto acquired = store_->Acquire(kBenchTenant, key, layout_);
    EPIC_CHECK(acquired.ok() && acquired->object != nullptr);
    return std::move(acquired->object);
  }
  MutableByteSpan To(uint32_t layer) {
    return std::as_writable_bytes(std::span(buffer_))
        .subspan(layer * layout_.LayerBytes(), layout_.LayerBytes());
  }
  bool Copy(uint64_t number) {
    const auto object = Acquire(keys_[number]);
    const std::span<const uint32_t> crcs = static_cast<const HostObject&>(*object).head().block_crcs;
    const uint64_t blocks = BlocksPerLayer(layout_);
    for (uint32_t layer = 0; layer < layout_.layers; ++layer) {
      if (!CopyIfMatches(layout_, object->Layer(layer), To(layer), crcs.subspan(layer * blocks, blocks))) {
        return false;
      }
    }
    return true;
  }

  const KvLayout layout_;
  const uint64_t objects_;
  std::string buffer_;
  std::unique_ptr<StoreCore> store_;
  std::vector<ObjectKey> keys_;
};

void BenchSize(const BenchOptions& options, uint64_t size, RedisServer* redis, BenchReport* report) {
  const uint64_t set_bytes = uint64_t{options.quick ? 128u : 1024u} << 20;
  HostTier tier(size, set_bytes);
  const std::string name = "host, " + NameOfBytes(size) + ": ";
  report->Check(name + "copies are exact", tier.CopiesAreExact());
  const std::string plain(set_bytes, 'p');
  std::string buffer(size, '\0');
  volatile uint64_t sink = 0;
  std::vector<std::function<void()>> works = {[&] {
                                                for (uint64_t at = 0; at < set_bytes; at += size)
                                                  std::memcpy(buffer.data(), plain.data() + at, size);
                                              },
                                              [&] { tier.CopyAll(); },
                                              [&] { sink = sink + SumOf(AsBytes(plain)); },
                                              [&] { sink = sink + tier.ReadAllInPlace(); }};
  if (redis != nullptr) {
    EPIC_CHECK(redis->Set("object", plain.substr(0, size)));
    works.push_back([&] {
      for (uint64_t at = 0; at < set_bytes / 4; at += size) EPIC_CHECK(redis->Get("object", &buffer));
    });
  }
  const std::vector<double> seconds = ByTurns(options.quick ? 2 : 5, works);
  const auto rate = [&](size_t work) { return static_cast<double>(set_bytes) / seconds[work] * 1e-9; };
  report->Add(name + "memcpy", rate(0), "GB/s");
  report->Add(name + "copying get, checksums on", rate(1), "GB/s");
  const double share = seconds[0] / seconds[1];
  if (size == kBarBytes) {
    report->AtLeast(name + "copying get / memcpy", share, "", kCopyBar);
  } else {
    report->Add(name + "copying get / memcpy", share, "");
  }
  report->Add(name + "plain memory read once", rate(2), "GB/s");
  report->Add(name + "zero-copy get, read once in place", rate(3), "GB/s");
  if (redis != nullptr) report->Add(name + "Redis GET over a unix socket", rate(4) / 4, "GB/s");
}

}  // namespace

void BenchHost(const BenchOptions& options, BenchReport* report) {
  const std::unique_ptr<RedisServer> redis = RedisServer::Start(options.dir);
  if (redis == nullptr) report->Say("Redis: not measured, redis-server is not installed");
  for (const uint64_t kib : {64, 1024, 8192, 65'536}) BenchSize(options, kib << 10, redis.get(), report);
}

}  // namespace epic::kv_store
