// Context records: what is durable about a context besides its token ids and its objects.
#ifndef EPIC_COMMON_STORAGE_CONTEXT_RECORD_H_
#define EPIC_COMMON_STORAGE_CONTEXT_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/digest.h"
#include "common/storage/cache_id.h"
#include "common/storage/kv_object.h"

namespace epic {

enum class ContextState : uint8_t { kCompiling = 0, kReady = 1, kFailed = 2 };
enum class Pin : uint8_t { kNone = 0, kSoft = 1, kHard = 2 };
enum class Durability : uint8_t { kOne = 0, kReplicas = 1, kObject = 2 };

// Hybrid logical time: orders changes of the same field; the larger wins.
struct HybridTime {
  int64_t unix_ms = 0;
  uint32_t counter = 0;
  auto operator<=>(const HybridTime&) const = default;
};

struct CompilePrefixSpec {
  CompilePrefixKind kind = CompilePrefixKind::kNone;
  std::vector<TokenId> tokens;  // the head's token ids for kSystem; empty otherwise
  CacheId context_id;           // the head's context, if it was named by one
  bool operator==(const CompilePrefixSpec&) const = default;
};

struct ContextRecord {
  // Immutable.
  std::string tenant;
  CacheId id;
  Digest model_identity;
  std::string model;  // the alias under which it was created
  uint32_t token_count = 0;
  int64_t created_at_ms = 0;
  // When this life of the context began. A deletion ends the lives that began up to its own time, whatever
  // was changed in them since.
  HybridTime created;
  bool hidden = false;  // heads of templates: not listed, not in quotas
  CompilePrefixSpec compile_prefix;
  Durability durability = Durability::kReplicas;

  // Progress.
  ContextState state = ContextState::kCompiling;
  int64_t compile_ms = 0;
  std::string error;  // set in kFailed

  // Mutable, each merged by its hybrid time.
  std::optional<int64_t> ttl_seconds;    // as given; nullopt: none
  std::optional<int64_t> expires_at_ms;  // nullopt: never
  HybridTime expiry_changed;
  Pin pin = Pin::kNone;
  std::optional<int64_t> pin_until_ms;  // nullopt with a pin: for ever
  HybridTime pin_changed;
  std::vector<std::string> tags;  // sorted, unique
  HybridTime tags_changed;
  std::string name;  // unique per tenant and model; empty: none
  HybridTime name_changed;

  // Local and lazy.
  int64_t last_used_at_ms = 0;
  uint64_t hits = 0;

  // Filled on reading, not stored with the record: the objects that exist and their size in all.
  std::vector<ObjectVariant> variants;
  uint64_t bytes = 0;

  bool operator==(const ContextRecord&) const = default;
};

}  // namespace epic

#endif  // EPIC_COMMON_STORAGE_CONTEXT_RECORD_H_
