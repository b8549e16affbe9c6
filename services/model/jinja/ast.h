// The syntax tree of a template. Built by the parser, never changed after; any thread may read it.
//
// Depth is bounded by the parser, so recursion over a tree is.
#ifndef EPIC_SERVICES_MODEL_JINJA_AST_H_
#define EPIC_SERVICES_MODEL_JINJA_AST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/model/jinja/value.h"

namespace epic::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Body = std::vector<std::unique_ptr<Stmt>>;

enum class ExprKind : uint8_t {
  kConstant,   // constant
  kName,       // name
  kAttribute,  // args[0] . name
  kItem,       // args[0] [ args[1] ]
  kSlice,      // args[0] [ args[1] : args[2] : args[3] ], the last three may be null
  kCall,       // args[0] ( args[1..], named )
  kFilter,     // args[0] | name ( args[1..], named )
  kTest,       // args[0] is name ( args[1..], named )
  kNot,
  kNegate,
  kPlus,
  kAnd,
  kOr,
  kArithmetic,  // args[0] name args[1]; + - * / // % **
  kCompare,     // args[0] operators[0] args[1] operators[1] args[2] ...
  kConcat,      // args joined as text
  kTernary,     // args[1] if args[0] else args[2], which may be null
  kList,
  kTuple,
  kDict,  // keys and values in turn
};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  int line = 0;
  int depth = 1;
  std::string name;
  Value constant;
  std::vector<ExprPtr> args;
  std::vector<std::pair<std::string, ExprPtr>> named;
  std::vector<std::string> operators;
};

enum class StmtKind : uint8_t {
  kText,         // text
  kPrint,        // expr
  kIf,           // branches (condition, body); a null condition is `else`
  kFor,          // names in expr if filter: body, else other
  kSet,          // names = expr, or names[0].attribute = expr
  kSetBlock,     // names[0] = body through filter (applied to null input)
  kMacro,        // macro
  kFilterBlock,  // body through filter
  kScope,        // assignments in a scope of their own, then body
  kBreak,
  kContinue,
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 0;
  MarkedText text;
  ExprPtr expr;
  ExprPtr filter;  // in blocks: a chain of kFilter whose innermost input is null
  std::vector<std::string> names;
  std::string attribute;
  Body body;
  Body other;
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::vector<std::pair<std::string, ExprPtr>> assignments;
  std::unique_ptr<Macro> macro;
};

struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
};

}  // namespace epic::jinja

#endif  // EPIC_SERVICES_MODEL_JINJA_AST_H_
