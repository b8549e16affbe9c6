#include "services/kv_store/tools/object_check.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/base/absl_std.h"
#include "common/base/crc32c.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/storage/object_codec.h"
#include "common/storage/record_codec.h"
#include "services/kv_store/core/replica_state.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kFileSpan = uint64_t{1} << 32;  // pages between the first pages of two files
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
constexpr size_t kSlabKeyBytes = 16;

bool Holds(const std::vector<uint64_t>& sorted, uint64_t number) {
  return std::binary_search(sorted.begin(), sorted.end(), number);
}

uint64_t PagesOf(const SlabExtents& extents) {
  uint64_t pages = 0;
  for (const SlabExtent& extent : extents) pages += extent.pages;
  return pages;
}

// Compares the bytes of one layer, as they come, with the checksums of its blocks. Needs no memory for them.
class BlockVerifier {
 public:
  BlockVerifier(const ObjectHead& head, uint32_t layer)
      : head_(head), head_bytes_(head.layout.HeadBytes()), block_(layer * BlocksPerLayer(head.layout)) {}

  bool Feed(ByteSpan bytes) {
    while (!bytes.empty()) {
      const uint64_t block_bytes = std::min(kObjectBlockBytes, head_bytes_ - in_head_);
      const ByteSpan piece = bytes.first(std::min<uint64_t>(bytes.size(), block_bytes - in_block_));
      crc_ = Crc32c(crc_, piece);
      in_block_ += piece.size();
      bytes = bytes.subspan(piece.size());
      if (in_block_ < block_bytes) continue;
      if (block_ >= head_.block_crcs.size() || crc_ != head_.block_crcs[block_]) return false;
      ++block_;
      in_head_ = in_head_ + block_bytes == head_bytes_ ? 0 : in_head_ + block_bytes;
      crc_ = 0;
      in_block_ = 0;
    }
    return true;
  }

 private:
  const ObjectHead& head_;
  const uint64_t head_bytes_;
  uint64_t block_;
  uint64_t in_head_ = 0;   // where the block begins in its head
  uint64_t in_block_ = 0;  // bytes of it that were fed
  uint32_t crc_ = 0;
};

}  // namespace

bool ObjectCheck::ScanEntries(const std::function<void(std::string_view, std::string_view)>& visit) {
  std::string last;
  const absl::Status status =
      tables_->Scan(Table::kObjects, [&](std::string_view row, std::string_view value) {
        visit(row, value);
        last = std::string(row);
        return true;
      });
  if (status.ok()) return true;
  report_->complete = false;
  report_->Add({.kind = FaultKind::kUnreadableRows,
                .table = "objects",
                .key = last,
                .detail = "the rows behind this one: " + MessageOf(status)});
  return false;
}

void ObjectCheck::Collect(std::string_view value) {
  const auto entry = DecodeObjectEntry(AsBytes(value));
  if (!entry.ok()) return;
  numbers_.push_back(entry->number);
  if (extents_ == nullptr) return;
  for (const SlabExtent& extent : entry->extents) {
    if (!extents_->Contains(extent)) continue;
    claims_.push_back({extent.file * kFileSpan + extent.page, extent.pages, entry->number});
  }
}

// As a store decides it when it opens: the later one wrote the pages, and one that lost keeps none of its
// own.
void ObjectCheck::FindShared() {
  std::sort(claims_.begin(), claims_.end());
  // Two entries of one number and place: told by their number.
  claims_.erase(std::unique(claims_.begin(), claims_.end()), claims_.end());
  bool any = false;
  uint64_t end = 0;
  for (const Claim& claim : claims_) {
    any = any || claim.begin < end;
    end = std::max(end, claim.begin + claim.pages);
  }
  if (!any) return;
  std::stable_sort(claims_.begin(), claims_.end(),
                   [](const Claim& a, const Claim& b) { return a.number > b.number; });
  std::map<uint64_t, uint64_t> taken;  // first page → the one behind the last
  const auto take = [&taken](const Claim& claim) {
    const auto next = taken.lower_bound(claim.begin);
    if (next != taken.end() && next->first < claim.begin + claim.pages) return false;
    if (next != taken.begin() && std::prev(next)->second > claim.begin) return false;
    taken[claim.begin] = claim.begin + claim.pages;
    return true;
  };
  for (size_t first = 0; first < claims_.size();) {
    const uint64_t number = claims_[first].number;
    size_t behind = first;
    while (behind < claims_.size() && claims_[behind].number == number && take(claims_[behind])) ++behind;
    const bool lost = behind < claims_.size() && claims_[behind].number == number;
    if (lost) {
      for (size_t i = first; i < behind; ++i) taken.erase(claims_[i].begin);
      shared_.push_back(number);
    }
    while (behind < claims_.size() && claims_[behind].number == number) ++behind;
    first = behind;
  }
  std::sort(shared_.begin(), shared_.end());
}

absl::Status ObjectCheck::CheckIdentity(std::string_view row, const ObjectEntry& entry, FaultKind* kind) {
  *kind = FaultKind::kDamagedObject;
  EPIC_ASSIGN_OR_RETURN(const ContextKey key, ParseObjectContextKey(row));
  if (RowKey(TenantObjectKey{key, entry.variant}) != row || entry.head.id != key.id) {
    return absl::DataLossError("the entry is that of another key");
  }
  const auto stored = tables_->Get(Table::kRecords, RowKey(key));
  const auto removal = tables_->Get(Table::kTombstones, RowKey(key));
  if (!stored.ok() || !removal.ok()) return absl::OkStatus();  // told of those tables
  const std::optional<std::string>& bytes = *stored;
  const auto record = bytes.has_value() ? DecodeRecord(AsBytes(*bytes)) : absl::NotFoundError("no record");
  const auto tombstone =
      removal->has_value() ? DecodeTombstone(AsBytes(**removal)) : absl::NotFoundError("no tombstone");
  if (!bytes.has_value() || (record.ok() && tombstone.ok() && !Counts(*record, *tombstone))) {
    *kind = FaultKind::kObjectWithoutRecord;
    return absl::NotFoundError("its context is gone");
  }
  if (!record.ok()) return absl::OkStatus();  // told of the record
  if (record->token_count != entry.head.layout.tokens ||
      CacheId::Of(key.tenant, record->model_identity, entry.head.tokens) != key.id) {
    return absl::DataLossError("it holds the rows of other tokens");
  }
  return absl::OkStatus();
}

absl::Status ObjectCheck::CheckPlace(const ObjectEntry& entry, FaultKind* kind) {
  *kind = FaultKind::kSharedSlabs;
  if (Holds(repeated_, entry.number)) {
    if (Holds(seen_, entry.number)) return absl::DataLossError("another entry has its number");
    seen_.insert(std::lower_bound(seen_.begin(), seen_.end(), entry.number), entry.number);
  }
  if (Holds(shared_, entry.number)) return absl::DataLossError("a newer object has some of its pages");
  if (entry.extents.empty() || extents_ == nullptr) return absl::OkStatus();
  *kind = FaultKind::kMissingSlabs;
  for (const SlabExtent& extent : entry.extents) {
    if (extents_->Contains(extent)) continue;
    return absl::DataLossError(ToAbsl("pages " + std::to_string(extent.page) + " to " +
                                      std::to_string(uint64_t{extent.page} + extent.pages) + " are not in " +
                                      ExtentFolder::NameOf(extent.file)));
  }
  *kind = FaultKind::kDamagedSlabs;
  const SlabShape shape = SlabShapeOf(entry.head.layout);
  if (PagesOf(entry.extents) * kSlabPageBytes != RoundUpToPage(shape.ImageBytes())) {
    return absl::DataLossError("its extents are of another size");
  }
  return absl::OkStatus();
}

absl::Status ObjectCheck::CheckLayerInExtents(const ObjectEntry& entry, uint32_t layer) {
  const SlabShape shape = SlabShapeOf(entry.head.layout);
  BlockVerifier verifier(entry.head, layer);
  std::string buffer(std::min(kPieceBytes, shape.layer_bytes), '\0');
  for (uint64_t at = 0; at < shape.layer_bytes; at += buffer.size()) {
    const uint64_t bytes = std::min<uint64_t>(buffer.size(), shape.layer_bytes - at);
    const MutableByteSpan piece = std::as_writable_bytes(std::span<char>(buffer.data(), bytes));
    EPIC_RETURN_IF_ERROR(extents_->Read(entry.extents, layer * shape.stride + at, piece));
    if (!verifier.Feed(piece)) return absl::DataLossError("wrong checksum");
    report_->counts.verified_bytes += bytes;
  }
  return absl::OkStatus();
}

absl::Status ObjectCheck::CheckLayerInRows(const ObjectEntry& entry, uint32_t layer) {
  const uint64_t layer_bytes = entry.head.layout.LayerBytes();
  BlockVerifier verifier(entry.head, layer);
  uint32_t piece = 0;
  for (uint64_t at = 0; at < layer_bytes; at += kSlabPieceBytes) {
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> row,
                          tables_->Get(Table::kSlabs, SlabRowKey(entry.number, layer, piece++)));
    if (!row.has_value()) return absl::NotFoundError("a row of its slabs is not there");
    if (row->size() != std::min(kSlabPieceBytes, layer_bytes - at)) {
      return absl::DataLossError("a row of its slabs is short or long");
    }
    if (!verifier.Feed(AsBytes(*row))) return absl::DataLossError("wrong checksum");
    report_->counts.verified_bytes += row->size();
  }
  return absl::OkStatus();
}

absl::Status ObjectCheck::CheckSlabs(const ObjectEntry& entry) {
  if (entry.extents.empty() && !deep_) {
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> row,
                          tables_->FirstKeyFrom(Table::kSlabs, SlabRowKey(entry.number, 0, 0)));
    if (row == SlabRowKey(entry.number, 0, 0)) return absl::OkStatus();
    return absl::NotFoundError("the rows of its slabs are not there");
  }
  if (!deep_ || (extents_ == nullptr && !entry.extents.empty())) return absl::OkStatus();
  for (uint32_t layer = 0; layer < entry.head.layout.layers; ++layer) {
    const absl::Status status =
        entry.extents.empty() ? CheckLayerInRows(entry, layer) : CheckLayerInExtents(entry, layer);
    if (!status.ok()) {
      return absl::Status(status.code(), ToAbsl("layer " + std::to_string(layer) + ": " + MessageOf(status)));
    }
    note_();
  }
  return absl::OkStatus();
}

void ObjectCheck::CheckEntry(std::string_view row, std::string_view value) {
  ++report_->counts.objects;
  const auto add = [&](FaultKind kind, const absl::Status& status) {
    report_->Add({.kind = kind,
                  .table = "objects",
                  .key = std::string(row),
                  .detail = MessageOf(status),
                  .crc = Crc32c(0, AsBytes(value))});
  };
  const auto entry = DecodeObjectEntry(AsBytes(value));
  if (!entry.ok()) {
    return add(absl::IsUnimplemented(entry.status()) ? FaultKind::kOtherObject : FaultKind::kDamagedObject,
               entry.status());
  }
  report_->counts.object_bytes += entry->head.layout.TotalBytes();
  if (!entry->extents.empty()) ++report_->counts.objects_in_extents;
  FaultKind kind = FaultKind::kDamagedObject;
  if (absl::Status status = CheckIdentity(row, *entry, &kind); !status.ok()) return add(kind, status);
  if (absl::Status status = CheckPlace(*entry, &kind); !status.ok()) return add(kind, status);
  const absl::Status slabs = CheckSlabs(*entry);
  if (absl::IsNotFound(slabs)) return add(FaultKind::kMissingSlabs, slabs);
  if (absl::IsDataLoss(slabs)) return add(FaultKind::kDamagedSlabs, slabs);
  if (!slabs.ok()) add(FaultKind::kUnreadableSlabs, slabs);
}

// Numbers of slab rows that no entry has. Rows of a known number are read with their object.
void ObjectCheck::CheckSlabRows() {
  std::string from;
  while (true) {
    const auto key = tables_->FirstKeyFrom(Table::kSlabs, from);
    if (!key.ok()) {
      report_->complete = false;
      report_->Add({.kind = FaultKind::kUnreadableRows,
                    .table = "slabs",
                    .key = from,
                    .detail = "the rows from this one on: " + MessageOf(key.status())});
      return;
    }
    if (!key->has_value()) return;
    const std::string& row = **key;
    uint64_t number = 0;
    for (size_t at = 0; at < std::min(row.size(), sizeof number); ++at) {
      number |= uint64_t{static_cast<uint8_t>(row[at])} << (56 - 8 * at);
    }
    const bool is_slab = row.size() == kSlabKeyBytes && number != UINT64_MAX;
    if (!is_slab || !Holds(numbers_, number)) {
      report_->Add({.kind = FaultKind::kSlabsWithoutObject,
                    .table = "slabs",
                    .key = row,
                    .detail = is_slab ? "all rows of this number" : "a key of another form"});
    }
    from = is_slab ? SlabEndKey(number) : row + '\0';
  }
}

void ObjectCheck::Run() {
  const bool all = ScanEntries([this](std::string_view, std::string_view value) { Collect(value); });
  if (!all) return;
  std::sort(numbers_.begin(), numbers_.end());
  for (size_t i = 1; i < numbers_.size(); ++i) {
    const bool again = numbers_[i] == numbers_[i - 1];
    if (again && (repeated_.empty() || repeated_.back() != numbers_[i])) repeated_.push_back(numbers_[i]);
  }
  FindShared();
  ScanEntries([this](std::string_view row, std::string_view value) {
    CheckEntry(row, value);
    note_();
  });
  CheckSlabRows();
}

}  // namespace epic::kv_store
