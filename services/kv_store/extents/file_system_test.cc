// What every FileSystem promises, against the real one on both engines and against the one in memory; and
// what the one in memory adds: faults and crashes.
#include "services/kv_store/extents/file_system.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/aligned_buffer.h"
#include "services/kv_store/extents/posix_file_system.h"
#include "services/kv_store/extents/thread_engine.h"
#include "services/kv_store/extents/uring_engine.h"
#include "services/kv_store/testing/faulty_file_system.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kPage = kSlabPageBytes;

std::unique_ptr<FileSystem> OnUring() {
  auto engine = MakeUringEngine();
  return engine.ok() ? MakePosixFileSystem(*std::move(engine)) : nullptr;
}

struct Kind {
  const char* name;
  std::unique_ptr<FileSystem> (*make)();
};

class FileSystemTest : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    files_ = GetParam().make();
    if (files_ == nullptr) GTEST_SKIP() << "this kernel does not let us have io_uring";
    ASSERT_OK(files_->MakeFolder(folder_));
    ASSERT_OK_AND_ASSIGN(file_, files_->Open(folder_ + "/a"));
  }
  static void Fill(MutableByteSpan bytes, uint64_t seed) {
    Rng rng(seed);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.Next());
  }
  // In pieces of 8 pages.
  std::vector<IoPiece> PiecesOf(uint64_t offset, MutableByteSpan bytes) {
    std::vector<IoPiece> pieces;
    for (uint64_t at = 0; at < bytes.size(); at += 8 * kPage) {
      pieces.push_back({file_.get(), offset + at, bytes.subspan(at, std::min(8 * kPage, bytes.size() - at))});
    }
    return pieces;
  }
  absl::Status Move(IoKind kind, uint64_t offset, MutableByteSpan bytes) {
    return TransferWhole(files_.get(), kind, PiecesOf(offset, bytes),
                         [](size_t) { return absl::OkStatus(); });
  }

  const epic::testing::TempDir dir_;
  const std::string folder_ = dir_.path() + "/x/y";
  std::unique_ptr<FileSystem> files_;
  std::unique_ptr<File> file_;
};

TEST_P(FileSystemTest, WhatIsWrittenInManyPiecesIsRead) {
  AlignedBuffer bytes(100 * kPage);
  Fill(bytes.bytes(), 1);
  ASSERT_OK(file_->Allocate(0, 101 * kPage));
  ASSERT_OK(Move(IoKind::kWrite, kPage, bytes.bytes()));
  ASSERT_OK(file_->Sync());
  AlignedBuffer back(100 * kPage);
  ASSERT_OK(Move(IoKind::kRead, kPage, back.bytes()));
  EXPECT_TRUE(AsText(bytes.bytes()) == AsText(back.bytes()));
  ASSERT_OK_AND_ASSIGN(const uint64_t size, file_->Size());
  EXPECT_EQ(size, 101 * kPage);
  ASSERT_OK_AND_ASSIGN(const uint64_t allocated, file_->AllocatedBytes());
  EXPECT_GE(allocated, 101 * kPage);
  EXPECT_GT(files_->FreeBytes(folder_), 0u);
  ASSERT_OK_AND_ASSIGN(const auto names, files_->List(folder_));
  EXPECT_EQ(names, std::vector<std::string>{"a"});
  ASSERT_OK(files_->SyncFolder(folder_));
}

TEST_P(FileSystemTest, APunchedRangeIsZeroAndTakesNoSpace) {
  AlignedBuffer bytes(32 * kPage);
  Fill(bytes.bytes(), 2);
  ASSERT_OK(file_->Allocate(0, 32 * kPage));
  ASSERT_OK(Move(IoKind::kWrite, 0, bytes.bytes()));
  ASSERT_OK(file_->Sync());
  ASSERT_OK_AND_ASSIGN(const uint64_t before, file_->AllocatedBytes());
  ASSERT_OK(file_->Punch(8 * kPage, 16 * kPage));
  ASSERT_OK(file_->Sync());
  std::memset(bytes.bytes().data() + 8 * kPage, 0, 16 * kPage);
  AlignedBuffer back(32 * kPage);
  ASSERT_OK(Move(IoKind::kRead, 0, back.bytes()));
  EXPECT_TRUE(AsText(bytes.bytes()) == AsText(back.bytes()));
  ASSERT_OK_AND_ASSIGN(const uint64_t after, file_->AllocatedBytes());
  EXPECT_EQ(before - after, 16 * kPage);
  ASSERT_OK_AND_ASSIGN(const uint64_t size, file_->Size());
  EXPECT_EQ(size, 32 * kPage);
}

TEST_P(FileSystemTest, ReadingBehindTheEndIsDataLoss) {
  ASSERT_OK(file_->Allocate(0, 2 * kPage));
  AlignedBuffer back(4 * kPage);
  EXPECT_THAT(Move(IoKind::kRead, 0, back.bytes()), epic::testing::StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(Move(IoKind::kRead, 9 * kPage, back.bytes()),
              epic::testing::StatusIs(absl::StatusCode::kDataLoss));
}

TEST_P(FileSystemTest, AnErrorOfTheCallerEndsTheTransfer) {
  ASSERT_OK(file_->Allocate(0, 800 * kPage));
  AlignedBuffer back(800 * kPage);
  size_t ended = 0;
  const absl::Status status =
      TransferWhole(files_.get(), IoKind::kRead, PiecesOf(0, back.bytes()),
                    [&](size_t) { return ++ended == 3 ? absl::CancelledError("enough") : absl::OkStatus(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(ended, 3u);
}

TEST_P(FileSystemTest, ManyThreadsMoveBytesAtATime) {
  constexpr uint64_t kShare = 64 * kPage;
  ASSERT_OK(file_->Allocate(0, 8 * kShare));
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      AlignedBuffer bytes(kShare);
      AlignedBuffer back(kShare);
      for (uint64_t round = 0; round < 10; ++round) {
        Fill(bytes.bytes(), thread * 100 + round);
        EXPECT_OK(Move(IoKind::kWrite, thread * kShare, bytes.bytes()));
        EXPECT_OK(Move(IoKind::kRead, thread * kShare, back.bytes()));
        EXPECT_TRUE(AsText(bytes.bytes()) == AsText(back.bytes()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(
    All, FileSystemTest,
    ::testing::Values(Kind{"uring", &OnUring},
                      Kind{"threads", [] { return MakePosixFileSystem(std::make_unique<ThreadEngine>(4)); }},
                      Kind{"memory",
                           []() -> std::unique_ptr<FileSystem> {
                             return std::make_unique<FaultyFileSystem>(1, uint64_t{1} << 40);
                           }}),
    [](const auto& instance) { return instance.param.name; });

TEST(PosixFileSystemTest, ChoosesAnEngineThatThisKernelHas) {
  const auto files = MakePosixFileSystem();
  EXPECT_EQ(files->io_name(), MakeUringEngine().ok() ? "io_uring" : "threads");
}

class FaultyFileSystemTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(file_, files_.Open("/f/a"));
    ASSERT_OK(file_->Allocate(0, 8 * kPage));
  }
  absl::Status Move(IoKind kind, MutableByteSpan bytes) {
    return TransferWhole(&files_, kind, {{file_.get(), 0, bytes}}, [](size_t) { return absl::OkStatus(); });
  }
  std::string Read() {
    AlignedBuffer back(8 * kPage);
    EXPECT_OK(Move(IoKind::kRead, back.bytes()));
    return std::string(AsText(back.bytes()));
  }
  void Write(char value) {
    AlignedBuffer bytes(8 * kPage);
    std::memset(bytes.bytes().data(), value, bytes.bytes().size());
    ASSERT_OK(Move(IoKind::kWrite, bytes.bytes()));
  }

  FaultyFileSystem files_{7, 16 * kPage};
  std::unique_ptr<File> file_;
};

TEST_F(FaultyFileSystemTest, ACrashTearsWhatWasNotSyncedAndKeepsTheRest) {
  Write('a');
  ASSERT_OK(file_->Sync());
  ASSERT_OK(files_.SyncFolder("/f"));
  Write('b');
  file_.reset();
  Rng rng(1);
  files_.Crash(&rng);
  ASSERT_OK_AND_ASSIGN(file_, files_.Open("/f/a"));
  const std::string torn = Read();
  const auto old = std::count(torn.begin(), torn.end(), 'a');
  EXPECT_EQ(old + std::count(torn.begin(), torn.end(), 'b'), static_cast<ptrdiff_t>(torn.size()));
  EXPECT_GT(old, 0);
  EXPECT_LT(old, static_cast<ptrdiff_t>(torn.size()));
  EXPECT_EQ(old % 512, 0);
}

TEST_F(FaultyFileSystemTest, ShortPiecesAreContinuedAndErrorsAreTold) {
  files_.SetFaults({.short_read = 60, .short_write = 60});
  Write('c');
  EXPECT_EQ(Read(), std::string(8 * kPage, 'c'));
  AlignedBuffer back(8 * kPage);
  files_.SetFaults({.read_error = 100});
  EXPECT_THAT(Move(IoKind::kRead, back.bytes()), epic::testing::StatusIs(absl::StatusCode::kUnavailable));
  files_.SetFaults({.disk_full = 100});
  EXPECT_THAT(Move(IoKind::kWrite, back.bytes()),
              epic::testing::StatusIs(absl::StatusCode::kResourceExhausted));
  files_.SetFaults({});
  EXPECT_THAT(file_->Allocate(8 * kPage, 9 * kPage),
              epic::testing::StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_OK(file_->Allocate(8 * kPage, 8 * kPage));
}

TEST_F(FaultyFileSystemTest, NothingWorksAfterThePowerIsCut) {
  files_.CutPowerAfter(1);
  Write('d');
  EXPECT_TRUE(files_.power_is_cut());
  EXPECT_FALSE(file_->Sync().ok());
  AlignedBuffer back(8 * kPage);
  EXPECT_FALSE(Move(IoKind::kRead, back.bytes()).ok());
}

}  // namespace
}  // namespace epic::kv_store
