// Messages that were damaged, or made up: refused with InvalidArgument, or something that a store may be
// handed, which then comes back as it went. --gtest_random_seed=N replays one.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/status/error.h"
#include "common/storage/record_codec.h"
#include "services/kv_store/replication/node_row.h"
#include "services/kv_store/replication/rpc/replica_convert.h"
#include "services/kv_store/replication/rpc/testing/any_message.h"
#include "services/kv_store/testing/mutate_bytes.h"

namespace epic::kv_store {
namespace {

struct Counts {
  int unread = 0, refused = 0, taken = 0;
};

// What codecs of the store require of what they are handed.
void Use(const std::vector<ReplicaItem>& items) {
  for (const ReplicaItem& item : items) {
    if (item.state.record.has_value()) EncodeRecord(*item.state.record);
    if (item.tokens != nullptr) EncodeTokens(*item.tokens);
    if (item.state.tombstone.has_value()) EncodeTombstone(*item.state.tombstone);
    RowKey(item.key);
  }
}
void Use(const BeatLog& beats) {
  EncodeNodeRow({.beats = beats});
  BeatLog known{.beat = 7, .starts = {{3, {1, 1}}}};
  known.Learn(beats, 170);
}
void Use(const SendRequest& request) { Use(request.items); }
void Use(const BeatRequest& request) { Use(request.beats); }
void Use(const FetchReply& reply) { Use(reply.items); }
void Use(const QueryReply& reply) { Use(reply.items); }
void Use(const BeatReply& reply) { Use(reply.beats); }
template <typename Message>
void Use(const Message&) {}

template <typename Message>
void Fuzz(const Message& message, Rng* rng, Counts* counts) {
  auto proto = ToProto(message);
  const std::string wire = proto.SerializeAsString();
  for (int times = 0; times < 4; ++times) {
    if (!proto.ParseFromString(MutateBytes(wire, rng))) {
      ++counts->unread;
      continue;
    }
    const absl::StatusOr<Message> read = FromProto(proto);
    if (!read.ok()) {
      EXPECT_TRUE(absl::IsInvalidArgument(read.status())) << read.status();
      ++counts->refused;
      continue;
    }
    ++counts->taken;
    Use(*read);
    const auto again = FromProto(ToProto(*read));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(ToProto(*again).SerializeAsString(), ToProto(*read).SerializeAsString());
  }
}

TEST(ReplicaConvertFuzzTest, DamagedMessagesAreRefusedOrSound) {
  const auto named = static_cast<uint64_t>(::testing::GTEST_FLAG(random_seed));
  Counts counts;
  for (uint64_t seed = named != 0 ? named : 1; seed <= (named != 0 ? named : 4000); ++seed) {
    SCOPED_TRACE("--gtest_random_seed=" + std::to_string(seed));
    AnyMessage any(seed);
    Rng rng(seed);
    Fuzz(any.Send(), &rng, &counts);
    Fuzz(any.Fetch(), &rng, &counts);
    Fuzz(any.Query(), &rng, &counts);
    Fuzz(any.Name(), &rng, &counts);
    Fuzz(any.Beat(), &rng, &counts);
    Fuzz(any.Erase(), &rng, &counts);
    Fuzz(any.Change(), &rng, &counts);
    Fuzz(any.Fetched(), &rng, &counts);
    Fuzz(any.Queried(), &rng, &counts);
    Fuzz(any.Named(), &rng, &counts);
    Fuzz(any.Beaten(), &rng, &counts);
    Fuzz(any.Erased(), &rng, &counts);
    Fuzz(any.Changed(), &rng, &counts);
    const ReplicaState newer = any.State(any.Key());
    Fuzz(SendReply{.standing = any.AnyStanding(),
                   .results = {{.status = absl::AbortedError("x"), .newer = newer},
                               {.status = Error(ErrorCode::kNameInUse, "x"), .newer = {}}}},
         &rng, &counts);
    if (::testing::Test::HasFailure()) return;
  }
  if (named != 0) return;
  EXPECT_GT(counts.unread, 1000);
  EXPECT_GT(counts.refused, 1000);
  EXPECT_GT(counts.taken, 1000);
}

}  // namespace
}  // namespace epic::kv_store
