// The container safetensors: a JSON header with names, types, shapes and offsets, then the bytes.
//
// Everything is checked against the size of the file; tensors must lie one behind the other without holes or
// overlaps, as the format demands. Views into the bytes. Pure function.
#ifndef EPIC_SERVICES_MODEL_SAFETENSORS_H_
#define EPIC_SERVICES_MODEL_SAFETENSORS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "services/model/model_builder.h"

namespace epic {

// The tensors of the file named `file`, which holds `bytes`, in order of their offsets. Tensors of types
// other than F32, F16 and BF16 are an error, except those that `ignorable` ends, which are left out.
absl::StatusOr<std::vector<NamedTensor>> ParseSafetensors(const std::string& file, ByteSpan bytes,
                                                          const std::vector<std::string_view>& ignorable);

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_SAFETENSORS_H_
