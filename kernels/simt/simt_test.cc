#include "kernels/simt/simt.h"

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"

namespace epic::simt {
namespace {

constexpr uint64_t kSeeds = 8;

// Runs `launch` under each seed of a small set; how many of them gave what `is_right` accepts.
template <typename LaunchFn, typename Check>
uint64_t SeedsThatPass(const LaunchFn& launch, const Check& is_right) {
  uint64_t passed = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SetOrderSeed(seed);
    const GpuStatus status = launch();
    passed += status.ok() && is_right() ? 1 : 0;
  }
  return passed;
}

// Reverses each block's part of `data` through shared memory.
struct ReverseArgs {
  uint32_t* data;
  bool has_barrier;
};

void ReverseKernel(ReverseArgs args) {
  EPIC_SHARED(uint32_t, values, 128);
  const uint32_t at = BlockIndex().x * BlockThreads() + ThreadIndex();
  values[ThreadIndex()] = args.data[at];
  if (args.has_barrier) SyncBlock();
  args.data[at] = values[BlockThreads() - 1 - ThreadIndex()];
}

uint64_t SeedsThatReverse(bool has_barrier) {
  std::vector<uint32_t> data(3 * 128);
  const auto launch = [&] {
    for (uint32_t i = 0; i < data.size(); ++i) data[i] = 7 * i;
    return Launch(ReverseKernel, {3}, 128, 0, nullptr, ReverseArgs{data.data(), has_barrier});
  };
  return SeedsThatPass(launch, [&] {
    for (uint32_t i = 0; i < data.size(); ++i) {
      if (data[i] != 7 * (i / 128 * 128 + 127 - i % 128)) return false;
    }
    return true;
  });
}

TEST(SimtTest, ABarrierOrdersTheThreadsOfABlockAndItsAbsenceIsFound) {
  EXPECT_EQ(SeedsThatReverse(true), kSeeds);
  EXPECT_LT(SeedsThatReverse(false), kSeeds);
}

// Every warp reads what the one before wrote in the last round: needs a barrier after the reads as well.
struct RotateArgs {
  uint32_t* out;
  bool has_second_barrier;
};

void RotateKernel(RotateArgs args) {
  EPIC_SHARED(uint32_t, values, 128);
  const uint32_t thread = ThreadIndex();
  uint32_t value = thread;
  for (int round = 0; round < 4; ++round) {
    values[thread] = value;
    SyncBlock();
    value = values[(thread + 96) % 128] + 1;
    if (args.has_second_barrier) SyncBlock();
  }
  args.out[thread] = value;
}

TEST(SimtTest, WritingAgainBeforeAllHaveReadIsFound) {
  std::vector<uint32_t> out(128);
  const auto right = [&] {
    for (uint32_t t = 0; t < 128; ++t) {
      if (out[t] != t + 4) return false;
    }
    return true;
  };
  for (const bool has_second : {true, false}) {
    const auto launch = [&] {
      return Launch(RotateKernel, {1}, 128, 0, nullptr, RotateArgs{out.data(), has_second});
    };
    if (has_second) {
      EXPECT_EQ(SeedsThatPass(launch, right), kSeeds);
    } else {
      EXPECT_LT(SeedsThatPass(launch, right), kSeeds);
    }
  }
}

void NeighbourKernel(uint32_t* out, bool has_sync) {
  EPIC_SHARED(uint32_t, values, 32);
  values[Lane()] = Lane() * 3;
  if (has_sync) SyncWarp();
  out[Lane()] = values[(Lane() + 1) % kWarp];
}

TEST(SimtTest, LanesOfAWarpRunInAnyOrderUntilTheyMeet) {
  std::vector<uint32_t> out(32);
  const auto right = [&] {
    for (uint32_t l = 0; l < 32; ++l) {
      if (out[l] != (l + 1) % 32 * 3) return false;
    }
    return true;
  };
  const auto launch = [&](bool has_sync) {
    return [&, has_sync] { return Launch(NeighbourKernel, {1}, 32, 0, nullptr, out.data(), has_sync); };
  };
  EXPECT_EQ(SeedsThatPass(launch(true), right), kSeeds);
  EXPECT_LT(SeedsThatPass(launch(false), right), kSeeds);
}

void CollectivesKernel(uint32_t* out) {
  const uint32_t lane = Lane();
  uint32_t errors = 0;
  errors += Shuffle(lane * 5, 7) != 35;
  errors += Shuffle(lane * 5, (lane + 3) % 32) != (lane + 3) % 32 * 5;
  errors += ShuffleXor(lane, 16) != (lane ^ 16);
  errors += ShuffleXor(1.5f + static_cast<float>(lane), 1) != 1.5f + static_cast<float>(lane ^ 1);
  errors += ShuffleUp(uint64_t{lane} << 40, 4) != uint64_t{lane >= 4 ? lane - 4 : lane} << 40;
  errors += Ballot(lane % 3 == 0) != 0x49249249u;
  errors += !Any(lane == 31);
  errors += Any(lane == 32);
  errors += !All(lane < 32);
  errors += All(lane < 31);
  errors += ReduceMax(lane * 2) != 62;
  errors += ReduceMin(lane + 9) != 9;
  errors += ReduceAdd(lane) != 496;
  errors += SyncBlockOr(false);
  errors += !SyncBlockOr(ThreadIndex() == 40);
  AtomicAdd(out, errors);
  AtomicAdd(out + 1, 1u);
  AtomicOr(out + 2, 1u << lane);
  AtomicMax(out + 3, ThreadIndex());
}

TEST(SimtTest, CollectivesAndAtomicsGiveWhatADeviceGives) {
  std::vector<uint32_t> out(4, 0);
  EXPECT_EQ(SeedsThatPass(
                [&] {
                  out.assign(4, 0);
                  return Launch(CollectivesKernel, {2}, 64, 0, nullptr, out.data());
                },
                [&] {
                  return out == std::vector<uint32_t>({0, 128, ~0u, 63});
                }),
            kSeeds);
}

// One product a[16][16] · b[16][8] by a warp, operands fetched by ldmatrix.
struct ProductArgs {
  const Bf16* a;  // [16][16]
  const Bf16* b;  // [16][8]
  float* c;       // [16][8]
  bool transposes_b;
  bool waits;
};

void ProductKernel(ProductArgs args) {
  SharedCarver carver;
  const SharedArray<Bf16> a = carver.Take<Bf16>(256);
  const SharedArray<Bf16> b = carver.Take<Bf16>(128);
  const uint32_t lane = Lane();
  CpAsync16(a.At(lane * 8, 8), args.a + lane * 8, true);
  if (lane < 16) CpAsync16(b.At(lane * 8, 8), args.b + lane * 8, true);
  CpAsyncCommit();
  if (args.waits) CpAsyncWait<0>();
  SyncWarp();
  uint32_t a_pairs[4], b_pairs[2];
  LdMatrix4(a_pairs, a.At(lane % 16 * 16 + lane / 16 * 8, 8));
  if (args.transposes_b) {
    LdMatrix2Trans(b_pairs, b.At(lane % 16 * 8, 8));
  } else {
    LdMatrix2(b_pairs, b.At(lane % 16 * 8, 8));
  }
  float c[4] = {};
  MmaBf16(c, a_pairs, b_pairs);
  for (uint32_t i = 0; i < 4; ++i) {
    args.c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = c[i];
  }
  if (!args.waits) CpAsyncWait<0>();
}

class SimtProductTest : public ::testing::Test {
 protected:
  SimtProductTest() : a_(256), b_(128), c_(128), expected_(128, 0.0f) {
    Rng rng(5);
    for (Bf16& value : a_) value = ToBf16(static_cast<float>(rng.Below(17)) - 8);
    for (Bf16& value : b_) value = ToBf16(static_cast<float>(rng.Below(17)) - 8);
    // Small integers: exact in every order.
    for (size_t row = 0; row < 16; ++row) {
      for (size_t column = 0; column < 8; ++column) {
        for (size_t k = 0; k < 16; ++k) {
          expected_[row * 8 + column] += ToF32(a_[row * 16 + k]) * ToF32(b_[k * 8 + column]);
        }
      }
    }
  }
  uint64_t Passes(bool transposes_b, bool waits) {
    return SeedsThatPass(
        [&] {
          c_.assign(128, 0.0f);
          return Launch(ProductKernel, {1}, 32, 1024, nullptr,
                        ProductArgs{a_.data(), b_.data(), c_.data(), transposes_b, waits});
        },
        [&] { return c_ == expected_; });
  }

  std::vector<Bf16> a_, b_;
  std::vector<float> c_, expected_;
};

TEST_F(SimtProductTest, FragmentsOfLdmatrixAndMmaFitTogether) { EXPECT_EQ(Passes(true, true), kSeeds); }

TEST_F(SimtProductTest, AWrongLayoutOfAFragmentIsFound) { EXPECT_LT(Passes(false, true), kSeeds); }

TEST_F(SimtProductTest, ACopyThatNobodyWaitedForIsFound) { EXPECT_LT(Passes(true, false), kSeeds); }

// All ways to load 8x8 matrices of `in`, [32][8]: for each lane 4 + 4 + 2 + 2 + 1 + 1 words.
constexpr uint32_t kLoadedWords = 14;

void LoadMatricesKernel(const Bf16* in, uint32_t* out) {
  SharedCarver carver;
  const SharedArray<Bf16> rows = carver.Take<Bf16>(256);
  for (uint32_t i = Lane(); i < 256; i += kWarp) rows[i] = in[i];
  SyncWarp();
  const Bf16* row = rows.At(Lane() * 8, 8);
  uint32_t* mine = out + Lane() * kLoadedWords;
  LdMatrix4(mine, row);
  LdMatrix4Trans(mine + 4, row);
  LdMatrix2(mine + 8, row);
  LdMatrix2Trans(mine + 10, row);
  LdMatrix1(mine + 12, row);
  LdMatrix1Trans(mine + 13, row);
}

TEST(SimtTest, MatricesAreLoadedByRowsOrColumnsToTheLanesThatADeviceGivesThem) {
  std::vector<Bf16> in(256);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<Bf16>(i);
  std::vector<uint32_t> out(kWarp * kLoadedWords);
  ASSERT_TRUE(Launch(LoadMatricesKernel, {1}, 32, 512, nullptr, in.data(), out.data()).ok());
  const auto pair = [](uint32_t low, uint32_t high) { return low | high << 16; };
  for (uint32_t l = 0; l < kWarp; ++l) {
    const uint32_t* got = out.data() + l * kLoadedWords;
    for (uint32_t m = 0; m < 4; ++m) {
      const uint32_t first = m * 64 + l / 4 * 8 + l % 4 * 2;   // row l/4, column 2(l%4)
      const uint32_t column = m * 64 + l % 4 * 2 * 8 + l / 4;  // row 2(l%4), column l/4
      const uint32_t by_row = pair(first, first + 1), by_column = pair(column, column + 8);
      EXPECT_EQ(got[m], by_row);
      EXPECT_EQ(got[4 + m], by_column);
      if (m < 2) {
        EXPECT_EQ(got[8 + m], by_row);
        EXPECT_EQ(got[10 + m], by_column);
      }
      if (m < 1) {
        EXPECT_EQ(got[12], by_row);
        EXPECT_EQ(got[13], by_column);
      }
    }
  }
}

void GroupsKernel(const uint32_t* in, uint32_t* out) {
  EPIC_SHARED(Bits128, parts, 3);
  for (uint32_t i = 0; i < 3; ++i) {
    if (Lane() == 0) CpAsync16(&parts[i], in + 4 * i, i != 1);
    CpAsyncCommit();
  }
  CpAsyncWait<1>();  // the first two are there, the third is not
  SyncWarp();
  if (Lane() < 12) out[Lane()] = parts[Lane() / 4].word[Lane() % 4];
  SyncWarp();
  CpAsyncWait<0>();
  SyncWarp();
  if (Lane() < 12) out[12 + Lane()] = parts[Lane() / 4].word[Lane() % 4];
}

TEST(SimtTest, CopiesArriveByGroupsAtTheWaitAndZerosStandForWhatIsNotValid) {
  alignas(16) uint32_t in[12];
  for (uint32_t i = 0; i < 12; ++i) in[i] = i + 1;
  std::vector<uint32_t> out(24);
  ASSERT_TRUE(Launch(GroupsKernel, {1}, 32, 0, nullptr, &in[0], out.data()).ok());
  const std::vector<uint32_t> expected = {1, 2, 3, 4, 0, 0, 0, 0, ~0u, ~0u, ~0u, ~0u,
                                          1, 2, 3, 4, 0, 0, 0, 0, 9,   10,  11,  12};
  EXPECT_EQ(out, expected);
}

template <typename Kernel, typename... Args>
std::string MessageOf(Kernel kernel, uint32_t threads, size_t shared_bytes, Args... args) {
  const GpuStatus status = Launch(kernel, {2}, threads, shared_bytes, nullptr, args...);
  EXPECT_EQ(status.code, GpuCode::kDevice);
  return status.message;
}

void EarlyEndKernel() {
  if (ThreadIndex() == 70) return;
  SyncBlock();
}
void TwoBarriersKernel() {
  if (WarpIndex() == 0) {
    SyncBlock();
  } else {
    SyncBlock();
  }
}
void TwoShufflesKernel() {
  if (Lane() < 5) {
    Shuffle(1u, 0);
  } else {
    Shuffle(2u, 0);
  }
}
void WarpAgainstBlockKernel() {
  if (Lane() < 5) {
    SyncWarp();
  } else {
    SyncBlock();
  }
}

TEST(SimtTest, DivergentBarriersAreNamedWithTheirLines) {
  EXPECT_NE(MessageOf(EarlyEndKernel, 96, 0).find("has ended"), std::string::npos);
  EXPECT_NE(MessageOf(TwoBarriersKernel, 64, 0).find("divergent barrier"), std::string::npos);
  EXPECT_NE(MessageOf(TwoShufflesKernel, 32, 0).find("divergent warp"), std::string::npos);
  const std::string both = MessageOf(WarpAgainstBlockKernel, 64, 0);
  EXPECT_NE(both.find("waits for its warp at simt_test.cc:"), std::string::npos) << both;
  EXPECT_NE(both.find("waits for the block at simt_test.cc:"), std::string::npos) << both;
}

void PastTheEndKernel(uint32_t* out) {
  EPIC_SHARED(uint32_t, values, 32);
  values[ThreadIndex()] = 1;
  SyncBlock();
  out[ThreadIndex()] = values[ThreadIndex() + 1];
}
void TooMuchKernel() {
  SharedCarver carver;
  carver.Take<float>(100)[ThreadIndex()] = 0;
  carver.Take<float>(100)[ThreadIndex()] = 0;
}
void RawPointerKernel() {
  SharedCarver carver;
  float* values = &carver.Take<float>(32)[0];
  values[ThreadIndex() + 1] = 0;
}
void MisalignedKernel() {
  SharedCarver carver;
  uint32_t out[1];
  LdMatrix1(out, reinterpret_cast<const char*>(carver.Take<uint32_t>(128).At(0, 128)) + 8);
}
void NotSharedKernel(const uint32_t* in) {
  uint32_t out[1];
  LdMatrix1(out, in);
}
void NobodyWaitsKernel(const Bits128* in) {
  EPIC_SHARED(Bits128, part, 1);
  if (ThreadIndex() == 0) CpAsync16(&part[0], in, true);
  CpAsyncCommit();
}

TEST(SimtTest, AccessBeyondSharedMemoryIsNamed) {
  std::vector<uint32_t> out(64);
  const std::string past = MessageOf(PastTheEndKernel, 32, 0, out.data());
  EXPECT_NE(past.find("thread 31: shared memory out of bounds: elements [32, 33) of an array of 32"),
            std::string::npos)
      << past;
  EXPECT_NE(MessageOf(TooMuchKernel, 32, 600).find("the launch gave 600"), std::string::npos);
  EXPECT_NE(MessageOf(RawPointerKernel, 32, 128).find("beyond its shared memory"), std::string::npos);
  EXPECT_NE(MessageOf(MisalignedKernel, 32, 1024).find("no multiple of 16"), std::string::npos);
  EXPECT_NE(MessageOf(NotSharedKernel, 32, 0, out.data()).find("not in shared memory"), std::string::npos);
  const Bits128 in = {};
  EXPECT_NE(MessageOf(NobodyWaitsKernel, 32, 0, &in).find("asynchronous copies"), std::string::npos);
}

TEST(SimtTest, AfterAFailureTheNextLaunchRuns) {
  EXPECT_FALSE(MessageOf(EarlyEndKernel, 96, 0).empty());
  EXPECT_EQ(SeedsThatReverse(true), kSeeds);
}

TEST(SimtTest, LaunchesThatADeviceRefusesAreRefused) {
  const auto nothing = [] {};
  void (*kernel)() = nothing;
  EXPECT_FALSE(Launch(kernel, {0}, 32, 0, nullptr).ok());
  EXPECT_FALSE(Launch(kernel, {1}, 33, 0, nullptr).ok());
  EXPECT_FALSE(Launch(kernel, {1}, 2048, 0, nullptr).ok());
  EXPECT_FALSE(Launch(kernel, {1}, 32, kMaxSharedBytes + 1, nullptr).ok());
  EXPECT_TRUE(Launch(kernel, {1}, 32, kMaxSharedBytes, nullptr).ok());
}

void UnsetKernel(uint32_t* out) {
  EPIC_SHARED(float, values, 32);
  if (values[ThreadIndex()] == values[ThreadIndex()]) AtomicAdd(out, 1u);  // NaN differs from itself
}

TEST(SimtTest, SharedMemoryBeginsAsNan) {
  uint32_t set = 0;
  ASSERT_TRUE(Launch(UnsetKernel, {2}, 32, 0, nullptr, &set).ok());
  EXPECT_EQ(set, 0u);
}

TEST(SimtTest, PowersOfTwoFollowTheDevicesEdges) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Exp2(0), 1);
  EXPECT_EQ(Exp2(-infinity), 0);
  EXPECT_EQ(Exp2(-140), 0);
  EXPECT_TRUE(std::isnan(Exp2(std::nanf(""))));
}

}  // namespace
}  // namespace epic::simt
