#include "common/rpc/kv_store/layer_part.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/crc32c.h"
#include "common/rpc/kv_store/object_convert.h"
#include "common/status/error.h"
#include "epic/v1/kv_store.pb.h"

namespace epic {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// The bytes of some slices, one behind the other.
class SliceStream final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit SliceStream(const std::vector<grpc::Slice>* slices) : slices_(slices) {}
  bool Next(const void** data, int* size) override {
    while (at_ < slices_->size() && offset_ == (*slices_)[at_].size()) {
      ++at_;
      offset_ = 0;
    }
    if (at_ == slices_->size()) return false;
    const grpc::Slice& slice = (*slices_)[at_];
    *data = slice.begin() + offset_;
    *size = static_cast<int>(slice.size() - offset_);
    offset_ = slice.size();
    count_ += *size;
    return true;
  }
  void BackUp(int count) override {
    offset_ -= static_cast<size_t>(count);
    count_ -= count;
  }
  bool Skip(int count) override {
    const void* data;
    int size = 0;
    while (count > 0 && Next(&data, &size)) {
      if (size > count) BackUp(size - count);
      count -= std::min(size, count);
    }
    return count == 0;
  }
  int64_t ByteCount() const override { return count_; }

 private:
  const std::vector<grpc::Slice>* const slices_;
  size_t at_ = 0;
  size_t offset_ = 0;
  int64_t count_ = 0;
};

bool ReadLength(CodedInputStream* in, uint64_t max, uint32_t* length) {
  return in->ReadVarint32(length) && *length <= max;
}

// Notes where the data lies.
bool ReadData(CodedInputStream* in, ReceivedPart* part) {
  uint32_t left = 0;
  if (!ReadLength(in, kMaxPartBytes, &left)) return false;
  part->data.clear();  // of a field that is there twice, the last one counts
  part->data_bytes = left;
  while (left > 0) {
    const void* data = nullptr;
    int size = 0;
    if (!in->GetDirectBufferPointer(&data, &size)) return false;
    const uint32_t take = std::min(left, static_cast<uint32_t>(size));
    part->data.emplace_back(static_cast<const std::byte*>(data), take);
    if (!in->Skip(static_cast<int>(take))) return false;
    left -= take;
  }
  return true;
}

bool ReadCrcs(CodedInputStream* in, std::vector<uint32_t>* crcs) {
  uint32_t length = 0;
  if (!ReadLength(in, std::numeric_limits<int>::max(), &length) || length % sizeof(uint32_t) != 0)
    return false;
  for (; length > 0; length -= sizeof(uint32_t)) {
    if (!in->ReadLittleEndian32(&crcs->emplace_back())) return false;
  }
  return true;
}

bool ReadField(uint32_t tag, CodedInputStream* in, ReceivedPart* part) {
  using Part = v1::LayerPart;
  LayerPartHead& head = part->head;
  const auto is = [tag](int field, WireFormatLite::WireType type) {
    return tag == WireFormatLite::MakeTag(field, type);
  };
  uint32_t length = 0;
  if (is(Part::kTokenFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED)) {
    return ReadLength(in, kTokenBytes, &length) && in->ReadString(&head.token, static_cast<int>(length));
  }
  if (is(Part::kLayerFieldNumber, WireFormatLite::WIRETYPE_VARINT)) return in->ReadVarint32(&head.layer);
  if (is(Part::kOffsetFieldNumber, WireFormatLite::WIRETYPE_VARINT)) return in->ReadVarint64(&head.offset);
  if (is(Part::kBlockCrcsFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED)) {
    return ReadCrcs(in, &head.block_crcs);
  }
  if (is(Part::kBlockCrcsFieldNumber, WireFormatLite::WIRETYPE_FIXED32)) {
    return in->ReadLittleEndian32(&head.block_crcs.emplace_back());
  }
  if (is(Part::kDataCrc32CFieldNumber, WireFormatLite::WIRETYPE_FIXED32)) {
    return in->ReadLittleEndian32(&head.data_crc32c);
  }
  if (is(Part::kDataFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED)) return ReadData(in, part);
  return WireFormatLite::SkipField(in, tag);
}

}  // namespace

bool ReceivedPart::CopyTo(MutableByteSpan to) const {
  uint32_t crc = 0;
  size_t at = 0;
  for (const ByteSpan piece : data) {
    crc = CopyWithCrc32c(crc, piece, to.subspan(at, piece.size()));
    at += piece.size();
  }
  return crc == head.data_crc32c;
}

grpc::ByteBuffer EncodeLayerPart(const LayerPartHead& head, const grpc::Slice& data) {
  v1::LayerPart proto;
  proto.set_token(head.token);
  proto.set_layer(head.layer);
  proto.set_offset(head.offset);
  proto.mutable_block_crcs()->Assign(head.block_crcs.begin(), head.block_crcs.end());
  proto.set_data_crc32c(head.data_crc32c);
  std::string front = proto.SerializeAsString();
  {
    google::protobuf::io::StringOutputStream text(&front);
    google::protobuf::io::CodedOutputStream out(&text);
    out.WriteTag(
        WireFormatLite::MakeTag(v1::LayerPart::kDataFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
    out.WriteVarint32(static_cast<uint32_t>(data.size()));
  }
  const grpc::Slice slices[] = {grpc::Slice(front), data};
  return grpc::ByteBuffer(slices, 2);
}

absl::StatusOr<ReceivedPart> DecodeLayerPart(const grpc::ByteBuffer& bytes) {
  ReceivedPart part;
  bool good = bytes.Dump(&part.held).ok();
  SliceStream stream(&part.held);
  CodedInputStream in(&stream);
  while (good) {
    const uint32_t tag = in.ReadTag();
    if (tag == 0) break;
    good = ReadField(tag, &in, &part);
  }
  if (!good || !in.ConsumedEntireMessage()) {
    return Error(ErrorCode::kInvalidRequest,
                 "that is no part of a layer; parts have at most " + std::to_string(kMaxPartBytes) + " bytes",
                 "data");
  }
  return part;
}

}  // namespace epic
