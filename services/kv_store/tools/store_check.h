// Reads every row, slab and extent header of a store that is stopped and says what is wrong there. Changes no
// byte. One thread at a time; blocks. Memory is 24 bytes for each run of pages and 8 for each object, and
// what one row needs. Not here: mending (store_repair.h), printing.
#ifndef EPIC_SERVICES_KV_STORE_TOOLS_STORE_CHECK_H_
#define EPIC_SERVICES_KV_STORE_TOOLS_STORE_CHECK_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "services/kv_store/tools/store_report.h"

namespace epic::kv_store {

struct CheckOptions {
  bool deep = true;  // slabs are read, and every block's checksum compared
  // Called now and then with what is counted so far.
  std::function<void(const StoreCounts&)> progress;
};

// What is wrong with the data is in the report. Errors: NotFound when the directory holds no store,
// FailedPrecondition when another process uses it, PermissionDenied and others when it cannot be read.
absl::StatusOr<StoreReport> CheckStore(const std::string& dir, const CheckOptions& options);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TOOLS_STORE_CHECK_H_
