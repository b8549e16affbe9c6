#include "services/engine/testing/bare_products.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <dnnl.hpp>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/random.h"
#include "common/status/status_macros.h"

namespace epic::testing {
namespace {

using dnnl::memory;

// Matrices of a layer, as the engine packs them; the last layer has q and kv in place of qkv.
enum LayerMatrix : size_t { kQkv = 0, kQ, kKv, kOutput, kGateUp, kDown, kLayerMatrices };

const dnnl::engine& CpuEngine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

memory::data_type TypeOf(DType format) {
  return format == DType::kBf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// Products of a layer for `rows` rows; in the last one only `last_rows` rows go beyond keys and values.
void AddLayer(const ModelConfig& config, uint32_t layer, size_t rows, size_t last_rows,
              std::vector<ProductShape>* out) {
  const size_t q = size_t{config.heads} * config.head_dim;
  const size_t kv = 2 * size_t{config.kv_heads} * config.head_dim;
  const size_t hidden = config.hidden;
  const size_t first = layer * kLayerMatrices;
  if (layer + 1 < config.layers) {
    out->push_back({first + kQkv, rows, q + kv, hidden});
  } else {
    out->push_back({first + kKv, rows, kv, hidden});
    if (last_rows == 0) return;
    rows = last_rows;
    out->push_back({first + kQ, rows, q, hidden});
  }
  out->push_back({first + kOutput, rows, hidden, q});
  out->push_back({first + kGateUp, rows, 2 * size_t{config.ffn}, hidden});
  out->push_back({first + kDown, rows, hidden, config.ffn});
}

// Values below one in magnitude, drawn once and repeated: products do not get faster by that.
std::vector<float> SomeValues(size_t count, uint64_t seed) {
  constexpr size_t kDrawn = 1 << 16;
  Rng rng(seed);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = i < kDrawn ? static_cast<float>(rng.Uniform() - 0.5) : values[i - kDrawn];
  }
  return values;
}

memory MemoryOf(const memory::desc& desc, const std::vector<float>& values) {
  memory out(desc, CpuEngine());
  if (desc.data_type() == memory::data_type::f32) {
    std::memcpy(out.get_data_handle(), values.data(), values.size() * sizeof(float));
    return out;
  }
  auto* to = static_cast<Bf16*>(out.get_data_handle());
  for (size_t i = 0; i < values.size(); ++i) to[i] = ToBf16(values[i]);
  return out;
}

class DnnlProducts final : public BareProducts {
 public:
  DnnlProducts(DType format, uint32_t threads) : format_(format), threads_(threads), stream_(CpuEngine()) {}

  absl::StatusOr<double> Run(const std::vector<ProductShape>& products) override {
    return OnThreads([&]() -> absl::StatusOr<double> {
      for (const ProductShape& shape : products) Prepare(shape);
      const auto start = std::chrono::steady_clock::now();
      for (const ProductShape& shape : products) Multiply(shape);
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    });
  }

  // Packs what is not packed yet, and holds the first row of the first product against sums in double.
  absl::Status Check(const std::vector<ProductShape>& products) {
    const absl::StatusOr<double> checked = OnThreads([&]() -> absl::StatusOr<double> {
      for (const ProductShape& shape : products) Prepare(shape);
      EPIC_RETURN_IF_ERROR(CheckFirstRow(products.front()));
      return 0.0;
    });
    return checked.status();
  }

 private:
  static constexpr uint64_t kInputSeed = 1 << 20;
  static constexpr size_t kPackRows =
      512;  // weights are packed for so many rows: one layout for every height
  using Key = std::tuple<size_t, size_t, size_t>;
  struct Plan {
    dnnl::matmul product;
    memory x, out;
  };

  template <typename Fn>
  absl::StatusOr<double> OnThreads(const Fn& fn) const {
    const int before = omp_get_max_threads();
    omp_set_num_threads(static_cast<int>(threads_));
    absl::StatusOr<double> result = absl::UnimplementedError("");
    try {
      result = fn();
    } catch (const dnnl::error& error) {
      result = absl::UnimplementedError(std::string("oneDNN cannot run this product: ") + error.what());
    }
    omp_set_num_threads(before);
    return result;
  }

  dnnl::matmul::primitive_desc Describe(size_t rows, const ProductShape& shape, const memory::desc& weights) {
    const auto height = static_cast<memory::dim>(rows);
    const memory::desc x({height, Inputs(shape)}, TypeOf(format_), memory::format_tag::ab);
    const memory::desc out({height, Outputs(shape)}, memory::data_type::f32, memory::format_tag::ab);
    return {{x, weights, out}, CpuEngine()};
  }
  static memory::dim Inputs(const ProductShape& shape) { return static_cast<memory::dim>(shape.inputs); }
  static memory::dim Outputs(const ProductShape& shape) { return static_cast<memory::dim>(shape.outputs); }
  static Key KeyOf(const ProductShape& shape) { return {shape.rows, shape.outputs, shape.inputs}; }

  // Throws dnnl::error.
  void Prepare(const ProductShape& shape) {
    if (!weights_.contains(shape.matrix)) {
      const std::vector<float> values = SomeValues(shape.outputs * shape.inputs, shape.matrix);
      const memory::dims dims = {Inputs(shape), Outputs(shape)};
      memory plain = MemoryOf({dims, TypeOf(format_), memory::format_tag::ba}, values);
      const memory::desc any(dims, TypeOf(format_), memory::format_tag::any);
      memory packed(Describe(kPackRows, shape, any).weights_desc(), CpuEngine());
      dnnl::reorder(plain, packed).execute(stream_, plain, packed);
      stream_.wait();
      weights_.emplace(shape.matrix, std::move(packed));
    }
    if (plans_.contains(KeyOf(shape))) return;
    const auto description = Describe(shape.rows, shape, weights_.at(shape.matrix).get_desc());
    const std::vector<float> x = SomeValues(shape.rows * shape.inputs, kInputSeed);
    plans_.emplace(KeyOf(shape), Plan{dnnl::matmul(description), MemoryOf(description.src_desc(), x),
                                      memory(description.dst_desc(), CpuEngine())});
  }

  void Multiply(const ProductShape& shape) {
    const Plan& plan = plans_.at(KeyOf(shape));
    plan.product.execute(
        stream_,
        {{DNNL_ARG_SRC, plan.x}, {DNNL_ARG_WEIGHTS, weights_.at(shape.matrix)}, {DNNL_ARG_DST, plan.out}});
    stream_.wait();
  }

  absl::Status CheckFirstRow(const ProductShape& shape) {
    Multiply(shape);
    const std::vector<float> w = SomeValues(shape.outputs * shape.inputs, shape.matrix);
    const std::vector<float> x = SomeValues(shape.inputs, kInputSeed);
    const auto* out = static_cast<const float*>(plans_.at(KeyOf(shape)).out.get_data_handle());
    // Products below 1/4 each, their signs random; bf16 moves one by at most 2^-8 of it, twice.
    const double most =
        (format_ == DType::kBf16 ? 0x1.0p-7 : 0x1.0p-18) * std::sqrt(static_cast<double>(shape.inputs));
    for (size_t n = 0; n < shape.outputs; ++n) {
      double sum = 0;
      for (size_t k = 0; k < shape.inputs; ++k) sum += double{x[k]} * w[n * shape.inputs + k];
      if (std::abs(sum - out[n]) <= most) continue;
      return absl::InternalError("a bare product is " + std::to_string(out[n]) + ", not " +
                                 std::to_string(sum));
    }
    return absl::OkStatus();
  }

  const DType format_;
  const uint32_t threads_;
  dnnl::stream stream_;
  std::map<size_t, memory> weights_;  // by matrix
  std::map<Key, Plan> plans_;         // by rows, outputs, inputs
};

}  // namespace

std::vector<ProductShape> PrefillProducts(const ModelConfig& config, uint32_t tokens, uint32_t panel) {
  EPIC_CHECK(tokens > 0 && panel > 0);
  std::vector<ProductShape> products;
  for (uint32_t begin = 0; begin < tokens; begin += panel) {
    const uint32_t rows = std::min(panel, tokens - begin);
    const size_t last_rows = begin + rows == tokens ? 1 : 0;
    for (uint32_t layer = 0; layer < config.layers; ++layer)
      AddLayer(config, layer, rows, last_rows, &products);
  }
  products.push_back({config.layers * size_t{kLayerMatrices}, 1, config.vocab, config.hidden});
  return products;
}

double FlopOf(const std::vector<ProductShape>& products) {
  double flop = 0;
  for (const ProductShape& shape : products) {
    flop += 2.0 * static_cast<double>(shape.rows) * static_cast<double>(shape.outputs * shape.inputs);
  }
  return flop;
}

absl::StatusOr<std::unique_ptr<BareProducts>> BareProducts::Create(const ModelConfig& config, DType format,
                                                                   uint32_t threads) {
  auto products = std::make_unique<DnnlProducts>(format, threads);
  EPIC_RETURN_IF_ERROR(products->Check(PrefillProducts(config, 1, 1)));
  return std::unique_ptr<BareProducts>(std::move(products));
}

absl::StatusOr<DType> FasterBareFormat(const ModelConfig& config, uint32_t threads) {
  constexpr uint32_t kRows = 512;
  constexpr int kRuns = 3;
  std::vector<ProductShape> layer;
  AddLayer(config, 0, kRows, 0, &layer);
  absl::StatusOr<DType> faster = absl::UnimplementedError("oneDNN multiplies in neither bf16 nor f32 here");
  double least = 1e30;
  for (const DType format : {DType::kBf16, DType::kF32}) {
    DnnlProducts products(format, threads);
    for (int run = 0; run < kRuns; ++run) {
      const absl::StatusOr<double> seconds = products.Run(layer);
      if (!seconds.ok()) break;
      if (run == 0 || *seconds >= least) continue;  // the first one warms up
      least = *seconds;
      faster = format;
    }
  }
  return faster;
}

}  // namespace epic::testing
