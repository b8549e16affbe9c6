// Context records as RecordTable keeps them: 160 bytes, and one block for what the user named. Values that
// many records share (tenant, model, identity, compile prefix) are kept once and found by number. No locks:
// one thread at a time, as the table's mutex says.
#ifndef EPIC_SERVICES_KV_STORE_CORE_PACKED_RECORD_H_
#define EPIC_SERVICES_KV_STORE_CORE_PACKED_RECORD_H_

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/storage/context_record.h"
#include "services/kv_store/core/intern_pool.h"
#include "services/kv_store/core/packed_key.h"

namespace epic::kv_store {

struct alignas(32) PackedRecord {
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // What lookups read stands first, within one cache line.
  PackedContext key;
  int64_t expires_at_ms = kNever;  // kNever: it does not
  uint32_t identity = 0;
  uint32_t model = 0;
  uint32_t compile_prefix = 0;
  uint32_t token_count = 0;
  int64_t created_at_ms = 0;
  int64_t ttl_seconds = 0;
  int64_t pin_until_ms = 0;
  int64_t last_used_at_ms = 0;
  std::array<int64_t, 5> changed_ms{};  // of expiry, pin, tags, name; then the beginning of its life
  std::array<uint32_t, 5> changed_counter{};
  uint32_t compile_ms = 0;  // this and hits stay at their highest value
  uint32_t hits = 0;
  Durability durability = Durability::kReplicas;
  ContextState state = ContextState::kCompiling;
  Pin pin = Pin::kNone;
  bool hidden : 1 = false;
  bool has_ttl : 1 = false;
  bool pin_ends : 1 = false;
  bool touched : 1 = false;  // the table's own
  // u16 bytes of the name, of the error, number of tags, bytes of each tag; then all text. nullptr: none.
  std::unique_ptr<char[]> texts;

  std::string_view name() const;
  std::string_view error() const;
  std::vector<std::string> tags() const;
  bool HasTag(std::string_view tag) const;
  bool expires() const { return expires_at_ms != kNever; }
  HybridTime name_changed() const { return {changed_ms[3], changed_counter[3]}; }
};
static_assert(sizeof(PackedRecord) == 160);

// Also finds a name that no record has yet.
struct PackedName {
  uint32_t tenant = 0;
  uint32_t identity = 0;
  std::string_view name;
  bool operator==(const PackedName&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const PackedName& name) {
    return H::combine(std::move(h), name.tenant, name.identity, name.name);
  }
};

class RecordPacker {
 public:
  // Takes what it shares; Release gives it back.
  // REQUIRES: ValidateRecord(record).ok().
  PackedRecord Pack(const ContextRecord& record);
  void Release(const PackedRecord& record);
  ContextRecord Unpack(const PackedRecord& record) const;

  // Numbers of tenants; kNone where no record, and nobody who took it, has it.
  static constexpr uint32_t kNone = InternPool<std::string>::kNone;
  uint32_t TenantOf(std::string_view tenant) const { return tenants_.Find(tenant); }
  uint32_t TakeTenant(const std::string& tenant) { return tenants_.Take(tenant); }
  void ReleaseTenant(uint32_t tenant) { tenants_.Release(tenant); }
  const std::string& TenantAt(uint32_t tenant) const { return tenants_[tenant]; }
  const std::string& ModelAt(uint32_t model) const { return models_[model]; }
  uint32_t IdentityOf(const Digest& identity) const { return identities_.Find(identity); }
  const Digest& IdentityAt(uint32_t identity) const { return identities_[identity]; }
  static PackedName NameOf(const PackedRecord& record) {
    return {record.key.tenant, record.identity, record.name()};
  }

 private:
  struct PrefixLess {
    bool operator()(const CompilePrefixSpec& a, const CompilePrefixSpec& b) const;
  };
  InternPool<std::string> tenants_;
  InternPool<std::string> models_;
  InternPool<Digest> identities_;
  InternPool<CompilePrefixSpec, PrefixLess> prefixes_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_PACKED_RECORD_H_
