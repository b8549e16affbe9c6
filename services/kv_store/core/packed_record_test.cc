// Records come back from the table's form as they went in, whatever is set; what they share goes with the
// last.
#include "services/kv_store/core/packed_record.h"

#include <set>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/storage/record_codec.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

int64_t AnyTime(Rng* rng) { return static_cast<int64_t>(rng->Next() >> 1) * (rng->Below(2) == 0 ? 1 : -1); }
std::string AnyText(Rng* rng, size_t most) {
  std::string text(rng->Below(most + 1), '\0');
  for (char& c : text) c = static_cast<char>(rng->Next());
  return text;
}
std::optional<int64_t> Maybe(Rng* rng) {
  return rng->Below(2) == 0 ? std::optional<int64_t>(AnyTime(rng)) : std::nullopt;
}
HybridTime AnyHybrid(Rng* rng) { return {AnyTime(rng), static_cast<uint32_t>(rng->Next())}; }

ContextRecord AnyRecord(Rng* rng) {
  ContextRecord record;
  record.tenant = AnyText(rng, 20);
  record.id = CacheId::Of(record.tenant, {}, TokensOf(rng->Next(), 3));
  for (uint8_t& byte : record.model_identity.bytes) byte = static_cast<uint8_t>(rng->Below(2));
  record.model = AnyText(rng, 5);
  record.token_count = static_cast<uint32_t>(rng->Below(1 << 24));
  record.created_at_ms = AnyTime(rng);
  record.hidden = rng->Below(2) == 0;
  record.compile_prefix.kind = static_cast<CompilePrefixKind>(rng->Below(4));
  if (rng->Below(2) == 0) {
    record.compile_prefix.tokens = TokensOf(rng->Below(3), 4);
    record.compile_prefix.context_id = CacheId::Of("h", {}, record.compile_prefix.tokens);
  }
  record.durability = static_cast<Durability>(rng->Below(3));
  record.state = static_cast<ContextState>(rng->Below(3));
  record.compile_ms = static_cast<int64_t>(rng->Next() >> 32);
  record.error = AnyText(rng, 9);
  record.ttl_seconds = Maybe(rng);
  record.expires_at_ms = Maybe(rng);
  record.created = AnyHybrid(rng);
  record.expiry_changed = AnyHybrid(rng);
  record.pin = static_cast<Pin>(rng->Below(3));
  record.pin_until_ms = Maybe(rng);
  record.pin_changed = AnyHybrid(rng);
  std::set<std::string> tags;
  for (uint64_t left = rng->Below(4); left > 0; --left) tags.insert(AnyText(rng, 6));
  record.tags.assign(tags.begin(), tags.end());
  record.tags_changed = AnyHybrid(rng);
  record.name = AnyText(rng, 12);
  record.name_changed = AnyHybrid(rng);
  record.last_used_at_ms = AnyTime(rng);
  record.hits = rng->Next() >> 32;
  return record;
}

TEST(PackedRecordTest, EveryFieldComesBack) {
  RecordPacker packer;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const ContextRecord record = AnyRecord(&rng);
    const PackedRecord packed = packer.Pack(record);
    // The encoding of records names every field that is stored.
    EXPECT_EQ(EncodeRecord(packer.Unpack(packed)), EncodeRecord(record));
    EXPECT_EQ(packed.name(), record.name);
    EXPECT_EQ(packed.error(), record.error);
    EXPECT_EQ(packed.name_changed(), record.name_changed);
    for (const std::string& tag : record.tags) EXPECT_TRUE(packed.HasTag(tag));
    EXPECT_FALSE(packed.HasTag("no such tag"));
    packer.Release(packed);
  }
}

TEST(PackedRecordTest, CountsStayAtTheirHighestValue) {
  RecordPacker packer;
  Rng rng(1);
  ContextRecord record = AnyRecord(&rng);
  record.hits = uint64_t{1} << 40;
  record.compile_ms = int64_t{1} << 40;
  const ContextRecord back = packer.Unpack(packer.Pack(record));
  EXPECT_EQ(back.hits, 0xffffffffu);
  EXPECT_EQ(back.compile_ms, 0xffffffff);
}

TEST(PackedRecordTest, SharedValuesGoWithTheirLastRecord) {
  RecordPacker packer;
  ContextRecord record;
  record.tenant = "t";
  record.model_identity.bytes[0] = 1;
  const PackedRecord first = packer.Pack(record), second = packer.Pack(record);
  EXPECT_EQ(first.key.tenant, second.key.tenant);
  EXPECT_EQ(first.compile_prefix, second.compile_prefix);
  packer.Release(first);
  EXPECT_EQ(packer.TenantOf("t"), second.key.tenant);
  EXPECT_EQ(packer.IdentityOf(record.model_identity), second.identity);
  packer.Release(second);
  EXPECT_EQ(packer.TenantOf("t"), RecordPacker::kNone);
  EXPECT_EQ(packer.IdentityOf(record.model_identity), RecordPacker::kNone);
}

}  // namespace
}  // namespace epic::kv_store
