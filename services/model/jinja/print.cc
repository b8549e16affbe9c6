#include "services/model/jinja/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include <utf8proc.h>

#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/status/status_macros.h"
#include "services/model/utf8.h"

namespace epic::jinja {
namespace {

std::string Hex(const char* format, uint32_t value) {
  char buffer[16];
  std::snprintf(buffer, sizeof(buffer), format, value);
  return buffer;
}

bool IsPrintable(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

std::string EscapeForRepr(char32_t c, char quote) {
  if (c == static_cast<char32_t>(quote) || c == '\\') return std::string("\\") + static_cast<char>(c);
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  if (IsPrintable(c)) return {};
  return c < 0x100 ? Hex("\\x%02x", c) : c < 0x10000 ? Hex("\\u%04x", c) : Hex("\\U%08x", c);
}

std::string EscapeForJson(char32_t c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      return c < 0x20 ? Hex("\\u%04x", c) : std::string();
  }
}

// Appends `text` with some characters replaced by what `escape` gives (empty: as it is).
template <typename Escape>
void AppendEscaped(const MarkedText& text, Escape escape, MarkedText& out) {
  size_t plain = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.CharacterEnd(begin);
    std::string replaced;
    if (text.bytes()[begin] != MarkedText::kPlaceholder)
      replaced = escape(DecodeUtf8(text.bytes(), begin).code_point);
    if (!replaced.empty()) {
      out.Append(text, plain, begin);
      out.AppendLike(replaced, text, begin);
      plain = end;
    }
    begin = end;
  }
  out.Append(text, plain, text.size());
}

absl::Status AppendRepr(const Value& value, Budget& budget, MarkedText& out);

absl::Status AppendSequence(const ListData& list, Budget& budget, MarkedText& out) {
  out.Append(list.tuple ? "(" : "[");
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.Append(", ");
    EPIC_RETURN_IF_ERROR(AppendRepr(list.items[i], budget, out));
  }
  if (list.tuple && list.items.size() == 1) out.Append(",");
  out.Append(list.tuple ? ")" : "]");
  return absl::OkStatus();
}

absl::Status AppendRepr(const Value& value, Budget& budget, MarkedText& out) {
  EPIC_RETURN_IF_ERROR(budget.Spend(1));
  EPIC_RETURN_IF_ERROR(budget.SpendBytes(8));
  if (const MarkedText* text = value.AsText()) {
    EPIC_RETURN_IF_ERROR(budget.SpendBytes(text->cost()));
    const bool single = text->bytes().find('\'') != std::string::npos;
    const char quote = single && text->bytes().find('"') == std::string::npos ? '"' : '\'';
    out.Append(std::string_view(&quote, 1));
    AppendEscaped(
        *text, [quote](char32_t c) { return EscapeForRepr(c, quote); }, out);
    out.Append(std::string_view(&quote, 1));
    return absl::OkStatus();
  }
  if (const ListData* list = value.AsList()) return AppendSequence(*list, budget, out);
  if (const DictData* dict = value.AsDict()) {
    out.Append("{");
    for (size_t i = 0; i < dict->entries.size(); ++i) {
      if (i > 0) out.Append(", ");
      EPIC_RETURN_IF_ERROR(AppendRepr(dict->entries[i].first, budget, out));
      out.Append(": ");
      EPIC_RETURN_IF_ERROR(AppendRepr(dict->entries[i].second, budget, out));
    }
    out.Append("}");
    return absl::OkStatus();
  }
  if (value.IsUndefined()) {
    out.Append("Undefined");
    return absl::OkStatus();
  }
  EPIC_ASSIGN_OR_RETURN(const MarkedText text, Print(value, budget));
  out.Append(text);
  return absl::OkStatus();
}

class JsonPrinter {
 public:
  JsonPrinter(const JsonFormat& format, Budget& budget) : format_(format), budget_(budget) {}

  absl::Status Append(const Value& value, int level, MarkedText& out) {
    EPIC_RETURN_IF_ERROR(budget_.Spend(1));
    EPIC_RETURN_IF_ERROR(budget_.SpendBytes(8));
    if (const MarkedText* text = value.AsText()) return AppendText(*text, out);
    if (const ListData* list = value.AsList()) return AppendList(*list, level, out);
    if (const DictData* dict = value.AsDict()) return AppendDict(*dict, level, out);
    if (value.Is<None>()) {
      out.Append("null");
    } else if (const bool* flag = value.As<bool>()) {
      out.Append(*flag ? "true" : "false");
    } else if (const int64_t* number = value.As<int64_t>()) {
      out.Append(std::to_string(*number));
    } else if (const double* real = value.As<double>()) {
      out.Append(std::isnan(*real)   ? "NaN"
                 : std::isinf(*real) ? (*real > 0 ? "Infinity" : "-Infinity")
                                     : PrintDouble(*real));
    } else {
      return absl::InvalidArgumentError(absl::StrCat(ToAbsl(TypeName(value)), " has no JSON form"));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status AppendText(const MarkedText& text, MarkedText& out) {
    EPIC_RETURN_IF_ERROR(budget_.SpendBytes(text.cost()));
    out.Append("\"");
    AppendEscaped(text, EscapeForJson, out);
    out.Append("\"");
    return absl::OkStatus();
  }

  absl::Status AppendList(const ListData& list, int level, MarkedText& out) {
    out.Append("[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) EPIC_RETURN_IF_ERROR(Separate(format_.item_separator, out));
      EPIC_RETURN_IF_ERROR(NewLine(level + 1, out));
      EPIC_RETURN_IF_ERROR(Append(list.items[i], level + 1, out));
    }
    if (!list.items.empty()) EPIC_RETURN_IF_ERROR(NewLine(level, out));
    out.Append("]");
    return absl::OkStatus();
  }

  absl::Status AppendDict(const DictData& dict, int level, MarkedText& out) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (format_.sort_keys) {
      for (const auto* entry : entries) {
        if (entry->first.AsText() == nullptr) return absl::InvalidArgumentError("sort_keys needs text keys");
      }
      std::stable_sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
        return a->first.AsText()->bytes() < b->first.AsText()->bytes();
      });
    }
    out.Append("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) EPIC_RETURN_IF_ERROR(Separate(format_.item_separator, out));
      EPIC_RETURN_IF_ERROR(NewLine(level + 1, out));
      EPIC_RETURN_IF_ERROR(AppendKey(entries[i]->first, level, out));
      EPIC_RETURN_IF_ERROR(Separate(format_.key_separator, out));
      EPIC_RETURN_IF_ERROR(Append(entries[i]->second, level + 1, out));
    }
    if (!entries.empty()) EPIC_RETURN_IF_ERROR(NewLine(level, out));
    out.Append("}");
    return absl::OkStatus();
  }

  // Numbers, true, false and None become text as keys.
  absl::Status AppendKey(const Value& key, int level, MarkedText& out) {
    if (key.AsText() != nullptr) return Append(key, level, out);
    if (!key.IsNumber() && !key.Is<None>()) return absl::InvalidArgumentError("a JSON key must be text");
    out.Append("\"");
    EPIC_RETURN_IF_ERROR(Append(key, level, out));
    out.Append("\"");
    return absl::OkStatus();
  }

  // Templates choose separators, of any length.
  absl::Status Separate(const std::string& separator, MarkedText& out) {
    EPIC_RETURN_IF_ERROR(budget_.SpendBytes(separator.size()));
    out.Append(separator);
    return absl::OkStatus();
  }

  absl::Status NewLine(int level, MarkedText& out) {
    if (!format_.indent) return absl::OkStatus();
    EPIC_RETURN_IF_ERROR(budget_.SpendBytes(1 + format_.indent->size() * static_cast<size_t>(level)));
    out.Append("\n");
    for (int i = 0; i < level; ++i) out.Append(*format_.indent);
    return absl::OkStatus();
  }

  const JsonFormat& format_;
  Budget& budget_;
};

}  // namespace

std::string PrintDouble(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::scientific).ptr;
  const std::string_view scientific(buffer, static_cast<size_t>(end - buffer));
  const size_t e = scientific.find('e');
  int exponent = 0;
  const char* digits = scientific.data() + e + 1;
  std::from_chars(*digits == '+' ? digits + 1 : digits, end, exponent);
  if (exponent >= -4 && exponent < 16) {
    const auto fixed = std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::fixed).ptr;
    std::string out(buffer, fixed);
    return out.find('.') == std::string::npos ? out + ".0" : out;
  }
  return std::string(scientific);
}

absl::StatusOr<MarkedText> Print(const Value& value, Budget& budget) {
  if (const MarkedText* text = value.AsText()) {
    EPIC_RETURN_IF_ERROR(budget.SpendBytes(text->cost()));
    return *text;
  }
  if (value.IsUndefined()) return MarkedText();
  if (value.Is<None>()) return MarkedText("None");
  if (const bool* flag = value.As<bool>()) return MarkedText(*flag ? "True" : "False");
  if (const int64_t* number = value.As<int64_t>()) return MarkedText(std::to_string(*number));
  if (const double* real = value.As<double>()) return MarkedText(PrintDouble(*real));
  if (value.AsList() != nullptr || value.AsDict() != nullptr) {
    MarkedText out;
    EPIC_RETURN_IF_ERROR(AppendRepr(value, budget, out));
    return out;
  }
  return absl::InvalidArgumentError(absl::StrCat("a ", ToAbsl(TypeName(value)), " cannot be printed"));
}

absl::StatusOr<MarkedText> PrintJson(const Value& value, const JsonFormat& format, Budget& budget) {
  MarkedText out;
  JsonPrinter printer(format, budget);
  EPIC_RETURN_IF_ERROR(printer.Append(value, 0, out));
  return out;
}

}  // namespace epic::jinja
