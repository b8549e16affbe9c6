// One served model as the cores see it: names, identity, tokenizer, template and engine.
//
// A plain value; the pointers outlive every core. Immutable after start, so safe from every thread.
#ifndef EPIC_SERVICES_WORKER_API_SERVED_MODEL_H_
#define EPIC_SERVICES_WORKER_API_SERVED_MODEL_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/digest.h"
#include "common/storage/cache_id.h"
#include "common/storage/kv_object.h"
#include "services/engine/engine.h"
#include "services/model/chat_template.h"
#include "services/model/prompt_tokens.h"
#include "services/model/tokenizer.h"

namespace epic {

struct ServedModel {
  std::string alias;         // the name that clients use
  int64_t created_unix = 0;  // seconds
  Digest identity;
  std::string architecture;
  uint64_t parameters = 0;
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat_template = nullptr;
  Engine* engine = nullptr;
};

// The variant of an object that this engine reads and writes behind a prefix.
ObjectVariant VariantOf(const Engine& engine, CompilePrefixKind kind, std::span<const TokenId> prefix_tokens);

}  // namespace epic

#endif  // EPIC_SERVICES_WORKER_API_SERVED_MODEL_H_
