// Runs a parsed template over given variables. Bounded in steps, text and depth.
//
// One thread, one run; the syntax tree and the budget outlive it. Values never form a cycle: a namespace
// cannot hold a namespace or a loop.
#ifndef EPIC_SERVICES_MODEL_JINJA_INTERPRETER_H_
#define EPIC_SERVICES_MODEL_JINJA_INTERPRETER_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/model/jinja/ast.h"
#include "services/model/jinja/budget.h"
#include "services/model/jinja/builtins.h"

namespace epic::jinja {

class Interpreter {
 public:
  using Variables = std::vector<std::pair<std::string, Value>>;

  Interpreter(Variables globals, uint64_t max_output_bytes, Budget& budget);

  // What the template prints. Errors: kTemplateRefused with the template's words from raise_exception;
  // InvalidArgument with the line for a fault of the template; ResourceExhausted past a limit.
  absl::StatusOr<MarkedText> Run(const Body& body);

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  struct Scope {
    Variables variables;
    Scope* parent = nullptr;
  };
  class ScopeGuard;
  class DepthGuard;
  using Result = absl::StatusOr<Value>;

  const Value* Find(std::string_view name) const;
  void Assign(std::string_view name, Value value);
  absl::Status Emit(const MarkedText& text, MarkedText& out);

  absl::StatusOr<Flow> ExecuteBody(const Body& body, MarkedText& out);
  absl::StatusOr<Flow> Execute(const Stmt& stmt, MarkedText& out);
  absl::StatusOr<Flow> ExecuteIf(const Stmt& stmt, MarkedText& out);
  absl::StatusOr<Flow> ExecuteFor(const Stmt& stmt, MarkedText& out);
  absl::StatusOr<Flow> ExecuteCaptured(const Stmt& stmt, MarkedText& out);
  absl::StatusOr<Flow> ExecuteScope(const Stmt& stmt, MarkedText& out);
  absl::Status ExecuteSet(const Stmt& stmt);
  absl::StatusOr<std::vector<Value>> LoopItems(const Stmt& stmt);
  absl::Status Unpack(const std::vector<std::string>& names, const Value& value);

  Result Eval(const Expr& expr);
  Result EvalKind(const Expr& expr);
  Result EvalName(const Expr& expr);
  Result EvalSlice(const Expr& expr);
  Result EvalShortCircuit(const Expr& expr);
  Result EvalSign(const Expr& expr);
  Result EvalArithmetic(const Expr& expr);
  Result EvalCompare(const Expr& expr);
  Result EvalConcat(const Expr& expr);
  Result EvalTernary(const Expr& expr);
  Result EvalSequence(const Expr& expr);
  Result EvalDict(const Expr& expr);
  Result EvalCall(const Expr& expr);
  Result EvalFilter(const Expr& expr, const Value* block);
  absl::StatusOr<Arguments> EvalArguments(const Expr& expr);

  Result CallMacro(const Macro& macro, const Arguments& arguments);
  Result CallFunction(Function function, const Arguments& arguments);
  Result MakeNamespace(const Arguments& arguments);
  Result MakeRange(const Arguments& arguments);

  Budget& budget_;
  const uint64_t max_output_bytes_;
  Scope root_;
  Scope* scope_ = &root_;
  int depth_ = 0;
};

}  // namespace epic::jinja

#endif  // EPIC_SERVICES_MODEL_JINJA_INTERPRETER_H_
