#include "services/model/jinja/parser.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/status/status_macros.h"
#include "services/model/jinja/expression_parser.h"
#include "services/model/jinja/lexer.h"

namespace epic::jinja {
namespace {

constexpr int kMaxBlockNesting = 40;

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : tokens_(std::move(tokens)), expressions_(tokens_) {}

  // Up to a tag whose name is in `ends` (left standing after its name) or, without any, the end of the
  // source.
  absl::StatusOr<Body> ParseBody(std::span<const std::string_view> ends) {
    Body body;
    while (true) {
      const Token& token = tokens_.Peek();
      if (token.kind == TokenKind::kEnd) {
        if (!ends.empty())
          return SyntaxError(token.line, absl::StrCat("'", ToAbsl(ends.back()), "' is missing"));
        return body;
      }
      tokens_.Next();
      if (token.kind == TokenKind::kBlockBegin) {
        const std::string name = tokens_.Peek().text;
        if (tokens_.Peek().kind != TokenKind::kName) return tokens_.Unexpected("the name of a tag");
        if (std::find(ends.begin(), ends.end(), name) != ends.end()) return body;
      }
      EPIC_ASSIGN_OR_RETURN(std::unique_ptr<Stmt> stmt, ParseStatement(token));
      body.push_back(std::move(stmt));
    }
  }

 private:
  std::unique_ptr<Stmt> New(StmtKind kind) const {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = tokens_.Peek().line;
    return stmt;
  }
  absl::Status ExpectBlockEnd() {
    if (tokens_.Peek().kind != TokenKind::kBlockEnd) return tokens_.Unexpected("'%}'");
    tokens_.Next();
    return absl::OkStatus();
  }
  // A body up to {% end %}, which is taken whole.
  absl::StatusOr<Body> ParseBodyTo(std::string_view end) {
    EPIC_ASSIGN_OR_RETURN(Body body, ParseBody(std::span(&end, 1)));
    tokens_.Next();
    EPIC_RETURN_IF_ERROR(ExpectBlockEnd());
    return body;
  }

  absl::StatusOr<std::unique_ptr<Stmt>> ParseStatement(const Token& token) {
    if (token.kind == TokenKind::kData) {
      auto stmt = New(StmtKind::kText);
      stmt->text = MarkedText(token.text);
      return stmt;
    }
    if (token.kind == TokenKind::kVariableBegin) {
      auto stmt = New(StmtKind::kPrint);
      EPIC_ASSIGN_OR_RETURN(stmt->expr, expressions_.ParseTuple());
      if (tokens_.Peek().kind != TokenKind::kVariableEnd) return tokens_.Unexpected("'}}'");
      tokens_.Next();
      return stmt;
    }
    if (++nesting_ > kMaxBlockNesting) return SyntaxError(token.line, "blocks are nested too deeply");
    auto stmt = ParseTag();
    --nesting_;
    return stmt;
  }

  absl::StatusOr<std::unique_ptr<Stmt>> ParseTag() {
    const int line = tokens_.Peek().line;
    const std::string name = tokens_.Next().text;
    if (name == "if") return ParseIf();
    if (name == "for") return ParseFor();
    if (name == "set") return ParseSet();
    if (name == "macro") return ParseMacro();
    if (name == "filter") return ParseFilterBlock();
    if (name == "with") return ParseWith();
    if (name == "generation") {
      auto stmt = New(StmtKind::kScope);
      EPIC_RETURN_IF_ERROR(ExpectBlockEnd());
      EPIC_ASSIGN_OR_RETURN(stmt->body, ParseBodyTo("endgeneration"));
      return stmt;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) return SyntaxError(line, absl::StrCat("'", name, "' stands outside a loop"));
      auto stmt = New(name == "break" ? StmtKind::kBreak : StmtKind::kContinue);
      EPIC_RETURN_IF_ERROR(ExpectBlockEnd());
      return stmt;
    }
    return SyntaxError(line, absl::StrCat("unknown tag '", name, "'"));
  }

  absl::StatusOr<std::unique_ptr<Stmt>> ParseIf() {
    static constexpr std::string_view kEnds[] = {"elif", "else", "endif"};
    auto stmt = New(StmtKind::kIf);
    std::string tag = "if";
    while (tag != "endif") {
      ExprPtr condition;
      if (tag != "else") {
        EPIC_ASSIGN_OR_RETURN(condition, expressions_.ParseTuple(false));
      }
      EPIC_RETURN_IF_ERROR(ExpectBlockEnd());
      // After `else` only the end may come.
      EPIC_ASSIGN_OR_RETURN(Body body, ParseBody(std::span(kEnds).subspan(tag == "else" ? 2 : 0)));
      stmt->branches.emplace_back(std::move(condition), std::move(body));
      tag = tokens_.Next().text;
    }
    EPIC_RETURN_IF_ERROR(ExpectBlockEnd());
    return stmt;
  }

  absl::StatusOr<std::vector<std::string>> ParseTargets() {
    std::vector<std::string> names;
    const bool parenthesis = tokens_.TakeOperator("(");
    do {
      if (!names.empty() && tokens_.Peek().kind != TokenKind::kName) break;
      EPIC_ASSIGN_OR_RETURN(std::string name, tokens_.ExpectName());
      names.push_back(std::move(name));
    } while (tokens_.TakeOperator(","));
    if (parenthesis) EPIC_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
    return names;
  }

  absl::StatusOr<std::unique_ptr<Stmt>> ParseFor() {
    static constexpr std::string_view kEnds[] = {"else", "endfor"};
    auto stmt = New(StmtKind::kFor);
    EPIC_ASSIGN_OR_RETURN(stmt->names, ParseTargets());
    if (!tokens_.TakeName("in")) return tokens_.Unexpected("'in'");
    EPIC_ASSIGN_OR_RETURN(stmt->expr, expressions_.ParseTuple(false));
    if (tokens_.TakeName("if")) {
      EPIC_ASSIGN_OR_RETURN(stmt->filter, expressions_.ParseExpression());
    }
    if (tokens_.IsName("recursive")) return SyntaxError(stmt->line, "recursive loops are not supported");
    EPIC_RETURN_IF_ERROR(ExpectBlockEnd());
    ++loops_;
    EPIC_ASSIGN_OR_RETURN(stmt->body, ParseBody(kEnds));
    --loops_;
    if (tokens_.Next().text == "else") {
      EPIC_RETURN_IF_ERROR(ExpectBlockEnd());
      EPIC_ASSIGN_OR_RETURN(stmt->other, ParseBody(std::span(kEnds).subspan(1)));
      tokens_.Next();
    }
    EPIC_RETURN_IF_ERROR(ExpectBlockEnd());
    return stmt;
  }

  absl::StatusOr<std::unique_ptr<Stmt>> ParseSet() {
    auto stmt = New(StmtKind::kSet);
    EPIC_ASSIGN_OR_RETURN(stmt->names, ParseTargets());
    if (stmt->names.size() == 1 && tokens_.TakeOperator(".")) {
      EPIC_ASSIGN_OR_RETURN(stmt->attribute, tokens_.ExpectName());
    }
    if (tokens_.TakeOperator("=")) {
      EPIC_ASSIGN_OR_RETURN(stmt->expr, expressions_.ParseTuple());
      EPIC_RETURN_IF_ERROR(ExpectBlockEnd());
      return stmt;
    }
    if (stmt->names.size() != 1) return tokens_.Unexpected("'='");
    stmt->kind = StmtKind::kSetBlock;
    if (tokens_.TakeOperator("|")) {
      EPIC_ASSIGN_OR_RETURN(stmt->filter, expressions_.ParseFilters(nullptr));
    }
    EPIC_RETURN_IF_ERROR(ExpectBlockEnd());
    EPIC_ASSIGN_OR_RETURN(stmt->body, ParseBodyTo("endset"));
    return stmt;
  }

  absl::StatusOr<std::unique_ptr<Stmt>> ParseMacro() {
    auto stmt = New(StmtKind::kMacro);
    if (loops_ > 0 || in_macro_)
      return SyntaxError(stmt->line, "a macro inside a loop or a macro is not supported");
    stmt->macro = std::make_unique<Macro>();
    EPIC_ASSIGN_OR_RETURN(stmt->macro->name, tokens_.ExpectName());
    EPIC_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
    while (!tokens_.TakeOperator(")")) {
      if (!stmt->macro->parameters.empty()) EPIC_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      EPIC_ASSIGN_OR_RETURN(std::string name, tokens_.ExpectName());
      stmt->macro->parameters.push_back(std::move(name));
      if (tokens_.TakeOperator("=")) {
        EPIC_ASSIGN_OR_RETURN(ExprPtr value, expressions_.ParseExpression());
        stmt->macro->defaults.push_back(std::move(value));
      } else if (!stmt->macro->defaults.empty()) {
        return SyntaxError(stmt->line, "a parameter without a default follows one with a default");
      }
    }
    EPIC_RETURN_IF_ERROR(ExpectBlockEnd());
    in_macro_ = true;
    EPIC_ASSIGN_OR_RETURN(stmt->macro->body, ParseBodyTo("endmacro"));
    in_macro_ = false;
    return stmt;
  }

  absl::StatusOr<std::unique_ptr<Stmt>> ParseFilterBlock() {
    auto stmt = New(StmtKind::kFilterBlock);
    EPIC_ASSIGN_OR_RETURN(stmt->filter, expressions_.ParseFilters(nullptr));
    EPIC_RETURN_IF_ERROR(ExpectBlockEnd());
    EPIC_ASSIGN_OR_RETURN(stmt->body, ParseBodyTo("endfilter"));
    return stmt;
  }

  absl::StatusOr<std::unique_ptr<Stmt>> ParseWith() {
    auto stmt = New(StmtKind::kScope);
    while (tokens_.Peek().kind != TokenKind::kBlockEnd) {
      if (!stmt->assignments.empty()) EPIC_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      EPIC_ASSIGN_OR_RETURN(std::string name, tokens_.ExpectName());
      EPIC_RETURN_IF_ERROR(tokens_.ExpectOperator("="));
      EPIC_ASSIGN_OR_RETURN(ExprPtr value, expressions_.ParseExpression());
      stmt->assignments.emplace_back(std::move(name), std::move(value));
    }
    EPIC_RETURN_IF_ERROR(ExpectBlockEnd());
    EPIC_ASSIGN_OR_RETURN(stmt->body, ParseBodyTo("endwith"));
    return stmt;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int nesting_ = 0;
  int loops_ = 0;
  bool in_macro_ = false;
};

}  // namespace

absl::StatusOr<Body> Parse(std::string_view source) {
  EPIC_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  StatementParser parser(std::move(tokens));
  return parser.ParseBody({});
}

}  // namespace epic::jinja
