// What a node is made of below its cores, and how `epic serve` makes it from the settings.
#ifndef EPIC_SERVICES_NODE_NODE_PARTS_H_
#define EPIC_SERVICES_NODE_NODE_PARTS_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/config/config.h"
#include "common/storage/kv_store.h"
#include "services/engine/engine.h"
#include "services/model/chat_template.h"
#include "services/model/tokenizer.h"

namespace epic {

struct NodeParts {
  std::string alias;
  Digest identity;
  std::string architecture;
  uint64_t parameters = 0;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<const ChatTemplate> chat_template;
  std::unique_ptr<KvStore> store;
  std::unique_ptr<Engine> engine;  // stopped before the store goes
};

// Runs on the thread of Node::Start; may take long. `progress` may be null.
using PartsLoader = std::function<absl::StatusOr<NodeParts>(PackProgress* progress)>;

// Model → tokenizer → template → store → engine, so that a bad file or a locked directory is reported before
// the weights are packed. Errors: those of each, with its file in the message.
absl::StatusOr<NodeParts> LoadParts(const Config& config, const Clock* clock, PackProgress* progress);

}  // namespace epic

#endif  // EPIC_SERVICES_NODE_NODE_PARTS_H_
