#include "common/status/errno_status.h"

#include <cerrno>

#include <gtest/gtest.h>

#include "common/status/error.h"

namespace epic {
namespace {

TEST(ErrnoStatusTest, MapsEveryKindByTheTable) {
  using Absl = absl::StatusCode;
  const struct {
    int from;
    Absl to;
  } table[] = {{ENOSPC, Absl::kResourceExhausted}, {EDQUOT, Absl::kResourceExhausted},
               {ENOENT, Absl::kNotFound},          {EACCES, Absl::kPermissionDenied},
               {EROFS, Absl::kPermissionDenied},   {EPERM, Absl::kPermissionDenied},
               {ENOSYS, Absl::kUnimplemented},     {EOPNOTSUPP, Absl::kUnimplemented},
               {EINVAL, Absl::kInternal},          {EBADF, Absl::kInternal},
               {EFAULT, Absl::kInternal},          {EIO, Absl::kUnavailable},
               {ENODEV, Absl::kUnavailable},       {EMFILE, Absl::kUnavailable}};
  for (const auto& row : table) EXPECT_EQ(FromErrno(row.from, "x").code(), row.to) << row.from;
}

TEST(ErrnoStatusTest, AFullDiskIsStorageFullAndWordsAreKept) {
  EXPECT_EQ(CodeOf(FromErrno(ENOSPC, "write")), ErrorCode::kStorageFull);
  EXPECT_NE(MessageOf(FromErrno(EIO, "read of extents")).find("read of extents"), std::string::npos);
}

}  // namespace
}  // namespace epic
