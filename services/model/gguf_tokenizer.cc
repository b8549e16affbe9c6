// ReadGgufTokenizer of gguf_model.h: the keys tokenizer.ggml.* of a GGUF file.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/status/status_macros.h"
#include "services/model/gguf_model.h"
#include "services/model/model_error.h"

namespace epic {
namespace {

constexpr std::string_view kModelKey = "tokenizer.ggml.model";
constexpr std::string_view kPreKey = "tokenizer.ggml.pre";
constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kTypesKey = "tokenizer.ggml.token_type";
constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";
constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";

class TokenizerReader {
 public:
  TokenizerReader(const GgufFile& gguf, TokenizerSpec* spec) : gguf_(gguf), spec_(*spec) {}

  absl::Status Run() {
    EPIC_RETURN_IF_ERROR(ReadKind());
    EPIC_RETURN_IF_ERROR(ReadVocabulary());
    EPIC_RETURN_IF_ERROR(spec_.kind == TokenizerKind::kBpe ? ReadMerges() : ReadScores());
    EPIC_RETURN_IF_ERROR(ReadIds());
    return ReadFlags();
  }

 private:
  absl::Status Bad(std::string_view field, std::string_view what) const {
    return BadModelFile(gguf_.file(), field, what);
  }

  absl::Status ReadKind() {
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> model, gguf_.String(kModelKey));
    if (!model.has_value()) return Bad(kModelKey, "is missing");
    if (*model == "llama") {
      spec_.kind = TokenizerKind::kSpm;
      spec_.pre = PreTokenizer::kNone;
      return absl::OkStatus();
    }
    if (*model != "gpt2") {
      return Bad(kModelKey,
                 absl::StrCat("is ", Quoted(*model), "; EPIC has gpt2 (byte-level BPE) and llama (SPM)"));
    }
    spec_.kind = TokenizerKind::kBpe;
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> pre, gguf_.String(kPreKey));
    if (!pre.has_value()) {
      return Bad(kPreKey, "is missing, and a guess would give wrong ids; convert the model again");
    }
    struct Known {
      std::string_view name;
      PreTokenizer pre;
    };
    constexpr Known kKnown[] = {
        {"gpt-2", PreTokenizer::kGpt2},         {"smollm", PreTokenizer::kSmolLm},
        {"qwen2", PreTokenizer::kQwen2},        {"deepseek-r1-qwen", PreTokenizer::kQwen2},
        {"llama-bpe", PreTokenizer::kLlamaBpe}, {"llama3", PreTokenizer::kLlamaBpe},
        {"llama-v3", PreTokenizer::kLlamaBpe},
    };
    for (const Known& known : kKnown) {
      if (*pre != known.name) continue;
      spec_.pre = known.pre;
      // The tokenizers that these names stand for: Qwen's normalises to NFC, Llama 3's takes whole pieces.
      spec_.nfc = known.pre == PreTokenizer::kQwen2;
      spec_.ignore_merges = known.pre == PreTokenizer::kLlamaBpe;
      return absl::OkStatus();
    }
    return Bad(kPreKey, absl::StrCat("is ", Quoted(*pre), "; EPIC has gpt-2, smollm, qwen2 and llama-bpe"));
  }

  absl::Status ReadVocabulary() {
    EPIC_ASSIGN_OR_RETURN(std::optional<std::vector<std::string>> tokens, gguf_.Strings(kTokensKey));
    if (!tokens.has_value() || tokens->empty()) return Bad(kTokensKey, "is missing or empty");
    spec_.tokens = *std::move(tokens);
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::vector<uint64_t>> types, gguf_.Uints(kTypesKey));
    if (!types.has_value()) return Bad(kTypesKey, "is missing");
    if (types->size() != spec_.tokens.size()) {
      return Bad(kTypesKey,
                 absl::StrCat("has ", types->size(), " entries for ", spec_.tokens.size(), " tokens"));
    }
    spec_.types.reserve(types->size());
    for (uint64_t type : *types) {
      if (type < 1 || type > 6) return Bad(kTypesKey, absl::StrCat("has the unknown type ", type));
      spec_.types.push_back(static_cast<TokenType>(type));
    }
    return absl::OkStatus();
  }

  absl::Status ReadMerges() {
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::vector<std::string>> merges, gguf_.Strings(kMergesKey));
    if (!merges.has_value()) return Bad(kMergesKey, "is missing");
    spec_.merges.reserve(merges->size());
    for (size_t i = 0; i < merges->size(); ++i) {
      const std::string& merge = (*merges)[i];
      // The left part has at least one byte, which may be a space in hand-made vocabularies.
      const size_t space = merge.find(' ', 1);
      if (space == std::string::npos || space + 1 == merge.size()) {
        return Bad(kMergesKey,
                   absl::StrCat("entry ", i, " is ", Quoted(merge), ", not two parts with a space between"));
      }
      spec_.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
    }
    return absl::OkStatus();
  }

  absl::Status ReadScores() {
    EPIC_ASSIGN_OR_RETURN(std::optional<std::vector<float>> scores, gguf_.Floats(kScoresKey));
    if (!scores.has_value()) return Bad(kScoresKey, "is missing");
    if (scores->size() != spec_.tokens.size()) {
      return Bad(kScoresKey,
                 absl::StrCat("has ", scores->size(), " entries for ", spec_.tokens.size(), " tokens"));
    }
    for (float score : *scores) {
      if (!(score >= std::numeric_limits<float>::lowest() && score <= std::numeric_limits<float>::max())) {
        return Bad(kScoresKey, "has a value that is no finite number");
      }
    }
    spec_.scores = *std::move(scores);
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<uint32_t>> Id(std::string_view name) const {
    const std::string key = absl::StrCat("tokenizer.ggml.", ToAbsl(name), "_token_id");
    EPIC_ASSIGN_OR_RETURN(const std::optional<uint64_t> id, gguf_.Uint(key));
    if (!id.has_value()) return std::optional<uint32_t>();
    if (*id >= spec_.tokens.size()) return Bad(key, absl::StrCat(*id, " is outside the vocabulary"));
    return std::optional<uint32_t>(static_cast<uint32_t>(*id));
  }

  absl::Status ReadIds() {
    EPIC_ASSIGN_OR_RETURN(spec_.bos, Id("bos"));
    EPIC_ASSIGN_OR_RETURN(spec_.eos, Id("eos"));
    EPIC_ASSIGN_OR_RETURN(spec_.eot, Id("eot"));
    EPIC_ASSIGN_OR_RETURN(spec_.unknown, Id("unknown"));
    EPIC_ASSIGN_OR_RETURN(spec_.padding, Id("padding"));
    EPIC_ASSIGN_OR_RETURN(const std::optional<uint32_t> eom, Id("eom"));
    if (eom.has_value() && eom != spec_.eos && eom != spec_.eot) spec_.end_of_generation.push_back(*eom);
    return absl::OkStatus();
  }

  absl::Status ReadFlags() {
    EPIC_ASSIGN_OR_RETURN(const std::optional<bool> add_bos, gguf_.Bool("tokenizer.ggml.add_bos_token"));
    EPIC_ASSIGN_OR_RETURN(const std::optional<bool> add_eos, gguf_.Bool("tokenizer.ggml.add_eos_token"));
    EPIC_ASSIGN_OR_RETURN(const std::optional<bool> space, gguf_.Bool("tokenizer.ggml.add_space_prefix"));
    const bool spm = spec_.kind == TokenizerKind::kSpm;
    spec_.add_bos = add_bos.value_or(spm || spec_.pre == PreTokenizer::kLlamaBpe);
    spec_.add_eos = add_eos.value_or(false);
    // llama.cpp, whose files these are, puts it before the first text and after every special token.
    spec_.space_prefix = spm && space.value_or(true) ? SpacePrefix::kEach : SpacePrefix::kNever;
    if (spec_.add_bos && !spec_.bos.has_value()) {
      return Bad("tokenizer.ggml.bos_token_id", "is missing though a BOS is to be added");
    }
    return absl::OkStatus();
  }

  const GgufFile& gguf_;
  TokenizerSpec& spec_;
};

}  // namespace

absl::StatusOr<TokenizerSpec> ReadGgufTokenizer(const GgufFile& gguf) {
  TokenizerSpec spec;
  EPIC_RETURN_IF_ERROR(TokenizerReader(gguf, &spec).Run());
  return spec;
}

}  // namespace epic
