// Messages of peer.h with everything in them that may be, or not, drawn from a seed. Tests only.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_RPC_TESTING_ANY_MESSAGE_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_RPC_TESTING_ANY_MESSAGE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "services/kv_store/replication/peer.h"

namespace epic::kv_store {

class AnyMessage {
 public:
  explicit AnyMessage(uint64_t seed) : rng_(seed) {}

  bool Maybe() { return rng_.Below(2) == 0; }
  std::string Text() {
    std::string text(rng_.Below(12), '\0');
    for (char& c : text) c = static_cast<char>(rng_.Next());
    return text;
  }
  std::optional<int64_t> MaybeInt() { return Maybe() ? std::nullopt : std::optional(Int()); }
  int64_t Int() { return static_cast<int64_t>(rng_.Next()); }
  // Zero now and then.
  HybridTime Time() {
    if (rng_.Below(4) == 0) return {};
    return {static_cast<int64_t>(rng_.Below(uint64_t{1} << 50)), static_cast<uint32_t>(rng_.Next())};
  }
  Digest AnyDigest() {
    Digest digest;
    if (Maybe()) return digest;
    for (uint8_t& byte : digest.bytes) byte = static_cast<uint8_t>(rng_.Next());
    return digest;
  }
  std::vector<TokenId> Tokens() {
    std::vector<TokenId> tokens(rng_.Below(6));
    for (TokenId& token : tokens) token = static_cast<TokenId>(rng_.Next() >> rng_.Below(64));
    return tokens;
  }
  CacheId Id() { return CacheId::Of(Text(), {}, Tokens()); }
  ContextKey Key() { return {Text(), Id()}; }
  std::vector<std::string> Tags() {
    std::vector<std::string> tags(rng_.Below(4));
    for (std::string& tag : tags) tag = Text();
    std::sort(tags.begin(), tags.end());
    tags.erase(std::unique(tags.begin(), tags.end()), tags.end());
    return tags;
  }
  CompilePrefixSpec Prefix() {
    CompilePrefixSpec prefix{.kind = static_cast<CompilePrefixKind>(rng_.Below(4))};
    prefix.tokens = Tokens();
    if (Maybe()) prefix.context_id = Id();
    return prefix;
  }
  ContextRecord Record(const ContextKey& key) {
    ContextRecord record{.tenant = key.tenant, .id = key.id, .model_identity = AnyDigest()};
    record.model = Text();
    record.token_count = static_cast<uint32_t>(rng_.Below(1 << 24));
    record.created_at_ms = Int();
    record.created = Time();
    record.hidden = Maybe();
    record.compile_prefix = Prefix();
    record.durability = static_cast<Durability>(rng_.Below(3));
    record.state = static_cast<ContextState>(rng_.Below(3));
    record.compile_ms = Int();
    record.error = Text();
    record.ttl_seconds = MaybeInt();
    record.expires_at_ms = MaybeInt();
    record.expiry_changed = Time();
    record.pin = static_cast<Pin>(rng_.Below(3));
    record.pin_until_ms = MaybeInt();
    record.pin_changed = Time();
    record.tags = Tags();
    record.tags_changed = Time();
    record.name = Text();
    record.name_changed = Time();
    record.last_used_at_ms = Int();
    record.hits = rng_.Next();
    return record;
  }
  Tombstone AnyTombstone() {
    Tombstone tombstone{.at = Time(), .cause = static_cast<RemovalCause>(rng_.Below(2))};
    tombstone.deleted = Time();
    tombstone.expired_life = Time();
    tombstone.expired = Time();
    tombstone.created_at_ms = MaybeInt();
    return tombstone;
  }
  ReplicaState State(const ContextKey& key) {
    ReplicaState state;
    if (Maybe()) state.record = Record(key);
    if (Maybe()) state.tombstone = AnyTombstone();
    if (state.record.has_value() && state.tombstone.has_value() && !Counts(*state.record, *state.tombstone)) {
      state.tombstone.reset();
    }
    return state;
  }
  ReplicaItem Item() {
    ReplicaItem item{.key = Key(), .state = {}, .tokens = nullptr};
    item.state = State(item.key);
    if (Maybe()) {
      item.tokens = std::make_shared<const std::vector<TokenId>>(Tokens());
      if (item.state.record.has_value()) {
        item.state.record->token_count = static_cast<uint32_t>(item.tokens->size());
      }
    }
    return item;
  }
  std::vector<ReplicaItem> Items() {
    std::vector<ReplicaItem> items;
    for (uint64_t left = rng_.Below(4); left > 0; --left) items.push_back(Item());
    return items;
  }
  uint64_t AnyBeat() { return rng_.Below(uint64_t{1} << 40); }
  BeatLog Beats() {
    BeatLog beats{.beat = AnyBeat(), .starts = {}};
    for (uint64_t left = rng_.Below(5); left > 0; --left)
      beats.starts[1 + rng_.Below(beats.beat + 1)] = Time();
    beats.beat += beats.starts.empty() ? 0 : 1;
    return beats;
  }
  Standing AnyStanding() {
    return {.session = rng_.Next(),
            .epoch = rng_.Next(),
            .up = static_cast<NodeUp>(rng_.Below(3)),
            .empty = Maybe(),
            .beat = AnyBeat(),
            .served_at = AnyBeat()};
  }

  SendRequest Send() { return {.session = rng_.Next(), .beat = AnyBeat(), .items = Items()}; }
  FetchRequest Fetch() {
    FetchRequest request{.node = Text(), .session = rng_.Next(), .after = {}, .limit = 1};
    if (Maybe()) request.after = Key();
    request.limit += static_cast<uint32_t>(rng_.Below(4096));
    return request;
  }
  QueryRequest Query() {
    QueryRequest request{.keys = {}, .with_tokens = Maybe()};
    for (uint64_t left = rng_.Below(4); left > 0; --left) request.keys.push_back(Key());
    return request;
  }
  NameRequest Name() {
    return {.what = static_cast<NameRequest::What>(rng_.Below(3)),
            .tenant = Text(),
            .model_identity = AnyDigest(),
            .name = Text(),
            .id = Id(),
            .home = Text()};
  }
  BeatRequest Beat() { return {Beats()}; }
  EraseRequest Erase() { return {Key(), AnyTombstone()}; }
  ChangeRequest Change() {
    ChangeRequest request{.id = rng_.Next(), .key = Key(), .what = DeleteChange{}};
    request.until_unix_ms = static_cast<int64_t>(rng_.Below(uint64_t{1} << 50));
    switch (rng_.Below(4)) {
      case 0: {
        NewContext context{.tenant = request.key.tenant, .model_identity = AnyDigest(), .model = Text()};
        context.tokens = Tokens();
        context.hidden = Maybe();
        context.ttl_seconds = MaybeInt();
        context.pin = static_cast<Pin>(rng_.Below(3));
        context.pin_until_ms = MaybeInt();
        context.tags = Tags();
        context.name = Text();
        context.compile_prefix = Prefix();
        context.durability = static_cast<Durability>(rng_.Below(3));
        request.key.id = CacheId::Of(context.tenant, context.model_identity, context.tokens);
        request.what = std::move(context);
        break;
      }
      case 1: {
        ContextPatch patch;
        if (Maybe()) patch.ttl_seconds = MaybeInt();
        if (Maybe()) patch.pin = static_cast<Pin>(rng_.Below(3));
        if (Maybe()) patch.pin_until_ms = MaybeInt();
        if (Maybe()) patch.tags = Tags();
        if (Maybe()) patch.name = Text();
        request.what = std::move(patch);
        break;
      }
      case 2:
        request.what = SetStateChange{static_cast<ContextState>(rng_.Below(3)), Int(), Text()};
        break;
      default:
        break;
    }
    return request;
  }

  FetchReply Fetched() {
    FetchReply reply{.standing = AnyStanding(), .items = Items(), .next = {}};
    for (ReplicaItem& item : reply.items) item.tokens = nullptr;
    if (Maybe()) reply.next = Key();
    return reply;
  }
  QueryReply Queried() { return {AnyStanding(), Items()}; }
  NameReply Named() { return {AnyStanding(), Maybe() ? Id() : CacheId()}; }
  BeatReply Beaten() { return {AnyStanding(), Beats()}; }
  EraseReply Erased() { return {AnyStanding()}; }
  ChangeReply Changed() {
    ChangeReply reply;
    if (Maybe()) reply.record = Record(Key());
    reply.changed = Maybe();
    if (Maybe()) reply.tombstone = AnyTombstone();
    return reply;
  }

 private:
  Rng rng_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_RPC_TESTING_ANY_MESSAGE_H_
