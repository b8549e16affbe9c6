// Names and sizes of storage formats, those that EPIC reads and those that it only knows to refuse by name.
// BlockShapeOf, NameOf, DequantizeRow, LevelBitsOf and ReadLevels of model.h are implemented beside it. Pure
// functions.
#ifndef EPIC_SERVICES_MODEL_QUANTIZATION_H_
#define EPIC_SERVICES_MODEL_QUANTIZATION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "services/model/model.h"

namespace epic {

// The format with this id of GGUF; nullopt when EPIC does not read it.
std::optional<TensorType> SupportedTensorType(uint32_t id);

// The name of any format with an id of GGUF, "type 77" when it is not known.
std::string NameOfTypeId(uint32_t id);

// "F32, F16, BF16, ...": what the message of a refused format offers.
std::string SupportedTypeNames();

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_QUANTIZATION_H_
