// Counters, gauges and histograms of one process, by the ids of metric_table.h, and their text form.
//
// One Metrics object is made at the start and passed in; there is no global one. It hands out handles, which
// stay good as long as it lives; handles and Text() are thread-safe. Every series of the table exists from
// the start. Gauges are set from state by a collector that runs at each Text(), so that they cannot drift.
//
// prometheus-cpp is included by metrics.cc alone.
#ifndef EPIC_COMMON_METRICS_METRICS_H_
#define EPIC_COMMON_METRICS_METRICS_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "common/metrics/metric_table.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace epic {

class Counter {
 public:
  void Add(uint64_t amount = 1) const;
  // Raises it to a total that somebody else counts. By one collector only.
  void CatchUp(uint64_t total) const;
  // For tests and for checks against what clients saw.
  uint64_t Value() const;

 private:
  friend class Metrics;
  explicit Counter(prometheus::Counter* series) : series_(series) {}
  prometheus::Counter* series_;
};

class Gauge {
 public:
  void Set(double value) const;
  double Value() const;

 private:
  friend class Metrics;
  explicit Gauge(prometheus::Gauge* series) : series_(series) {}
  prometheus::Gauge* series_;
};

class Histogram {
 public:
  // In the unit of the table: seconds. Negative values and NaN count as 0.
  void Observe(double value) const;

 private:
  friend class Metrics;
  explicit Histogram(prometheus::Histogram* series) : series_(series) {}
  prometheus::Histogram* series_;
};

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  using Labels = std::initializer_list<std::string_view>;
  // REQUIRES: the metric has that type, and `labels` has one of the listed values for each of its labels, in
  // their order. Costs a look-up: keep the handle where calls are frequent.
  Counter GetCounter(MetricId id, Labels labels = {});
  Gauge GetGauge(MetricId id, Labels labels = {});
  Histogram GetHistogram(MetricId id, Labels labels = {});

  // Removes its collector when it ends, after a running call of it has returned. Must not outlive the
  // Metrics.
  class Collector {
   public:
    Collector() = default;
    Collector(Collector&& other) noexcept { *this = std::move(other); }
    Collector& operator=(Collector&& other) noexcept;
    ~Collector();

   private:
    friend class Metrics;
    Metrics* metrics_ = nullptr;
    uint64_t key_ = 0;
  };
  // `collect` runs at the start of each Text(), one at a time, on the thread of the caller. It sets gauges
  // from state, must not block for long, and must not call Text() or AddCollector().
  [[nodiscard]] Collector AddCollector(std::function<void()> collect);

  // The text exposition format, version 0.0.4 ("text/plain; version=0.0.4").
  std::string Text();

 private:
  struct Registry;

  // Constant after construction; synchronises itself.
  std::unique_ptr<Registry> registry_;
};

}  // namespace epic

#endif  // EPIC_COMMON_METRICS_METRICS_H_
