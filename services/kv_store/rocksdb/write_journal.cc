#include "services/kv_store/rocksdb/write_journal.h"

#include <algorithm>
#include <iterator>

namespace epic::kv_store {
namespace {

constexpr uint64_t kMaxRows = uint64_t{1} << 16;
constexpr uint64_t kMaxBytes = uint64_t{16} << 20;

template <typename Rows>
void EraseRange(Rows* rows, const RowName& begin, const RowName& end) {
  if (begin < end) rows->erase(rows->lower_bound(begin), rows->lower_bound(end));
}

}  // namespace

void WriteJournal::Add(WrittenRows rows) {
  MutexLock lock(&mu_);
  rows_ += rows.rows.size() + rows.ranges.size();
  bytes_ += rows.bytes;
  writes_.push_back(std::move(rows));
}

uint64_t WriteJournal::Mark() const {
  MutexLock lock(&mu_);
  return dropped_ + writes_.size();
}

void WriteJournal::DropBefore(uint64_t mark) {
  MutexLock lock(&mu_);
  for (; dropped_ < mark && !writes_.empty(); ++dropped_) {
    rows_ -= writes_.front().rows.size() + writes_.front().ranges.size();
    bytes_ -= writes_.front().bytes;
    writes_.pop_front();
  }
}

bool WriteJournal::IsFull() const {
  MutexLock lock(&mu_);
  return rows_ >= kMaxRows || bytes_ >= kMaxBytes;
}

std::vector<WrittenRows> WriteJournal::All() const {
  MutexLock lock(&mu_);
  return {writes_.begin(), writes_.end()};
}

void WriteJournal::Clear() { DropBefore(Mark()); }

void UnloggedRows::Add(Table table, std::string_view key) {
  MutexLock lock(&mu_);
  RowName row{table, std::string(key)};
  lost_.erase(row);
  waiting_[std::move(row)] = next_++;
}

uint64_t UnloggedRows::Mark() const {
  MutexLock lock(&mu_);
  return next_;
}

void UnloggedRows::Flushed(Table table, uint64_t mark) {
  MutexLock lock(&mu_);
  std::erase_if(waiting_,
                [&](const auto& waiting) { return waiting.first.table == table && waiting.second < mark; });
}

void UnloggedRows::LoseAll() {
  MutexLock lock(&mu_);
  for (const auto& [row, place] : waiting_) lost_.insert(row);
  waiting_.clear();
}

bool UnloggedRows::AnyLost(Table table) const {
  MutexLock lock(&mu_);
  const auto first = lost_.lower_bound({table, ""});
  return first != lost_.end() && first->table == table;
}

void UnloggedRows::Forget(const WriteBatch& batch) {
  MutexLock lock(&mu_);
  if (lost_.empty() && waiting_.empty()) return;
  for (const WriteBatch::Change& change : batch.changes()) {
    const RowName row{change.table, change.key};
    if (change.end.has_value()) {
      EraseRange(&lost_, row, {change.table, *change.end});
      EraseRange(&waiting_, row, {change.table, *change.end});
    } else {
      lost_.erase(row);
      waiting_.erase(row);
    }
  }
}

}  // namespace epic::kv_store
