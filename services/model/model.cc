#include "services/model/model.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "common/status/status_macros.h"
#include "services/model/gguf_model.h"
#include "services/model/hf_model.h"
#include "services/model/model_builder.h"
#include "services/model/model_file.h"

namespace epic {
namespace {

absl::StatusOr<ModelParts> ReadParts(const std::string& path) {
  std::error_code ignored;  // what is no folder is opened as a file, which reports what is wrong
  if (std::filesystem::is_directory(path, ignored)) return ReadHfModel(path);
  EPIC_ASSIGN_OR_RETURN(std::shared_ptr<const ModelFile> file, ModelFile::Read(path));
  return ReadGgufModel(std::move(file));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Model>> Model::Load(const std::string& path) {
  const FileStamps stamps = FileStamps::Of(path);
  EPIC_ASSIGN_OR_RETURN(ModelParts parts, ReadParts(path));
  // Files of two models may fit together: config and shards of one, a shard of the other.
  EPIC_RETURN_IF_ERROR(stamps.CheckUnchanged());
  return BuildModel(std::move(parts));
}

}  // namespace epic
