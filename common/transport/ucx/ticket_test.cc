#include "common/transport/ucx/ticket.h"

#include <set>

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace epic::transport {
namespace {

using ::epic::testing::StatusIs;

Ticket Full() {
  Ticket ticket{.incarnation = 7, .address = "127.0.0.1:4444", .rma = true};
  for (size_t i = 0; i < ticket.secret.size(); ++i) ticket.secret[i] = static_cast<std::byte>(i);
  ticket.regions = {{.address = 0x1000, .size = 0x2000, .key = "key of one"},
                    {.address = 0x8000, .size = 1, .key = std::string(900, 'k')}};
  return ticket;
}

TEST(TicketTest, ComesBackAsItWas) {
  ASSERT_OK_AND_ASSIGN(const Ticket ticket, DecodeTicket(EncodeTicket(Full())));
  EXPECT_EQ(ticket.incarnation, 7u);
  EXPECT_EQ(ticket.address, "127.0.0.1:4444");
  EXPECT_TRUE(ticket.rma);
  EXPECT_EQ(ticket.secret, Full().secret);
  ASSERT_EQ(ticket.regions.size(), 2u);
  EXPECT_EQ(ticket.regions[0].key, "key of one");
  EXPECT_EQ(ticket.regions[1].address, 0x8000u);
}

TEST(TicketTest, WhatCannotBeIsRefused) {
  const std::string blob = EncodeTicket(Full());
  for (size_t size = 0; size < blob.size(); ++size) {
    EXPECT_THAT(DecodeTicket(blob.substr(0, size)), StatusIs(absl::StatusCode::kInvalidArgument)) << size;
  }
  EXPECT_THAT(DecodeTicket(blob + "x"), StatusIs(absl::StatusCode::kInvalidArgument));
  Ticket empty_region = Full();
  empty_region.regions[0].size = 0;
  EXPECT_FALSE(DecodeTicket(EncodeTicket(empty_region)).ok());
  Ticket wraps = Full();
  wraps.regions[0].address = ~uint64_t{0};
  EXPECT_FALSE(DecodeTicket(EncodeTicket(wraps)).ok());
  Ticket no_rma = Full();
  no_rma.rma = false;
  EXPECT_FALSE(DecodeTicket(EncodeTicket(no_rma)).ok());
}

TEST(TicketBookTest, ASecretOpensOnce) {
  ManualClock clock;
  TicketBook book(&clock, 1000, 10);
  const wire::Secret a = book.Issue();
  const wire::Secret b = book.Issue();
  EXPECT_NE(a, b);
  EXPECT_FALSE(book.Redeem(wire::Secret{}));
  EXPECT_TRUE(book.Redeem(b));
  EXPECT_FALSE(book.Redeem(b));
  EXPECT_TRUE(book.Redeem(a));
}

TEST(TicketBookTest, ASecretHasItsTime) {
  ManualClock clock;
  TicketBook book(&clock, 1000, 10);
  const wire::Secret a = book.Issue();
  clock.AdvanceMs(999);
  const wire::Secret b = book.Issue();
  clock.AdvanceMs(1);
  EXPECT_FALSE(book.Redeem(a));
  EXPECT_TRUE(book.Redeem(b));
}

TEST(TicketBookTest, TooManyPushOutTheOldest) {
  ManualClock clock;
  TicketBook book(&clock, 1000, 3);
  std::vector<wire::Secret> secrets;
  for (int i = 0; i < 5; ++i) secrets.push_back(book.Issue());
  EXPECT_FALSE(book.Redeem(secrets[0]));
  EXPECT_FALSE(book.Redeem(secrets[1]));
  for (int i = 2; i < 5; ++i) EXPECT_TRUE(book.Redeem(secrets[i]));
}

}  // namespace
}  // namespace epic::transport
