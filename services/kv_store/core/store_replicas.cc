// The part of StoreCore that serves replication between nodes, besides JoinContext in store_records.cc.
#include <algorithm>
#include <utility>

#include "common/status/status_macros.h"
#include "common/storage/record_codec.h"
#include "services/kv_store/core/store_core.h"

namespace epic::kv_store {

absl::StatusOr<std::vector<ContextKey>> StoreCore::KnownContexts(const std::optional<ContextKey>& after,
                                                                 size_t limit) {
  // The least row behind that of `after`.
  const std::string begin = after.has_value() ? RowKey(*after) + '\0' : "";
  std::vector<std::string> rows;
  for (const Table table : {Table::kRecords, Table::kTombstones}) {
    size_t left = limit;
    const auto visit = [&](std::string_view row, std::string_view) {
      if (left == 0) return false;
      rows.emplace_back(row);
      return --left > 0;
    };
    EPIC_RETURN_IF_ERROR(tables_->ScanFrom(table, begin, visit));
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  std::vector<ContextKey> keys;
  for (const std::string& row : rows) {
    if (keys.size() == limit) break;
    EPIC_ASSIGN_OR_RETURN(ContextKey key, ParseContextKey(row));
    keys.push_back(std::move(key));
  }
  return keys;
}

absl::StatusOr<std::vector<TokenId>> StoreCore::StoredTokens(const ContextKey& key) {
  const auto state = records_.StateOf(key);
  if (!state.has_value() || !state->record.has_value()) return absl::NotFoundError("no such record");
  EPIC_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, ReadTokens(key));
  if (CacheId::Of(key.tenant, state->record->model_identity, tokens) != key.id) {
    return absl::DataLossError("the stored token ids are not those of the Cache ID");
  }
  return tokens;
}

absl::Status StoreCore::ForgetContext(const ContextKey& key) {
  const KeyLock lock(&locks_, key);
  const std::optional<ReplicaState> known = records_.StateOf(key);
  if (!known.has_value()) return absl::OkStatus();
  WriteBatch batch;
  const std::vector<uint64_t> removed = AddRemoval(key, &batch);
  batch.Delete(Table::kTombstones, RowKey(key));
  EPIC_RETURN_IF_ERROR(tables_->Write(batch, Sync::kYes));
  records_.ApplyJoin(key, {});
  if (known->record.has_value()) ForgetObjects(key, removed);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string>> StoreCore::GetNodeRow(std::string_view name) {
  return tables_->Get(Table::kNode, name);
}

absl::Status StoreCore::PutNodeRow(std::string_view name, std::string value) {
  WriteBatch batch;
  batch.Put(Table::kNode, std::string(name), std::move(value));
  return tables_->Write(batch, Sync::kYes);
}

}  // namespace epic::kv_store
