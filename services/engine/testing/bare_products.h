// The products of one prefill and nothing else, run by oneDNN: what the wall clock of a prefill is held
// against.
//
// Every matrix of the model has memory of its own, in the layout that oneDNN asks for, so caches see what
// they see in a prefill; values are random. One thread calls, oneDNN uses threads of its own. Benches and
// tests only.
#ifndef EPIC_SERVICES_ENGINE_TESTING_BARE_PRODUCTS_H_
#define EPIC_SERVICES_ENGINE_TESTING_BARE_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/api/dtype.h"
#include "services/model/model_config.h"

namespace epic::testing {

struct ProductShape {
  size_t matrix;  // which matrix of the model: equal shapes of two layers are two
  size_t rows, outputs, inputs;
};

// What a prefill of `tokens` rows in panels of `panel` multiplies, in order: in the last layer and the head
// only the last row goes beyond keys and values. REQUIRES: tokens > 0, panel > 0.
std::vector<ProductShape> PrefillProducts(const ModelConfig& config, uint32_t tokens, uint32_t panel);
double FlopOf(const std::vector<ProductShape>& products);

class BareProducts {
 public:
  virtual ~BareProducts() = default;
  // Packs every matrix in `format`, and checks a product against sums in double.
  // Errors: Unimplemented (oneDNN has no such product here), Internal (a wrong result).
  static absl::StatusOr<std::unique_ptr<BareProducts>> Create(const ModelConfig& config, DType format,
                                                              uint32_t threads);
  // Seconds that these products of the model took.
  virtual absl::StatusOr<double> Run(const std::vector<ProductShape>& products) = 0;
};

// The format in which oneDNN multiplies the shapes of a layer faster here, with 512 rows: the stricter
// measure.
absl::StatusOr<DType> FasterBareFormat(const ModelConfig& config, uint32_t threads);

}  // namespace epic::testing

#endif  // EPIC_SERVICES_ENGINE_TESTING_BARE_PRODUCTS_H_
