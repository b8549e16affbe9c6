// What a correct store answers, in the simplest way that could be right: a map from context to fields, and
// for each object key the contents that were ever committed. No tiers, no disk, no threads. Tests only.
#ifndef EPIC_SERVICES_KV_STORE_TESTING_STORE_MODEL_H_
#define EPIC_SERVICES_KV_STORE_TESTING_STORE_MODEL_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/status/error.h"
#include "common/storage/kv_store.h"

namespace epic::kv_store {

struct ModelContext {
  NewContext created;  // name, tags, pin as they are now
  int64_t created_at_ms = 0;
  std::optional<int64_t> expires_at_ms;
  std::set<ContextState> states = {ContextState::kCompiling};  // that a crash may leave
  ContextState state = ContextState::kCompiling;
  std::map<ObjectVariant, std::set<uint64_t>> committed;  // contents by seed
};

class StoreModel {
 public:
  using Key = std::pair<std::string, CacheId>;  // tenant, id

  bool Live(const Key& key, int64_t now_ms) const {
    const auto found = contexts_.find(key);
    return found != contexts_.end() && !Expired(found->second, now_ms);
  }
  ModelContext* Find(const Key& key) { return &contexts_.at(key); }
  // What Get says about a context that is not live.
  ErrorCode WhyNot(const Key& key) const {
    if (contexts_.contains(key)) return ErrorCode::kContextExpired;
    const auto gone = gone_.find(key);
    return gone == gone_.end() ? ErrorCode::kContextNotFound : gone->second;
  }
  bool NameTaken(const Key& key, const std::string& name, int64_t now_ms) const {
    return !name.empty() && std::any_of(contexts_.begin(), contexts_.end(), [&](const auto& other) {
      return other.first != key && other.first.first == key.first && !Expired(other.second, now_ms) &&
             other.second.created.name == name;
    });
  }

  void Create(const Key& key, const NewContext& context, int64_t now_ms) {
    const auto expires = context.ttl_seconds.has_value()
                             ? std::optional<int64_t>(now_ms + *context.ttl_seconds * 1000)
                             : std::nullopt;
    if (!Live(key, now_ms)) {
      // Objects of before expiry may still be there: they are right for the same tokens.
      auto committed =
          contexts_.contains(key) ? contexts_[key].committed : decltype(ModelContext::committed){};
      contexts_[key] = {.created = context, .created_at_ms = now_ms, .expires_at_ms = expires};
      contexts_[key].committed = std::move(committed);
      gone_.erase(key);
      Normalise(&contexts_[key].created.tags);
      return;
    }
    ModelContext& old = contexts_[key];
    if (!expires.has_value()) {
      old.expires_at_ms = std::nullopt;
    } else if (old.expires_at_ms.has_value()) {
      old.expires_at_ms = std::max(*old.expires_at_ms, *expires);
    }
    old.created.pin = std::max(old.created.pin, context.pin);
    old.created.tags.insert(old.created.tags.end(), context.tags.begin(), context.tags.end());
    Normalise(&old.created.tags);
    if (old.created.name.empty()) old.created.name = context.name;
  }

  void Delete(const Key& key, int64_t now_ms) {
    if (!contexts_.contains(key)) return;
    gone_[key] = Live(key, now_ms) ? ErrorCode::kContextDeleted : ErrorCode::kContextExpired;
    contexts_.erase(key);
  }

  // Newest first, then by id from the largest.
  std::vector<CacheId> List(const std::string& tenant, const std::optional<std::string>& tag,
                            int64_t now_ms) const {
    std::vector<std::pair<int64_t, CacheId>> order;
    for (const auto& [key, context] : contexts_) {
      const auto& tags = context.created.tags;
      const bool tagged = !tag.has_value() || std::find(tags.begin(), tags.end(), *tag) != tags.end();
      if (key.first == tenant && tagged && !Expired(context, now_ms)) {
        order.emplace_back(context.created_at_ms, key.second);
      }
    }
    std::sort(order.rbegin(), order.rend());
    std::vector<CacheId> ids;
    for (const auto& [at, id] : order) ids.push_back(id);
    return ids;
  }
  std::map<Key, ModelContext>& contexts() { return contexts_; }
  // Takes over what another model says of a context.
  void Adopt(const Key& key, const StoreModel& other) {
    contexts_.erase(key);
    gone_.erase(key);
    if (const auto found = other.contexts_.find(key); found != other.contexts_.end()) {
      contexts_.insert(*found);
    }
    if (const auto found = other.gone_.find(key); found != other.gone_.end()) gone_.insert(*found);
  }

 private:
  static bool Expired(const ModelContext& context, int64_t now_ms) {
    return context.expires_at_ms.has_value() && *context.expires_at_ms <= now_ms;
  }
  static void Normalise(std::vector<std::string>* tags) {
    const std::set<std::string> unique(tags->begin(), tags->end());
    tags->assign(unique.begin(), unique.end());
  }

  std::map<Key, ModelContext> contexts_;
  std::map<Key, ErrorCode> gone_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TESTING_STORE_MODEL_H_
