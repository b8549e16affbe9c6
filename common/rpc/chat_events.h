// What chats and prompts have in common in epic.v1 (chat.proto): deltas and usage, of any structs whose
// members bear the same names. Pure.
#ifndef EPIC_COMMON_RPC_CHAT_EVENTS_H_
#define EPIC_COMMON_RPC_CHAT_EVENTS_H_

#include "epic/v1/chat.pb.h"

namespace epic {

// `Delta`: services/worker_api/linker.h's or the router's.
template <typename Delta>
void SetDelta(const Delta& delta, v1::ChatEvent::Delta* proto) {
  proto->set_choice(delta.choice);
  proto->set_text(delta.text);
  for (const auto& logprob : delta.logprobs) {
    v1::TokenLogprobs& entry = *proto->add_logprobs();
    entry.set_token(logprob.bytes);
    entry.set_logprob(logprob.logprob);
    for (const auto& [bytes, value] : logprob.top) {
      v1::TopLogprob& top = *entry.add_top();
      top.set_token(bytes);
      top.set_logprob(value);
    }
  }
}

template <typename Usage>
void SetUsage(const Usage& usage, v1::Usage* proto) {
  proto->set_prompt_tokens(usage.prompt_tokens);
  proto->set_completion_tokens(usage.completion_tokens);
  proto->set_cached_tokens(usage.cached_tokens);
  proto->set_recomputed_tokens(usage.recomputed_tokens);
  proto->set_fresh_tokens(usage.fresh_tokens);
}

}  // namespace epic

#endif  // EPIC_COMMON_RPC_CHAT_EVENTS_H_
