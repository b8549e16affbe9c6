#include "common/transport/transport.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/absl_std.h"
#include "common/base/check.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/storage/object_codec.h"
#include "common/transport/range_check.h"

namespace epic::transport {
namespace {

constexpr std::array<std::string_view, kPathKinds> kPathNames = {"shm", "ucx", "grpc", "inproc"};
constexpr std::array<std::string_view, kTrafficClasses> kTrafficNames = {"fetch", "write_behind", "repair"};

absl::Status Invalid(const std::string& what) { return absl::InvalidArgumentError(ToAbsl(what)); }

absl::Status ValidateRange(const KvLayout& layout, const FetchRange& range) {
  if (range.layer >= layout.layers) return Invalid("a fetch: the object has no such layer");
  const uint64_t bytes = layout.LayerBytes();
  if (range.offset > bytes || range.to.size() > bytes - range.offset) {
    return Invalid("a fetch: a range that is not in its layer");
  }
  if (range.to.empty()) return absl::OkStatus();
  if (!BlockAt(layout, range.offset).has_value() ||
      !BlockAt(layout, range.offset + range.to.size()).has_value()) {
    return Invalid("a fetch: a range that does not begin and end where blocks do");
  }
  return absl::OkStatus();
}

FetchEnd EndOfUnavailable(const absl::Status& status) {
  switch (CodeOf(status)) {
    case ErrorCode::kInternal:  // no code of ours
    case ErrorCode::kDraining:
    case ErrorCode::kLoading:
      return FetchEnd::kPathDown;
    default:
      return FetchEnd::kRefused;
  }
}

}  // namespace

std::string_view NameOf(PathKind kind) {
  EPIC_CHECK(static_cast<size_t>(kind) < kPathKinds);
  return kPathNames[static_cast<size_t>(kind)];
}

std::string_view NameOf(TrafficClass traffic) {
  EPIC_CHECK(static_cast<size_t>(traffic) < kTrafficClasses);
  return kTrafficNames[static_cast<size_t>(traffic)];
}

absl::Status ValidateRequest(const FetchRequest& request) {
  if (request.region == nullptr) return Invalid("a fetch: no region");
  const Region& region = *request.region;
  EPIC_RETURN_IF_ERROR(ValidateLayout(region.layout));
  if (!region.block_crcs.empty() && region.block_crcs.size() != BlockCount(region.layout)) {
    return Invalid("a fetch: the region has another number of checksums than blocks");
  }
  if (request.ranges.size() > kMaxFetchRanges) return Invalid("a fetch: too many ranges");
  for (const FetchRange& range : request.ranges) {
    EPIC_RETURN_IF_ERROR(ValidateRange(region.layout, range));
  }
  return absl::OkStatus();
}

bool MovesBytes(const FetchRequest& request) {
  return std::ranges::any_of(request.ranges, [](const FetchRange& range) { return !range.to.empty(); });
}

FetchEnd EndOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return FetchEnd::kOk;
    case absl::StatusCode::kCancelled:
      return FetchEnd::kCancelled;
    case absl::StatusCode::kDeadlineExceeded:
      return FetchEnd::kDeadline;
    case absl::StatusCode::kAborted:
      return CodeOf(status) == ErrorCode::kLeaseEnded ? FetchEnd::kLeaseEnded : FetchEnd::kRefused;
    case absl::StatusCode::kDataLoss:
      return CodeOf(status) == ErrorCode::kLayerDamaged ? FetchEnd::kDamaged : FetchEnd::kRefused;
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kFailedPrecondition:
      return FetchEnd::kNotOnThisPath;
    case absl::StatusCode::kUnavailable:
      return EndOfUnavailable(status);
    case absl::StatusCode::kResourceExhausted:
      return FetchEnd::kPathDown;
    default:
      return FetchEnd::kRefused;
  }
}

absl::Status CancelledStatus() { return absl::CancelledError("the fetch was cancelled"); }

absl::Status DeadlineStatus() {
  return Error(ErrorCode::kDeadline, "the bytes did not come in time; allow more time or try again");
}

absl::Status LeaseEndedStatus(std::string_view what) { return Error(ErrorCode::kLeaseEnded, what); }

absl::Status DamagedStatus(uint32_t layer) {
  return Error(ErrorCode::kLayerDamaged,
               "layer " + std::to_string(layer) + " did not arrive as it was stored; fetch it again");
}

absl::Status NotOnThisPathStatus(std::string_view what) { return absl::UnimplementedError(ToAbsl(what)); }

absl::Status PathDownStatus(std::string_view what) { return absl::UnavailableError(ToAbsl(what)); }

absl::StatusOr<std::shared_ptr<const HeldRegion>> Path::Hold(std::shared_ptr<const Region>, int64_t) {
  return NotOnThisPathStatus("this path copies; fetch the region");
}

}  // namespace epic::transport
