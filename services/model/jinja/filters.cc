#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/base/check.h"
#include "common/status/status_macros.h"
#include "services/model/jinja/builtins.h"
#include "services/model/jinja/print.h"
#include "services/model/jinja/text_ops.h"

namespace epic::jinja {
namespace {

using Result = absl::StatusOr<Value>;
using Filter = Result (*)(const Value& input, const Arguments& arguments, Budget& budget);

// A filter that turns text (or what prints as text) into text.
template <typename Map>
Result MapText(const Value& input, Budget& budget, Map map) {
  EPIC_ASSIGN_OR_RETURN(const MarkedText text, Print(input, budget));
  EPIC_RETURN_IF_ERROR(budget.SpendBytes(text.cost()));
  return Value::Of(map(text));
}

Result Trim(const Value& input, const Arguments& arguments, Budget& budget) {
  EPIC_ASSIGN_OR_RETURN(const auto bound, Bind("trim", arguments, {"chars"}));
  std::optional<std::string_view> characters;
  if (bound[0] && !bound[0]->Is<None>()) {
    if (bound[0]->AsText() == nullptr) return OperationError("trim with", *bound[0]);
    characters = bound[0]->AsText()->bytes();
    EPIC_ASSIGN_OR_RETURN(const MarkedText text, Print(input, budget));
    EPIC_RETURN_IF_ERROR(budget.Spend(text.size() / 64 * characters->size() / 64));
  }
  return MapText(input, budget,
                 [&](const MarkedText& text) { return Strip(text, Sides::kBoth, characters); });
}

template <Case mode>
Result ChangeCase(const Value& input, const Arguments& arguments, Budget& budget) {
  EPIC_RETURN_IF_ERROR(Bind("case", arguments, {}).status());
  return MapText(input, budget, [](const MarkedText& text) { return MapCase(text, mode); });
}

Result ToString(const Value& input, const Arguments& arguments, Budget& budget) {
  EPIC_RETURN_IF_ERROR(Bind("string", arguments, {}).status());
  EPIC_ASSIGN_OR_RETURN(MarkedText text, Print(input, budget));
  return Value::Of(std::move(text));
}

Result ToJson(const Value& input, const Arguments& arguments, Budget& budget) {
  EPIC_ASSIGN_OR_RETURN(const auto bound,
                        Bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonFormat format;
  if (bound[0] && IsTrue(*bound[0]))
    return absl::InvalidArgumentError("tojson: ensure_ascii is not supported");
  if (bound[1] && !bound[1]->Is<None>()) {
    if (bound[1]->IsInteger() && bound[1]->AsInteger() <= 64) {
      format.indent = std::string(static_cast<size_t>(std::max<int64_t>(0, bound[1]->AsInteger())), ' ');
    } else if (bound[1]->AsText() != nullptr) {
      format.indent = bound[1]->AsText()->bytes();
    } else {
      return absl::InvalidArgumentError("tojson: indent must be a small number or a string");
    }
    format.item_separator = ",";
  }
  if (bound[2] && !bound[2]->Is<None>()) {
    const ListData* pair = bound[2]->AsList();
    if (pair == nullptr || pair->items.size() != 2 || pair->items[0].AsText() == nullptr ||
        pair->items[1].AsText() == nullptr) {
      return absl::InvalidArgumentError("tojson: separators must be two strings");
    }
    format.item_separator = pair->items[0].AsText()->bytes();
    format.key_separator = pair->items[1].AsText()->bytes();
  }
  format.sort_keys = bound[3] && IsTrue(*bound[3]);
  EPIC_ASSIGN_OR_RETURN(MarkedText text, PrintJson(input, format, budget));
  return Value::Of(std::move(text));
}

Result Length(const Value& input, const Arguments& arguments, Budget&) {
  EPIC_RETURN_IF_ERROR(Bind("length", arguments, {}).status());
  EPIC_ASSIGN_OR_RETURN(const int64_t length, LengthOf(input));
  return Value::Int(length);
}

Result First(const Value& input, const Arguments& arguments, Budget& budget) {
  EPIC_RETURN_IF_ERROR(Bind("first", arguments, {}).status());
  EPIC_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(input, budget));
  return items.empty() ? Value::UndefinedNamed("No first item, sequence was empty.") : items.front();
}

Result Last(const Value& input, const Arguments& arguments, Budget& budget) {
  EPIC_RETURN_IF_ERROR(Bind("last", arguments, {}).status());
  EPIC_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(input, budget));
  return items.empty() ? Value::UndefinedNamed("No last item, sequence was empty.") : items.back();
}

// value.a.b for the text "a.b"; digits are indices.
Result Follow(const Value& value, const Value& path, Budget& budget) {
  if (path.AsText() == nullptr) return GetItem(value, path, budget);
  Value current = value;
  EPIC_ASSIGN_OR_RETURN(const std::vector<MarkedText> parts, Split(*path.AsText(), ".", -1, false, budget));
  for (const MarkedText& part : parts) {
    const std::string& name = part.bytes();
    int64_t index = 0;
    const auto end = std::from_chars(name.data(), name.data() + name.size(), index).ptr;
    const bool number = !name.empty() && end == name.data() + name.size();
    EPIC_ASSIGN_OR_RETURN(current, GetItem(current, number ? Value::Int(index) : Value::Of(part), budget));
  }
  return current;
}

Result Join(const Value& input, const Arguments& arguments, Budget& budget) {
  EPIC_ASSIGN_OR_RETURN(const auto bound, Bind("join", arguments, {"d", "attribute"}));
  EPIC_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(input, budget));
  MarkedText separator;
  if (bound[0]) {
    EPIC_ASSIGN_OR_RETURN(separator, Print(*bound[0], budget));
  }
  MarkedText out;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (bound[1]) {
      EPIC_ASSIGN_OR_RETURN(item, Follow(items[i], *bound[1], budget));
    }
    EPIC_RETURN_IF_ERROR(budget.SpendBytes(separator.cost()));
    if (i > 0) out.Append(separator);
    EPIC_ASSIGN_OR_RETURN(const MarkedText text, Print(item, budget));
    out.Append(text);
  }
  return Value::Of(std::move(out));
}

Result Default(const Value& input, const Arguments& arguments, Budget&) {
  EPIC_ASSIGN_OR_RETURN(const auto bound, Bind("default", arguments, {"default_value", "boolean"}));
  const bool by_truth = bound[1] && IsTrue(*bound[1]);
  if (!input.IsUndefined() && (!by_truth || IsTrue(input))) return input;
  return bound[0].value_or(Value::Of(""));
}

Result ToList(const Value& input, const Arguments& arguments, Budget& budget) {
  EPIC_RETURN_IF_ERROR(Bind("list", arguments, {}).status());
  EPIC_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(input, budget));
  return MakeList(std::move(items), false, budget);
}

Result Items(const Value& input, const Arguments& arguments, Budget& budget) {
  EPIC_RETURN_IF_ERROR(Bind("items", arguments, {}).status());
  if (input.IsUndefined()) return MakeList({}, false, budget);
  if (input.AsDict() == nullptr) return OperationError("items", input);
  return CallMethod(BoundMethod{std::make_shared<const Value>(input), "items"}, {}, budget);
}

// select, reject, selectattr, rejectattr: the arguments are [attribute,] [test, its arguments...].
Result Pick(std::string_view name, bool attribute, bool wanted, const Value& input,
            const Arguments& arguments, Budget& budget) {
  size_t used = attribute ? 1 : 0;
  if (arguments.positional.size() < used)
    return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), " needs an attribute"));
  std::string test;
  if (arguments.positional.size() > used) {
    const MarkedText* text = arguments.positional[used].AsText();
    if (text == nullptr || !IsTest(text->bytes())) {
      return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), " needs the name of a test"));
    }
    test = text->bytes();
    ++used;
  }
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(used),
                         arguments.positional.end());
  rest.named = arguments.named;
  if (!IsTrue(input)) return MakeList({}, false, budget);
  EPIC_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(input, budget));
  std::vector<Value> kept;
  for (const Value& item : items) {
    Value subject = item;
    if (attribute) {
      EPIC_ASSIGN_OR_RETURN(subject, Follow(item, arguments.positional[0], budget));
    }
    bool passes = IsTrue(subject);
    if (!test.empty()) {
      EPIC_ASSIGN_OR_RETURN(passes, CallTest(test, subject, rest, budget));
    }
    if (passes == wanted) kept.push_back(item);
  }
  return MakeList(std::move(kept), false, budget);
}

Result Select(const Value& input, const Arguments& arguments, Budget& budget) {
  return Pick("select", false, true, input, arguments, budget);
}
Result Reject(const Value& input, const Arguments& arguments, Budget& budget) {
  return Pick("reject", false, false, input, arguments, budget);
}
Result SelectAttr(const Value& input, const Arguments& arguments, Budget& budget) {
  return Pick("selectattr", true, true, input, arguments, budget);
}
Result RejectAttr(const Value& input, const Arguments& arguments, Budget& budget) {
  return Pick("rejectattr", true, false, input, arguments, budget);
}

Result Map(const Value& input, const Arguments& arguments, Budget& budget) {
  if (!IsTrue(input)) return MakeList({}, false, budget);
  EPIC_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(input, budget));
  std::vector<Value> out;
  if (arguments.positional.empty()) {
    EPIC_ASSIGN_OR_RETURN(const auto bound, Bind("map", arguments, {"attribute", "default"}));
    if (!bound[0]) return absl::InvalidArgumentError("map needs a filter or an attribute");
    for (const Value& item : items) {
      EPIC_ASSIGN_OR_RETURN(Value found, Follow(item, *bound[0], budget));
      out.push_back(found.IsUndefined() && bound[1] ? *bound[1] : std::move(found));
    }
    return MakeList(std::move(out), false, budget);
  }
  const MarkedText* name = arguments.positional[0].AsText();
  // `map` through `map` would let one call do the work of many.
  if (name == nullptr || !IsFilter(name->bytes()) || name->bytes() == "map") {
    return absl::InvalidArgumentError("map needs the name of a filter");
  }
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + 1, arguments.positional.end());
  rest.named = arguments.named;
  for (const Value& item : items) {
    EPIC_ASSIGN_OR_RETURN(Value mapped, CallFilter(name->bytes(), item, rest, budget));
    out.push_back(std::move(mapped));
  }
  return MakeList(std::move(out), false, budget);
}

Result ReplaceText(const Value& input, const Arguments& arguments, Budget& budget) {
  EPIC_ASSIGN_OR_RETURN(MarkedText text, Print(input, budget));
  const Value self = Value::Of(std::move(text));
  return CallMethod(BoundMethod{std::make_shared<const Value>(self), "replace"}, arguments, budget);
}

// Python's int(text): digits with white space around, or the default.
Result ToInt(const Value& input, const Arguments& arguments, Budget&) {
  EPIC_ASSIGN_OR_RETURN(const auto bound, Bind("int", arguments, {"default", "base"}));
  const Value absent = bound[0].value_or(Value::Int(0));
  if (bound[1] && (!bound[1]->IsInteger() || bound[1]->AsInteger() != 10)) {
    return absl::InvalidArgumentError("int: only base 10 is supported");
  }
  if (input.IsInteger()) return Value::Int(input.AsInteger());
  double number = 0;
  if (const MarkedText* text = input.AsText()) {
    const std::string trimmed = Strip(*text, Sides::kBoth, std::nullopt).bytes();
    const char* begin = trimmed.data() + (trimmed.starts_with('+') ? 1 : 0);
    const char* end = trimmed.data() + trimmed.size();
    int64_t whole = 0;
    if (const auto r = std::from_chars(begin, end, whole); r.ec == std::errc() && r.ptr == end)
      return Value::Int(whole);
    if (const auto r = std::from_chars(begin, end, number); r.ec != std::errc() || r.ptr != end)
      return absent;
  } else if (input.Is<double>()) {
    number = input.AsDouble();
  } else {
    return absent;
  }
  if (!(std::fabs(number) < 9.2e18)) return absent;
  return Value::Int(static_cast<int64_t>(number));
}

Result ToFloat(const Value& input, const Arguments& arguments, Budget&) {
  EPIC_ASSIGN_OR_RETURN(const auto bound, Bind("float", arguments, {"default"}));
  if (input.IsNumber()) return Value(input.AsDouble());
  if (const MarkedText* text = input.AsText()) {
    const std::string trimmed = Strip(*text, Sides::kBoth, std::nullopt).bytes();
    const char* begin = trimmed.data() + (trimmed.starts_with('+') ? 1 : 0);
    const char* end = trimmed.data() + trimmed.size();
    double number = 0;
    if (const auto r = std::from_chars(begin, end, number); r.ec == std::errc() && r.ptr == end)
      return Value(number);
  }
  return bound[0].value_or(Value(0.0));
}

Result Abs(const Value& input, const Arguments& arguments, Budget&) {
  EPIC_RETURN_IF_ERROR(Bind("abs", arguments, {}).status());
  if (input.Is<double>()) return Value(std::fabs(input.AsDouble()));
  if (!input.IsInteger() || input.AsInteger() == INT64_MIN) return OperationError("abs", input);
  return Value::Int(std::abs(input.AsInteger()));
}

Result Reverse(const Value& input, const Arguments& arguments, Budget& budget) {
  EPIC_RETURN_IF_ERROR(Bind("reverse", arguments, {}).status());
  if (input.AsText() != nullptr) return GetSlice(input, Value(None{}), Value(None{}), Value::Int(-1), budget);
  EPIC_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(input, budget));
  std::reverse(items.begin(), items.end());
  return MakeList(std::move(items), false, budget);
}

Result Indent(const Value& input, const Arguments& arguments, Budget& budget) {
  EPIC_ASSIGN_OR_RETURN(const auto bound, Bind("indent", arguments, {"width", "first", "blank"}));
  MarkedText margin("    ");
  if (bound[0] && bound[0]->AsText() != nullptr) {
    margin = *bound[0]->AsText();
  } else if (bound[0]) {
    if (!bound[0]->IsInteger() || bound[0]->AsInteger() > 1000) return OperationError("indent by", *bound[0]);
    margin = MarkedText(std::string(static_cast<size_t>(std::max<int64_t>(0, bound[0]->AsInteger())), ' '));
  }
  const bool first = bound[1] && IsTrue(*bound[1]);
  const bool blank = bound[2] && IsTrue(*bound[2]);
  if (input.AsText() == nullptr) return OperationError("indent", input);
  EPIC_ASSIGN_OR_RETURN(MarkedText text, Print(input, budget));
  text.Append("\n");
  EPIC_ASSIGN_OR_RETURN(const std::vector<MarkedText> lines, SplitLines(text, budget));
  MarkedText out;
  for (size_t i = 0; i < lines.size(); ++i) {
    EPIC_RETURN_IF_ERROR(budget.SpendBytes(margin.cost() + lines[i].cost() + 1));
    if (i > 0) out.Append("\n");
    if (i == 0 ? first : (blank || !lines[i].empty())) out.Append(margin);
    out.Append(lines[i]);
  }
  return Value::Of(std::move(out));
}

// What elements are compared by: an attribute, text without regard to case.
Result SortKey(const Value& item, const std::optional<Value>& attribute, bool case_sensitive,
               Budget& budget) {
  Value key = item;
  if (attribute && !attribute->Is<None>()) {
    EPIC_ASSIGN_OR_RETURN(key, Follow(item, *attribute, budget));
  }
  if (case_sensitive || key.AsText() == nullptr) return key;
  EPIC_RETURN_IF_ERROR(budget.SpendBytes(key.AsText()->cost()));
  return Value::Of(MapCase(*key.AsText(), Case::kLower));
}

Result Unique(const Value& input, const Arguments& arguments, Budget& budget) {
  EPIC_ASSIGN_OR_RETURN(const auto bound, Bind("unique", arguments, {"case_sensitive", "attribute"}));
  EPIC_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(input, budget));
  std::vector<Value> seen;
  std::vector<Value> kept;
  for (const Value& item : items) {
    EPIC_ASSIGN_OR_RETURN(Value key, SortKey(item, bound[1], bound[0] && IsTrue(*bound[0]), budget));
    bool known = false;
    for (const Value& other : seen) {
      EPIC_ASSIGN_OR_RETURN(const bool same, AreEqual(key, other, budget));
      known |= same;
    }
    if (known) continue;
    seen.push_back(std::move(key));
    kept.push_back(item);
  }
  return MakeList(std::move(kept), false, budget);
}

// A merge sort, since a comparison may fail.
absl::Status SortPairs(std::vector<std::pair<Value, Value>>& pairs, Budget& budget) {
  for (size_t width = 1; width < pairs.size(); width *= 2) {
    std::vector<std::pair<Value, Value>> merged;
    merged.reserve(pairs.size());
    for (size_t begin = 0; begin < pairs.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, pairs.size());
      const size_t end = std::min(begin + 2 * width, pairs.size());
      size_t left = begin;
      size_t right = middle;
      while (left < middle || right < end) {
        bool take_left = right == end;
        if (left < middle && right < end) {
          EPIC_ASSIGN_OR_RETURN(const int order, Compare(pairs[left].first, pairs[right].first, budget));
          take_left = order <= 0;
        }
        merged.push_back(std::move(pairs[take_left ? left++ : right++]));
      }
    }
    pairs = std::move(merged);
  }
  return absl::OkStatus();
}

Result Sort(const Value& input, const Arguments& arguments, Budget& budget) {
  EPIC_ASSIGN_OR_RETURN(const auto bound,
                        Bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}));
  EPIC_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(input, budget));
  // Stable in both directions, as Python's is.
  const bool reverse = bound[0] && IsTrue(*bound[0]);
  if (reverse) std::reverse(items.begin(), items.end());
  std::vector<std::pair<Value, Value>> pairs;
  for (Value& item : items) {
    EPIC_ASSIGN_OR_RETURN(Value key, SortKey(item, bound[2], bound[1] && IsTrue(*bound[1]), budget));
    pairs.emplace_back(std::move(key), std::move(item));
  }
  EPIC_RETURN_IF_ERROR(SortPairs(pairs, budget));
  std::vector<Value> sorted;
  for (auto& pair : pairs) sorted.push_back(std::move(pair.second));
  if (reverse) std::reverse(sorted.begin(), sorted.end());
  return MakeList(std::move(sorted), false, budget);
}

Result Unchanged(const Value& input, const Arguments& arguments, Budget&) {
  EPIC_RETURN_IF_ERROR(Bind("safe", arguments, {}).status());
  return input;
}

Result Attr(const Value& input, const Arguments& arguments, Budget& budget) {
  EPIC_ASSIGN_OR_RETURN(const auto bound, Bind("attr", arguments, {"name"}));
  if (!bound[0] || bound[0]->AsText() == nullptr) return absl::InvalidArgumentError("attr needs a name");
  return GetAttribute(input, bound[0]->AsText()->bytes(), budget);
}

struct Entry {
  std::string_view name;
  Filter filter;
};
constexpr Entry kFilters[] = {
    {"trim", Trim},
    {"tojson", ToJson},
    {"length", Length},
    {"count", Length},
    {"first", First},
    {"last", Last},
    {"join", Join},
    {"upper", ChangeCase<Case::kUpper>},
    {"lower", ChangeCase<Case::kLower>},
    {"capitalize", ChangeCase<Case::kCapitalize>},
    {"title", ChangeCase<Case::kJinjaTitle>},
    {"default", Default},
    {"d", Default},
    {"list", ToList},
    {"items", Items},
    {"select", Select},
    {"reject", Reject},
    {"selectattr", SelectAttr},
    {"rejectattr", RejectAttr},
    {"map", Map},
    {"replace", ReplaceText},
    {"string", ToString},
    {"int", ToInt},
    {"float", ToFloat},
    {"abs", Abs},
    {"reverse", Reverse},
    {"indent", Indent},
    {"unique", Unique},
    {"sort", Sort},
    {"safe", Unchanged},
    {"attr", Attr},
};

const Entry* FindFilter(std::string_view name) {
  const auto it =
      std::find_if(std::begin(kFilters), std::end(kFilters), [&](const Entry& e) { return e.name == name; });
  return it == std::end(kFilters) ? nullptr : &*it;
}

}  // namespace

bool IsFilter(std::string_view name) { return FindFilter(name) != nullptr; }

absl::StatusOr<Value> CallFilter(std::string_view name, const Value& input, const Arguments& arguments,
                                 Budget& budget) {
  const Entry* entry = FindFilter(name);
  EPIC_CHECK(entry != nullptr);
  EPIC_RETURN_IF_ERROR(budget.Spend(1));
  return entry->filter(input, arguments, budget);
}

}  // namespace epic::jinja
