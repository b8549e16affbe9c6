// How values become text: as Python's str and repr, and as JSON.
//
// Pure but for the budget, which pays for each text before it is made; one thread per rendering.
#ifndef EPIC_SERVICES_MODEL_JINJA_PRINT_H_
#define EPIC_SERVICES_MODEL_JINJA_PRINT_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "services/model/jinja/value.h"

namespace epic::jinja {

// As Python prints a float: the shortest digits that read back, with ".0" or an exponent.
std::string PrintDouble(double number);

// str(value); Undefined is empty. Text inside containers keeps its origin.
absl::StatusOr<MarkedText> Print(const Value& value, Budget& budget);

struct JsonFormat {
  std::optional<std::string> indent;  // one level of it; absent: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
// json.dumps(value, ensure_ascii=False). Errors: InvalidArgument for what JSON does not have.
absl::StatusOr<MarkedText> PrintJson(const Value& value, const JsonFormat& format, Budget& budget);

}  // namespace epic::jinja

#endif  // EPIC_SERVICES_MODEL_JINJA_PRINT_H_
