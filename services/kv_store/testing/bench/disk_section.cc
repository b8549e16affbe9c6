// GB/s of objects that are on disk only, by object size and back-end, read through the store as a worker
// would: lookup, memory of the arena, slabs, checksums. Beside it random O_DIRECT pread of the same size by
// the same number of threads. And how many bytes the process has written to the disk for each byte of an
// object.
//
// What happens to be in memory already is passed over, and the page cache is emptied before every pass. A
// disk may change its speed from one second to the next: a pass is read in a few parts, and those that are
// compared take turns part by part, each as often the first as the others.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/base/random.h"
#include "services/kv_store/core/aligned_buffer.h"
#include "services/kv_store/testing/bench/bench_store.h"
#include "services/kv_store/testing/bench/sections.h"

namespace epic::kv_store {
namespace {

constexpr double kDefaultBar = 0.85;  // of pread, at 8 MiB
constexpr uint64_t kBarBytes = uint64_t{8} << 20;
constexpr uint64_t kCreators = 16;
constexpr uint64_t kReadersMost = 2;
constexpr uint64_t kParts = 4;  // of a pass

// Bytes that this process has caused to be written to storage, also where a file was deleted before the page
// cache got round to it: a log that is synced for others in time is written.
double BytesWritten() {
  std::ifstream io("/proc/self/io");
  std::string field;
  double value = 0;
  while (io >> field >> value && field != "write_bytes:") {
  }
  EPIC_CHECK(io.good());
  return value;
}

void Shuffle(std::vector<uint64_t>* numbers, uint64_t seed) {
  Rng rng(seed);
  for (uint64_t left = numbers->size(); left > 1; --left) {
    std::swap((*numbers)[left - 1], (*numbers)[rng.Below(left)]);
  }
}

// Calls work(number, thread) for each number, in order, on so many threads.
template <typename Work>
void OnThreads(uint64_t threads, std::span<const uint64_t> numbers, const Work& work) {
  std::atomic<uint64_t> next{0};
  std::vector<std::thread> workers;
  for (uint64_t thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      for (uint64_t i = next++; i < numbers.size(); i = next++) work(numbers[i], thread);
    });
  }
  for (std::thread& worker : workers) worker.join();
}

// Something that objects are read from.
class Readable {
 public:
  virtual ~Readable() = default;
  // Which objects a pass reads, from a cold disk.
  virtual std::vector<uint64_t> BeginPass() = 0;
  virtual void Read(uint64_t number, uint64_t thread) = 0;
};

class RawFile final : public Readable {
 public:
  RawFile(const std::string& dir, uint64_t object_bytes, uint64_t objects)
      : object_bytes_(object_bytes), objects_(objects) {
    const std::string path = dir + "/raw";
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
    if (fd_ < 0) {
      std::perror(("cannot open " + path + " with O_DIRECT; choose another --dir").c_str());
      std::exit(1);
    }
    AlignedBuffer buffer(object_bytes);
    for (uint64_t number = 0; number < objects; ++number) {
      FillSlab(number, 0, buffer.bytes());
      EPIC_CHECK(pwrite(fd_, buffer.bytes().data(), object_bytes,
                        static_cast<off_t>(number * object_bytes)) == static_cast<ssize_t>(object_bytes));
    }
    EPIC_CHECK(fdatasync(fd_) == 0);
    for (uint64_t thread = 0; thread < kReadersMost; ++thread) buffers_.emplace_back(object_bytes);
  }
  ~RawFile() override { close(fd_); }
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  std::vector<uint64_t> BeginPass() override {
    std::vector<uint64_t> all(objects_);
    std::iota(all.begin(), all.end(), uint64_t{0});
    return all;
  }
  void Read(uint64_t number, uint64_t thread) override {
    EPIC_CHECK(pread(fd_, buffers_[thread].bytes().data(), object_bytes_,
                     static_cast<off_t>(number * object_bytes_)) == static_cast<ssize_t>(object_bytes_));
  }

 private:
  const uint64_t object_bytes_;
  const uint64_t objects_;
  int fd_ = -1;
  std::vector<AlignedBuffer> buffers_;  // by thread
};

class DiskTier final : public Readable {
 public:
  DiskTier(const std::string& dir, uint64_t object_bytes, uint64_t objects, bool extents)
      : layout_(LayoutOfBytes(object_bytes)),
        objects_(objects),
        store_({.dir = dir,
                .memory_bytes = std::max(objects * object_bytes / 8, 3 * object_bytes),
                .disk_bytes_max = uint64_t{8} << 30,
                .extents = extents}) {
    for (uint64_t number = 0; number < objects; ++number) keys_.push_back(KeyOfObject(number, layout_));
    std::vector<uint64_t> all(objects);
    std::iota(all.begin(), all.end(), uint64_t{0});
    OnThreads(kCreators, all, [&](uint64_t number, uint64_t /*thread*/) {
      EPIC_CHECK(store_.get()->CreateContext(ContextOf(number, layout_.tokens)).ok());
    });
    const double before = BytesWritten();
    const double seconds = Seconds([&] {
      std::string slab;
      for (uint64_t number = 0; number < objects; ++number) {
        EPIC_CHECK(PutNumbered(store_.get(), number, layout_, &slab));
      }
      store_.get()->DrainWrites();
    });
    store_.Open();  // ends what goes on in the background
    written_per_byte_ = (BytesWritten() - before) / static_cast<double>(bytes());
    write_gb_per_s_ = static_cast<double>(bytes()) / seconds * 1e-9;
  }

  uint64_t bytes() const { return objects_ * layout_.TotalBytes(); }
  double written_per_byte() const { return written_per_byte_; }
  double write_gb_per_s() const { return write_gb_per_s_; }

  bool ReadsAreExact() {
    for (uint64_t number = 0; number < objects_; ++number) {
      const auto acquired = store_.get()->Acquire(kBenchTenant, keys_[number], layout_);
      if (!acquired.ok() || acquired->object == nullptr || !IsObject(*acquired->object, number)) return false;
    }
    return true;
  }

  // What is on disk only.
  std::vector<uint64_t> BeginPass() override {
    EmptyPageCache(store_.dir());
    std::vector<uint64_t> cold;
    for (uint64_t number = 0; number < objects_; ++number) {
      if (store_.get()->GenerationInMemory(kBenchTenant, keys_[number]) == 0) cold.push_back(number);
    }
    return cold;
  }
  void Read(uint64_t number, uint64_t /*thread*/) override {
    const auto acquired = store_.get()->Acquire(kBenchTenant, keys_[number], layout_);
    EPIC_CHECK(acquired.ok() && acquired->object != nullptr);
    EPIC_CHECK(IsObject(*acquired->object, number, layout_.LayerBytes()));
  }

 private:
  const KvLayout layout_;
  const uint64_t objects_;
  BenchStore store_;
  std::vector<ObjectKey> keys_;
  double written_per_byte_ = 0;
  double write_gb_per_s_ = 0;
};

// GB/s of each, in the order given: one pass over every one, part by part by turns.
std::vector<double> PassOverAll(std::span<Readable* const> all, uint64_t threads, uint64_t object_bytes,
                                uint64_t seed) {
  std::vector<std::vector<uint64_t>> numbers;
  for (Readable* const each : all) {
    numbers.push_back(each->BeginPass());
    Shuffle(&numbers.back(), seed);
  }
  std::vector<double> seconds(all.size(), 0);
  for (uint64_t part = 0; part < kParts; ++part) {
    for (size_t turn = 0; turn < all.size(); ++turn) {
      const size_t which = (seed + part + turn) % all.size();
      const uint64_t count = numbers[which].size();
      const auto some =
          std::span<const uint64_t>(numbers[which])
              .subspan(count * part / kParts, count * (part + 1) / kParts - count * part / kParts);
      const auto read = [&](uint64_t number, uint64_t thread) { all[which]->Read(number, thread); };
      seconds[which] += Seconds([&] { OnThreads(threads, some, read); });
    }
  }
  std::vector<double> rates;
  for (size_t i = 0; i < all.size(); ++i) {
    rates.push_back(static_cast<double>(numbers[i].size() * object_bytes) / seconds[i] * 1e-9);
  }
  return rates;
}

void BenchSize(const BenchOptions& options, uint64_t size, BenchReport* report) {
  const uint64_t set_bytes =
      std::max(uint64_t{options.quick ? 32u : 256u} << 20, (options.quick ? 4 : 8) * size);
  const uint64_t objects = std::min(set_bytes / size, uint64_t{options.quick ? 128u : 1024u});
  RawFile raw(options.dir, size, objects);
  DiskTier extents(options.dir + "/extents", size, objects, true);
  DiskTier blobs(options.dir + "/blobs", size, objects, false);
  const std::string name = "disk, " + NameOfBytes(size) + ": ";
  report->Check(name + "extents are read as they were written", extents.ReadsAreExact());
  report->Check(name + "blob files are read as they were written", blobs.ReadsAreExact());
  report->Add(name + "extents, put until written", extents.write_gb_per_s(), "GB/s");
  report->Add(name + "blob files, put until written", blobs.write_gb_per_s(), "GB/s");
  report->Add(name + "extents, bytes written for each byte", extents.written_per_byte(), "");
  report->Add(name + "blob files, bytes written for each byte", blobs.written_per_byte(), "");
  Readable* const all[] = {&raw, &extents, &blobs};
  for (uint64_t threads = 1; threads <= kReadersMost; ++threads) {
    std::vector<double> raw_rates, extent_rates, blob_rates, shares;
    for (uint64_t round = 1; round <= (options.quick ? 1 : 6); ++round) {
      const std::vector<double> rates = PassOverAll(all, threads, size, round);
      raw_rates.push_back(rates[0]);
      extent_rates.push_back(rates[1]);
      blob_rates.push_back(rates[2]);
      shares.push_back(rates[1] / rates[0]);
    }
    const std::string at = name + std::to_string(threads) + (threads == 1 ? " reader, " : " readers, ");
    report->Add(at + "O_DIRECT pread", Median(raw_rates), "GB/s");
    report->Add(at + "cold get, extents", Median(extent_rates), "GB/s");
    const double share = Median(shares);  // each of one round
    if (size == kBarBytes) {
      report->AtLeast(at + "cold get, extents / pread", share, "", kDefaultBar);
    } else {
      report->Add(at + "cold get, extents / pread", share, "");
    }
    report->Add(at + "cold get, blob files", Median(blob_rates), "GB/s");
  }
}

}  // namespace

void BenchDisk(const BenchOptions& options, BenchReport* report) {
  if (options.object_kib > 0) return BenchSize(options, options.object_kib << 10, report);
  for (const uint64_t kib : {64, 1024, 8192, 65'536}) BenchSize(options, kib << 10, report);
}

}  // namespace epic::kv_store
