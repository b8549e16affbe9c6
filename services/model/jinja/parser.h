// Template source to syntax tree, with the precedence and the grammar of Jinja 3.
//
// Pure, any thread. Nesting and depth are bounded while parsing; nothing is evaluated.
#ifndef EPIC_SERVICES_MODEL_JINJA_PARSER_H_
#define EPIC_SERVICES_MODEL_JINJA_PARSER_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "services/model/jinja/ast.h"

namespace epic::jinja {

// Errors: InvalidArgument with the line, for bad syntax, for statements, filters and tests outside the
// subset, and for nesting past a bound. REQUIRES: `source` is UTF-8.
absl::StatusOr<Body> Parse(std::string_view source);

}  // namespace epic::jinja

#endif  // EPIC_SERVICES_MODEL_JINJA_PARSER_H_
