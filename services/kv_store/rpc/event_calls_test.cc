// Following a store node over gRPC: events as they happen, gaps, inventories, and why an object is not there.
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "common/rpc/kv_store/object_convert.h"
#include "common/rpc/kv_store/store_channel.h"
#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/rpc/testing/store_process.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr char kTenant[] = "default";
using Stub = StoreChannel::Stub;
// Whether an object is in memory, by the id of its context.
using Index = std::map<std::string, bool>;

class EventCallsTest : public ::testing::Test {
 protected:
  ObjectKey Put(uint64_t seed) {
    const auto created = process_.store()->CreateContext(ContextOf(seed));
    EXPECT_OK(created);
    const ObjectKey key{created->record.id, {}};
    EXPECT_OK(PutObject(process_.store(), kTenant, key, layout_, seed));
    return key;
  }
  static std::string BytesOf(const CacheId& id) {
    std::string bytes;
    AppendCacheId(id, &bytes);
    return bytes;
  }
  static void Apply(const v1::StoreEvent& event, Index* index) {
    if (event.has_object()) (*index)[event.id()] = event.object().in_memory();
  }
  // All pages; the cursor behind them.
  v1::EventCursor Gather(Index* index, uint32_t limit) {
    v1::InventoryRequest request;
    request.set_limit(limit);
    for (;;) {
      const auto page = channel_->Call(&Stub::Inventory, request);
      EXPECT_OK(page);
      if (page->begins()) index->clear();
      for (const auto& item : page->items()) Apply(item, index);
      if (page->has_tail()) return page->tail();
      request.set_place(page->place());
    }
  }

  StoreProcess process_;
  const KvLayout layout_ = LayoutOf(8);
  const std::shared_ptr<StoreChannel> channel_ =
      std::make_shared<StoreChannel>(StoreChannelOptions{.address = process_.address()});
};

TEST_F(EventCallsTest, AnInventoryAndTheEventsBehindItSayWhatIsThere) {
  const ObjectKey first = Put(1), second = Put(2);
  Index index;
  v1::SubscribeRequest request;
  *request.mutable_from() = Gather(&index, 1);
  EXPECT_EQ(index.size(), 2u);
  EXPECT_TRUE(index.at(BytesOf(first.id)));
  grpc::ClientContext context;
  const auto stream = channel_->stub()->Subscribe(&context, request);
  const ObjectKey third = Put(3);
  ASSERT_OK(process_.store()->DropObject(kTenant, second));
  v1::EventPage page;
  const auto settled = [&] {
    return index.contains(BytesOf(third.id)) && index.at(BytesOf(third.id)) && !index.at(BytesOf(second.id));
  };
  uint64_t sequence = request.from().sequence();
  while (!settled() && stream->Read(&page)) {
    EXPECT_FALSE(page.gap());
    for (const auto& event : page.events()) {
      EXPECT_EQ(event.sequence(), sequence++);
      Apply(event, &index);
    }
  }
  EXPECT_TRUE(settled());
  context.TryCancel();
  stream->Finish();
}

TEST_F(EventCallsTest, ACursorOfAnotherLifeIsAGap) {
  Put(1);
  Index index;
  v1::SubscribeRequest request;
  *request.mutable_from() = Gather(&index, 0);
  process_.Stop();
  process_.Start();
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  const auto stream = channel_->stub()->Subscribe(&context, request);
  v1::EventPage page;
  ASSERT_TRUE(stream->Read(&page));
  EXPECT_TRUE(page.gap());
  EXPECT_FALSE(stream->Read(&page));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(EventCallsTest, AStoppingNodeEndsItsSubscribers) {
  Index index;
  v1::SubscribeRequest request;
  *request.mutable_from() = Gather(&index, 0);
  grpc::ClientContext context;
  const auto stream = channel_->stub()->Subscribe(&context, request);
  v1::EventPage page;
  ASSERT_TRUE(stream->Read(&page));
  process_.door()->Drain();
  while (stream->Read(&page)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(EventCallsTest, ExplainsWhyAnObjectIsThereOrNot) {
  const ObjectKey key = Put(1);
  v1::ExplainRequest request;
  request.set_tenant(kTenant);
  *request.mutable_key() = ToProto(std::span(&key, 1), {});
  const auto there = channel_->Call(&Stub::Explain, request);
  ASSERT_OK(there);
  EXPECT_EQ(there->verdict(), "in_memory");
  EXPECT_TRUE(there->object().in_memory());
  EXPECT_FALSE(there->sentence().empty());
  EXPECT_TRUE(*process_.store()->DeleteContext(kTenant, key.id));
  EXPECT_EQ(channel_->Call(&Stub::Explain, request)->verdict(), "context_deleted");
  request.clear_key();
  EXPECT_EQ(CodeOf(channel_->Call(&Stub::Explain, request).status()), ErrorCode::kInvalidRequest);
}

TEST_F(EventCallsTest, PlacesThatNobodyGaveAreRefused) {
  v1::InventoryRequest request;
  request.set_place("nowhere");
  EXPECT_EQ(ParamOf(channel_->Call(&Stub::Inventory, request).status()), "place");
  request.set_place(std::string(24, '\xff'));
  EXPECT_EQ(ParamOf(channel_->Call(&Stub::Inventory, request).status()), "place");
  request.clear_place();
  request.set_limit(5000);
  EXPECT_EQ(ParamOf(channel_->Call(&Stub::Inventory, request).status()), "limit");
}

}  // namespace
}  // namespace epic::kv_store
