// Encoders from f32 to storage formats, for tests: simple rounding, no search for best scales. Tests only.
#ifndef EPIC_SERVICES_MODEL_TESTING_QUANTIZE_H_
#define EPIC_SERVICES_MODEL_TESTING_QUANTIZE_H_

#include <span>
#include <string>

#include "common/base/random.h"
#include "services/model/model.h"

namespace epic::testing {

// The row in `type`. REQUIRES: row.size() is a multiple of the block; type is not a K-quant.
std::string EncodeRow(TensorType type, std::span<const float> row);

// `cols` values in the K-quant `type`: random blocks whose values have about the standard deviation `sigma`.
std::string RandomKQuantRow(TensorType type, uint64_t cols, double sigma, Rng* rng);

bool IsKQuant(TensorType type);

}  // namespace epic::testing

#endif  // EPIC_SERVICES_MODEL_TESTING_QUANTIZE_H_
