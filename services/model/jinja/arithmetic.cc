#include "services/model/jinja/arithmetic.h"

#include <cmath>

#include "common/status/status_macros.h"
#include "services/model/jinja/builtins.h"

namespace epic::jinja {
namespace {

absl::Status Overflow() { return absl::InvalidArgumentError("a number is too large"); }
absl::Status DivisionByZero() { return absl::InvalidArgumentError("division by zero"); }

absl::StatusOr<Value> Power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return DivisionByZero();
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return Overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Overflow();
  }
  return Value::Int(result);
}

absl::StatusOr<Value> OnIntegers(std::string_view operation, int64_t left, int64_t right) {
  int64_t result = 0;
  if (operation == "**") return Power(left, right);
  if (operation == "+")
    return __builtin_add_overflow(left, right, &result) ? Overflow()
                                                        : absl::StatusOr<Value>(Value::Int(result));
  if (operation == "-")
    return __builtin_sub_overflow(left, right, &result) ? Overflow()
                                                        : absl::StatusOr<Value>(Value::Int(result));
  if (operation == "*")
    return __builtin_mul_overflow(left, right, &result) ? Overflow()
                                                        : absl::StatusOr<Value>(Value::Int(result));
  if (right == 0) return DivisionByZero();
  if (operation == "/") return Value(static_cast<double>(left) / static_cast<double>(right));
  if (right == -1) {  // the quotient may overflow
    if (operation == "%") return Value::Int(0);
    return __builtin_sub_overflow(int64_t{0}, left, &result) ? Overflow()
                                                             : absl::StatusOr<Value>(Value::Int(result));
  }
  const bool round_down = left % right != 0 && (left < 0) != (right < 0);
  if (operation == "//") return Value::Int(left / right - (round_down ? 1 : 0));
  return Value::Int(left % right + (round_down ? right : 0));
}

absl::StatusOr<Value> OnDoubles(std::string_view operation, double left, double right) {
  if (operation == "+") return Value(left + right);
  if (operation == "-") return Value(left - right);
  if (operation == "*") return Value(left * right);
  if (operation == "**") return Value(std::pow(left, right));
  if (right == 0) return DivisionByZero();
  if (operation == "/") return Value(left / right);
  const double rest = std::fmod(left, right);
  const bool adjust = rest != 0 && (rest < 0) != (right < 0);
  if (operation == "%") return Value(adjust ? rest + right : rest);
  return Value(std::floor(left / right));
}

absl::StatusOr<Value> Repeat(const Value& sequence, int64_t times, Budget& budget) {
  times = times < 0 ? 0 : times;
  EPIC_RETURN_IF_ERROR(budget.Spend(static_cast<uint64_t>(times)));
  if (const MarkedText* text = sequence.AsText()) {
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(times), text->cost(), &bytes)) return Overflow();
    EPIC_RETURN_IF_ERROR(budget.SpendBytes(bytes));
    MarkedText out;
    for (int64_t i = 0; i < times; ++i) out.Append(*text);
    return Value::Of(std::move(out));
  }
  const ListData& list = *sequence.AsList();
  std::vector<Value> items;
  for (int64_t i = 0; i < times; ++i) {
    EPIC_RETURN_IF_ERROR(budget.Spend(list.items.size()));
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return MakeList(std::move(items), list.tuple, budget);
}

bool IsSequence(const Value& value) { return value.AsText() != nullptr || value.AsList() != nullptr; }

}  // namespace

absl::StatusOr<Value> Calculate(std::string_view operation, const Value& left, const Value& right,
                                Budget& budget) {
  if (left.IsInteger() && right.IsInteger())
    return OnIntegers(operation, left.AsInteger(), right.AsInteger());
  if (left.IsNumber() && right.IsNumber()) return OnDoubles(operation, left.AsDouble(), right.AsDouble());
  if (operation == "+" && left.AsText() != nullptr && right.AsText() != nullptr) {
    EPIC_RETURN_IF_ERROR(budget.SpendBytes(left.AsText()->cost() + right.AsText()->cost()));
    MarkedText out = *left.AsText();
    out.Append(*right.AsText());
    return Value::Of(std::move(out));
  }
  const ListData* a = left.AsList();
  const ListData* b = right.AsList();
  if (operation == "+" && a != nullptr && b != nullptr && a->tuple == b->tuple) {
    EPIC_RETURN_IF_ERROR(budget.Spend(a->items.size() + b->items.size()));
    std::vector<Value> items = a->items;
    items.insert(items.end(), b->items.begin(), b->items.end());
    return MakeList(std::move(items), a->tuple, budget);
  }
  if (operation == "*" && IsSequence(left) && right.IsInteger())
    return Repeat(left, right.AsInteger(), budget);
  if (operation == "*" && IsSequence(right) && left.IsInteger())
    return Repeat(right, left.AsInteger(), budget);
  return OperationError(operation, left.IsUndefined() || !right.IsUndefined() ? left : right);
}

absl::StatusOr<Value> Negate(const Value& value) {
  if (value.Is<double>()) return Value(-value.AsDouble());
  if (!value.IsInteger()) return OperationError("-", value);
  if (value.AsInteger() == INT64_MIN) return Overflow();
  return Value::Int(-value.AsInteger());
}

}  // namespace epic::jinja
