// The day that templates believe it is: 26 July 2024, 00:00, which Llama 3 templates name when they have no
// clock.
//
// A date that moved would change the head of every prompt each day and with it all that is cached behind it.
#ifndef EPIC_SERVICES_MODEL_JINJA_FIXED_DATE_H_
#define EPIC_SERVICES_MODEL_JINJA_FIXED_DATE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace epic::jinja {

// strftime of that day, in English. Errors: InvalidArgument for a conversion it does not know.
absl::StatusOr<std::string> FormatFixedDate(std::string_view format);

}  // namespace epic::jinja

#endif  // EPIC_SERVICES_MODEL_JINJA_FIXED_DATE_H_
