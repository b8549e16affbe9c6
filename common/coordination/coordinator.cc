#include "common/coordination/coordinator.h"

#include <set>

#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic {
namespace {

absl::Status Invalid(const std::string& what, std::string_view param) {
  return Error(ErrorCode::kInvalidRequest, what, param);
}

absl::Status ValidateKey(std::string_view key) {
  if (key.empty()) return Invalid("a key is not empty", "key");
  if (key.size() > CoordinationLimits::kKeyBytes) {
    return Invalid("a key has at most " + std::to_string(CoordinationLimits::kKeyBytes) + " bytes", "key");
  }
  return absl::OkStatus();
}

absl::Status ValidateChange(const Change& change) {
  if (!change.is_put) return ValidateRange(change.range);
  EPIC_RETURN_IF_ERROR(ValidateKey(change.range.key));
  if (change.range.is_prefix) return Invalid("a put is of one key", "range");
  if (change.value.size() <= CoordinationLimits::kValueBytes) return absl::OkStatus();
  return Invalid("a value has at most " + std::to_string(CoordinationLimits::kValueBytes) + " bytes",
                 "value");
}

// Two changes of one transaction that touch one key.
absl::Status ValidateApart(const std::vector<Change>& changes) {
  std::set<std::string_view> puts;
  for (const Change& change : changes) {
    if (change.is_put && !puts.insert(change.range.key).second) {
      return Invalid("a transaction changes a key once at most", "changes");
    }
  }
  for (const Change& change : changes) {
    if (change.is_put) continue;
    for (const std::string_view key : puts) {
      if (change.range.Contains(key)) return Invalid("a transaction changes a key once at most", "changes");
    }
  }
  return absl::OkStatus();
}

}  // namespace

Guard Guard::Absent(std::string_view key) { return {Kind::kAbsent, std::string(key), 0, {}}; }
Guard Guard::CreatedAt(std::string_view key, Revision revision) {
  return {Kind::kCreatedAt, std::string(key), revision, {}};
}
Guard Guard::ModifiedAt(std::string_view key, Revision revision) {
  return {Kind::kModifiedAt, std::string(key), revision, {}};
}
Guard Guard::ValueIs(std::string_view key, std::string_view value) {
  return {Kind::kValueIs, std::string(key), 0, std::string(value)};
}

Change Change::Put(std::string_view key, std::string_view value, LeaseId lease) {
  return {true, KeyRange::One(key), std::string(value), lease};
}
Change Change::Delete(KeyRange range) { return {false, std::move(range), {}, 0}; }

absl::Status ValidateRange(const KeyRange& range) {
  if (range.is_prefix && range.key.empty()) return absl::OkStatus();
  return ValidateKey(range.key);
}

absl::Status ValidateTransaction(const Transaction& transaction) {
  if (transaction.guards.size() > CoordinationLimits::kGuards) {
    return Invalid("a transaction has at most " + std::to_string(CoordinationLimits::kGuards) + " guards",
                   "guards");
  }
  if (transaction.changes.empty()) return Invalid("a transaction changes something", "changes");
  if (transaction.changes.size() > CoordinationLimits::kChanges) {
    return Invalid("a transaction has at most " + std::to_string(CoordinationLimits::kChanges) + " changes",
                   "changes");
  }
  size_t bytes = 0;
  for (const Guard& guard : transaction.guards) {
    EPIC_RETURN_IF_ERROR(ValidateKey(guard.key));
    const bool has_revision = guard.kind == Guard::Kind::kCreatedAt || guard.kind == Guard::Kind::kModifiedAt;
    if (has_revision && guard.revision <= 0) return Invalid("revisions are above 0", "guards");
    bytes += guard.key.size() + guard.value.size();
  }
  for (const Change& change : transaction.changes) {
    EPIC_RETURN_IF_ERROR(ValidateChange(change));
    bytes += change.range.key.size() + change.value.size();
  }
  if (bytes > CoordinationLimits::kTransactionBytes) {
    return Invalid(
        "a transaction has at most " + std::to_string(CoordinationLimits::kTransactionBytes) + " bytes",
        "changes");
  }
  return ValidateApart(transaction.changes);
}

bool Holds(const Guard& guard, const KeyValue* item) {
  switch (guard.kind) {
    case Guard::Kind::kAbsent:
      return item == nullptr;
    case Guard::Kind::kCreatedAt:
      return item != nullptr && item->created == guard.revision;
    case Guard::Kind::kModifiedAt:
      return item != nullptr && item->modified == guard.revision;
    case Guard::Kind::kValueIs:
      return item != nullptr && item->value == guard.value;
  }
  return false;
}

}  // namespace epic
