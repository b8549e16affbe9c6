// The filters, tests, methods and attributes that templates may use.
//
// Stateless, one thread per rendering; the budget pays for all work and for every text before it is made.
// Loops, scopes and calls of macros are the interpreter's.
#ifndef EPIC_SERVICES_MODEL_JINJA_BUILTINS_H_
#define EPIC_SERVICES_MODEL_JINJA_BUILTINS_H_

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/model/jinja/value.h"

namespace epic::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// The arguments in the order of `parameters`; absent ones are nullopt. Errors: too many, unknown or repeated.
absl::StatusOr<std::vector<std::optional<Value>>> Bind(std::string_view callee, const Arguments& arguments,
                                                       std::initializer_list<std::string_view> parameters);

// The error of Python for an operation on something undefined, or on a type that does not have it.
absl::Status OperationError(std::string_view operation, const Value& value);

bool IsFilter(std::string_view name);
bool IsTest(std::string_view name);
// REQUIRES: IsFilter(name), IsTest(name). Errors: InvalidArgument for wrong arguments.
absl::StatusOr<Value> CallFilter(std::string_view name, const Value& input, const Arguments& arguments,
                                 Budget& budget);
absl::StatusOr<bool> CallTest(std::string_view name, const Value& input, const Arguments& arguments,
                              Budget& budget);

// value.name and value[index]: Undefined when absent. Errors: InvalidArgument on Undefined.
absl::StatusOr<Value> GetAttribute(const Value& value, std::string_view name, Budget& budget);
absl::StatusOr<Value> GetItem(const Value& value, const Value& index, Budget& budget);
// value[start:stop:step], absent parts are None.
absl::StatusOr<Value> GetSlice(const Value& value, const Value& start, const Value& stop, const Value& step,
                               Budget& budget);
absl::StatusOr<bool> Contains(const Value& container, const Value& item, Budget& budget);
absl::StatusOr<Value> CallMethod(const BoundMethod& method, const Arguments& arguments, Budget& budget);

}  // namespace epic::jinja

#endif  // EPIC_SERVICES_MODEL_JINJA_BUILTINS_H_
