#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/base/check.h"
#include "common/status/status_macros.h"
#include "services/model/jinja/arithmetic.h"
#include "services/model/jinja/builtins.h"
#include "services/model/jinja/text_ops.h"

namespace epic::jinja {
namespace {

using Kind = bool (*)(const Value&);

struct KindTest {
  std::string_view name;
  Kind kind;
};

bool IsContainer(const Value& v) {
  return v.AsText() != nullptr || v.AsList() != nullptr || v.AsDict() != nullptr || v.IsUndefined();
}
bool IsFlag(const Value& v, bool wanted) { return v.Is<bool>() && *v.As<bool>() == wanted; }

// Tests that look at the value alone.
constexpr KindTest kKindTests[] = {
    {"defined", [](const Value& v) { return !v.IsUndefined(); }},
    {"undefined", [](const Value& v) { return v.IsUndefined(); }},
    {"none", [](const Value& v) { return v.Is<None>(); }},
    {"string", [](const Value& v) { return v.AsText() != nullptr; }},
    {"mapping", [](const Value& v) { return v.AsDict() != nullptr; }},
    {"sequence", IsContainer},
    {"iterable", IsContainer},
    {"boolean", [](const Value& v) { return v.Is<bool>(); }},
    {"number", [](const Value& v) { return v.IsNumber(); }},
    {"integer", [](const Value& v) { return v.Is<int64_t>(); }},
    {"float", [](const Value& v) { return v.Is<double>(); }},
    {"true", [](const Value& v) { return IsFlag(v, true); }},
    {"false", [](const Value& v) { return IsFlag(v, false); }},
    {"callable", [](const Value& v) { return v.IsCallable(); }},
    {"upper", [](const Value& v) { return v.AsText() != nullptr && HasOnlyCase(*v.AsText(), true); }},
    {"lower", [](const Value& v) { return v.AsText() != nullptr && HasOnlyCase(*v.AsText(), false); }},
};

constexpr std::string_view kOtherTests[] = {"odd", "even", "divisibleby", "equalto", "eq",       "==", "ne",
                                            "!=",  "in",   "sameas",      "lt",      "lessthan", "<",  "le",
                                            "<=",  "gt",   "greaterthan", ">",       "ge",       ">="};

// Whether value % divisor is `rest`.
absl::StatusOr<bool> HasRemainder(const Value& value, const Value& divisor, int64_t rest, Budget& budget) {
  EPIC_ASSIGN_OR_RETURN(const Value found, Calculate("%", value, divisor, budget));
  return AreEqual(found, Value::Int(rest), budget);
}

bool IsSame(const Value& left, const Value& right, bool equal) {
  const bool singleton = left.Is<None>() || left.Is<bool>();
  return singleton ? equal && TypeName(left) == TypeName(right) : equal;
}

absl::StatusOr<bool> CallBinaryTest(std::string_view name, const Value& input, const Value& other,
                                    Budget& budget) {
  if (name == "in") return Contains(other, input, budget);
  if (name == "divisibleby") {
    return HasRemainder(input, other, 0, budget);
  }
  if (name == "equalto" || name == "eq" || name == "==" || name == "ne" || name == "!=" || name == "sameas") {
    EPIC_ASSIGN_OR_RETURN(const bool equal, AreEqual(input, other, budget));
    if (name == "sameas") return IsSame(input, other, equal);
    return equal != (name == "ne" || name == "!=");
  }
  EPIC_ASSIGN_OR_RETURN(const int order, Compare(input, other, budget));
  if (name == "lt" || name == "lessthan" || name == "<") return order < 0;
  if (name == "le" || name == "<=") return order <= 0;
  if (name == "gt" || name == "greaterthan" || name == ">") return order > 0;
  return order >= 0;
}

}  // namespace

bool IsTest(std::string_view name) {
  return std::any_of(std::begin(kKindTests), std::end(kKindTests),
                     [&](const KindTest& t) { return t.name == name; }) ||
         std::find(std::begin(kOtherTests), std::end(kOtherTests), name) != std::end(kOtherTests);
}

absl::StatusOr<bool> CallTest(std::string_view name, const Value& input, const Arguments& arguments,
                              Budget& budget) {
  for (const KindTest& test : kKindTests) {
    if (test.name != name) continue;
    EPIC_RETURN_IF_ERROR(Bind(name, arguments, {}).status());
    return test.kind(input);
  }
  if (name == "odd" || name == "even") {
    EPIC_RETURN_IF_ERROR(Bind(name, arguments, {}).status());
    return HasRemainder(input, Value::Int(2), name == "odd" ? 1 : 0, budget);
  }
  EPIC_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"other"}));
  if (!bound[0])
    return absl::InvalidArgumentError(absl::StrCat("test '", ToAbsl(name), "' needs an argument"));
  return CallBinaryTest(name, input, *bound[0], budget);
}

}  // namespace epic::jinja
