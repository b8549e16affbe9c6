// The errors of model files: InvalidArgument "FILE: FIELD: what is wrong and what works".
//
// Pure functions, any thread. Every text of an untrusted file goes through Quoted on its way into a message.
#ifndef EPIC_SERVICES_MODEL_MODEL_ERROR_H_
#define EPIC_SERVICES_MODEL_MODEL_ERROR_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace epic {

// InvalidArgument that names the file and the field; ParamOf gives the field.
absl::Status BadModelFile(std::string_view file, std::string_view field, std::string_view what);

// `text` from an untrusted file made fit for a message: quoted, escaped, at most about 80 bytes of it.
std::string Quoted(std::string_view text);

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_MODEL_ERROR_H_
