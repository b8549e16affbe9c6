#include "services/model/jinja/interpreter.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/base/check.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/model/jinja/arithmetic.h"
#include "services/model/jinja/fixed_date.h"
#include "services/model/jinja/lexer.h"
#include "services/model/jinja/print.h"

namespace epic::jinja {
namespace {

constexpr int kMaxDepth = 300;  // of nested evaluations, macros included

// Names the line of a fault, once, and leaves the template's own refusals alone.
absl::Status AtLine(int line, const absl::Status& status) {
  if (status.code() != absl::StatusCode::kInvalidArgument || CodeOf(status) == ErrorCode::kTemplateRefused)
    return status;
  const std::string message = MessageOf(status);
  return message.starts_with("chat template, line ") ? status : SyntaxError(line, message);
}

}  // namespace

class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& interpreter, Scope* parent)
      : interpreter_(interpreter), outer_(interpreter.scope_) {
    scope_.parent = parent;
    interpreter.scope_ = &scope_;
  }
  ~ScopeGuard() { interpreter_.scope_ = outer_; }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Interpreter& interpreter_;
  Scope* const outer_;
  Scope scope_;
};

class Interpreter::DepthGuard {
 public:
  explicit DepthGuard(Interpreter& interpreter) : interpreter_(interpreter) { ++interpreter.depth_; }
  ~DepthGuard() { --interpreter_.depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  // Counts the step too.
  absl::Status Check() const {
    if (interpreter_.depth_ > kMaxDepth)
      return absl::ResourceExhaustedError("the chat template nests calls too deeply");
    return interpreter_.budget_.Spend(1);
  }

 private:
  Interpreter& interpreter_;
};

Interpreter::Interpreter(Variables globals, uint64_t max_output_bytes, Budget& budget)
    : budget_(budget), max_output_bytes_(max_output_bytes) {
  root_.variables = std::move(globals);
  Assign("raise_exception", Value(Function::kRaiseException));
  Assign("strftime_now", Value(Function::kStrftimeNow));
  Assign("namespace", Value(Function::kNamespace));
  Assign("range", Value(Function::kRange));
  Assign("dict", Value(Function::kDict));
}

absl::StatusOr<MarkedText> Interpreter::Run(const Body& body) {
  MarkedText out;
  EPIC_RETURN_IF_ERROR(ExecuteBody(body, out).status());
  return out;
}

const Value* Interpreter::Find(std::string_view name) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const auto& [key, value] : scope->variables) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void Interpreter::Assign(std::string_view name, Value value) {
  for (auto& [key, old] : scope_->variables) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  scope_->variables.emplace_back(name, std::move(value));
}

absl::Status Interpreter::Emit(const MarkedText& text, MarkedText& out) {
  if (text.size() > max_output_bytes_ - out.size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the chat template prints more than ", max_output_bytes_, " bytes"));
  }
  EPIC_RETURN_IF_ERROR(budget_.SpendBytes(text.cost()));
  out.Append(text);
  return absl::OkStatus();
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteBody(const Body& body, MarkedText& out) {
  for (const auto& stmt : body) {
    auto flow = Execute(*stmt, out);
    if (!flow.ok()) return AtLine(stmt->line, flow.status());
    if (*flow != Flow::kNormal) return *flow;
  }
  return Flow::kNormal;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const Stmt& stmt, MarkedText& out) {
  const DepthGuard guard(*this);
  EPIC_RETURN_IF_ERROR(guard.Check());
  switch (stmt.kind) {
    case StmtKind::kText:
      EPIC_RETURN_IF_ERROR(Emit(stmt.text, out));
      return Flow::kNormal;
    case StmtKind::kPrint: {
      EPIC_ASSIGN_OR_RETURN(const Value value, Eval(*stmt.expr));
      EPIC_ASSIGN_OR_RETURN(const MarkedText text, Print(value, budget_));
      EPIC_RETURN_IF_ERROR(Emit(text, out));
      return Flow::kNormal;
    }
    case StmtKind::kIf:
      return ExecuteIf(stmt, out);
    case StmtKind::kFor:
      return ExecuteFor(stmt, out);
    case StmtKind::kSet:
      EPIC_RETURN_IF_ERROR(ExecuteSet(stmt));
      return Flow::kNormal;
    case StmtKind::kSetBlock:
    case StmtKind::kFilterBlock:
      return ExecuteCaptured(stmt, out);
    case StmtKind::kMacro:
      Assign(stmt.macro->name, Value(static_cast<const Macro*>(stmt.macro.get())));
      return Flow::kNormal;
    case StmtKind::kScope:
      return ExecuteScope(stmt, out);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteIf(const Stmt& stmt, MarkedText& out) {
  for (const auto& [condition, body] : stmt.branches) {
    if (condition) {
      EPIC_ASSIGN_OR_RETURN(const Value value, Eval(*condition));
      if (!IsTrue(value)) continue;
    }
    return ExecuteBody(body, out);
  }
  return Flow::kNormal;
}

absl::Status Interpreter::Unpack(const std::vector<std::string>& names, const Value& value) {
  if (names.size() == 1) {
    Assign(names[0], value);
    return absl::OkStatus();
  }
  EPIC_ASSIGN_OR_RETURN(const std::vector<Value> parts, Iterate(value, budget_));
  if (parts.size() != names.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot unpack ", parts.size(), " values into ", names.size()));
  }
  for (size_t i = 0; i < names.size(); ++i) Assign(names[i], parts[i]);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Value>> Interpreter::LoopItems(const Stmt& stmt) {
  EPIC_ASSIGN_OR_RETURN(const Value iterable, Eval(*stmt.expr));
  EPIC_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(iterable, budget_));
  if (!stmt.filter) return items;
  std::vector<Value> kept;
  for (const Value& item : items) {
    const ScopeGuard guard(*this, scope_);
    EPIC_RETURN_IF_ERROR(Unpack(stmt.names, item));
    EPIC_ASSIGN_OR_RETURN(const Value keep, Eval(*stmt.filter));
    if (IsTrue(keep)) kept.push_back(item);
  }
  return kept;
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteFor(const Stmt& stmt, MarkedText& out) {
  EPIC_ASSIGN_OR_RETURN(std::vector<Value> items, LoopItems(stmt));
  if (items.empty()) {
    const ScopeGuard guard(*this, scope_);
    return ExecuteBody(stmt.other, out);
  }
  auto loop = std::make_shared<LoopData>();
  auto list = std::make_shared<ListData>();
  list->items = std::move(items);
  loop->items = list;
  absl::StatusOr<Flow> result = Flow::kNormal;
  for (loop->index = 0; loop->index < list->items.size(); ++loop->index) {
    const ScopeGuard guard(*this, scope_);
    Assign("loop", Value(Value::Loop(loop)));
    if (absl::Status status = Unpack(stmt.names, list->items[loop->index]); !status.ok()) {
      result = status;
      break;
    }
    absl::StatusOr<Flow> flow = ExecuteBody(stmt.body, out);
    if (!flow.ok()) result = flow;
    if (!flow.ok() || *flow == Flow::kBreak) break;
  }
  return result;
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteCaptured(const Stmt& stmt, MarkedText& out) {
  MarkedText captured;
  Flow flow = Flow::kNormal;
  {
    const ScopeGuard guard(*this, scope_);
    EPIC_ASSIGN_OR_RETURN(flow, ExecuteBody(stmt.body, captured));
  }
  Value value = Value::Of(std::move(captured));
  if (stmt.filter) {
    EPIC_ASSIGN_OR_RETURN(value, EvalFilter(*stmt.filter, &value));
  }
  if (stmt.kind == StmtKind::kSetBlock) {
    Assign(stmt.names[0], std::move(value));
    return flow;
  }
  EPIC_ASSIGN_OR_RETURN(const MarkedText text, Print(value, budget_));
  EPIC_RETURN_IF_ERROR(Emit(text, out));
  return flow;
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteScope(const Stmt& stmt, MarkedText& out) {
  std::vector<Value> values;
  for (const auto& assignment : stmt.assignments) {
    EPIC_ASSIGN_OR_RETURN(Value value, Eval(*assignment.second));
    values.push_back(std::move(value));
  }
  const ScopeGuard guard(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) Assign(stmt.assignments[i].first, std::move(values[i]));
  return ExecuteBody(stmt.body, out);
}

absl::Status Interpreter::ExecuteSet(const Stmt& stmt) {
  EPIC_ASSIGN_OR_RETURN(Value value, Eval(*stmt.expr));
  if (stmt.attribute.empty()) return Unpack(stmt.names, value);
  const Value* target = Find(stmt.names[0]);
  const auto* names = target == nullptr ? nullptr : target->As<Value::Namespace>();
  if (names == nullptr) return absl::InvalidArgumentError("cannot assign attribute on non-namespace object");
  // So that no namespace can come to hold itself.
  if (NestingOf(value).holds_namespace)
    return absl::InvalidArgumentError("a namespace cannot hold a namespace or a loop");
  for (auto& [key, old] : (*names)->entries) {
    if (key != stmt.attribute) continue;
    old = std::move(value);
    return absl::OkStatus();
  }
  (*names)->entries.emplace_back(stmt.attribute, std::move(value));
  return absl::OkStatus();
}

Interpreter::Result Interpreter::Eval(const Expr& expr) {
  const DepthGuard guard(*this);
  EPIC_RETURN_IF_ERROR(guard.Check());
  Result result = EvalKind(expr);
  if (!result.ok()) return AtLine(expr.line, result.status());
  return result;
}

Interpreter::Result Interpreter::EvalKind(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.constant;
    case ExprKind::kName:
      return EvalName(expr);
    case ExprKind::kAttribute: {
      EPIC_ASSIGN_OR_RETURN(const Value value, Eval(*expr.args[0]));
      return GetAttribute(value, expr.name, budget_);
    }
    case ExprKind::kItem: {
      EPIC_ASSIGN_OR_RETURN(const Value value, Eval(*expr.args[0]));
      EPIC_ASSIGN_OR_RETURN(const Value index, Eval(*expr.args[1]));
      return GetItem(value, index, budget_);
    }
    case ExprKind::kSlice:
      return EvalSlice(expr);
    case ExprKind::kCall:
      return EvalCall(expr);
    case ExprKind::kFilter:
      return EvalFilter(expr, nullptr);
    case ExprKind::kTest: {
      EPIC_ASSIGN_OR_RETURN(const Value value, Eval(*expr.args[0]));
      EPIC_ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
      EPIC_ASSIGN_OR_RETURN(const bool passes, CallTest(expr.name, value, arguments, budget_));
      return Value::Bool(passes);
    }
    case ExprKind::kNot:
    case ExprKind::kNegate:
    case ExprKind::kPlus:
      return EvalSign(expr);
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return EvalShortCircuit(expr);
    case ExprKind::kArithmetic:
      return EvalArithmetic(expr);
    case ExprKind::kCompare:
      return EvalCompare(expr);
    case ExprKind::kConcat:
      return EvalConcat(expr);
    case ExprKind::kTernary:
      return EvalTernary(expr);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return EvalSequence(expr);
    case ExprKind::kDict:
      return EvalDict(expr);
  }
  return Value();
}

Interpreter::Result Interpreter::EvalName(const Expr& expr) {
  const Value* value = Find(expr.name);
  return value == nullptr ? Value::UndefinedNamed(expr.name) : *value;
}

Interpreter::Result Interpreter::EvalSlice(const Expr& expr) {
  EPIC_ASSIGN_OR_RETURN(const Value value, Eval(*expr.args[0]));
  Value parts[3] = {Value(None{}), Value(None{}), Value(None{})};
  for (int i = 0; i < 3; ++i) {
    if (!expr.args[i + 1]) continue;
    EPIC_ASSIGN_OR_RETURN(parts[i], Eval(*expr.args[i + 1]));
  }
  return GetSlice(value, parts[0], parts[1], parts[2], budget_);
}

Interpreter::Result Interpreter::EvalShortCircuit(const Expr& expr) {
  EPIC_ASSIGN_OR_RETURN(Value left, Eval(*expr.args[0]));
  if (IsTrue(left) == (expr.kind == ExprKind::kOr)) return left;
  return Eval(*expr.args[1]);
}

Interpreter::Result Interpreter::EvalSign(const Expr& expr) {
  EPIC_ASSIGN_OR_RETURN(const Value value, Eval(*expr.args[0]));
  if (expr.kind == ExprKind::kNot) return Value::Bool(!IsTrue(value));
  if (expr.kind == ExprKind::kNegate) return Negate(value);
  return Calculate("*", value, Value::Int(value.IsNumber() ? 1 : -1), budget_);
}

Interpreter::Result Interpreter::EvalArithmetic(const Expr& expr) {
  EPIC_ASSIGN_OR_RETURN(const Value left, Eval(*expr.args[0]));
  EPIC_ASSIGN_OR_RETURN(const Value right, Eval(*expr.args[1]));
  return Calculate(expr.name, left, right, budget_);
}

Interpreter::Result Interpreter::EvalCompare(const Expr& expr) {
  EPIC_ASSIGN_OR_RETURN(Value left, Eval(*expr.args[0]));
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    EPIC_ASSIGN_OR_RETURN(Value right, Eval(*expr.args[i + 1]));
    const std::string& operation = expr.operators[i];
    bool holds = false;
    if (operation == "in" || operation == "not in") {
      EPIC_ASSIGN_OR_RETURN(const bool contained, Contains(right, left, budget_));
      holds = contained == (operation == "in");
    } else {
      EPIC_ASSIGN_OR_RETURN(holds, CallTest(operation, left, Arguments{{right}, {}}, budget_));
    }
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Interpreter::Result Interpreter::EvalConcat(const Expr& expr) {
  MarkedText out;
  for (const ExprPtr& arg : expr.args) {
    EPIC_ASSIGN_OR_RETURN(const Value value, Eval(*arg));
    EPIC_ASSIGN_OR_RETURN(const MarkedText text, Print(value, budget_));
    EPIC_RETURN_IF_ERROR(budget_.SpendBytes(text.cost()));
    out.Append(text);
  }
  return Value::Of(std::move(out));
}

Interpreter::Result Interpreter::EvalTernary(const Expr& expr) {
  EPIC_ASSIGN_OR_RETURN(const Value condition, Eval(*expr.args[0]));
  if (IsTrue(condition)) return Eval(*expr.args[1]);
  return expr.args[2] ? Eval(*expr.args[2]) : Result(Value::UndefinedNamed("the inline if-expression"));
}

Interpreter::Result Interpreter::EvalSequence(const Expr& expr) {
  std::vector<Value> items;
  for (const ExprPtr& arg : expr.args) {
    EPIC_ASSIGN_OR_RETURN(Value item, Eval(*arg));
    items.push_back(std::move(item));
  }
  return MakeList(std::move(items), expr.kind == ExprKind::kTuple, budget_);
}

Interpreter::Result Interpreter::EvalDict(const Expr& expr) {
  std::vector<std::pair<Value, Value>> entries;
  for (size_t i = 0; i + 1 < expr.args.size(); i += 2) {
    EPIC_ASSIGN_OR_RETURN(Value key, Eval(*expr.args[i]));
    EPIC_ASSIGN_OR_RETURN(Value value, Eval(*expr.args[i + 1]));
    entries.emplace_back(std::move(key), std::move(value));
  }
  return MakeDict(std::move(entries), budget_);
}

absl::StatusOr<Arguments> Interpreter::EvalArguments(const Expr& expr) {
  Arguments arguments;
  for (size_t i = 1; i < expr.args.size(); ++i) {
    EPIC_ASSIGN_OR_RETURN(Value value, Eval(*expr.args[i]));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, arg] : expr.named) {
    EPIC_ASSIGN_OR_RETURN(Value value, Eval(*arg));
    arguments.named.emplace_back(name, std::move(value));
  }
  return arguments;
}

Interpreter::Result Interpreter::EvalFilter(const Expr& expr, const Value* block) {
  Value input;
  if (!expr.args[0]) {
    EPIC_CHECK(block != nullptr);
    input = *block;
  } else if (block != nullptr) {
    EPIC_ASSIGN_OR_RETURN(input, EvalFilter(*expr.args[0], block));
  } else {
    EPIC_ASSIGN_OR_RETURN(input, Eval(*expr.args[0]));
  }
  EPIC_ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
  return CallFilter(expr.name, input, arguments, budget_);
}

Interpreter::Result Interpreter::EvalCall(const Expr& expr) {
  EPIC_ASSIGN_OR_RETURN(const Value callee, Eval(*expr.args[0]));
  EPIC_ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
  if (const auto* macro = callee.As<const Macro*>()) return CallMacro(**macro, arguments);
  if (const auto* function = callee.As<Function>()) return CallFunction(*function, arguments);
  if (const auto* method = callee.As<BoundMethod>()) return CallMethod(*method, arguments, budget_);
  return OperationError("a call", callee);
}

Interpreter::Result Interpreter::CallMacro(const Macro& macro, const Arguments& arguments) {
  const size_t count = macro.parameters.size();
  if (arguments.positional.size() > count) {
    return absl::InvalidArgumentError(
        absl::StrCat("macro '", macro.name, "' takes not more than ", count, " arguments"));
  }
  const ScopeGuard guard(*this, &root_);
  for (size_t i = 0; i < arguments.positional.size(); ++i)
    Assign(macro.parameters[i], arguments.positional[i]);
  for (const auto& [name, value] : arguments.named) {
    const auto it = std::find(macro.parameters.begin(), macro.parameters.end(), name);
    if (it == macro.parameters.end() ||
        static_cast<size_t>(it - macro.parameters.begin()) < arguments.positional.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("macro '", macro.name, "' has no use for argument '", name, "'"));
    }
    Assign(name, value);
  }
  for (size_t i = arguments.positional.size(); i < count; ++i) {
    const auto given = [&](const auto& named) { return named.first == macro.parameters[i]; };
    if (std::any_of(arguments.named.begin(), arguments.named.end(), given)) continue;
    Value value = Value::UndefinedNamed(macro.parameters[i]);
    const size_t first_default = count - macro.defaults.size();
    if (i >= first_default) {
      EPIC_ASSIGN_OR_RETURN(value, Eval(*macro.defaults[i - first_default]));
    }
    Assign(macro.parameters[i], std::move(value));
  }
  MarkedText out;
  EPIC_RETURN_IF_ERROR(ExecuteBody(macro.body, out).status());
  return Value::Of(std::move(out));
}

Interpreter::Result Interpreter::CallFunction(Function function, const Arguments& arguments) {
  switch (function) {
    case Function::kRaiseException: {
      EPIC_ASSIGN_OR_RETURN(const auto bound, Bind("raise_exception", arguments, {"message"}));
      EPIC_ASSIGN_OR_RETURN(const MarkedText text, Print(bound[0].value_or(Value()), budget_));
      std::string message = text.bytes().substr(0, 2000);
      std::erase(message, MarkedText::kPlaceholder);
      return Error(ErrorCode::kTemplateRefused, message, "messages");
    }
    case Function::kStrftimeNow: {
      EPIC_ASSIGN_OR_RETURN(const auto bound, Bind("strftime_now", arguments, {"format"}));
      if (!bound[0] || bound[0]->AsText() == nullptr)
        return absl::InvalidArgumentError("strftime_now needs a format");
      EPIC_ASSIGN_OR_RETURN(const std::string text, FormatFixedDate(bound[0]->AsText()->bytes()));
      EPIC_RETURN_IF_ERROR(budget_.SpendBytes(text.size()));
      return Value::Of(text);
    }
    case Function::kNamespace:
      return MakeNamespace(arguments);
    case Function::kRange:
      return MakeRange(arguments);
    case Function::kDict: {
      if (!arguments.positional.empty())
        return absl::InvalidArgumentError("dict takes arguments with names only");
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& [name, value] : arguments.named) entries.emplace_back(Value::Of(name), value);
      return MakeDict(std::move(entries), budget_);
    }
  }
  return Value();
}

Interpreter::Result Interpreter::MakeNamespace(const Arguments& arguments) {
  auto names = std::make_shared<NamespaceData>();
  if (arguments.positional.size() > 1) return absl::InvalidArgumentError("namespace takes one dict at most");
  if (!arguments.positional.empty()) {
    const DictData* dict = arguments.positional[0].AsDict();
    if (dict == nullptr) return OperationError("namespace", arguments.positional[0]);
    for (const auto& [key, value] : dict->entries) {
      if (key.AsText() == nullptr) return OperationError("a name", key);
      names->entries.emplace_back(key.AsText()->bytes(), value);
    }
  }
  for (const auto& named : arguments.named) names->entries.push_back(named);
  for (const auto& entry : names->entries) {
    if (NestingOf(entry.second).holds_namespace) {
      return absl::InvalidArgumentError("a namespace cannot hold a namespace or a loop");
    }
  }
  return Value(Value::Namespace(std::move(names)));
}

Interpreter::Result Interpreter::MakeRange(const Arguments& arguments) {
  if (!arguments.named.empty() || arguments.positional.empty() || arguments.positional.size() > 3) {
    return absl::InvalidArgumentError("range takes one to three integers");
  }
  int64_t parts[3] = {0, 0, 1};
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    if (!arguments.positional[i].IsInteger()) return OperationError("range", arguments.positional[i]);
    parts[i] = arguments.positional[i].AsInteger();
  }
  if (arguments.positional.size() == 1) std::swap(parts[0], parts[1]);
  const auto [start, stop, step] = parts;
  if (step == 0) return absl::InvalidArgumentError("range has step 0");
  std::vector<Value> items;
  int64_t at = start;
  while (step > 0 ? at < stop : at > stop) {
    EPIC_RETURN_IF_ERROR(budget_.Spend(1));
    items.push_back(Value::Int(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return MakeList(std::move(items), false, budget_);
}

}  // namespace epic::jinja
