// The values of a template: those of Python that Jinja templates for chats use.
//
// Cheap to copy, immutable but for namespaces, one thread at a time. Nesting is bounded, so recursion over a
// value is. Integers are 64 bits: past them is an error, not a bigger number.
#ifndef EPIC_SERVICES_MODEL_JINJA_VALUE_H_
#define EPIC_SERVICES_MODEL_JINJA_VALUE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "services/model/jinja/budget.h"
#include "services/model/jinja/marked_text.h"

namespace epic::jinja {

struct ListData;
struct DictData;
struct NamespaceData;
struct LoopData;
struct Macro;  // ast.h
class Value;

enum class Function : uint8_t { kRaiseException, kStrftimeNow, kNamespace, kRange, kDict };

// The name of what was undefined, for messages.
struct Undefined {
  std::shared_ptr<const std::string> name;
};
struct None {};
struct BoundMethod {
  std::shared_ptr<const Value> self;
  std::string_view name;  // of a static table
};

class Value {
 public:
  using Text = std::shared_ptr<const MarkedText>;
  using List = std::shared_ptr<const ListData>;
  using Dict = std::shared_ptr<const DictData>;
  using Namespace = std::shared_ptr<NamespaceData>;
  using Loop = std::shared_ptr<LoopData>;

  Value() : data_(Undefined{}) {}
  template <typename T>
  explicit Value(T data) : data_(std::move(data)) {}
  static Value Of(MarkedText text) { return Value(Text(std::make_shared<MarkedText>(std::move(text)))); }
  static Value Of(std::string_view text) { return Of(MarkedText(text)); }
  static Value UndefinedNamed(std::string_view name);
  static Value Int(int64_t number) { return Value(number); }
  static Value Bool(bool flag) { return Value(flag); }

  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(data_);
  }
  template <typename T>
  const T* As() const {
    return std::get_if<T>(&data_);
  }
  const MarkedText* AsText() const;
  const ListData* AsList() const;
  const DictData* AsDict() const;
  bool IsNumber() const { return Is<int64_t>() || Is<double>() || Is<bool>(); }
  bool IsInteger() const { return Is<int64_t>() || Is<bool>(); }
  // REQUIRES: IsInteger().
  int64_t AsInteger() const;
  // REQUIRES: IsNumber().
  double AsDouble() const;
  bool IsCallable() const { return Is<const Macro*>() || Is<Function>() || Is<BoundMethod>(); }
  bool IsUndefined() const { return Is<Undefined>(); }

 private:
  std::variant<Undefined, None, bool, int64_t, double, Text, List, Dict, Namespace, Loop, const Macro*,
               Function, BoundMethod>
      data_;
};

// Nesting of a container: 1 + that of its deepest element. `holds_namespace`: so that no cycle can arise.
struct Nesting {
  uint32_t depth = 1;
  bool holds_namespace = false;
};
struct ListData {
  std::vector<Value> items;
  bool tuple = false;
  Nesting nesting;
};
struct DictData {
  std::vector<std::pair<Value, Value>> entries;  // in order of insertion, keys differ
  Nesting nesting;
};
struct NamespaceData {
  std::vector<std::pair<std::string, Value>> entries;
};
// What `loop` is: `items` is all of the loop, `index` the current one, from 0.
struct LoopData {
  Value::List items;
  size_t index = 0;
  std::optional<Value> last_changed;
};

inline constexpr uint32_t kMaxValueDepth = 60;

Nesting NestingOf(const Value& value);
// Errors: InvalidArgument past kMaxValueDepth.
absl::StatusOr<Value> MakeList(std::vector<Value> items, bool tuple, Budget& budget);
// Later entries replace earlier ones with an equal key. Errors: also for keys that Python cannot hash.
absl::StatusOr<Value> MakeDict(std::vector<std::pair<Value, Value>> entries, Budget& budget);

// The value of `key`; Undefined when absent.
absl::StatusOr<std::optional<Value>> FindInDict(const DictData& dict, const Value& key, Budget& budget);
const Value* FindText(const DictData& dict, std::string_view key);

bool IsTrue(const Value& value);
// Whether it may be a key of a dict.
bool IsHashable(const Value& value);
absl::StatusOr<bool> AreEqual(const Value& left, const Value& right, Budget& budget);
// -1, 0 or 1. Errors: InvalidArgument for types that Python does not order.
absl::StatusOr<int> Compare(const Value& left, const Value& right, Budget& budget);
// What a `for` or a filter walks over: elements, keys, characters; nothing for Undefined.
absl::StatusOr<std::vector<Value>> Iterate(const Value& value, Budget& budget);
absl::StatusOr<int64_t> LengthOf(const Value& value);
std::string_view TypeName(const Value& value);

}  // namespace epic::jinja

#endif  // EPIC_SERVICES_MODEL_JINJA_VALUE_H_
