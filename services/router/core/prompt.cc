#include "services/router/core/prompt.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "common/status/context_place.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/router/core/compile_prefix.h"

namespace epic {
namespace {

struct Resolved {
  ContextRecord record;
  std::vector<TokenId> tokens;
};

class PromptBuilder {
 public:
  PromptBuilder(const RouterParts& parts, const std::string& tenant, const ChatRequest& request,
                const CheckedChat& chat)
      : parts_(parts), tenant_(tenant), request_(request), chat_(chat) {}

  absl::StatusOr<Prompt> Build() {
    TemplateInput input = ToTemplateInput(request_.messages);
    EPIC_RETURN_IF_ERROR(PutContextIds(&input));
    EPIC_RETURN_IF_ERROR(Resolve(input.references));
    EPIC_ASSIGN_OR_RETURN(
        const std::vector<RenderedPiece> rendered,
        parts_.model->chat_template->Render(input.messages, /*add_generation_prompt=*/true));
    head_is_template_ = OnlySystemTextBeforeContexts(input.messages);
    EPIC_RETURN_IF_ERROR(Assemble(input.references, rendered));
    EPIC_RETURN_IF_ERROR(ChooseVariants());
    for (const LinkPiece& piece : prompt_.pieces)
      prompt_.tokens += static_cast<uint32_t>(piece.tokens.size());
    if (prompt_.pieces.empty()) {
      return Error(ErrorCode::kInvalidRequest, "the prompt is empty", "messages");
    }
    return std::move(prompt_);
  }

 private:
  // context_ids stand before the last user message's own content.
  absl::Status PutContextIds(TemplateInput* input) {
    if (request_.context_ids.empty()) return absl::OkStatus();
    const auto last_user = std::find_if(input->messages.rbegin(), input->messages.rend(),
                                        [](const Message& message) { return message.role == "user"; });
    if (last_user == input->messages.rend()) {
      return Error(ErrorCode::kInvalidRequest,
                   "context_ids stand before the last user message, and there is none", "context_ids");
    }
    std::vector<MessagePart> parts;
    for (size_t i = 0; i < request_.context_ids.size(); ++i) {
      parts.push_back({.kind = MessagePart::Kind::kContext,
                       .text = {},
                       .context_index = static_cast<uint32_t>(input->references.size())});
      input->references.push_back({{ContentPart::Kind::kContextId, request_.context_ids[i]},
                                   "context_ids[" + std::to_string(i) + "]"});
    }
    last_user->parts.insert(last_user->parts.begin(), parts.begin(), parts.end());
    return absl::OkStatus();
  }

  absl::Status Resolve(const std::vector<ContextReference>& references) {
    std::map<CacheId, size_t> known;
    for (const ContextReference& reference : references) {
      absl::StatusOr<ContextRecord> record = Find(reference);
      if (!record.ok()) return AtPlace(record.status(), reference.place);
      const auto [found, is_new] = known.emplace(record->id, contexts_.size());
      if (is_new) {
        absl::StatusOr<std::vector<TokenId>> tokens = parts_.store->GetTokens(tenant_, record->id);
        if (!tokens.ok()) return AtPlace(tokens.status(), reference.place);
        contexts_.push_back({*std::move(record), *std::move(tokens)});
      }
      context_of_.push_back(found->second);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ContextRecord> Find(const ContextReference& reference) {
    absl::StatusOr<ContextRecord> record;
    if (reference.part.kind == ContentPart::Kind::kContextName) {
      record = parts_.store->FindByName(tenant_, parts_.model->identity, reference.part.value);
    } else {
      EPIC_ASSIGN_OR_RETURN(const CacheId id, ParseCacheId(reference.part.value, reference.place));
      record = parts_.store->GetContext(tenant_, id);
    }
    if (!record.ok()) return record;
    if (record->hidden) return Error(ErrorCode::kContextNotFound, "no such context");
    if (record->model_identity != parts_.model->identity) {
      return Error(ErrorCode::kContextModelMismatch,
                   "the context " + record->id.text() + " was compiled for another model ('" + record->model +
                       "'): create it for '" + parts_.model->alias + "'");
    }
    return record;
  }

  // True when nothing but system text and the template's own can stand before the first context.
  static bool OnlySystemTextBeforeContexts(const std::vector<Message>& messages) {
    for (const Message& message : messages) {
      for (const MessagePart& part : message.parts) {
        if (part.kind == MessagePart::Kind::kContext) return true;
        if (message.role != "system" && !part.text.empty()) return false;
      }
    }
    return false;
  }

  absl::Status Assemble(const std::vector<ContextReference>& references,
                        const std::vector<RenderedPiece>& rendered) {
    for (size_t i = 0; i < rendered.size();) {
      if (rendered[i].kind == RenderedPiece::Kind::kContext) {
        const uint32_t index = rendered[i].context_index;
        const Resolved& context = contexts_[context_of_[index]];
        LinkPiece piece;
        piece.kind = LinkPiece::Kind::kContext;
        piece.tokens = context.tokens;
        piece.context = context.record.id;
        piece.place = references[index].place;
        piece_contexts_[prompt_.pieces.size()] = &context;
        prompt_.pieces.push_back(std::move(piece));
        ++prompt_.contexts;
        ++i;
        continue;
      }
      size_t end = i;
      while (end < rendered.size() && rendered[end].kind != RenderedPiece::Kind::kContext) ++end;
      LinkPiece piece;
      EPIC_ASSIGN_OR_RETURN(piece.tokens,
                            EncodePieces(*parts_.model->tokenizer, std::span(rendered).subspan(i, end - i)));
      const bool leads = prompt_.pieces.empty();
      if (leads && head_is_template_) piece.kind = LinkPiece::Kind::kHead;
      if (leads) AddBos(&piece.tokens);
      if (!piece.tokens.empty()) prompt_.pieces.push_back(std::move(piece));
      i = end;
    }
    return AddBosBeforeContext();
  }

  // One BOS, where the model wants it and its template has not written it.
  void AddBos(std::vector<TokenId>* tokens) {
    const std::optional<TokenId> bos = parts_.model->tokenizer->bos();
    if (!parts_.model->tokenizer->add_bos() || !bos.has_value()) return;
    if (tokens->empty() || tokens->front() != *bos) tokens->insert(tokens->begin(), *bos);
  }

  // A template that prints nothing before its first context still needs the BOS.
  absl::Status AddBosBeforeContext() {
    if (prompt_.pieces.empty() || prompt_.pieces.front().kind != LinkPiece::Kind::kContext) {
      return absl::OkStatus();
    }
    LinkPiece piece;
    AddBos(&piece.tokens);
    if (piece.tokens.empty()) return absl::OkStatus();
    prompt_.pieces.insert(prompt_.pieces.begin(), std::move(piece));
    std::map<size_t, const Resolved*> moved;
    for (const auto& [index, context] : piece_contexts_) moved.emplace(index + 1, context);
    piece_contexts_.swap(moved);
    return absl::OkStatus();
  }

  // The tokens that every context is to be compiled behind.
  absl::StatusOr<std::vector<TokenId>> PrefixTokens() {
    const Tokenizer& tokenizer = *parts_.model->tokenizer;
    const CompilePrefixKind kind = chat_.strategy.compile_prefix;
    if (request_.linking.compile_prefix_object.has_value()) {
      EPIC_ASSIGN_OR_RETURN(const CompilePrefixSpec spec,
                            ResolveCompilePrefix(parts_, tenant_, *request_.linking.compile_prefix_object,
                                                 kLinkingPrefixParam));
      return CompilePrefixTokens(tokenizer, kind, spec.tokens);
    }
    if (kind == CompilePrefixKind::kSystem) {
      if (prompt_.pieces.front().kind == LinkPiece::Kind::kHead) return prompt_.pieces.front().tokens;
      return Error(ErrorCode::kInvalidRequest,
                   "the compile prefix system needs a prompt whose first context directly follows the system "
                   "turn: move the user's text behind the contexts, or use bos4",
                   kLinkingPrefixParam);
    }
    std::vector<TokenId> prefix = CompilePrefixTokens(tokenizer, kind, {});
    if (kind != CompilePrefixKind::kNone && prefix.empty()) {
      return Error(ErrorCode::kUnsupportedParameter,
                   "this model has no token for the compile prefix: use none or system", kLinkingPrefixParam);
    }
    return prefix;
  }

  absl::Status CheckFits(const LinkPiece& piece, const std::vector<TokenId>& prefix) const {
    const size_t tokens = prefix.size() + piece.tokens.size();
    const uint32_t window = parts_.model->engine->config().context_length;
    if (tokens <= window) return absl::OkStatus();
    return Error(ErrorCode::kContextLengthExceeded,
                 "the context " + piece.context.text() + " has " + std::to_string(tokens) +
                     " tokens with this compile prefix, but the model's window has " +
                     std::to_string(window) + ": choose a shorter prefix",
                 kLinkingPrefixParam);
  }

  absl::Status ChooseVariants() {
    if (piece_contexts_.empty()) return absl::OkStatus();
    const CompilePrefixKind kind = chat_.strategy.compile_prefix;
    EPIC_ASSIGN_OR_RETURN(const std::vector<TokenId> prefix, PrefixTokens());
    const ObjectVariant variant = VariantOf(*parts_.model->engine, kind, prefix);
    for (const auto& [index, context] : piece_contexts_) {
      LinkPiece& piece = prompt_.pieces[index];
      EPIC_RETURN_IF_ERROR(CheckFits(piece, prefix));
      const ContextState state = context->record.state;
      piece.variant = variant;
      piece.prefix_tokens = prefix;
      piece.sets_state = state != ContextState::kReady &&
                         PrimaryCompile(*parts_.model, context->record, {}).key.variant == variant;
      // What is still compiling is waited for and what failed is tried once more, whatever on_missing says.
      piece.on_missing = state == ContextState::kReady ? chat_.on_missing : OnMissing::kRecompile;
      if (state == ContextState::kCompiling) prompt_.waits_for_compile = true;
    }
    return absl::OkStatus();
  }

  const RouterParts& parts_;
  const std::string& tenant_;
  const ChatRequest& request_;
  const CheckedChat& chat_;
  std::vector<Resolved> contexts_;                    // each context once
  std::vector<size_t> context_of_;                    // by reference: its place in contexts_
  std::map<size_t, const Resolved*> piece_contexts_;  // by piece; contexts_ no longer grows then
  bool head_is_template_ = false;
  Prompt prompt_;
};

}  // namespace

TemplateInput ToTemplateInput(const std::vector<ChatMessage>& messages) {
  TemplateInput input;
  for (size_t i = 0; i < messages.size(); ++i) {
    Message& out = input.messages.emplace_back();
    out.role = messages[i].role == "developer" ? "system" : messages[i].role;
    for (size_t j = 0; j < messages[i].content.size(); ++j) {
      const ContentPart& part = messages[i].content[j];
      if (part.kind == ContentPart::Kind::kText) {
        out.parts.push_back({.kind = MessagePart::Kind::kText, .text = part.value, .context_index = 0});
        continue;
      }
      out.parts.push_back({.kind = MessagePart::Kind::kContext,
                           .text = {},
                           .context_index = static_cast<uint32_t>(input.references.size())});
      input.references.push_back(
          {part, "messages[" + std::to_string(i) + "].content[" + std::to_string(j) +
                     (part.kind == ContentPart::Kind::kContextName ? "].name" : "].id")});
    }
  }
  return input;
}

absl::StatusOr<std::vector<TokenId>> EncodePieces(const Tokenizer& tokenizer,
                                                  std::span<const RenderedPiece> pieces) {
  std::vector<TextRun> runs;
  for (const RenderedPiece& piece : pieces) {
    runs.push_back({piece.text, piece.kind == RenderedPiece::Kind::kTemplate});
  }
  return tokenizer.Encode(std::span<const TextRun>(runs));
}

CompileJob PrimaryCompile(const ServedModel& model, const ContextRecord& record,
                          std::vector<TokenId> tokens) {
  CompileJob job;
  job.tenant = record.tenant;
  job.prefix_tokens =
      CompilePrefixTokens(*model.tokenizer, record.compile_prefix.kind, record.compile_prefix.tokens);
  job.key = {record.id, VariantOf(*model.engine, record.compile_prefix.kind, job.prefix_tokens)};
  job.tokens = std::move(tokens);
  job.sets_state = record.state != ContextState::kReady;
  return job;
}

absl::StatusOr<Prompt> BuildPrompt(const RouterParts& parts, const std::string& tenant,
                                   const ChatRequest& request, const CheckedChat& chat) {
  return PromptBuilder(parts, tenant, request, chat).Build();
}

}  // namespace epic
