// A logger for RocksDB that keeps nothing of what it tells: what matters comes back as statuses, and tools
// that only read make no file. RocksDB's own logger asserts, and so ends the process, when it writes to its
// file again after the disk was full or gone. Stateless; any thread.
#ifndef EPIC_SERVICES_KV_STORE_ROCKSDB_NO_LOG_H_
#define EPIC_SERVICES_KV_STORE_ROCKSDB_NO_LOG_H_

#include <cstdarg>

#include "rocksdb/env.h"

namespace epic::kv_store {

class NoLog final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char* /*format*/, va_list /*arguments*/) override {}
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_ROCKSDB_NO_LOG_H_
