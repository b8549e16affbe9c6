#include "services/model/model_error.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/status/error.h"

namespace epic {

absl::Status BadModelFile(std::string_view file, std::string_view field, std::string_view what) {
  return Error(ErrorCode::kInvalidRequest,
               absl::StrCat("model file ", ToAbsl(file), ": ", ToAbsl(field), ": ", ToAbsl(what)), field);
}

std::string Quoted(std::string_view text) {
  constexpr size_t kShown = 80;
  const bool cut = text.size() > kShown;
  return absl::StrCat("'", absl::CHexEscape(ToAbsl(text.substr(0, kShown))), cut ? "…'" : "'");
}

}  // namespace epic
