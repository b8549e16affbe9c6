#include "common/transport/ucx/wire.h"

#include <algorithm>
#include <cstring>

#include "common/base/absl_std.h"
#include "common/base/check.h"
#include "common/status/error.h"
#include "common/storage/byte_reader.h"
#include "common/transport/ucx/lane.h"

namespace epic::transport::wire {
namespace {

// A full piece, its checksums and the longest status fit.
static_assert(40 + 4 * size_t{kMaxPieceBlocks} + 4 + kMaxStatusText <= Fabric::kMaxHeaderBytes);
static_assert(36 + 4 * size_t{kMaxLayers} <= Fabric::kMaxHeaderBytes);

void AppendList(std::string* out, const std::vector<uint32_t>& values) {
  AppendLittle<uint32_t>(out, static_cast<uint32_t>(values.size()));
  for (const uint32_t value : values) AppendLittle<uint32_t>(out, value);
}

std::vector<uint32_t> TakeList(ByteReader* reader, uint32_t max) {
  const uint32_t count = reader->TakeUpTo<uint32_t>(max);
  const ByteSpan bytes = reader->TakeBytes(uint64_t{count} * sizeof(uint32_t));
  std::vector<uint32_t> values(bytes.size() / sizeof(uint32_t));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Whether the status carries a code of ours: then it is made anew from the table, which says its absl code.
std::optional<ErrorCode> OwnCode(const absl::Status& status) {
  if (status.ok()) return std::nullopt;
  const ErrorCode code = CodeOf(status);
  return InfoOf(code).status_code == status.code() && code != ErrorCode::kInternal ? std::optional(code)
                                                                                   : std::nullopt;
}

void AppendStatus(std::string* out, const absl::Status& status) {
  const std::optional<ErrorCode> own = OwnCode(status);
  AppendLittle<uint8_t>(out, static_cast<uint8_t>(status.code()));
  AppendLittle<uint8_t>(out, own.has_value() ? static_cast<uint8_t>(*own) + 1 : 0);
  const std::string text = status.ok() ? std::string() : MessageOf(status).substr(0, kMaxStatusText);
  AppendLittle<uint16_t>(out, static_cast<uint16_t>(text.size()));
  out->append(text);
}

absl::Status TakeStatus(ByteReader* reader) {
  const auto code = static_cast<absl::StatusCode>(
      reader->TakeUpTo<uint8_t>(static_cast<uint8_t>(absl::StatusCode::kUnauthenticated)));
  const uint8_t own = reader->TakeUpTo<uint8_t>(static_cast<uint8_t>(ErrorTable().size()));
  const uint16_t size = reader->TakeUpTo<uint16_t>(kMaxStatusText);
  std::string text(AsText(reader->TakeBytes(size)));
  if (code == absl::StatusCode::kOk && (own != 0 || size != 0)) reader->Fail();
  if (!reader->ok() || code == absl::StatusCode::kOk) return absl::OkStatus();
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  if (own == 0) return absl::Status(code, ToAbsl(text));
  const auto own_code = static_cast<ErrorCode>(own - 1);
  if (InfoOf(own_code).status_code != code) {
    reader->Fail();
    return absl::OkStatus();
  }
  return Error(own_code, text);
}

void AppendPreamble(std::string* out) {
  AppendLittle<uint32_t>(out, kMagic);
  AppendLittle<uint16_t>(out, kVersion);
}

void TakePreamble(ByteReader* reader) {
  if (reader->Take<uint32_t>() != kMagic || reader->Take<uint16_t>() != kVersion) reader->Fail();
}

// Of the messages that are one number.
std::string EncodeNumber(uint64_t number) {
  std::string out;
  AppendLittle<uint64_t>(&out, number);
  return out;
}

template <typename Message>
std::optional<Message> DecodeNumber(ByteSpan header) {
  ByteReader reader(header);
  Message message{reader.Take<uint64_t>()};
  return reader.AtEnd() ? std::optional(message) : std::nullopt;
}

template <typename Message>
std::optional<Message> IfWhole(const ByteReader& reader, Message message) {
  return reader.AtEnd() ? std::optional(std::move(message)) : std::nullopt;
}

}  // namespace

std::string Encode(const Hello& message) {
  std::string out;
  AppendPreamble(&out);
  out.append(AsText(message.secret));
  return out;
}

std::optional<Hello> DecodeHello(ByteSpan header) {
  ByteReader reader(header);
  Hello message;
  TakePreamble(&reader);
  const ByteSpan secret = reader.TakeBytes(message.secret.size());
  if (!reader.AtEnd()) return std::nullopt;
  std::memcpy(message.secret.data(), secret.data(), secret.size());
  return message;
}

std::string Encode(const Welcome& message) {
  std::string out;
  AppendPreamble(&out);
  AppendLittle<uint64_t>(&out, message.incarnation);
  return out;
}

std::optional<Welcome> DecodeWelcome(ByteSpan header) {
  ByteReader reader(header);
  TakePreamble(&reader);
  const Welcome message{.incarnation = reader.Take<uint64_t>()};
  return IfWhole(reader, message);
}

std::string Encode(const Open& message) {
  EPIC_CHECK(message.layers.size() <= kMaxLayers);
  std::string out;
  AppendLittle<uint64_t>(&out, message.fetch);
  AppendLittle<uint64_t>(&out, message.lease.incarnation);
  AppendLittle<uint64_t>(&out, message.lease.holder);
  AppendLittle<uint64_t>(&out, message.lease.number);
  AppendList(&out, message.layers);
  return out;
}

std::optional<Open> DecodeOpen(ByteSpan header) {
  ByteReader reader(header);
  Open message;
  message.fetch = reader.Take<uint64_t>();
  message.lease.incarnation = reader.Take<uint64_t>();
  message.lease.holder = reader.Take<uint64_t>();
  message.lease.number = reader.Take<uint64_t>();
  message.layers = TakeList(&reader, kMaxLayers);
  return IfWhole(reader, std::move(message));
}

std::string Encode(const Wait& message) {
  EPIC_CHECK(message.layers.size() <= kMaxLayers);
  std::string out;
  AppendLittle<uint64_t>(&out, message.fetch);
  AppendList(&out, message.layers);
  return out;
}

std::optional<Wait> DecodeWait(ByteSpan header) {
  ByteReader reader(header);
  Wait message;
  message.fetch = reader.Take<uint64_t>();
  message.layers = TakeList(&reader, kMaxLayers);
  return IfWhole(reader, std::move(message));
}

std::string Encode(const Layer& message) {
  std::string out;
  AppendLittle<uint64_t>(&out, message.fetch);
  AppendLittle<uint32_t>(&out, message.layer);
  AppendLittle<uint64_t>(&out, message.size);
  AppendLittle<uint64_t>(&out, message.address);
  AppendStatus(&out, message.status);
  return out;
}

std::optional<Layer> DecodeLayer(ByteSpan header) {
  ByteReader reader(header);
  Layer message;
  message.fetch = reader.Take<uint64_t>();
  message.layer = reader.Take<uint32_t>();
  message.size = reader.Take<uint64_t>();
  message.address = reader.Take<uint64_t>();
  message.status = TakeStatus(&reader);
  if (message.status.ok() ? message.layer == Layer::kAllLayers : message.size != 0 || message.address != 0) {
    return std::nullopt;
  }
  return IfWhole(reader, std::move(message));
}

std::string Encode(const Read& message) {
  std::string out;
  AppendLittle<uint64_t>(&out, message.fetch);
  AppendLittle<uint64_t>(&out, message.request);
  AppendLittle<uint32_t>(&out, message.layer);
  AppendLittle<uint64_t>(&out, message.offset);
  AppendLittle<uint32_t>(&out, message.length);
  AppendLittle<uint8_t>(&out, message.sums_only ? 1 : 0);
  return out;
}

std::optional<Read> DecodeRead(ByteSpan header) {
  ByteReader reader(header);
  Read message;
  message.fetch = reader.Take<uint64_t>();
  message.request = reader.Take<uint64_t>();
  message.layer = reader.Take<uint32_t>();
  message.offset = reader.Take<uint64_t>();
  message.length = reader.TakeUpTo<uint32_t>(kMaxPieceBytes);
  message.sums_only = reader.TakeBool();
  if (message.length == 0 || message.offset + message.length < message.offset) return std::nullopt;
  return IfWhole(reader, message);
}

std::string Encode(const Piece& message) {
  EPIC_CHECK(message.crcs.size() <= kMaxPieceBlocks && (message.status.ok() || message.crcs.empty()));
  std::string out;
  AppendLittle<uint64_t>(&out, message.request);
  AppendLittle<uint32_t>(&out, message.layer);
  AppendLittle<uint64_t>(&out, message.offset);
  AppendLittle<uint32_t>(&out, message.length);
  AppendLittle<uint64_t>(&out, message.incarnation);
  AppendList(&out, message.crcs);
  AppendStatus(&out, message.status);
  return out;
}

std::optional<Piece> DecodePiece(ByteSpan header) {
  ByteReader reader(header);
  Piece message;
  message.request = reader.Take<uint64_t>();
  message.layer = reader.Take<uint32_t>();
  message.offset = reader.Take<uint64_t>();
  message.length = reader.TakeUpTo<uint32_t>(kMaxPieceBytes);
  message.incarnation = reader.Take<uint64_t>();
  message.crcs = TakeList(&reader, kMaxPieceBlocks);
  message.status = TakeStatus(&reader);
  if (message.status.ok() == message.crcs.empty()) return std::nullopt;
  return IfWhole(reader, std::move(message));
}

std::string Encode(const Confirmed& message) {
  std::string out;
  AppendLittle<uint64_t>(&out, message.fetch);
  AppendLittle<uint8_t>(&out, message.held ? 1 : 0);
  return out;
}

std::optional<Confirmed> DecodeConfirmed(ByteSpan header) {
  ByteReader reader(header);
  Confirmed message;
  message.fetch = reader.Take<uint64_t>();
  message.held = reader.TakeBool();
  return IfWhole(reader, message);
}

std::string Encode(const Confirm& message) { return EncodeNumber(message.fetch); }
std::string Encode(const End& message) { return EncodeNumber(message.fetch); }
std::string Encode(const Ping& message) { return EncodeNumber(message.number); }
std::string Encode(const Pong& message) { return EncodeNumber(message.number); }

std::optional<Confirm> DecodeConfirm(ByteSpan header) { return DecodeNumber<Confirm>(header); }
std::optional<End> DecodeEnd(ByteSpan header) { return DecodeNumber<End>(header); }
std::optional<Ping> DecodePing(ByteSpan header) { return DecodeNumber<Ping>(header); }
std::optional<Pong> DecodePong(ByteSpan header) { return DecodeNumber<Pong>(header); }

}  // namespace epic::transport::wire
