// Bytes into requests: any split of the same bytes gives the same requests, and every bound is kept.
#include "common/http/request_reader.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/status/error.h"

namespace epic {
namespace {

using Step = RequestReader::Step;

struct Seen {
  std::string method, target, body;
  bool keep_alive = false;
  bool operator==(const Seen&) const = default;
};

HttpOptions SmallOptions() {
  HttpOptions options;
  options.max_header_bytes = 1024;
  options.max_body_bytes = 64;
  return options;
}

// A reader that is stepped until it needs bytes.
class Reading {
 public:
  Reading() { reader.Begin(); }
  // Complete requests go to `seen`; a new one begins after each.
  Step Read() {
    for (;;) {
      const Step step = reader.Next();
      if (step == Step::kHead) {
        const RequestHead head = reader.head();
        current_ = {std::string(head.method), std::string(head.target), "", head.keep_alive};
      } else if (step == Step::kComplete) {
        current_.body = reader.TakeBody();
        seen.push_back(current_);
        reader.Begin();
      } else if (step != Step::kBegins && step != Step::kBody) {
        return step;
      }
    }
  }
  Step Feed(std::string_view bytes) {
    reader.Append(bytes);
    return Read();
  }
  Step End() {
    reader.End();
    return Read();
  }

  const HttpOptions options = SmallOptions();
  RequestReader reader{&options};
  std::vector<Seen> seen;

 private:
  Seen current_;
};

const std::string kStream =
    "\r\n\r\nGET /a?b HTTP/1.1\r\nHost: h\r\n\r\n"
    "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello\r\n"
    "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    "GET /d HTTP/1.0\r\n\r\n";
const std::vector<Seen> kRequests = {{"GET", "/a?b", "", true},
                                     {"POST", "/b", "hello", true},
                                     {"POST", "/c", "abcde", true},
                                     {"GET", "/d", "", false}};

TEST(RequestReaderTest, AnySplitOfTheSameBytesGivesTheSameRequests) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  for (int round = 0; round < 200; ++round) {
    Reading reading;
    for (size_t at = 0; at < kStream.size();) {
      const size_t size = round == 0 ? kStream.size() : round == 1 ? 1 : 1 + rng.Below(40);
      const std::string_view piece = std::string_view(kStream).substr(at, size);
      EXPECT_EQ(reading.Feed(piece), Step::kNeedsBytes);
      at += piece.size();
    }
    EXPECT_EQ(reading.seen, kRequests);
    EXPECT_FALSE(reading.reader.begun());
    EXPECT_EQ(reading.reader.buffered(), 0u);
    EXPECT_EQ(reading.End(), Step::kEnded);
  }
}

TEST(RequestReaderTest, BoundsAndBrokenRequestsAreRefusedByTheirCode) {
  const std::string long_value(2000, 'x');
  const struct {
    std::string bytes;
    ErrorCode code;
    bool end = false;
  } cases[] = {
      {"GET / HTTP/1.1\r\nHost: h\r\nX: " + long_value + "\r\n\r\n", ErrorCode::kHeaderTooLarge},
      {"GET /" + long_value, ErrorCode::kHeaderTooLarge},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 65\r\n\r\n", ErrorCode::kBodyTooLarge},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n41\r\n" + std::string(65, 'x') +
           "\r\n",
       ErrorCode::kBodyTooLarge},
      {"GET / HTTP/1.1\r\n\r\n", ErrorCode::kInvalidRequest},
      {"GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", ErrorCode::kInvalidRequest},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", ErrorCode::kInvalidRequest},
      {"nonsense\r\n\r\n", ErrorCode::kInvalidRequest},
      {"GET / HTT", ErrorCode::kInvalidRequest, true},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhel", ErrorCode::kInvalidRequest, true},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.bytes.substr(0, 60));
    Reading reading;
    Step step = reading.Feed(c.bytes);
    if (c.end) {
      EXPECT_EQ(step, Step::kNeedsBytes);
      step = reading.End();
    }
    ASSERT_EQ(step, Step::kRefused);
    EXPECT_EQ(CodeOf(reading.reader.failure()), c.code);
    EXPECT_TRUE(reading.seen.empty());
  }
}

TEST(RequestReaderTest, TheHeadIsKnownBeforeTheBodyAndWhatItAnnouncedCounts) {
  Reading reading;
  RequestReader& reader = reading.reader;
  reader.Append(
      "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\nExpect: 100-Continue\r\nOrigin: o\r\n"
      "X-Request-Id: i\r\ntraceparent: t\r\nContent-Type: c\r\nContent-Encoding: e\r\n\r\n");
  EXPECT_EQ(reader.Next(), Step::kBegins);
  EXPECT_EQ(reader.Next(), Step::kHead);
  const RequestHead head = reader.head();
  EXPECT_EQ(head.method, "PUT");
  EXPECT_EQ(head.target, "/x");
  EXPECT_EQ(head.origin, "o");
  EXPECT_EQ(head.request_id, "i");
  EXPECT_EQ(head.traceparent, "t");
  EXPECT_EQ(head.content_type, "c");
  EXPECT_EQ(head.content_encoding, "e");
  EXPECT_TRUE(head.expects_continue);
  EXPECT_EQ(reader.Next(), Step::kBody);
  EXPECT_EQ(reader.body_bytes(), 9u);
  EXPECT_EQ(reader.received_body_bytes(), 0u);
  EXPECT_EQ(reader.Next(), Step::kNeedsBytes);
  EXPECT_EQ(reading.Feed("123456789"), Step::kNeedsBytes);
  EXPECT_EQ(reading.seen.size(), 1u);
}

}  // namespace
}  // namespace epic
