#include "services/model/jinja/value.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/status/status_macros.h"

namespace epic::jinja {
namespace {

absl::Status TypeError(std::string_view what, const Value& value) {
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(what), " ", ToAbsl(TypeName(value))));
}

absl::Status UndefinedError(const Value& value) {
  const auto& name = value.As<Undefined>()->name;
  return absl::InvalidArgumentError(absl::StrCat("'", name ? *name : std::string("value"), "' is undefined"));
}

void Include(const Value& value, Nesting& nesting) {
  const Nesting inner = NestingOf(value);
  nesting.depth = std::max(nesting.depth, inner.depth + 1);
  nesting.holds_namespace |= inner.holds_namespace;
}

absl::Status CheckDepth(const Nesting& nesting) {
  if (nesting.depth <= kMaxValueDepth) return absl::OkStatus();
  return absl::InvalidArgumentError("values are nested too deeply");
}

absl::StatusOr<bool> AreListsEqual(const ListData& left, const ListData& right, Budget& budget) {
  if (left.tuple != right.tuple || left.items.size() != right.items.size()) return false;
  for (size_t i = 0; i < left.items.size(); ++i) {
    EPIC_ASSIGN_OR_RETURN(const bool same, AreEqual(left.items[i], right.items[i], budget));
    if (!same) return false;
  }
  return true;
}

absl::StatusOr<bool> AreDictsEqual(const DictData& left, const DictData& right, Budget& budget) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    EPIC_ASSIGN_OR_RETURN(const std::optional<Value> other, FindInDict(right, key, budget));
    if (!other) return false;
    EPIC_ASSIGN_OR_RETURN(const bool same, AreEqual(value, *other, budget));
    if (!same) return false;
  }
  return true;
}

int Sign(auto left, auto right) { return left < right ? -1 : left > right ? 1 : 0; }

}  // namespace

Value Value::UndefinedNamed(std::string_view name) {
  return Value(Undefined{std::make_shared<const std::string>(name)});
}

const MarkedText* Value::AsText() const {
  const Text* text = As<Text>();
  return text == nullptr ? nullptr : text->get();
}
const ListData* Value::AsList() const {
  const List* list = As<List>();
  return list == nullptr ? nullptr : list->get();
}
const DictData* Value::AsDict() const {
  const Dict* dict = As<Dict>();
  return dict == nullptr ? nullptr : dict->get();
}
int64_t Value::AsInteger() const { return Is<bool>() ? (*As<bool>() ? 1 : 0) : *As<int64_t>(); }
double Value::AsDouble() const { return Is<double>() ? *As<double>() : static_cast<double>(AsInteger()); }

Nesting NestingOf(const Value& value) {
  if (const ListData* list = value.AsList()) return list->nesting;
  if (const DictData* dict = value.AsDict()) return dict->nesting;
  if (const BoundMethod* method = value.As<BoundMethod>()) return NestingOf(*method->self);
  // A loop refers to any values, a namespace to itself at worst.
  return {1, value.Is<Value::Namespace>() || value.Is<Value::Loop>()};
}

absl::StatusOr<Value> MakeList(std::vector<Value> items, bool tuple, Budget& budget) {
  EPIC_RETURN_IF_ERROR(budget.Spend(items.size()));
  auto list = std::make_shared<ListData>();
  for (const Value& item : items) Include(item, list->nesting);
  EPIC_RETURN_IF_ERROR(CheckDepth(list->nesting));
  list->items = std::move(items);
  list->tuple = tuple;
  return Value(Value::List(std::move(list)));
}

absl::StatusOr<Value> MakeDict(std::vector<std::pair<Value, Value>> entries, Budget& budget) {
  auto dict = std::make_shared<DictData>();
  for (auto& [key, value] : entries) {
    if (!IsHashable(key)) return TypeError("unhashable key:", key);
    bool replaced = false;
    for (auto& [old_key, old_value] : dict->entries) {
      EPIC_ASSIGN_OR_RETURN(const bool same, AreEqual(key, old_key, budget));
      if (!same) continue;
      old_value = value;
      replaced = true;
      break;
    }
    Include(key, dict->nesting);
    Include(value, dict->nesting);
    if (!replaced) dict->entries.emplace_back(std::move(key), std::move(value));
  }
  EPIC_RETURN_IF_ERROR(CheckDepth(dict->nesting));
  return Value(Value::Dict(std::move(dict)));
}

absl::StatusOr<std::optional<Value>> FindInDict(const DictData& dict, const Value& key, Budget& budget) {
  for (const auto& [candidate, value] : dict.entries) {
    EPIC_ASSIGN_OR_RETURN(const bool same, AreEqual(candidate, key, budget));
    if (same) return std::optional<Value>(value);
  }
  return std::optional<Value>();
}

const Value* FindText(const DictData& dict, std::string_view key) {
  for (const auto& [candidate, value] : dict.entries) {
    const MarkedText* text = candidate.AsText();
    if (text != nullptr && text->bytes() == key) return &value;
  }
  return nullptr;
}

bool IsTrue(const Value& value) {
  if (value.IsNumber()) return value.AsDouble() != 0;
  if (const MarkedText* text = value.AsText()) return !text->empty();
  if (const ListData* list = value.AsList()) return !list->items.empty();
  if (const DictData* dict = value.AsDict()) return !dict->entries.empty();
  return !value.IsUndefined() && !value.Is<None>();
}

bool IsHashable(const Value& value) {
  if (value.AsDict() != nullptr) return false;
  const ListData* list = value.AsList();
  if (list == nullptr) return true;
  return list->tuple && std::all_of(list->items.begin(), list->items.end(), IsHashable);
}

absl::StatusOr<bool> AreEqual(const Value& left, const Value& right, Budget& budget) {
  EPIC_RETURN_IF_ERROR(budget.Spend(1));
  if (left.IsInteger() && right.IsInteger()) return left.AsInteger() == right.AsInteger();
  if (left.IsNumber() && right.IsNumber()) return left.AsDouble() == right.AsDouble();
  if (left.AsText() != nullptr && right.AsText() != nullptr) {
    if (left.AsText()->size() == right.AsText()->size()) {
      EPIC_RETURN_IF_ERROR(budget.Spend(left.AsText()->size() / 1024));
    }
    return *left.AsText() == *right.AsText();
  }
  if (left.AsList() != nullptr && right.AsList() != nullptr) {
    return AreListsEqual(*left.AsList(), *right.AsList(), budget);
  }
  if (left.AsDict() != nullptr && right.AsDict() != nullptr) {
    return AreDictsEqual(*left.AsDict(), *right.AsDict(), budget);
  }
  if (left.Is<Value::Namespace>() && right.Is<Value::Namespace>()) {
    return *left.As<Value::Namespace>() == *right.As<Value::Namespace>();
  }
  return (left.IsUndefined() && right.IsUndefined()) || (left.Is<None>() && right.Is<None>());
}

absl::StatusOr<int> Compare(const Value& left, const Value& right, Budget& budget) {
  EPIC_RETURN_IF_ERROR(budget.Spend(1));
  if (left.IsInteger() && right.IsInteger()) return Sign(left.AsInteger(), right.AsInteger());
  if (left.IsNumber() && right.IsNumber()) return Sign(left.AsDouble(), right.AsDouble());
  if (left.AsText() != nullptr && right.AsText() != nullptr) {
    EPIC_RETURN_IF_ERROR(budget.Spend(left.AsText()->size() / 1024));
    return Sign(left.AsText()->bytes().compare(right.AsText()->bytes()), 0);
  }
  const ListData* a = left.AsList();
  const ListData* b = right.AsList();
  if (a != nullptr && b != nullptr && a->tuple == b->tuple) {
    for (size_t i = 0; i < std::min(a->items.size(), b->items.size()); ++i) {
      EPIC_ASSIGN_OR_RETURN(const bool same, AreEqual(a->items[i], b->items[i], budget));
      if (!same) return Compare(a->items[i], b->items[i], budget);
    }
    return Sign(a->items.size(), b->items.size());
  }
  if (left.IsUndefined()) return UndefinedError(left);
  if (right.IsUndefined()) return UndefinedError(right);
  return absl::InvalidArgumentError(
      absl::StrCat("cannot order ", ToAbsl(TypeName(left)), " and ", ToAbsl(TypeName(right))));
}

absl::StatusOr<std::vector<Value>> Iterate(const Value& value, Budget& budget) {
  std::vector<Value> items;
  if (value.IsUndefined()) return items;
  if (const ListData* list = value.AsList()) {
    EPIC_RETURN_IF_ERROR(budget.Spend(list->items.size()));
    return list->items;
  }
  if (const DictData* dict = value.AsDict()) {
    EPIC_RETURN_IF_ERROR(budget.Spend(dict->entries.size()));
    for (const auto& entry : dict->entries) items.push_back(entry.first);
    return items;
  }
  const MarkedText* text = value.AsText();
  if (text == nullptr) return TypeError("cannot iterate over", value);
  EPIC_RETURN_IF_ERROR(budget.Spend(text->size()));
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = text->CharacterEnd(begin);
    items.push_back(Value::Of(text->Slice(begin, end)));
    begin = end;
  }
  return items;
}

absl::StatusOr<int64_t> LengthOf(const Value& value) {
  if (value.IsUndefined()) return 0;
  if (const MarkedText* text = value.AsText()) return static_cast<int64_t>(text->CountCharacters());
  if (const ListData* list = value.AsList()) return static_cast<int64_t>(list->items.size());
  if (const DictData* dict = value.AsDict()) return static_cast<int64_t>(dict->entries.size());
  if (const auto* loop = value.As<Value::Loop>()) return static_cast<int64_t>((*loop)->items->items.size());
  return TypeError("no length:", value);
}

std::string_view TypeName(const Value& value) {
  if (value.IsUndefined()) return "Undefined";
  if (value.Is<None>()) return "NoneType";
  if (value.Is<bool>()) return "bool";
  if (value.Is<int64_t>()) return "int";
  if (value.Is<double>()) return "float";
  if (value.AsText() != nullptr) return "str";
  if (value.AsList() != nullptr) return value.AsList()->tuple ? "tuple" : "list";
  if (value.AsDict() != nullptr) return "dict";
  if (value.Is<Value::Namespace>()) return "Namespace";
  if (value.Is<Value::Loop>()) return "LoopContext";
  return "callable";
}

}  // namespace epic::jinja
