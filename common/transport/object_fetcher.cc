#include "common/transport/object_fetcher.h"

#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/storage/object_codec.h"

namespace epic::transport {
namespace {

constexpr uint64_t kAlignment = 64;

uint64_t SlotBytes(const KvLayout& layout) {
  return (layout.LayerBytes() + kAlignment - 1) / kAlignment * kAlignment;
}

// What tells the bytes of one object from those of any other.
using Identity = std::tuple<std::string, ObjectKey, KvLayout, uint64_t, uint64_t>;
Identity IdentityOf(const Region& region) {
  return {region.tenant, region.key, region.layout, region.lease.incarnation, region.generation};
}

}  // namespace

std::shared_ptr<std::byte> AllocateFromHeap(uint64_t bytes) {
  const uint64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return {static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)), std::free};
}

// By identity what somebody holds. Shared with the handles, which may outlive the fetcher.
class ObjectFetcher::Table {
 public:
  // The object there; if there is none, the one that `make` makes, and true.
  template <typename Make>
  absl::StatusOr<std::pair<std::shared_ptr<Handle>, bool>> FindOrMake(const Identity& identity, Make make)
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    std::weak_ptr<Handle>& entry = entries_[identity];
    if (std::shared_ptr<Handle> there = entry.lock(); there != nullptr) return std::pair(there, false);
    absl::StatusOr<std::shared_ptr<Handle>> made = make();
    if (!made.ok()) {
      entries_.erase(identity);
      return made.status();
    }
    entry = *made;
    return std::pair(*std::move(made), true);
  }
  // Unless another one is there by now.
  void Forget(const Identity& identity, const Handle* handle) ABSL_LOCKS_EXCLUDED(mu_);
  size_t size() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return entries_.size();
  }

 private:
  mutable Mutex mu_;
  std::map<Identity, std::weak_ptr<Handle>> entries_ ABSL_GUARDED_BY(mu_);
};

// The memory of an object and what is known of it. Held by its handle, and by its path until the fetch is
// over.
class ObjectFetcher::Arrival final : public FetchListener {
 public:
  Arrival(std::shared_ptr<const Region> region, std::shared_ptr<std::byte> memory)
      : region_(std::move(region)), memory_(std::move(memory)), layers_(region_->layout.layers) {
    crcs_.resize(layers_);
    if (region_->build.has_value()) build_ = *region_->build;
  }

  const Region& region() const { return *region_; }
  MutableByteSpan Slab(uint32_t layer) const {
    return {memory_.get() + layer * SlotBytes(region_->layout), region_->layout.LayerBytes()};
  }
  // What is called once, without a lock, when the fetch has failed.
  void OnFailure(std::function<void()> failed) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    failed_ = std::move(failed);
  }

  void OnRange(size_t range, const absl::Status& status, std::span<const uint32_t> block_crcs) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    if (!status.ok()) return;  // OnDone says so
    std::vector<std::function<void()>> due;
    {
      MutexLock lock(&mu_);
      crcs_[range].assign(block_crcs.begin(), block_crcs.end());
      // The last one counts when all is confirmed.
      uint32_t ready = ready_;
      while (ready + 1 < layers_ && !crcs_[ready].empty()) ++ready;
      due = Advance(ready);
    }
    for (const auto& callback : due) callback();
  }
  void OnDone(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::Status error = status;
    std::function<void()> failed;
    {
      MutexLock lock(&mu_);
      if (error.ok()) error = CheckBuild();
      failed = std::exchange(failed_, nullptr);
    }
    // Before anybody hears of it: who then asks again gets a new one.
    if (!error.ok() && failed) failed();
    std::vector<std::function<void()>> due;
    {
      MutexLock lock(&mu_);
      over_ = true;
      error_ = error;
      due = Advance(error.ok() ? layers_ : ready_);
    }
    for (const auto& callback : due) callback();
  }

  bool over() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return over_;
  }
  uint32_t ready() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return ready_;
  }
  const Digest& build() const { return build_; }
  absl::Status Wait(uint32_t layer) const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    while (ready_ <= layer && !over_) changed_.Wait(&mu_);
    return ready_ > layer ? absl::OkStatus() : error_;
  }
  void CallWhen(uint32_t layer, std::function<void()> ready) const ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      if (ready_ <= layer && !over_) {
        waiting_.emplace_back(layer, std::move(ready));
        return;
      }
    }
    ready();
  }

 private:
  absl::Status CheckBuild() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::vector<uint32_t> all;
    for (const auto& of_layer : crcs_) all.insert(all.end(), of_layer.begin(), of_layer.end());
    const Digest build = BuildDigest(all);
    if (!region_->build.has_value()) build_ = build;
    return build == build_ ? absl::OkStatus() : DamagedStatus(layers_ - 1);
  }
  // Returns what is to be called.
  std::vector<std::function<void()>> Advance(uint32_t ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    ready_ = ready;
    changed_.SignalAll();
    std::vector<std::function<void()>> due;
    std::erase_if(waiting_, [&due, ready, over = over_](auto& waiting) {
      if (waiting.first >= ready && !over) return false;
      due.push_back(std::move(waiting.second));
      return true;
    });
    return due;
  }

  const std::shared_ptr<const Region> region_;
  const std::shared_ptr<std::byte> memory_;
  const uint32_t layers_;
  // Constant where the region has it; else zero until the last layer is there.
  Digest build_;

  mutable Mutex mu_;
  mutable CondVar changed_;
  std::vector<std::vector<uint32_t>> crcs_ ABSL_GUARDED_BY(mu_);  // by layer; empty: not there
  uint32_t ready_ ABSL_GUARDED_BY(mu_) = 0;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  std::function<void()> failed_ ABSL_GUARDED_BY(mu_);
  mutable std::vector<std::pair<uint32_t, std::function<void()>>> waiting_ ABSL_GUARDED_BY(mu_);
};

// What its users hold.
class ObjectFetcher::Handle final : public KvObject, public std::enable_shared_from_this<Handle> {
 public:
  Handle(std::shared_ptr<Table> table, std::shared_ptr<Arrival> arrival, Path* path)
      : table_(std::move(table)), arrival_(std::move(arrival)), path_(path) {}
  ~Handle() override {
    table_->Forget(IdentityOf(arrival_->region()), this);
    if (id_ != 0 && !arrival_->over()) path_->Cancel(id_);
  }

  // Once, by who made it.
  void Start(TrafficClass traffic, int64_t deadline_steady_ns, std::shared_ptr<const Region> region) {
    arrival_->OnFailure([table = table_, weak = weak_from_this(), identity = IdentityOf(*region)] {
      // Whoever is gone has forgotten itself; there may be another one at its address by now.
      if (const auto handle = weak.lock()) table->Forget(identity, handle.get());
    });
    FetchRequest request = {
        .region = std::move(region), .traffic = traffic, .deadline_steady_ns = deadline_steady_ns};
    for (uint32_t layer = 0; layer < layout().layers; ++layer) {
      request.ranges.push_back({.layer = layer, .offset = 0, .to = arrival_->Slab(layer)});
    }
    id_ = path_->Fetch(std::move(request), arrival_);
  }

  const KvLayout& layout() const override { return arrival_->region().layout; }
  const Digest& build() const override { return arrival_->build(); }
  ByteSpan Layer(uint32_t layer) const override {
    EPIC_CHECK(layer < layout().layers);
    return arrival_->Slab(layer);
  }
  uint32_t ReadyLayers() const override { return arrival_->ready(); }
  absl::Status WaitLayer(uint32_t layer) const override { return arrival_->Wait(layer); }
  void OnLayer(uint32_t layer, std::function<void()> ready) const override {
    arrival_->CallWhen(layer, std::move(ready));
  }

 private:
  const std::shared_ptr<Table> table_;
  const std::shared_ptr<Arrival> arrival_;
  Path* const path_;
  FetchId id_ = 0;  // set by Start, which comes before anybody lets go
};

void ObjectFetcher::Table::Forget(const Identity& identity, const Handle* handle) {
  std::shared_ptr<Handle> there;  // let go without the lock
  MutexLock lock(&mu_);
  const auto found = entries_.find(identity);
  if (found == entries_.end()) return;
  there = found->second.lock();
  if (there == nullptr || there.get() == handle) entries_.erase(found);
}

ObjectFetcher::ObjectFetcher(AllocateFn allocate)
    : allocate_(std::move(allocate)), table_(std::make_shared<Table>()) {}

absl::StatusOr<std::shared_ptr<const KvObject>> ObjectFetcher::Get(Path* path,
                                                                   std::shared_ptr<const Region> region,
                                                                   TrafficClass traffic,
                                                                   int64_t deadline_steady_ns) {
  EPIC_RETURN_IF_ERROR(ValidateRequest({.region = region}));
  const auto make = [&]() -> absl::StatusOr<std::shared_ptr<Handle>> {
    std::shared_ptr<std::byte> memory = allocate_(region->layout.layers * SlotBytes(region->layout));
    if (memory == nullptr) {
      return Error(ErrorCode::kQueueFull, "no memory for the object just now; try again");
    }
    return std::make_shared<Handle>(table_, std::make_shared<Arrival>(region, std::move(memory)), path);
  };
  EPIC_ASSIGN_OR_RETURN(const auto found, table_->FindOrMake(IdentityOf(*region), make));
  const auto& [object, is_new] = found;
  if (is_new) object->Start(traffic, deadline_steady_ns, region);
  return std::shared_ptr<const KvObject>(object);
}

size_t ObjectFetcher::held() const { return table_->size(); }

}  // namespace epic::transport
