// Values that many entries share, each kept once under a small number, for as long as somebody uses it. No
// locks: one thread at a time, as its owner's mutex says.
#ifndef EPIC_SERVICES_KV_STORE_CORE_INTERN_POOL_H_
#define EPIC_SERVICES_KV_STORE_CORE_INTERN_POOL_H_

#include <cstdint>
#include <functional>
#include <map>

#include "services/kv_store/core/indexed_pool.h"

namespace epic::kv_store {

template <typename T, typename Less = std::less<>>
class InternPool {
 public:
  static constexpr uint32_t kNone = IndexedPool<int>::kNone;

  // kNone: nobody uses it.
  template <typename Key>
  uint32_t Find(const Key& value) const {
    const auto known = numbers_.find(value);
    return known == numbers_.end() ? kNone : known->second;
  }
  // Each Take is one use, each Release ends one. REQUIRES: numbers handed in are in use.
  uint32_t Take(const T& value) {
    const auto [known, inserted] = numbers_.try_emplace(value, kNone);
    if (inserted) known->second = values_.Add({.value = known, .uses = 0});
    ++values_[known->second].uses;
    return known->second;
  }
  void Release(uint32_t number) {
    Value& value = values_[number];
    if (--value.uses > 0) return;
    numbers_.erase(value.value);
    values_.Erase(number);
  }
  const T& operator[](uint32_t number) const { return values_[number].value->first; }
  uint64_t size() const { return numbers_.size(); }

 private:
  struct Value {
    typename std::map<T, uint32_t, Less>::iterator value;
    uint64_t uses = 0;
  };
  std::map<T, uint32_t, Less> numbers_;
  IndexedPool<Value> values_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_INTERN_POOL_H_
