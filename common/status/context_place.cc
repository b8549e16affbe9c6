#include "common/status/context_place.h"

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "common/status/error.h"

namespace epic {
namespace {

bool IsAboutContext(ErrorCode code) {
  switch (code) {
    case ErrorCode::kContextFailed:
    case ErrorCode::kContextNotFound:
    case ErrorCode::kContextExpired:
    case ErrorCode::kContextDeleted:
    case ErrorCode::kContextObjectMissing:
    case ErrorCode::kContextModelMismatch:
    case ErrorCode::kContextCompiling:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::Status AtPlace(const absl::Status& status, std::string_view place) {
  if (status.ok() || place.empty() || !IsAboutContext(CodeOf(status))) return status;
  absl::Status placed = Error(CodeOf(status), MessageOf(status), place);
  status.ForEachPayload([&placed](absl::string_view url, const absl::Cord& payload) {
    if (!placed.GetPayload(url).has_value()) placed.SetPayload(url, payload);
  });
  return placed;
}

}  // namespace epic
