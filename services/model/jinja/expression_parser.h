// The part of the parser that reads expressions; statements are parser.cc's.
//
// One thread at a time; a parser lives for one template. Depth is bounded here, so that evaluation may
// recurse.
#ifndef EPIC_SERVICES_MODEL_JINJA_EXPRESSION_PARSER_H_
#define EPIC_SERVICES_MODEL_JINJA_EXPRESSION_PARSER_H_

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/model/jinja/ast.h"
#include "services/model/jinja/lexer.h"

namespace epic::jinja {

// A position in the tokens of a template.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  const Token& Peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& Next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool IsOperator(std::string_view text) const {
    return Peek().kind == TokenKind::kOperator && Peek().text == text;
  }
  bool IsName(std::string_view text) const { return Peek().kind == TokenKind::kName && Peek().text == text; }
  bool TakeOperator(std::string_view text);
  bool TakeName(std::string_view text);
  absl::Status ExpectOperator(std::string_view text);
  absl::StatusOr<std::string> ExpectName();
  // What stands here instead of what was wanted.
  absl::Status Unexpected(std::string_view wanted) const;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  absl::StatusOr<ExprPtr> ParseExpression(bool with_ternary = true);
  // One expression, or several with commas between as a tuple.
  absl::StatusOr<ExprPtr> ParseTuple(bool with_ternary = true);
  // name(args) | name ...: filters on `input`, which may be null. The first `|` is already taken.
  absl::StatusOr<ExprPtr> ParseFilters(ExprPtr input);

 private:
  using Rule = absl::StatusOr<ExprPtr> (ExpressionParser::*)();

  absl::StatusOr<ExprPtr> ParseOr();
  absl::StatusOr<ExprPtr> ParseAnd();
  absl::StatusOr<ExprPtr> ParseNot();
  absl::StatusOr<ExprPtr> ParseCompare();
  absl::StatusOr<ExprPtr> ParseSum();
  absl::StatusOr<ExprPtr> ParseConcat();
  absl::StatusOr<ExprPtr> ParseProduct();
  absl::StatusOr<ExprPtr> ParsePower();
  absl::StatusOr<ExprPtr> ParseUnary() { return ParseSigned(true); }
  absl::StatusOr<ExprPtr> ParseSigned(bool with_filters);
  absl::StatusOr<ExprPtr> ParsePrimary();
  absl::StatusOr<ExprPtr> ParseNameOrConstant();
  absl::StatusOr<ExprPtr> ParseParenthesized();
  absl::StatusOr<ExprPtr> ParseDict();
  absl::StatusOr<ExprPtr> ParsePostfix(ExprPtr expr);
  absl::StatusOr<ExprPtr> ParseSubscript(ExprPtr expr);
  absl::StatusOr<ExprPtr> ParseFiltersAndTests(ExprPtr expr);
  absl::StatusOr<ExprPtr> ParseFilter(ExprPtr input);
  absl::StatusOr<ExprPtr> ParseTest(ExprPtr input);
  absl::Status ParseArguments(Expr& call);
  absl::StatusOr<ExprPtr> ParseChain(std::span<const std::string_view> operators, Rule part);

  ExprPtr New(ExprKind kind) const;
  // Records how deep the tree under `expr` is. Errors: too deep.
  static absl::StatusOr<ExprPtr> Finish(ExprPtr expr);

  TokenStream& tokens_;
  int nesting_ = 0;
};

}  // namespace epic::jinja

#endif  // EPIC_SERVICES_MODEL_JINJA_EXPRESSION_PARSER_H_
