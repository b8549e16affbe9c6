#include "services/model/model.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "common/status/status_macros.h"
#include "services/model/gguf_model.h"
#include "services/model/hf_model.h"
#include "services/model/mapped_file.h"
#include "services/model/model_builder.h"

namespace epic {

absl::StatusOr<std::shared_ptr<const Model>> Model::Load(const std::string& path) {
  std::error_code ignored;  // what is no folder is opened as a file, which reports what is wrong
  if (std::filesystem::is_directory(path, ignored)) {
    EPIC_ASSIGN_OR_RETURN(ModelParts parts, ReadHfModel(path));
    return BuildModel(std::move(parts));
  }
  EPIC_ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  EPIC_ASSIGN_OR_RETURN(ModelParts parts, ReadGgufModel(std::move(file)));
  return BuildModel(std::move(parts));
}

}  // namespace epic
