#include "common/storage/disk_causes.h"

namespace epic {
namespace {

constexpr int64_t kDiskErrorNs = 60LL * 1'000'000'000;  // for how long health speaks of a failed disk

}  // namespace

std::vector<std::string> DiskCauses(const StoreDisk& disk, int64_t now_steady_ns) {
  std::vector<std::string> causes;
  if (disk.full) {
    causes.push_back("the disk of the store is full: contexts are not created, or kept in memory only");
  }
  if (disk.slow) {
    causes.push_back("the disk of the store is slow: calls wait for it " +
                     std::to_string(disk.wait_ns / 1'000'000) +
                     " ms; contexts in memory are served as ever, others may be compiled again");
  }
  const int64_t ago_ns = now_steady_ns - disk.last_error_steady_ns;
  if (disk.errors > 0 && ago_ns <= kDiskErrorNs) {
    causes.push_back("the disk of the store failed " + std::to_string(disk.errors) + " times, last " +
                     std::to_string(ago_ns / 1'000'000'000) +
                     " s ago: contexts are served from memory and compiled again");
  }
  return causes;
}

}  // namespace epic
