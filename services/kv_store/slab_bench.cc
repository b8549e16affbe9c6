// How fast objects of 8 MiB come from a disk through each back-end of SlabStore, checksums of every block
// verified, against random O_DIRECT pread of the same size by the same number of threads, in the same run.
//
//   epic_kv_store_slab_bench [--dir DIR] [--objects N] [--rounds N] [--piece-kib N] [--quick] [--json]
//
// Every round reads each object once, in random order, with the page cache empty of them; baseline and
// back-ends take turns within a round, so that a disk that changes its mind changes it for all. Reported are
// medians of the rounds. The default back-end must reach 85 % of the baseline and is to be the better one.
// Before it times, it checks that what was written is what is read. Exits non-zero when a check fails.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/storage/object_codec.h"
#include "common/testing/paths.h"
#include "services/kv_store/core/aligned_buffer.h"
#include "services/kv_store/core/row_slab_store.h"
#include "services/kv_store/extents/extent_slab_store.h"
#include "services/kv_store/extents/posix_file_system.h"
#include "services/kv_store/extents/thread_engine.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"
#include "services/kv_store/testing/bench/report.h"

namespace epic::kv_store {
namespace {

// 32 slabs of 256 KiB.
constexpr KvLayout kLayout = {.layers = 32, .kv_heads = 4, .head_dim = 64, .tokens = 256};
constexpr double kTarget = 0.85;

struct Flags {
  std::string dir;  // empty: a temporary one
  uint64_t objects = 96;
  int rounds = 5;
  uint64_t piece_kib = ExtentOptions().piece_bytes >> 10;
  bool json = false;
};

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--dir" && i + 1 < argc) {
      flags.dir = argv[++i];
    } else if (flag == "--objects" && i + 1 < argc) {
      flags.objects = std::strtoull(argv[++i], nullptr, 10);
    } else if (flag == "--rounds" && i + 1 < argc) {
      flags.rounds = std::atoi(argv[++i]);
    } else if (flag == "--piece-kib" && i + 1 < argc) {
      flags.piece_kib = std::strtoull(argv[++i], nullptr, 10);
    } else if (flag == "--quick") {
      flags.objects = 8;
      flags.rounds = 1;
    } else if (flag == "--json") {
      flags.json = true;
    } else {
      std::fprintf(stderr,
                   "usage: %s [--dir DIR] [--objects N] [--rounds N] [--piece-kib N] [--quick] [--json]\n",
                   argv[0]);
      std::exit(2);
    }
  }
  EPIC_CHECK(flags.objects > 0 && flags.rounds > 0 && flags.piece_kib > 0 && flags.piece_kib % 4 == 0);
  return flags;
}

// What stands on disk as object `number`.
struct Object {
  ObjectHead head;
  std::vector<std::byte> bytes;

  explicit Object(uint64_t number) : bytes(kLayout.TotalBytes()) {
    Rng rng(number);
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
      const uint64_t value = rng.Next();
      std::memcpy(bytes.data() + at, &value, sizeof value);
    }
    head.layout = kLayout;
    head.block_crcs.resize(BlockCount(kLayout));
    for (uint32_t layer = 0; layer < kLayout.layers; ++layer) {
      const uint64_t blocks = BlocksPerLayer(kLayout);
      ComputeBlockCrcs(kLayout, slabs()[layer], std::span(head.block_crcs).subspan(layer * blocks, blocks));
    }
  }
  std::vector<ByteSpan> slabs() const {
    std::vector<ByteSpan> slabs;
    for (uint32_t layer = 0; layer < kLayout.layers; ++layer) {
      slabs.push_back(ByteSpan(bytes).subspan(layer * kLayout.LayerBytes(), kLayout.LayerBytes()));
    }
    return slabs;
  }
};

// Something that reads object `number` of [0, objects) into a buffer and says whether it is right.
struct Reader {
  std::string name;
  std::function<bool(uint64_t number, MutableByteSpan out)> read;
  std::vector<double> gb_per_s = {};  // of each round

  double median() const { return Median(gb_per_s); }
};

class Bench {
 public:
  Bench(const Flags& flags, std::string dir) : flags_(flags), dir_(std::move(dir)) {
    std::filesystem::create_directories(dir_);
    for (uint64_t number = 0; number < flags_.objects; ++number) heads_.push_back(Object(number).head);
    OpenRaw();
    OpenBackEnds();
  }
  ~Bench() {
    close(raw_);
    stores_.clear();
    tables_.reset();
    std::filesystem::remove_all(dir_);
  }

  std::vector<Reader> Readers() {
    std::vector<Reader> readers;
    readers.push_back({"pread", [this](uint64_t number, MutableByteSpan out) {
                         const auto offset = static_cast<off_t>(number * kLayout.TotalBytes());
                         return pread(raw_, out.data(), out.size(), offset) ==
                                static_cast<ssize_t>(out.size());
                       }});
    for (const auto& [name, store] : stores_) {
      SlabStore* const slabs = store.get();
      readers.push_back({name, [this, slabs](uint64_t number, MutableByteSpan out) {
                           const ObjectHead& head = heads_[number];
                           const SlabShape shape = SlabShapeOf(kLayout);
                           return slabs
                               ->Read(number + 1, shape, shape.All(), out,
                                      [&head](uint32_t layer, ByteSpan slab) {
                                        return SlabMatches(head, layer, slab)
                                                   ? absl::OkStatus()
                                                   : absl::DataLossError("wrong checksum");
                                      })
                               .ok();
                         }});
    }
    return readers;
  }

  // GB/s of one pass over all objects. Sets *good to false when a read fails.
  double Pass(const Reader& reader, uint64_t threads, uint64_t seed, bool* good) {
    EmptyPageCache(dir_);
    std::vector<uint64_t> order(flags_.objects);
    std::iota(order.begin(), order.end(), uint64_t{0});
    Rng rng(seed);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.Below(i)]);
    std::vector<std::unique_ptr<AlignedBuffer>> buffers;
    for (uint64_t i = 0; i < threads; ++i) {
      buffers.push_back(std::make_unique<AlignedBuffer>(kLayout.TotalBytes()));
    }
    std::atomic<size_t> next{0};
    std::atomic<bool> all_good{true};
    const int64_t begin_ns = SystemClock::Get()->SteadyNs();
    std::vector<std::thread> workers;
    for (uint64_t worker = 0; worker < threads; ++worker) {
      workers.emplace_back([&, worker] {
        for (size_t at = next++; at < order.size(); at = next++) {
          if (!reader.read(order[at], buffers[worker]->bytes())) all_good = false;
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
    *good = *good && all_good;
    return static_cast<double>(order.size() * kLayout.TotalBytes()) / SecondsSince(begin_ns) * 1e-9;
  }

  // GB/s of synced writes, by back-end.
  const std::vector<std::pair<std::string, double>>& writes() const { return writes_; }

 private:
  void OpenRaw() {
    const std::string path = dir_ + "/raw";
    raw_ = open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
    if (raw_ < 0) {
      std::perror(("cannot open " + path + " with O_DIRECT; choose another --dir").c_str());
      std::exit(1);
    }
    AlignedBuffer buffer(kLayout.TotalBytes());
    for (uint64_t number = 0; number < flags_.objects; ++number) {
      const Object object(number);
      std::memcpy(buffer.bytes().data(), object.bytes.data(), object.bytes.size());
      const auto offset = static_cast<off_t>(number * object.bytes.size());
      EPIC_CHECK(pwrite(raw_, buffer.bytes().data(), object.bytes.size(), offset) ==
                 static_cast<ssize_t>(object.bytes.size()));
    }
    EPIC_CHECK(fdatasync(raw_) == 0);
  }
  void OpenBackEnds() {
    AddExtents(MakePosixFileSystem());
    AddExtents(MakePosixFileSystem(std::make_unique<ThreadEngine>(8)));
    auto tables = OpenRocksDbTables({.dir = dir_ + "/rows"});
    EPIC_CHECK(tables.ok());
    tables_ = *std::move(tables);
    Add("blob files", std::make_unique<RowSlabStore>(tables_.get()));
  }
  void AddExtents(std::shared_ptr<FileSystem> files) {
    const std::string name = "extents, " + std::string(files->io_name());
    auto store = ExtentSlabStore::Open(std::move(files),
                                       {.folder = dir_ + "/" + name,
                                        .max_bytes = (flags_.objects + 1) * kLayout.TotalBytes(),
                                        .piece_bytes = flags_.piece_kib << 10},
                                       [] { return absl::OkStatus(); });
    EPIC_CHECK(store.ok());
    Add(name, *std::move(store));
  }
  void Add(const std::string& name, std::unique_ptr<SlabStore> store) {
    EPIC_CHECK(store->Load({}, false).ok());
    double seconds = 0;
    for (uint64_t number = 0; number < flags_.objects; ++number) {
      const Object object(number);
      const int64_t begin_ns = SystemClock::Get()->SteadyNs();
      EPIC_CHECK(store->Write(number + 1, SlabShapeOf(kLayout), object.slabs()).ok());
      seconds += SecondsSince(begin_ns);
    }
    const auto bytes = static_cast<double>(flags_.objects * kLayout.TotalBytes());
    writes_.emplace_back(name, bytes / seconds * 1e-9);
    stores_.emplace_back(name, std::move(store));
  }

  const Flags flags_;
  const std::string dir_;
  int raw_ = -1;
  std::vector<ObjectHead> heads_;
  std::unique_ptr<TableStore> tables_;
  std::vector<std::pair<std::string, std::unique_ptr<SlabStore>>> stores_;  // the default first
  std::vector<std::pair<std::string, double>> writes_;
};

int Run(const Flags& flags) {
  const testing::TempDir temporary;
  Bench bench(flags, (flags.dir.empty() ? temporary.path() : flags.dir) + "/epic_slab_bench");
  BenchReport report(flags.json);
  bool good = true;
  for (const Reader& reader : bench.Readers()) bench.Pass(reader, 1, 0, &good);
  report.Check("every object is read as it was written", good);
  for (const auto& [name, gb_per_s] : bench.writes())
    report.Add(name + ": writes, synced each", gb_per_s, "GB/s");
  for (const uint64_t threads : {1, 2, 4}) {
    std::vector<Reader> readers = bench.Readers();
    for (int round = 0; round < flags.rounds; ++round) {
      const auto seed = static_cast<uint64_t>(round + 1);
      for (Reader& reader : readers) reader.gb_per_s.push_back(bench.Pass(reader, threads, seed, &good));
    }
    const double roof = readers[0].median();
    for (const Reader& reader : readers) {
      const std::string at = reader.name + ", " + std::to_string(threads) + " threads: ";
      report.Add(at + "read", reader.median(), "GB/s");
      // The first behind pread is the default back-end.
      const double share = reader.median() / roof;
      if (&reader == &readers[1]) {
        report.AtLeast(at + "share of pread", share, "", kTarget);
      } else {
        report.Add(at + "share of pread", share, "");
      }
    }
  }
  report.Check("every read while timed was right", good);
  report.Finish();
  return report.correct() && report.bars_kept() ? 0 : 1;
}

}  // namespace
}  // namespace epic::kv_store

int main(int argc, char** argv) { return epic::kv_store::Run(epic::kv_store::ParseFlags(argc, argv)); }
