#include "loadgen/quality/object_cache.h"

#include <cstring>
#include <utility>

#include "common/base/bytes.h"
#include "common/status/ending.h"
#include "common/status/status_macros.h"

namespace epic::loadgen {
namespace {

class FillObject final : public CompileSink {
 public:
  explicit FillObject(const KvLayout& layout) : object(std::make_shared<MemoryObject>(layout)) {}
  absl::Status OnLayer(uint32_t layer, ByteSpan slab) override {
    const MutableByteSpan out = object->MutableLayer(layer);
    EPIC_CHECK(slab.size() == out.size());
    std::memcpy(out.data(), slab.data(), slab.size());
    return absl::OkStatus();
  }
  void OnDone(const absl::Status& status) override { ending.Set(status); }

  const std::shared_ptr<MemoryObject> object;
  Ending ending;
};

Digest KeyOf(const ObjectWish& wish) {
  std::string key;
  AppendField(&key, AsText(AsBytes(wish.prefix)));
  AppendField(&key, AsText(AsBytes(wish.tokens)));
  return Sha256Of(AsBytes(std::string_view(key)));
}

}  // namespace

absl::StatusOr<std::vector<std::shared_ptr<const KvObject>>> ObjectCache::Get(
    std::span<const ObjectWish> wishes) {
  std::vector<Digest> keys;
  std::map<Digest, std::shared_ptr<const MemoryObject>> found;
  for (const ObjectWish& wish : wishes) {
    keys.push_back(KeyOf(wish));
    const auto known = index_.find(keys.back());
    if (known == index_.end()) continue;
    entries_.splice(entries_.begin(), entries_, known->second);
    found.emplace(keys.back(), known->second->object);
    ++totals_.objects_found;
  }
  EPIC_RETURN_IF_ERROR(CompileMissing(wishes, keys, &found));
  std::vector<std::shared_ptr<const KvObject>> objects;
  for (const Digest& key : keys) objects.push_back(found.at(key));
  return objects;
}

absl::Status ObjectCache::CompileMissing(std::span<const ObjectWish> wishes, std::span<const Digest> keys,
                                         std::map<Digest, std::shared_ptr<const MemoryObject>>* found) {
  std::map<Digest, std::shared_ptr<FillObject>> running;
  const int64_t begin_ns = clock_->SteadyNs();
  absl::Status status;
  for (size_t i = 0; i < wishes.size() && status.ok(); ++i) {
    if (found->contains(keys[i]) || running.contains(keys[i])) continue;
    const ObjectWish& wish = wishes[i];
    auto sink = std::make_shared<FillObject>(engine_->LayoutOf(static_cast<uint32_t>(wish.tokens.size()),
                                                               static_cast<uint32_t>(wish.prefix.size())));
    CompileRequest request;
    request.prefix_tokens.assign(wish.prefix.begin(), wish.prefix.end());
    request.tokens.assign(wish.tokens.begin(), wish.tokens.end());
    status = engine_->SubmitCompile(std::move(request), sink);
    if (!status.ok()) break;
    running.emplace(keys[i], std::move(sink));
    totals_.tokens += wish.prefix.size() + wish.tokens.size();
  }
  for (const auto& [key, sink] : running) {
    const absl::Status ended = sink->ending.Wait();
    if (status.ok()) status = ended;
    if (!ended.ok()) continue;
    ++totals_.objects;
    totals_.bytes += sink->object->bytes();
    found->emplace(key, sink->object);
    Insert(key, sink->object);
  }
  if (!running.empty()) totals_.seconds += static_cast<double>(clock_->SteadyNs() - begin_ns) * 1e-9;
  return status;
}

void ObjectCache::Insert(const Digest& key, std::shared_ptr<const MemoryObject> object) {
  bytes_ += object->bytes();
  entries_.push_front({key, std::move(object)});
  index_[key] = entries_.begin();
  while (bytes_ > capacity_bytes_) {
    bytes_ -= entries_.back().object->bytes();
    index_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

}  // namespace epic::loadgen
