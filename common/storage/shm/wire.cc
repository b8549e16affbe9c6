#include "common/storage/shm/wire.h"

#include "common/base/absl_std.h"
#include "common/base/check.h"
#include "common/status/status_macros.h"
#include "common/storage/byte_reader.h"
#include "common/storage/object_codec.h"

namespace epic::shm {
namespace {

constexpr std::string_view kMagic = "EPSH";
constexpr size_t kCacheIdBytes = 36;
constexpr uint32_t kMaxLayers = 4096;

absl::Status Malformed(std::string_view what) {
  return absl::InvalidArgumentError(ToAbsl("malformed " + std::string(what)));
}

void AppendText(std::string* out, std::string_view text) {
  AppendLittle<uint32_t>(out, static_cast<uint32_t>(text.size()));
  out->append(text);
}

template <typename T>
void AppendList(std::string* out, const std::vector<T>& values) {
  AppendLittle<uint32_t>(out, static_cast<uint32_t>(values.size()));
  out->append(AsText(AsBytes(std::span<const T>(values))));
}

template <typename T>
std::vector<T> TakeList(ByteReader* reader, uint32_t max_count) {
  const uint32_t count = reader->TakeUpTo<uint32_t>(max_count);
  const ByteSpan bytes = reader->TakeBytes(uint64_t{count} * sizeof(T));
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void AppendObject(std::string* out, const LeasedObject& object) {
  EPIC_CHECK(object.layer_offsets.size() <= kMaxLayers && object.block_crcs.size() <= kMaxBlocks);
  AppendLittle<uint64_t>(out, object.lease);
  AppendLittle<uint64_t>(out, object.generation);
  out->append(object.build.view());
  AppendList(out, object.layer_offsets);
  AppendList(out, object.block_crcs);
}

LeasedObject TakeObject(ByteReader* reader) {
  LeasedObject object;
  object.lease = reader->Take<uint64_t>();
  object.generation = reader->Take<uint64_t>();
  object.build = reader->TakeDigest();
  object.layer_offsets = TakeList<uint64_t>(reader, kMaxLayers);
  object.block_crcs = TakeList<uint32_t>(reader, kMaxBlocks);
  return object;
}

}  // namespace

std::string EncodeFrame(FrameType type, uint32_t number, std::string_view body) {
  EPIC_CHECK(body.size() <= kMaxAnswerBytes);
  std::string out;
  out.reserve(kFrameHeaderBytes + body.size());
  out.append(kMagic);
  AppendLittle<uint16_t>(&out, kWireVersion);
  AppendLittle<uint16_t>(&out, static_cast<uint16_t>(type));
  AppendLittle<uint32_t>(&out, number);
  AppendLittle<uint32_t>(&out, static_cast<uint32_t>(body.size()));
  out.append(body);
  return out;
}

absl::StatusOr<FrameHeader> DecodeFrameHeader(ByteSpan bytes, uint32_t max_body_bytes) {
  EPIC_CHECK(bytes.size() == kFrameHeaderBytes);
  ByteReader reader(bytes);
  if (AsText(reader.TakeBytes(kMagic.size())) != kMagic) return Malformed("frame: wrong magic");
  if (const auto version = reader.Take<uint16_t>(); version != kWireVersion) {
    return absl::UnimplementedError(
        ToAbsl("version " + std::to_string(version) + " of the hand-over is not one that this build speaks"));
  }
  const auto type = reader.Take<uint16_t>();
  FrameHeader header;
  header.number = reader.Take<uint32_t>();
  header.body_bytes = reader.Take<uint32_t>();
  if (type < static_cast<uint16_t>(FrameType::kHello) || type > static_cast<uint16_t>(FrameType::kRelease)) {
    return Malformed("frame: unknown type");
  }
  if (header.body_bytes > max_body_bytes) return Malformed("frame: its body is too large");
  header.type = static_cast<FrameType>(type);
  return header;
}

std::string EncodeWelcome(const Welcome& welcome) {
  std::string out;
  AppendLittle<uint64_t>(&out, welcome.incarnation);
  AppendLittle<uint64_t>(&out, welcome.arena_bytes);
  return out;
}

absl::StatusOr<Welcome> DecodeWelcome(ByteSpan body) {
  ByteReader reader(body);
  Welcome welcome;
  welcome.incarnation = reader.Take<uint64_t>();
  welcome.arena_bytes = reader.Take<uint64_t>();
  if (!reader.AtEnd()) return Malformed("welcome");
  return welcome;
}

std::string EncodeReason(std::string_view reason) {
  std::string out;
  AppendText(&out, reason.substr(0, kMaxReasonBytes));
  return out;
}

absl::StatusOr<std::string> DecodeReason(ByteSpan body) {
  ByteReader reader(body);
  std::string reason = reader.TakeText(kMaxReasonBytes);
  if (!reader.AtEnd()) return Malformed("reason");
  return reason;
}

std::string EncodeLeaseRequest(const LeaseRequest& request) {
  const ObjectVariant& variant = request.key.variant;
  EPIC_CHECK(request.tenant.size() <= kMaxTenantBytes && request.key.id.text().size() == kCacheIdBytes);
  EPIC_CHECK(request.layout.dtype == variant.dtype);
  std::string out;
  AppendLittle<uint8_t>(&out, request.zero_copy ? 1 : 0);
  AppendText(&out, request.tenant);
  out.append(request.key.id.text());
  AppendLittle<uint8_t>(&out, static_cast<uint8_t>(variant.prefix));
  out.append(variant.prefix_tokens.view());
  AppendLittle<uint8_t>(&out, static_cast<uint8_t>(variant.dtype));
  AppendLittle<uint8_t>(&out, static_cast<uint8_t>(variant.compute));
  AppendLittle<uint32_t>(&out, request.layout.layers);
  AppendLittle<uint32_t>(&out, request.layout.kv_heads);
  AppendLittle<uint32_t>(&out, request.layout.head_dim);
  AppendLittle<uint32_t>(&out, request.layout.tokens);
  AppendLittle<uint32_t>(&out, request.layout.first_position);
  return out;
}

absl::StatusOr<LeaseRequest> DecodeLeaseRequest(ByteSpan body) {
  ByteReader reader(body);
  LeaseRequest request;
  request.zero_copy = reader.TakeBool();
  request.tenant = reader.TakeText(kMaxTenantBytes);
  const std::string_view id = AsText(reader.TakeBytes(kCacheIdBytes));
  ObjectVariant& variant = request.key.variant;
  variant.prefix = static_cast<CompilePrefixKind>(
      reader.TakeUpTo<uint8_t>(static_cast<uint8_t>(CompilePrefixKind::kSystem)));
  variant.prefix_tokens = reader.TakeDigest();
  variant.dtype = static_cast<KvDtype>(reader.TakeUpTo<uint8_t>(static_cast<uint8_t>(KvDtype::kBf16)));
  variant.compute =
      static_cast<ComputeFormat>(reader.TakeUpTo<uint8_t>(static_cast<uint8_t>(ComputeFormat::kBf16)));
  request.layout.layers = reader.Take<uint32_t>();
  request.layout.kv_heads = reader.Take<uint32_t>();
  request.layout.head_dim = reader.Take<uint32_t>();
  request.layout.tokens = reader.Take<uint32_t>();
  request.layout.first_position = reader.Take<uint32_t>();
  request.layout.dtype = variant.dtype;
  if (!reader.AtEnd()) return Malformed("lease");
  EPIC_ASSIGN_OR_RETURN(request.key.id, CacheId::Parse(id));
  EPIC_RETURN_IF_ERROR(ValidateLayout(request.layout));
  return request;
}

std::string EncodeLeaseAnswer(const LeaseAnswer& answer) {
  std::string out;
  AppendLittle<uint8_t>(&out, static_cast<uint8_t>(answer.outcome));
  switch (answer.outcome) {
    case LeaseOutcome::kLeased:
      AppendObject(&out, answer.object);
      break;
    case LeaseOutcome::kMiss:
      AppendLittle<uint8_t>(&out, static_cast<uint8_t>(answer.cause));
      break;
    case LeaseOutcome::kMustCopy:
      break;
    case LeaseOutcome::kRefused:
      out.append(EncodeReason(answer.reason));
      break;
  }
  return out;
}

absl::StatusOr<LeaseAnswer> DecodeLeaseAnswer(ByteSpan body) {
  ByteReader reader(body);
  LeaseAnswer answer;
  answer.outcome =
      static_cast<LeaseOutcome>(reader.TakeUpTo<uint8_t>(static_cast<uint8_t>(LeaseOutcome::kRefused)));
  switch (answer.outcome) {
    case LeaseOutcome::kLeased:
      answer.object = TakeObject(&reader);
      break;
    case LeaseOutcome::kMiss:
      answer.cause =
          static_cast<MissCause>(reader.TakeUpTo<uint8_t>(static_cast<uint8_t>(MissCause::kDiskSlow)));
      break;
    case LeaseOutcome::kMustCopy:
      break;
    case LeaseOutcome::kRefused:
      answer.reason = reader.TakeText(kMaxReasonBytes);
      break;
  }
  if (!reader.AtEnd()) return Malformed("answer");
  return answer;
}

std::string EncodeLeaseNumber(uint64_t lease) {
  std::string out;
  AppendLittle<uint64_t>(&out, lease);
  return out;
}

absl::StatusOr<uint64_t> DecodeLeaseNumber(ByteSpan body) {
  ByteReader reader(body);
  const auto lease = reader.Take<uint64_t>();
  if (!reader.AtEnd()) return Malformed("lease number");
  return lease;
}

std::string EncodeConfirmed(bool current) { return std::string(1, current ? '\1' : '\0'); }

absl::StatusOr<bool> DecodeConfirmed(ByteSpan body) {
  ByteReader reader(body);
  const bool current = reader.TakeBool();
  if (!reader.AtEnd()) return Malformed("confirmation");
  return current;
}

}  // namespace epic::shm
