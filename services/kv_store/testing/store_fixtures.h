// What the tests of the store share: contexts, layouts and slabs whose bytes follow from a seed. Tests only.
#ifndef EPIC_SERVICES_KV_STORE_TESTING_STORE_FIXTURES_H_
#define EPIC_SERVICES_KV_STORE_TESTING_STORE_FIXTURES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/random.h"
#include "common/storage/kv_store.h"

namespace epic::kv_store {

inline std::vector<TokenId> TokensOf(uint64_t seed, uint32_t count) {
  Rng rng(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(rng.Below(50'000));
  return tokens;
}

inline NewContext ContextOf(uint64_t seed, uint32_t tokens = 8, std::string tenant = "default") {
  NewContext context;
  context.tenant = std::move(tenant);
  context.model = "tiny";
  context.tokens = TokensOf(seed, tokens);
  return context;
}

inline KvLayout LayoutOf(uint32_t tokens, uint32_t layers = 2, uint32_t kv_heads = 2, uint32_t head_dim = 8) {
  return {.layers = layers,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .tokens = tokens,
          .dtype = KvDtype::kBf16,
          .first_position = 0};
}

inline std::string SlabOf(const KvLayout& layout, uint32_t layer, uint64_t seed) {
  Rng rng(seed * 1000 + layer);
  std::string slab(layout.LayerBytes(), '\0');
  for (size_t at = 0; at < slab.size(); ++at) slab[at] = static_cast<char>(rng.Next());
  return slab;
}

// Reserves, writes every layer and commits.
inline absl::StatusOr<std::shared_ptr<const KvObject>> PutObject(KvStore* store, std::string_view tenant,
                                                                 const ObjectKey& key, const KvLayout& layout,
                                                                 uint64_t seed) {
  auto writer = store->Reserve(tenant, key, layout);
  if (!writer.ok()) return writer.status();
  for (uint32_t layer = 0; layer < layout.layers; ++layer) {
    const std::string slab = SlabOf(layout, layer, seed);
    if (absl::Status status = (*writer)->WriteLayer(layer, AsBytes(slab)); !status.ok()) return status;
  }
  return (*writer)->Commit();
}

// Whether every byte is that of `seed`.
inline bool Holds(const KvObject& object, uint64_t seed) {
  for (uint32_t layer = 0; layer < object.layout().layers; ++layer) {
    if (AsText(object.Layer(layer)) != SlabOf(object.layout(), layer, seed)) return false;
  }
  return true;
}

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TESTING_STORE_FIXTURES_H_
