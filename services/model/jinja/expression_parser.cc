#include "services/model/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/status/status_macros.h"
#include "services/model/jinja/builtins.h"

namespace epic::jinja {
namespace {

constexpr int kMaxNesting = 40;     // of brackets and the like, while parsing
constexpr int kMaxExprDepth = 120;  // of a tree; long chains of operators count too

class NestingGuard {
 public:
  explicit NestingGuard(int& nesting) : nesting_(nesting) { ++nesting_; }
  ~NestingGuard() { --nesting_; }
  bool ok() const { return nesting_ <= kMaxNesting; }

 private:
  int& nesting_;
};

}  // namespace

bool TokenStream::TakeOperator(std::string_view text) {
  if (!IsOperator(text)) return false;
  Next();
  return true;
}
bool TokenStream::TakeName(std::string_view text) {
  if (!IsName(text)) return false;
  Next();
  return true;
}
absl::Status TokenStream::ExpectOperator(std::string_view text) {
  return TakeOperator(text) ? absl::OkStatus() : Unexpected(absl::StrCat("'", ToAbsl(text), "'"));
}
absl::StatusOr<std::string> TokenStream::ExpectName() {
  if (Peek().kind != TokenKind::kName) return Unexpected("a name");
  return Next().text;
}
absl::Status TokenStream::Unexpected(std::string_view wanted) const {
  std::string found = Peek().text;
  if (Peek().kind == TokenKind::kEnd) found = "the end of the template";
  if (Peek().kind == TokenKind::kVariableEnd) found = "}}";
  if (Peek().kind == TokenKind::kBlockEnd) found = "%}";
  return SyntaxError(Peek().line,
                     absl::StrCat("expected ", ToAbsl(wanted), ", found '", found.substr(0, 60), "'"));
}

ExprPtr ExpressionParser::New(ExprKind kind) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = tokens_.Peek().line;
  return expr;
}

absl::StatusOr<ExprPtr> ExpressionParser::Finish(ExprPtr expr) {
  int deepest = 0;
  for (const ExprPtr& arg : expr->args) deepest = std::max(deepest, arg ? arg->depth : 0);
  for (const auto& named : expr->named) deepest = std::max(deepest, named.second->depth);
  expr->depth = deepest + 1;
  if (expr->depth > kMaxExprDepth) return SyntaxError(expr->line, "an expression is nested too deeply");
  return expr;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseExpression(bool with_ternary) {
  const NestingGuard guard(nesting_);
  if (!guard.ok()) return SyntaxError(tokens_.Peek().line, "an expression is nested too deeply");
  EPIC_ASSIGN_OR_RETURN(ExprPtr expr, ParseOr());
  while (with_ternary && tokens_.TakeName("if")) {
    ExprPtr ternary = New(ExprKind::kTernary);
    EPIC_ASSIGN_OR_RETURN(ExprPtr condition, ParseOr());
    ternary->args.push_back(std::move(condition));
    ternary->args.push_back(std::move(expr));
    ternary->args.push_back(nullptr);
    if (tokens_.TakeName("else")) {
      EPIC_ASSIGN_OR_RETURN(ternary->args[2], ParseExpression());
    }
    EPIC_ASSIGN_OR_RETURN(expr, Finish(std::move(ternary)));
  }
  return expr;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseTuple(bool with_ternary) {
  EPIC_ASSIGN_OR_RETURN(ExprPtr first, ParseExpression(with_ternary));
  if (!tokens_.IsOperator(",")) return first;
  ExprPtr tuple = New(ExprKind::kTuple);
  tuple->args.push_back(std::move(first));
  while (tokens_.TakeOperator(",")) {
    const TokenKind kind = tokens_.Peek().kind;
    const bool end =
        kind == TokenKind::kVariableEnd || kind == TokenKind::kBlockEnd || tokens_.IsOperator(")");
    if (end) break;
    EPIC_ASSIGN_OR_RETURN(ExprPtr next, ParseExpression(with_ternary));
    tuple->args.push_back(std::move(next));
  }
  return Finish(std::move(tuple));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseOr() {
  EPIC_ASSIGN_OR_RETURN(ExprPtr left, ParseAnd());
  while (tokens_.IsName("or")) {
    ExprPtr expr = New(ExprKind::kOr);
    tokens_.Next();
    EPIC_ASSIGN_OR_RETURN(ExprPtr right, ParseAnd());
    expr->args.push_back(std::move(left));
    expr->args.push_back(std::move(right));
    EPIC_ASSIGN_OR_RETURN(left, Finish(std::move(expr)));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseAnd() {
  EPIC_ASSIGN_OR_RETURN(ExprPtr left, ParseNot());
  while (tokens_.IsName("and")) {
    ExprPtr expr = New(ExprKind::kAnd);
    tokens_.Next();
    EPIC_ASSIGN_OR_RETURN(ExprPtr right, ParseNot());
    expr->args.push_back(std::move(left));
    expr->args.push_back(std::move(right));
    EPIC_ASSIGN_OR_RETURN(left, Finish(std::move(expr)));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseNot() {
  if (!tokens_.IsName("not")) return ParseCompare();
  const NestingGuard guard(nesting_);
  if (!guard.ok()) return SyntaxError(tokens_.Peek().line, "an expression is nested too deeply");
  ExprPtr expr = New(ExprKind::kNot);
  tokens_.Next();
  EPIC_ASSIGN_OR_RETURN(ExprPtr operand, ParseNot());
  expr->args.push_back(std::move(operand));
  return Finish(std::move(expr));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseCompare() {
  static constexpr std::string_view kOperators[] = {"==", "!=", "<=", ">=", "<", ">"};
  EPIC_ASSIGN_OR_RETURN(ExprPtr first, ParseSum());
  ExprPtr expr = New(ExprKind::kCompare);
  expr->args.push_back(std::move(first));
  while (true) {
    std::string found;
    for (const std::string_view text : kOperators) {
      if (tokens_.IsOperator(text)) found = text;
    }
    if (tokens_.IsName("in")) found = "in";
    if (tokens_.IsName("not") && tokens_.Peek(1).kind == TokenKind::kName && tokens_.Peek(1).text == "in") {
      tokens_.Next();
      found = "not in";
    }
    if (found.empty()) break;
    tokens_.Next();
    EPIC_ASSIGN_OR_RETURN(ExprPtr next, ParseSum());
    expr->operators.push_back(found);
    expr->args.push_back(std::move(next));
  }
  if (expr->operators.empty()) return std::move(expr->args[0]);
  return Finish(std::move(expr));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseChain(std::span<const std::string_view> operators, Rule part) {
  EPIC_ASSIGN_OR_RETURN(ExprPtr left, (this->*part)());
  while (true) {
    const auto found = std::find_if(operators.begin(), operators.end(),
                                    [this](std::string_view text) { return tokens_.IsOperator(text); });
    if (found == operators.end()) return left;
    ExprPtr expr = New(ExprKind::kArithmetic);
    expr->name = *found;
    tokens_.Next();
    EPIC_ASSIGN_OR_RETURN(ExprPtr right, (this->*part)());
    expr->args.push_back(std::move(left));
    expr->args.push_back(std::move(right));
    EPIC_ASSIGN_OR_RETURN(left, Finish(std::move(expr)));
  }
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseSum() {
  static constexpr std::string_view kOperators[] = {"+", "-"};
  return ParseChain(kOperators, &ExpressionParser::ParseConcat);
}
absl::StatusOr<ExprPtr> ExpressionParser::ParseProduct() {
  static constexpr std::string_view kOperators[] = {"*", "/", "//", "%"};
  return ParseChain(kOperators, &ExpressionParser::ParsePower);
}
absl::StatusOr<ExprPtr> ExpressionParser::ParsePower() {
  static constexpr std::string_view kOperators[] = {"**"};
  return ParseChain(kOperators, &ExpressionParser::ParseUnary);
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseConcat() {
  EPIC_ASSIGN_OR_RETURN(ExprPtr first, ParseProduct());
  if (!tokens_.IsOperator("~")) return first;
  ExprPtr expr = New(ExprKind::kConcat);
  expr->args.push_back(std::move(first));
  while (tokens_.TakeOperator("~")) {
    EPIC_ASSIGN_OR_RETURN(ExprPtr next, ParseProduct());
    expr->args.push_back(std::move(next));
  }
  return Finish(std::move(expr));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseSigned(bool with_filters) {
  ExprPtr expr;
  if (tokens_.IsOperator("-") || tokens_.IsOperator("+")) {
    const NestingGuard guard(nesting_);
    if (!guard.ok()) return SyntaxError(tokens_.Peek().line, "an expression is nested too deeply");
    ExprPtr sign = New(tokens_.IsOperator("-") ? ExprKind::kNegate : ExprKind::kPlus);
    tokens_.Next();
    EPIC_ASSIGN_OR_RETURN(ExprPtr operand, ParseSigned(false));
    sign->args.push_back(std::move(operand));
    EPIC_ASSIGN_OR_RETURN(expr, Finish(std::move(sign)));
  } else {
    EPIC_ASSIGN_OR_RETURN(expr, ParsePrimary());
  }
  EPIC_ASSIGN_OR_RETURN(expr, ParsePostfix(std::move(expr)));
  return with_filters ? ParseFiltersAndTests(std::move(expr)) : absl::StatusOr<ExprPtr>(std::move(expr));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseNameOrConstant() {
  ExprPtr expr = New(ExprKind::kConstant);
  const std::string name = tokens_.Next().text;
  if (name == "true" || name == "True") {
    expr->constant = Value::Bool(true);
  } else if (name == "false" || name == "False") {
    expr->constant = Value::Bool(false);
  } else if (name == "none" || name == "None") {
    expr->constant = Value(None{});
  } else {
    expr->kind = ExprKind::kName;
    expr->name = name;
  }
  return expr;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParsePrimary() {
  const Token& token = tokens_.Peek();
  if (token.kind == TokenKind::kName) return ParseNameOrConstant();
  if (tokens_.IsOperator("(")) return ParseParenthesized();
  if (tokens_.IsOperator("{")) return ParseDict();
  if (tokens_.IsOperator("[")) {
    ExprPtr list = New(ExprKind::kList);
    tokens_.Next();
    while (!tokens_.TakeOperator("]")) {
      if (!list->args.empty()) EPIC_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.TakeOperator("]")) break;
      EPIC_ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
      list->args.push_back(std::move(item));
    }
    return Finish(std::move(list));
  }
  ExprPtr expr = New(ExprKind::kConstant);
  if (token.kind == TokenKind::kString) {
    std::string text;
    while (tokens_.Peek().kind == TokenKind::kString) text += tokens_.Next().text;
    expr->constant = Value::Of(text);
    return expr;
  }
  if (token.kind == TokenKind::kInteger) {
    int64_t number = 0;
    const auto result = std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
    if (result.ec != std::errc()) return SyntaxError(token.line, "a number is too large");
    expr->constant = Value::Int(number);
    tokens_.Next();
    return expr;
  }
  if (token.kind == TokenKind::kFloat) {
    double number = 0;
    std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
    expr->constant = Value(number);
    tokens_.Next();
    return expr;
  }
  return tokens_.Unexpected("an expression");
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseParenthesized() {
  tokens_.Next();
  ExprPtr expr;
  if (tokens_.IsOperator(")")) {
    expr = New(ExprKind::kTuple);
  } else {
    EPIC_ASSIGN_OR_RETURN(expr, ParseTuple());
  }
  EPIC_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  return expr;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseDict() {
  ExprPtr dict = New(ExprKind::kDict);
  tokens_.Next();
  while (!tokens_.TakeOperator("}")) {
    if (!dict->args.empty()) EPIC_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (tokens_.TakeOperator("}")) break;
    EPIC_ASSIGN_OR_RETURN(ExprPtr key, ParseExpression());
    EPIC_RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    EPIC_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    dict->args.push_back(std::move(key));
    dict->args.push_back(std::move(value));
  }
  return Finish(std::move(dict));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParsePostfix(ExprPtr expr) {
  while (true) {
    if (tokens_.IsOperator("(")) {
      ExprPtr call = New(ExprKind::kCall);
      call->args.push_back(std::move(expr));
      EPIC_RETURN_IF_ERROR(ParseArguments(*call));
      EPIC_ASSIGN_OR_RETURN(expr, Finish(std::move(call)));
    } else if (tokens_.IsOperator("[")) {
      EPIC_ASSIGN_OR_RETURN(expr, ParseSubscript(std::move(expr)));
    } else if (tokens_.TakeOperator(".")) {
      ExprPtr access = New(ExprKind::kAttribute);
      access->args.push_back(std::move(expr));
      if (tokens_.Peek().kind == TokenKind::kInteger) {
        access->kind = ExprKind::kItem;
        EPIC_ASSIGN_OR_RETURN(ExprPtr index, ParsePrimary());
        access->args.push_back(std::move(index));
      } else {
        EPIC_ASSIGN_OR_RETURN(access->name, tokens_.ExpectName());
      }
      EPIC_ASSIGN_OR_RETURN(expr, Finish(std::move(access)));
    } else {
      return expr;
    }
  }
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseSubscript(ExprPtr expr) {
  ExprPtr access = New(ExprKind::kItem);
  tokens_.Next();
  access->args.push_back(std::move(expr));
  for (int part = 0; part < 3; ++part) {
    ExprPtr index;
    if (!tokens_.IsOperator(":") && !tokens_.IsOperator("]")) {
      EPIC_ASSIGN_OR_RETURN(index, ParseExpression());
    }
    access->args.push_back(std::move(index));
    if (!tokens_.TakeOperator(":")) break;
    access->kind = ExprKind::kSlice;
  }
  EPIC_RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  if (access->kind == ExprKind::kSlice) access->args.resize(4);
  if (access->kind == ExprKind::kItem && !access->args[1])
    return SyntaxError(access->line, "an index is missing");
  return Finish(std::move(access));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseFiltersAndTests(ExprPtr expr) {
  while (true) {
    if (tokens_.TakeOperator("|")) {
      EPIC_ASSIGN_OR_RETURN(expr, ParseFilter(std::move(expr)));
    } else if (tokens_.TakeName("is")) {
      EPIC_ASSIGN_OR_RETURN(expr, ParseTest(std::move(expr)));
    } else if (tokens_.IsOperator("(")) {
      EPIC_ASSIGN_OR_RETURN(expr, ParsePostfix(std::move(expr)));
    } else {
      return expr;
    }
  }
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseFilters(ExprPtr input) {
  EPIC_ASSIGN_OR_RETURN(input, ParseFilter(std::move(input)));
  while (tokens_.TakeOperator("|")) {
    EPIC_ASSIGN_OR_RETURN(input, ParseFilter(std::move(input)));
  }
  return input;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseFilter(ExprPtr input) {
  ExprPtr filter = New(ExprKind::kFilter);
  filter->args.push_back(std::move(input));
  EPIC_ASSIGN_OR_RETURN(filter->name, tokens_.ExpectName());
  if (!IsFilter(filter->name)) {
    return SyntaxError(filter->line, absl::StrCat("unknown filter '", filter->name, "'"));
  }
  if (tokens_.IsOperator("(")) EPIC_RETURN_IF_ERROR(ParseArguments(*filter));
  return Finish(std::move(filter));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseTest(ExprPtr input) {
  const bool negated = tokens_.TakeName("not");
  ExprPtr test = New(ExprKind::kTest);
  test->args.push_back(std::move(input));
  EPIC_ASSIGN_OR_RETURN(test->name, tokens_.ExpectName());
  if (!IsTest(test->name)) return SyntaxError(test->line, absl::StrCat("unknown test '", test->name, "'"));
  const Token& next = tokens_.Peek();
  const bool name = next.kind == TokenKind::kName && next.text != "else" && next.text != "or" &&
                    next.text != "and" && next.text != "if" && next.text != "is" && next.text != "not" &&
                    next.text != "in";
  const bool literal = next.kind == TokenKind::kString || next.kind == TokenKind::kInteger ||
                       next.kind == TokenKind::kFloat || tokens_.IsOperator("[") || tokens_.IsOperator("{");
  if (tokens_.IsOperator("(")) {
    EPIC_RETURN_IF_ERROR(ParseArguments(*test));
  } else if (name || literal) {
    EPIC_ASSIGN_OR_RETURN(ExprPtr argument, ParsePrimary());
    EPIC_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    test->args.push_back(std::move(argument));
  }
  EPIC_ASSIGN_OR_RETURN(test, Finish(std::move(test)));
  if (!negated) return test;
  ExprPtr inverse = New(ExprKind::kNot);
  inverse->args.push_back(std::move(test));
  return Finish(std::move(inverse));
}

absl::Status ExpressionParser::ParseArguments(Expr& call) {
  EPIC_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  bool first = true;
  while (!tokens_.TakeOperator(")")) {
    if (!first) EPIC_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    first = false;
    if (tokens_.TakeOperator(")")) break;
    const bool named = tokens_.Peek().kind == TokenKind::kName &&
                       tokens_.Peek(1).kind == TokenKind::kOperator && tokens_.Peek(1).text == "=";
    std::string name;
    if (named) {
      name = tokens_.Next().text;
      tokens_.Next();
    } else if (!call.named.empty()) {
      return SyntaxError(call.line, "an argument without a name follows one with a name");
    }
    EPIC_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    if (named) {
      call.named.emplace_back(std::move(name), std::move(value));
    } else {
      call.args.push_back(std::move(value));
    }
  }
  return absl::OkStatus();
}

}  // namespace epic::jinja
