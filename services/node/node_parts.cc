#include "services/node/node_parts.h"

#include <utility>

#include "common/status/status_macros.h"
#include "services/kv_store/config/store_config.h"
#include "services/kv_store/embedded_store.h"
#include "services/worker_api/opened_model.h"

namespace epic {

absl::StatusOr<NodeParts> LoadParts(const Config& config, const Clock* clock, PackProgress* progress) {
  EPIC_ASSIGN_OR_RETURN(OpenedModel opened, OpenModel(config.model));
  NodeParts parts;
  parts.alias = std::move(opened.alias);
  parts.identity = opened.identity;
  parts.architecture = std::move(opened.architecture);
  parts.parameters = opened.parameters;
  parts.tokenizer = std::move(opened.tokenizer);
  parts.chat_template = std::move(opened.chat_template);
  EPIC_ASSIGN_OR_RETURN(parts.store,
                        kv_store::EmbeddedStore::Open(kv_store::StoreOptionsOf(config.store, clock)));
  EPIC_ASSIGN_OR_RETURN(parts.engine, StartEngine(config.engine, std::move(opened.model), clock, progress));
  return parts;
}

}  // namespace epic
