#include "common/status/rocksdb_status.h"

#include <gtest/gtest.h>

#include "common/status/error.h"

namespace epic {
namespace {

TEST(RocksDbStatusTest, MapsEveryKindByTheTable) {
  using rocksdb::Status;
  using Absl = absl::StatusCode;
  const struct {
    Status from;
    Absl to;
  } table[] = {
      {Status::OK(), Absl::kOk},
      {Status::NoSpace(), Absl::kResourceExhausted},
      {Status::SpaceLimit(), Absl::kResourceExhausted},
      {Status::Corruption("block"), Absl::kDataLoss},
      {Status::NotFound(), Absl::kNotFound},
      {Status::IOError("read"), Absl::kUnavailable},
      {Status::Busy(), Absl::kUnavailable},
      {Status::TimedOut(), Absl::kUnavailable},
      {Status::Incomplete(), Absl::kUnavailable},
      {Status::TryAgain(), Absl::kUnavailable},
      {Status::InvalidArgument("x"), Absl::kInternal},
      {Status::NotSupported("x"), Absl::kInternal},
      {Status::ColumnFamilyDropped(), Absl::kInternal},
      {Status::ShutdownInProgress(), Absl::kCancelled},
      {Status::Aborted(), Absl::kCancelled},
  };
  for (const auto& row : table) EXPECT_EQ(FromRocksDb(row.from).code(), row.to) << row.from.ToString();
}

TEST(RocksDbStatusTest, AFullDiskIsStorageFullAndWordsAreKept) {
  EXPECT_EQ(CodeOf(FromRocksDb(rocksdb::Status::NoSpace())), ErrorCode::kStorageFull);
  EXPECT_NE(MessageOf(FromRocksDb(rocksdb::Status::Corruption("bad block in 000012.sst"))).find("000012.sst"),
            std::string::npos);
}

}  // namespace
}  // namespace epic
