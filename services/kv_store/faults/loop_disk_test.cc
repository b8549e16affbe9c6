// The store on a disk of its own: ext4 in a file on a loop device, which others fill, and which vanishes with
// all that was not synced. Needs the right to mount; skipped where that is missing.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/embedded_store.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr std::string_view kTenant = "default";
constexpr uint32_t kTokens = 64;
constexpr uint64_t kMiB = uint64_t{1} << 20;

// What the command prints, without the end of the line; nullopt: it failed.
std::optional<std::string> Output(const std::string& command) {
  FILE* const pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  char part[256];
  while (fgets(part, sizeof part, pipe) != nullptr) text += part;
  if (pclose(pipe) != 0) return std::nullopt;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// A disk of its own, mounted at path().
class LoopDisk {
 public:
  explicit LoopDisk(uint64_t bytes) {
    const std::string image = dir_.path() + "/disk.img";
    if (geteuid() != 0 || !Output("truncate -s " + std::to_string(bytes) + " " + image)) return;
    device_ = Output("losetup -f --show " + image).value_or("");
    if (device_.empty() || !Output("mkfs.ext4 -q -F -m 0 " + device_) || !Output("mkdir -p " + path()))
      return;
    Mount();
  }
  ~LoopDisk() {
    if (mounted_) umount2(path().c_str(), MNT_DETACH);
    if (!device_.empty()) Output("losetup -d " + device_);
  }
  LoopDisk(const LoopDisk&) = delete;
  LoopDisk& operator=(const LoopDisk&) = delete;

  bool mounted() const { return mounted_; }
  std::string path() const { return dir_.path() + "/mnt"; }
  void Mount() { mounted_ = mount(device_.c_str(), path().c_str(), "ext4", 0, nullptr) == 0; }
  // Every call fails from now on, and what its journal had not written is lost. False: not known here.
  bool Vanish() {
    const int fd = open(path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    uint32_t without_flush = 2;
    const bool gone = fd >= 0 && ioctl(fd, _IOR('X', 125, uint32_t), &without_flush) == 0;
    if (fd >= 0) close(fd);
    return gone;
  }
  // REQUIRES: no file is open.
  void ComeBack() {
    ASSERT_EQ(umount(path().c_str()), 0);
    Mount();
    ASSERT_TRUE(mounted_);
  }

 private:
  const epic::testing::TempDir dir_;
  std::string device_;
  bool mounted_ = false;
};

class LoopDiskTest : public ::testing::TestWithParam<SlabBackEnd> {
 protected:
  void SetUp() override {
    if (!disk_.mounted()) GTEST_SKIP() << "this machine lets us mount no loop device";
    Open();
  }
  void Open() {
    store_.reset();
    auto store =
        EmbeddedStore::Open({.dir = disk_.path() + "/data",
                             .store = {.memory_bytes = 4 * kMiB, .disk_bytes_max = 1024 * kMiB, .writer = {}},
                             .slabs = GetParam()});
    ASSERT_OK(store);
    store_ = *std::move(store);
  }
  static CacheId IdOf(uint64_t seed) { return CacheId::Of(kTenant, {}, TokensOf(seed, kTokens)); }
  absl::Status Create(uint64_t seed) { return store_->CreateContext(ContextOf(seed, kTokens)).status(); }
  void Put(uint64_t seed) {
    ASSERT_OK(Create(seed)) << seed;
    ASSERT_OK(PutObject(store_.get(), kTenant, {IdOf(seed), {}}, layout_, seed)) << seed;
  }
  // Also on disk when it returns.
  void PutDurable(uint64_t seed) {
    NewContext safe = ContextOf(seed, kTokens);
    safe.durability = Durability::kObject;
    ASSERT_OK(store_->CreateContext(safe)) << seed;
    ASSERT_OK(PutObject(store_.get(), kTenant, {IdOf(seed), {}}, layout_, seed)) << seed;
  }
  bool Hits(uint64_t seed) {
    const auto result = store_->Acquire(kTenant, {IdOf(seed), {}}, layout_);
    EXPECT_OK(result);
    if (!result.ok() || result->object == nullptr) return false;
    EXPECT_TRUE(Holds(*result->object, seed)) << "wrong bytes: " << seed;
    return true;
  }
  void Drain() { static_cast<StoreCore*>(store_.get())->DrainWrites(); }

  const KvLayout layout_ = LayoutOf(kTokens, 4, 2, 512);  // 1 MiB
  LoopDisk disk_{160 * kMiB};
  std::unique_ptr<KvStore> store_;
};

TEST_P(LoopDiskTest, FilledByObjectsAndByOthersItServesOnAndRecovers) {
  for (uint64_t seed = 1; seed <= 200; ++seed) ASSERT_NO_FATAL_FAILURE(Put(seed));
  Drain();
  EXPECT_TRUE(Hits(200));
  EXPECT_OK(Create(1000)) << "records have room on a disk that objects filled";

  const std::string filler = disk_.path() + "/filler";
  {
    std::ofstream file(filler, std::ios::binary);
    const std::string block(kMiB, 'x');
    while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush().good()) {
    }
  }
  {
    std::ofstream file(filler + "2", std::ios::binary);
    while (file.put('x').flush().good()) {
    }
  }
  absl::Status refused;
  for (uint64_t seed = 2000; seed < 6000 && refused.ok(); ++seed) refused = Create(seed);
  EXPECT_EQ(CodeOf(refused), ErrorCode::kStorageFull) << refused;
  EXPECT_TRUE(store_->Disk().full);
  ASSERT_OK(PutObject(store_.get(), kTenant, {IdOf(1000), {}}, layout_, 1000));
  EXPECT_TRUE(Hits(1000)) << "from memory";
  ASSERT_EQ(unlink(filler.c_str()), 0);
  ASSERT_EQ(unlink((filler + "2").c_str()), 0);
  ASSERT_OK(Create(7000));
  EXPECT_FALSE(store_->Disk().full);
  ASSERT_NO_FATAL_FAILURE(PutDurable(7001));
  Open();
  EXPECT_TRUE(Hits(7001)) << "a durable object is lost";
  EXPECT_OK(store_->GetTokens(kTenant, IdOf(7000)));
}

TEST_P(LoopDiskTest, VanishedItServesFromMemoryAndBackAllThatWasAcknowledgedIsThere) {
  for (uint64_t seed = 1; seed <= 20; ++seed) ASSERT_NO_FATAL_FAILURE(Put(seed));
  ASSERT_NO_FATAL_FAILURE(PutDurable(50));
  ASSERT_OK(store_->DeleteContext(kTenant, IdOf(7)));
  if (!disk_.Vanish()) GTEST_SKIP() << "this kernel shuts no file system down";
  EXPECT_FALSE(Create(100).ok());
  EXPECT_FALSE(Create(101).ok());
  EXPECT_TRUE(Hits(50)) << "from memory";
  EXPECT_OK(store_->GetContext(kTenant, IdOf(3)));
  EXPECT_GT(store_->Disk().errors, 0u);
  for (uint64_t seed = 1; seed <= 20; ++seed) Hits(seed);

  store_.reset();
  ASSERT_NO_FATAL_FAILURE(disk_.ComeBack());
  Open();
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    if (seed == 7) continue;
    const auto tokens = store_->GetTokens(kTenant, IdOf(seed));
    ASSERT_OK(tokens) << "an acknowledged record is lost: " << seed;
    EXPECT_EQ(*tokens, TokensOf(seed, kTokens));
    Hits(seed);
  }
  EXPECT_EQ(CodeOf(store_->GetContext(kTenant, IdOf(7)).status()), ErrorCode::kContextDeleted);
  EXPECT_TRUE(Hits(50)) << "a durable object is lost";
  ASSERT_NO_FATAL_FAILURE(Put(60));
}

INSTANTIATE_TEST_SUITE_P(BackEnds, LoopDiskTest,
                         ::testing::Values(SlabBackEnd::kExtents, SlabBackEnd::kBlobFiles),
                         [](const auto& info) {
                           return info.param == SlabBackEnd::kExtents ? "Extents" : "BlobFiles";
                         });

}  // namespace
}  // namespace epic::kv_store
