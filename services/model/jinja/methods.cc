#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/status/status_macros.h"
#include "services/model/jinja/builtins.h"
#include "services/model/jinja/print.h"
#include "services/model/jinja/text_ops.h"

namespace epic::jinja {
namespace {

constexpr std::string_view kTextMethods[] = {
    "strip", "lstrip", "rstrip", "split",      "rsplit", "splitlines", "startswith", "endswith", "replace",
    "upper", "lower",  "title",  "capitalize", "find",   "rfind",      "count",      "join"};
constexpr std::string_view kDictMethods[] = {"items", "keys", "values", "get"};
constexpr std::string_view kListMethods[] = {"count", "index"};
constexpr std::string_view kLoopMethods[] = {"cycle", "changed"};

template <typename Table>
std::optional<Value> MethodOf(const Table& table, const Value& value, std::string_view name) {
  const auto it = std::find(std::begin(table), std::end(table), name);
  if (it == std::end(table)) return std::nullopt;
  return Value(BoundMethod{std::make_shared<const Value>(value), *it});
}

absl::StatusOr<Value> ListOfTexts(std::vector<MarkedText> texts, Budget& budget) {
  std::vector<Value> items;
  items.reserve(texts.size());
  for (MarkedText& text : texts) items.push_back(Value::Of(std::move(text)));
  return MakeList(std::move(items), false, budget);
}

absl::StatusOr<const MarkedText*> TextArgument(std::string_view method, const std::optional<Value>& value) {
  if (value && value->AsText() != nullptr) return value->AsText();
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(method), "() needs a string"));
}

absl::StatusOr<int64_t> IntegerArgument(std::string_view method, const std::optional<Value>& value,
                                        int64_t absent) {
  if (!value) return absent;
  if (value->IsInteger()) return value->AsInteger();
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(method), "() needs an integer"));
}

std::optional<Value> LoopAttribute(const LoopData& loop, std::string_view name) {
  const auto size = static_cast<int64_t>(loop.items->items.size());
  const auto index = static_cast<int64_t>(loop.index);
  if (name == "index") return Value::Int(index + 1);
  if (name == "index0") return Value::Int(index);
  if (name == "revindex") return Value::Int(size - index);
  if (name == "revindex0") return Value::Int(size - index - 1);
  if (name == "first") return Value::Bool(index == 0);
  if (name == "last") return Value::Bool(index == size - 1);
  if (name == "length") return Value::Int(size);
  // Jinja counts recursion here, not nesting.
  if (name == "depth") return Value::Int(1);
  if (name == "depth0") return Value::Int(0);
  if (name == "previtem") {
    return index > 0 ? loop.items->items[loop.index - 1] : Value::UndefinedNamed("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < size ? loop.items->items[loop.index + 1]
                            : Value::UndefinedNamed("there is no next item");
  }
  return std::nullopt;
}

// What the value has by this name, without looking at items.
std::optional<Value> OwnAttribute(const Value& value, std::string_view name) {
  if (value.AsText() != nullptr) return MethodOf(kTextMethods, value, name);
  if (value.AsDict() != nullptr) return MethodOf(kDictMethods, value, name);
  if (value.AsList() != nullptr) return MethodOf(kListMethods, value, name);
  if (const auto* loop = value.As<Value::Loop>()) {
    if (auto found = LoopAttribute(**loop, name)) return found;
    return MethodOf(kLoopMethods, value, name);
  }
  if (const auto* names = value.As<Value::Namespace>()) {
    for (const auto& [key, entry] : (*names)->entries) {
      if (key == name) return entry;
    }
  }
  return std::nullopt;
}

absl::StatusOr<bool> HasAffix(const MarkedText& text, std::string_view method,
                              const std::optional<Value>& affix, Budget& budget) {
  std::vector<Value> options;
  if (affix && affix->AsList() != nullptr && affix->AsList()->tuple) {
    options = affix->AsList()->items;
  } else if (affix) {
    options.push_back(*affix);
  }
  if (!affix) return absl::InvalidArgumentError(absl::StrCat(ToAbsl(method), "() needs a string"));
  for (const Value& option : options) {
    EPIC_ASSIGN_OR_RETURN(const MarkedText* part, TextArgument(method, option));
    const std::string_view bytes = text.bytes();
    EPIC_RETURN_IF_ERROR(budget.Spend(1));
    if (part->size() > bytes.size()) continue;
    EPIC_RETURN_IF_ERROR(budget.Spend(part->size() / 1024));
    const size_t at = method == "startswith" ? 0 : bytes.size() - part->size();
    if (bytes.substr(at, part->size()) == part->bytes()) return true;
  }
  return false;
}

absl::StatusOr<Value> CallStrip(const MarkedText& text, std::string_view name, const Arguments& arguments,
                                Budget& budget) {
  EPIC_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"chars"}));
  const Sides sides = name == "strip" ? Sides::kBoth : name == "lstrip" ? Sides::kLeft : Sides::kRight;
  if (!bound[0] || bound[0]->Is<None>()) return Value::Of(Strip(text, sides, std::nullopt));
  EPIC_ASSIGN_OR_RETURN(const MarkedText* characters, TextArgument(name, bound[0]));
  EPIC_RETURN_IF_ERROR(budget.Spend(text.size() / 64 * characters->size() / 64));
  return Value::Of(Strip(text, sides, characters->bytes()));
}

absl::StatusOr<Value> CallSplit(const MarkedText& text, std::string_view name, const Arguments& arguments,
                                Budget& budget) {
  EPIC_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"sep", "maxsplit"}));
  EPIC_ASSIGN_OR_RETURN(const int64_t limit, IntegerArgument(name, bound[1], -1));
  std::optional<std::string_view> separator;
  if (bound[0] && !bound[0]->Is<None>()) {
    EPIC_ASSIGN_OR_RETURN(const MarkedText* found, TextArgument(name, bound[0]));
    if (found->empty()) return absl::InvalidArgumentError("empty separator");
    separator = found->bytes();
    // The search from the right is not linear in the worst case.
    if (name == "rsplit") EPIC_RETURN_IF_ERROR(budget.Spend(text.size() / 64 * found->size() / 64));
  }
  EPIC_ASSIGN_OR_RETURN(std::vector<MarkedText> parts,
                        Split(text, separator, limit, name == "rsplit", budget));
  return ListOfTexts(std::move(parts), budget);
}

// The number of bytes that a replacement will make, to be paid before it is made.
absl::Status PayForReplace(const MarkedText& text, const MarkedText& from, const MarkedText& to,
                           Budget& budget) {
  const uint64_t places = from.empty() ? text.size() + 1 : text.size() / from.size();
  if (to.cost() <= from.size()) return absl::OkStatus();
  if (places != 0 && to.cost() > (uint64_t{1} << 40) / places) return budget.SpendBytes(~uint64_t{0});
  uint64_t found = places;
  if (!from.empty()) {
    found = 0;
    for (size_t at = FindText(text.bytes(), from.bytes()); at != std::string_view::npos;
         at = FindText(text.bytes(), from.bytes(), at + from.size())) {
      ++found;
    }
  }
  return budget.SpendBytes(found * to.cost());
}

absl::StatusOr<Value> CallReplace(const MarkedText& text, const Arguments& arguments, Budget& budget) {
  EPIC_ASSIGN_OR_RETURN(const auto bound, Bind("replace", arguments, {"old", "new", "count"}));
  EPIC_ASSIGN_OR_RETURN(const MarkedText* from, TextArgument("replace", bound[0]));
  EPIC_ASSIGN_OR_RETURN(const MarkedText* to, TextArgument("replace", bound[1]));
  EPIC_ASSIGN_OR_RETURN(const int64_t limit, IntegerArgument("replace", bound[2], -1));
  EPIC_RETURN_IF_ERROR(PayForReplace(text, *from, *to, budget));
  return Value::Of(Replace(text, from->bytes(), *to, limit));
}

// find, rfind, count: positions in characters.
absl::StatusOr<Value> CallFind(const MarkedText& text, std::string_view name, const Arguments& arguments,
                               Budget& budget) {
  EPIC_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"sub"}));
  EPIC_ASSIGN_OR_RETURN(const MarkedText* what, TextArgument(name, bound[0]));
  const std::string_view bytes = text.bytes();
  if (name == "count") {
    if (what->empty()) return Value::Int(static_cast<int64_t>(text.CountCharacters()) + 1);
    int64_t count = 0;
    for (size_t at = FindText(bytes, what->bytes()); at != std::string_view::npos;
         at = FindText(bytes, what->bytes(), at + what->size())) {
      ++count;
    }
    return Value::Int(count);
  }
  if (name == "rfind") EPIC_RETURN_IF_ERROR(budget.Spend(text.size() / 64 * what->size() / 64));
  const size_t at = name == "find" ? FindText(bytes, what->bytes()) : bytes.rfind(what->bytes());
  if (at == std::string_view::npos) return Value::Int(-1);
  return Value::Int(static_cast<int64_t>(text.Slice(0, at).CountCharacters()));
}

absl::StatusOr<Value> CallTextMethod(const Value& self, std::string_view name, const Arguments& arguments,
                                     Budget& budget) {
  const MarkedText& text = *self.AsText();
  EPIC_RETURN_IF_ERROR(budget.SpendBytes(text.cost()));
  if (name == "strip" || name == "lstrip" || name == "rstrip")
    return CallStrip(text, name, arguments, budget);
  if (name == "split" || name == "rsplit") return CallSplit(text, name, arguments, budget);
  if (name == "replace") return CallReplace(text, arguments, budget);
  if (name == "find" || name == "rfind" || name == "count") return CallFind(text, name, arguments, budget);
  if (name == "startswith" || name == "endswith") {
    EPIC_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"affix"}));
    EPIC_ASSIGN_OR_RETURN(const bool has, HasAffix(text, name, bound[0], budget));
    return Value::Bool(has);
  }
  if (name == "join") {
    EPIC_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"iterable"}));
    if (!bound[0]) return absl::InvalidArgumentError("join() needs a list");
    return CallFilter("join", *bound[0], Arguments{{self}, {}}, budget);
  }
  EPIC_RETURN_IF_ERROR(Bind(name, arguments, {}).status());
  if (name == "splitlines") {
    EPIC_ASSIGN_OR_RETURN(std::vector<MarkedText> lines, SplitLines(text, budget));
    return ListOfTexts(std::move(lines), budget);
  }
  if (name == "upper") return Value::Of(MapCase(text, Case::kUpper));
  if (name == "lower") return Value::Of(MapCase(text, Case::kLower));
  return Value::Of(MapCase(text, name == "title" ? Case::kTitle : Case::kCapitalize));
}

absl::StatusOr<Value> CallDictMethod(const DictData& dict, std::string_view name, const Arguments& arguments,
                                     Budget& budget) {
  if (name == "get") {
    EPIC_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"key", "default"}));
    if (!bound[0]) return absl::InvalidArgumentError("get() needs a key");
    if (!IsHashable(*bound[0])) return OperationError("hash", *bound[0]);
    EPIC_ASSIGN_OR_RETURN(const std::optional<Value> found, FindInDict(dict, *bound[0], budget));
    return found ? *found : bound[1].value_or(Value(None{}));
  }
  EPIC_RETURN_IF_ERROR(Bind(name, arguments, {}).status());
  std::vector<Value> items;
  for (const auto& [key, value] : dict.entries) {
    if (name == "items") {
      EPIC_ASSIGN_OR_RETURN(Value pair, MakeList({key, value}, true, budget));
      items.push_back(std::move(pair));
    } else {
      items.push_back(name == "keys" ? key : value);
    }
  }
  return MakeList(std::move(items), false, budget);
}

absl::StatusOr<Value> CallListMethod(const ListData& list, std::string_view name, const Arguments& arguments,
                                     Budget& budget) {
  EPIC_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"value"}));
  if (!bound[0]) return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), "() needs a value"));
  int64_t count = 0;
  for (size_t i = 0; i < list.items.size(); ++i) {
    EPIC_ASSIGN_OR_RETURN(const bool same, AreEqual(list.items[i], *bound[0], budget));
    if (same && name == "index") return Value::Int(static_cast<int64_t>(i));
    count += same ? 1 : 0;
  }
  if (name == "index") return absl::InvalidArgumentError("index(): the value is not in the list");
  return Value::Int(count);
}

absl::StatusOr<Value> CallLoopMethod(LoopData& loop, std::string_view name, const Arguments& arguments,
                                     Budget& budget) {
  if (!arguments.named.empty())
    return absl::InvalidArgumentError(absl::StrCat("loop.", ToAbsl(name), " takes no names"));
  if (name == "cycle") {
    if (arguments.positional.empty()) return absl::InvalidArgumentError("loop.cycle needs values");
    return arguments.positional[loop.index % arguments.positional.size()];
  }
  EPIC_ASSIGN_OR_RETURN(Value now, MakeList(arguments.positional, true, budget));
  // A loop or a namespace kept here could come to hold itself.
  if (NestingOf(now).holds_namespace)
    return absl::InvalidArgumentError("loop.changed takes plain values only");
  bool changed = true;
  if (loop.last_changed) {
    EPIC_ASSIGN_OR_RETURN(const bool same, AreEqual(*loop.last_changed, now, budget));
    changed = !same;
  }
  loop.last_changed = std::move(now);
  return Value::Bool(changed);
}

// Where the character stands that is `count` characters behind the one at byte `at`.
size_t AfterCharacters(const MarkedText& text, size_t at, int64_t count) {
  for (; count > 0; --count) at = text.CharacterEnd(at);
  return at;
}

// Python's rules for slices: where to begin, how many, and the step.
struct SliceRange {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t step = 1;
};

absl::StatusOr<SliceRange> ResolveSlice(int64_t size, const Value& start, const Value& stop,
                                        const Value& step) {
  for (const Value* part : {&start, &stop, &step}) {
    if (!part->Is<None>() && !part->IsInteger()) return OperationError("slice with", *part);
  }
  SliceRange range;
  range.step = step.Is<None>() ? 1 : step.AsInteger();
  if (range.step == 0) return absl::InvalidArgumentError("a slice has step 0");
  const bool forward = range.step > 0;
  const auto clamp = [&](const Value& part, int64_t absent) {
    if (part.Is<None>()) return absent;
    int64_t at = part.AsInteger();
    if (at < 0) at += size;
    const int64_t low = forward ? 0 : -1;
    return std::clamp(at, low, forward ? size : size - 1);
  };
  range.begin = clamp(start, forward ? 0 : size - 1);
  const int64_t end = clamp(stop, forward ? size : -1);
  const int64_t distance = forward ? end - range.begin : range.begin - end;
  if (distance <= 0) return range;
  const auto stride = forward ? static_cast<uint64_t>(range.step) : ~static_cast<uint64_t>(range.step) + 1;
  range.count = static_cast<int64_t>((static_cast<uint64_t>(distance) - 1) / stride) + 1;
  return range;
}

}  // namespace

absl::StatusOr<std::vector<std::optional<Value>>> Bind(std::string_view callee, const Arguments& arguments,
                                                       std::initializer_list<std::string_view> parameters) {
  std::vector<std::optional<Value>> bound(parameters.size());
  if (arguments.positional.size() > parameters.size()) {
    return absl::InvalidArgumentError(absl::StrCat("'", ToAbsl(callee), "' has too many arguments"));
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), bound.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto it = std::find(parameters.begin(), parameters.end(), name);
    const auto at = static_cast<size_t>(it - parameters.begin());
    if (it == parameters.end() || bound[at]) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", ToAbsl(callee), "' has no use for argument '", name, "'"));
    }
    bound[at] = value;
  }
  return bound;
}

absl::Status OperationError(std::string_view operation, const Value& value) {
  if (const Undefined* undefined = value.As<Undefined>()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", undefined->name ? *undefined->name : "value", "' is undefined"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("cannot apply ", ToAbsl(operation), " to ", ToAbsl(TypeName(value))));
}

absl::StatusOr<Value> GetAttribute(const Value& value, std::string_view name, Budget& budget) {
  EPIC_RETURN_IF_ERROR(budget.Spend(1));
  if (value.IsUndefined()) return OperationError(name, value);
  if (std::optional<Value> own = OwnAttribute(value, name)) return *std::move(own);
  if (const DictData* dict = value.AsDict()) {
    EPIC_RETURN_IF_ERROR(budget.Spend(dict->entries.size()));
    if (const Value* found = FindText(*dict, name)) return *found;
  }
  return Value::UndefinedNamed(name);
}

absl::StatusOr<Value> GetItem(const Value& value, const Value& index, Budget& budget) {
  EPIC_RETURN_IF_ERROR(budget.Spend(1));
  if (value.IsUndefined()) return OperationError("[]", value);
  if (const DictData* dict = value.AsDict()) {
    EPIC_ASSIGN_OR_RETURN(std::optional<Value> found, FindInDict(*dict, index, budget));
    if (found) return *std::move(found);
  }
  if (index.IsInteger() && (value.AsList() != nullptr || value.AsText() != nullptr)) {
    EPIC_ASSIGN_OR_RETURN(const int64_t size, LengthOf(value));
    const int64_t at = index.AsInteger() < 0 ? index.AsInteger() + size : index.AsInteger();
    if (at < 0 || at >= size) return Value::UndefinedNamed("element");
    if (value.AsList() != nullptr) return value.AsList()->items[static_cast<size_t>(at)];
    return GetSlice(value, Value::Int(at), Value::Int(at + 1), Value(None{}), budget);
  }
  if (const MarkedText* name = index.AsText()) {
    if (std::optional<Value> own = OwnAttribute(value, name->bytes())) return *std::move(own);
    return Value::UndefinedNamed(name->bytes());
  }
  return Value::UndefinedNamed("element");
}

absl::StatusOr<Value> GetSlice(const Value& value, const Value& start, const Value& stop, const Value& step,
                               Budget& budget) {
  if (value.AsList() == nullptr && value.AsText() == nullptr) return OperationError("a slice", value);
  EPIC_ASSIGN_OR_RETURN(const int64_t size, LengthOf(value));
  EPIC_ASSIGN_OR_RETURN(const SliceRange range, ResolveSlice(size, start, stop, step));
  if (const ListData* list = value.AsList()) {
    std::vector<Value> items;
    for (int64_t i = 0; i < range.count; ++i)
      items.push_back(list->items[static_cast<size_t>(range.begin + i * range.step)]);
    return MakeList(std::move(items), list->tuple, budget);
  }
  const MarkedText& text = *value.AsText();
  EPIC_RETURN_IF_ERROR(budget.SpendBytes(text.cost()));
  if (range.count == 0) return Value::Of(MarkedText());
  if (range.step == 1) {
    const size_t begin = AfterCharacters(text, 0, range.begin);
    return Value::Of(text.Slice(begin, AfterCharacters(text, begin, range.count)));
  }
  // The table takes eight bytes for each character.
  EPIC_RETURN_IF_ERROR(budget.SpendBytes(sizeof(size_t) * static_cast<uint64_t>(size)));
  std::vector<size_t> begins;
  begins.reserve(static_cast<size_t>(size) + 1);
  for (size_t at = 0; at < text.size(); at = text.CharacterEnd(at)) begins.push_back(at);
  begins.push_back(text.size());
  MarkedText out;
  for (int64_t i = 0; i < range.count; ++i) {
    const auto at = static_cast<size_t>(range.begin + i * range.step);
    out.Append(text, begins[at], begins[at + 1]);
  }
  return Value::Of(std::move(out));
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item, Budget& budget) {
  if (const MarkedText* text = container.AsText()) {
    if (item.AsText() == nullptr) return OperationError("'in <string>'", item);
    EPIC_RETURN_IF_ERROR(budget.SpendBytes(text->size()));
    return FindText(text->bytes(), item.AsText()->bytes()) != std::string_view::npos;
  }
  if (const DictData* dict = container.AsDict()) {
    if (!IsHashable(item)) return OperationError("hash", item);
    EPIC_ASSIGN_OR_RETURN(const std::optional<Value> found, FindInDict(*dict, item, budget));
    return found.has_value();
  }
  if (container.IsUndefined()) return false;
  if (container.AsList() == nullptr) return OperationError("in", container);
  for (const Value& candidate : container.AsList()->items) {
    EPIC_ASSIGN_OR_RETURN(const bool same, AreEqual(candidate, item, budget));
    if (same) return true;
  }
  return false;
}

absl::StatusOr<Value> CallMethod(const BoundMethod& method, const Arguments& arguments, Budget& budget) {
  const Value& self = *method.self;
  if (self.AsText() != nullptr) return CallTextMethod(self, method.name, arguments, budget);
  if (self.AsDict() != nullptr) return CallDictMethod(*self.AsDict(), method.name, arguments, budget);
  if (self.AsList() != nullptr) return CallListMethod(*self.AsList(), method.name, arguments, budget);
  return CallLoopMethod(**self.As<Value::Loop>(), method.name, arguments, budget);
}

}  // namespace epic::jinja
