// Python's arithmetic on template values: integers of 64 bits, floats, text and lists. Pure but for the
// budget.
#ifndef EPIC_SERVICES_MODEL_JINJA_ARITHMETIC_H_
#define EPIC_SERVICES_MODEL_JINJA_ARITHMETIC_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "services/model/jinja/value.h"

namespace epic::jinja {

// `operation` is one of + - * / // % **. Errors: InvalidArgument for types without it, overflow, division by
// 0.
absl::StatusOr<Value> Calculate(std::string_view operation, const Value& left, const Value& right,
                                Budget& budget);
absl::StatusOr<Value> Negate(const Value& value);

}  // namespace epic::jinja

#endif  // EPIC_SERVICES_MODEL_JINJA_ARITHMETIC_H_
