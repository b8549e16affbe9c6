#include "common/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/check.h"
#include "common/base/mutex.h"

namespace epic {
namespace {

// Calls `visit` with the value indices of every combination of label values.
void ForEachSeries(const MetricDescriptor& metric,
                   const std::function<void(const std::vector<size_t>&)>& visit) {
  std::vector<size_t> index(metric.labels.size(), 0);
  while (true) {
    visit(index);
    size_t i = index.size();
    while (i > 0 && ++index[i - 1] == metric.labels[i - 1].values.size()) index[--i] = 0;
    if (i == 0) return;
  }
}

prometheus::Labels LabelsOf(const MetricDescriptor& metric, const std::vector<size_t>& index) {
  prometheus::Labels labels;
  for (size_t i = 0; i < index.size(); ++i) {
    labels[std::string(metric.labels[i].name)] = std::string(metric.labels[i].values[index[i]]);
  }
  return labels;
}

}  // namespace

struct Metrics::Registry {
  using Key = std::pair<MetricId, std::vector<size_t>>;

  // Constant after construction; the series synchronise themselves.
  prometheus::Registry registry;
  std::map<Key, prometheus::Counter*> counters;
  std::map<Key, prometheus::Gauge*> gauges;
  std::map<Key, prometheus::Histogram*> histograms;

  Mutex mu;
  uint64_t next_key ABSL_GUARDED_BY(mu) = 1;
  std::map<uint64_t, std::function<void()>> collectors ABSL_GUARDED_BY(mu);

  void Add(const MetricDescriptor& metric);
  template <typename T>
  T* Find(const std::map<Key, T*>& series, MetricId id, Labels labels) const;
};

void Metrics::Registry::Add(const MetricDescriptor& metric) {
  const std::string name(metric.name);
  const std::string help(metric.help);
  if (metric.type == MetricType::kCounter) {
    auto& family = prometheus::BuildCounter().Name(name).Help(help).Register(registry);
    ForEachSeries(metric, [&](const auto& index) {
      counters[{metric.id, index}] = &family.Add(LabelsOf(metric, index));
    });
  } else if (metric.type == MetricType::kGauge) {
    auto& family = prometheus::BuildGauge().Name(name).Help(help).Register(registry);
    ForEachSeries(metric, [&](const auto& index) {
      gauges[{metric.id, index}] = &family.Add(LabelsOf(metric, index));
    });
  } else {
    auto& family = prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
    const prometheus::Histogram::BucketBoundaries bounds(metric.buckets.begin(), metric.buckets.end());
    ForEachSeries(metric, [&](const auto& index) {
      histograms[{metric.id, index}] = &family.Add(LabelsOf(metric, index), bounds);
    });
  }
}

template <typename T>
T* Metrics::Registry::Find(const std::map<Key, T*>& series, MetricId id, Labels labels) const {
  const MetricDescriptor& metric = DescriptorOf(id);
  EPIC_CHECK(labels.size() == metric.labels.size());
  Key key{id, {}};
  for (const std::string_view label : labels) {
    const auto& values = metric.labels[key.second.size()].values;
    size_t index = 0;
    while (index < values.size() && values[index] != label) ++index;
    key.second.push_back(index);
  }
  const auto found = series.find(key);
  EPIC_CHECK(found != series.end());
  return found->second;
}

void Counter::Add(uint64_t amount) const { series_->Increment(static_cast<double>(amount)); }
void Counter::CatchUp(uint64_t total) const {
  if (total > Value()) Add(total - Value());
}
uint64_t Counter::Value() const { return static_cast<uint64_t>(series_->Value()); }

void Gauge::Set(double value) const { series_->Set(value); }
double Gauge::Value() const { return series_->Value(); }

void Histogram::Observe(double value) const { series_->Observe(value > 0 ? value : 0); }

Metrics::Metrics() : registry_(std::make_unique<Registry>()) {
  for (const MetricDescriptor& metric : MetricTable()) registry_->Add(metric);
}

Metrics::~Metrics() = default;

Counter Metrics::GetCounter(MetricId id, Labels labels) {
  return Counter(registry_->Find(registry_->counters, id, labels));
}

Gauge Metrics::GetGauge(MetricId id, Labels labels) {
  return Gauge(registry_->Find(registry_->gauges, id, labels));
}

Histogram Metrics::GetHistogram(MetricId id, Labels labels) {
  return Histogram(registry_->Find(registry_->histograms, id, labels));
}

Metrics::Collector Metrics::AddCollector(std::function<void()> collect) {
  const MutexLock lock(&registry_->mu);
  Collector collector;
  collector.metrics_ = this;
  collector.key_ = registry_->next_key++;
  registry_->collectors[collector.key_] = std::move(collect);
  return collector;
}

Metrics::Collector& Metrics::Collector::operator=(Collector&& other) noexcept {
  std::swap(metrics_, other.metrics_);
  std::swap(key_, other.key_);
  return *this;
}

Metrics::Collector::~Collector() {
  if (metrics_ == nullptr) return;
  const MutexLock lock(&metrics_->registry_->mu);
  metrics_->registry_->collectors.erase(key_);
}

std::string Metrics::Text() {
  {
    const MutexLock lock(&registry_->mu);
    for (const auto& [key, collect] : registry_->collectors) collect();
  }
  return prometheus::TextSerializer().Serialize(registry_->registry.Collect());
}

}  // namespace epic
