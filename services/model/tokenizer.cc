#include "services/model/tokenizer.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/status/status_macros.h"
#include "services/model/tokenizer/bpe.h"
#include "services/model/tokenizer/nfc.h"
#include "services/model/tokenizer/pre_tokenizer.h"
#include "services/model/tokenizer/special_tokens.h"
#include "services/model/tokenizer/spm.h"
#include "services/model/utf8.h"

namespace epic {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;
constexpr std::string_view kSpmSpace = "\xE2\x96\x81";  // U+2581

// Of a control or user-defined token. Text is matched against them at every byte, so a longest one of many
// bytes, from an untrusted file, would make a long text take forever.
constexpr size_t kMaxSpecialBytes = 256;

// Control tokens that end a turn or a text, whatever the file says of eos and eot. In vocabularies trained on
// the web, one can be ordinary text: Qwen's merges make </s>, a tag of HTML.
constexpr std::array<std::string_view, 13> kEndOfGenerationTexts = {
    "<|eot_id|>",    "<|eom_id|>",      "<|im_end|>",    "<|end|>", "<end_of_turn>",
    "<|endoftext|>", "<|end_of_text|>", "<|endofturn|>", "</s>",    "<|end_of_turn|>",
    "<EOT>",         "<|eos|>",         "<|return|>"};

bool EndsGenerationByName(std::string_view text) {
  for (const std::string_view name : kEndOfGenerationTexts) {
    if (text == name) return true;
  }
  return false;
}

// Texts that only templates write. Some files call them user-defined; then a user could type them.
bool LooksLikeControl(std::string_view text) {
  const bool bars = text.size() > 4 && text.substr(0, 2) == "<|" && text.substr(text.size() - 2) == "|>";
  return bars || EndsGenerationByName(text);
}

absl::Status FieldError(std::string_view field, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer: ", ToAbsl(field), " ", ToAbsl(what)));
}

absl::Status TokenError(size_t id, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer: tokens[", id, "] ", ToAbsl(what)));
}

absl::Status CheckIds(const TokenizerSpec& spec) {
  const std::pair<std::string_view, std::optional<uint32_t>> ids[] = {{"bos", spec.bos},
                                                                      {"eos", spec.eos},
                                                                      {"eot", spec.eot},
                                                                      {"unknown", spec.unknown},
                                                                      {"padding", spec.padding}};
  for (const auto& [name, id] : ids) {
    if (id && *id >= spec.tokens.size()) return FieldError(name, "is outside the vocabulary");
  }
  for (const uint32_t id : spec.end_of_generation) {
    if (id >= spec.tokens.size())
      return FieldError("end_of_generation", "names an id outside the vocabulary");
  }
  if (spec.add_bos && !spec.bos) return FieldError("add_bos", "is set but bos is absent");
  if (spec.add_eos && !spec.eos) return FieldError("add_eos", "is set but eos is absent");
  return absl::OkStatus();
}

absl::Status CheckSpec(const TokenizerSpec& spec) {
  if (spec.tokens.empty()) return FieldError("tokens", "is empty");
  if (spec.types.size() != spec.tokens.size()) {
    return FieldError(
        "types", absl::StrCat("has ", spec.types.size(), " entries where tokens has ", spec.tokens.size()));
  }
  EPIC_RETURN_IF_ERROR(CheckIds(spec));
  absl::flat_hash_map<std::string_view, size_t> seen;
  seen.reserve(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string& text = spec.tokens[id];
    const auto type = static_cast<uint8_t>(spec.types[id]);
    if (type < 1 || type > 6)
      return absl::InvalidArgumentError(absl::StrCat("tokenizer: types[", id, "] is unknown"));
    if (FindInvalidUtf8(text)) return TokenError(id, "is not UTF-8");
    if (text.empty()) continue;
    const auto [it, inserted] = seen.emplace(text, id);
    if (!inserted) return TokenError(id, absl::StrCat("repeats the text of tokens[", it->second, "]"));
  }
  return absl::OkStatus();
}

// Whether joining two tokens gives `text`: then it is a piece of ordinary text, not one that was added whole.
bool MergesMake(const TokenizerSpec& spec, std::string_view text) {
  return std::any_of(spec.merges.begin(), spec.merges.end(), [text](const auto& merge) {
    const auto& [left, right] = merge;
    return left.size() + right.size() == text.size() && text.starts_with(left) && text.ends_with(right);
  });
}

// The types, with the tokens that a template needs to itself made control tokens.
std::vector<TokenType> EffectiveTypes(const TokenizerSpec& spec) {
  std::vector<TokenType> types = spec.types;
  for (size_t id = 0; id < types.size(); ++id) {
    if (types[id] == TokenType::kUserDefined && LooksLikeControl(spec.tokens[id]))
      types[id] = TokenType::kControl;
    if (types[id] == TokenType::kNormal && EndsGenerationByName(spec.tokens[id]) &&
        !MergesMake(spec, spec.tokens[id])) {
      types[id] = TokenType::kControl;
    }
  }
  std::vector<uint32_t> ids = spec.end_of_generation;
  for (const std::optional<uint32_t>& id : {spec.bos, spec.eos, spec.eot}) {
    if (id) ids.push_back(*id);
  }
  for (const uint32_t id : ids) {
    const bool ordinary = types[id] == TokenType::kNormal || types[id] == TokenType::kUserDefined;
    if (ordinary && spec.tokens[id].size() > 1) types[id] = TokenType::kControl;
  }
  return types;
}

bool IsSpecial(TokenType type) { return type == TokenType::kControl || type == TokenType::kUserDefined; }

absl::Status CheckSpecialTokens(const TokenizerSpec& spec, const std::vector<TokenType>& types) {
  for (size_t id = 0; id < types.size(); ++id) {
    const size_t size = spec.tokens[id].size();
    if (!IsSpecial(types[id]) || size <= kMaxSpecialBytes) continue;
    return TokenError(id, absl::StrCat("is a special token of ", size, " bytes; at most ", kMaxSpecialBytes,
                                       " are allowed"));
  }
  return absl::OkStatus();
}

std::string WithSpacesEscaped(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  for (const char c : text) c == ' ' ? out.append(kSpmSpace) : out.append(1, c);
  return out;
}

std::string WithSpacesRestored(std::string_view text) {
  std::string out;
  for (size_t position = 0; position < text.size();) {
    if (text.substr(position, kSpmSpace.size()) == kSpmSpace) {
      out.push_back(' ');
      position += kSpmSpace.size();
    } else {
      out.push_back(text[position++]);
    }
  }
  return out;
}

// All runs joined, and the windows in which control tokens count.
struct JoinedText {
  struct Window {
    size_t begin;
    size_t end;
  };
  std::string text;
  std::vector<Window> windows;  // ascending, apart
};

class TokenizerImpl final : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Make(const TokenizerSpec& spec);

  using Tokenizer::Encode;
  absl::StatusOr<std::vector<TokenId>> Encode(std::span<const TextRun> runs) const override;
  std::string TokenBytes(TokenId id, bool with_special) const override;
  std::string Decode(std::span<const TokenId> ids, bool with_special) const override;

  uint32_t vocab_size() const override { return static_cast<uint32_t>(types_.size()); }
  bool IsControl(TokenId id) const override {
    return id < types_.size() && types_[id] == TokenType::kControl;
  }
  bool IsEndOfGeneration(TokenId id) const override { return id < ends_.size() && ends_[id]; }
  std::optional<TokenId> bos() const override { return bos_; }
  std::optional<TokenId> eos() const override { return eos_; }
  std::optional<TokenId> ControlToken(std::string_view text) const override;
  bool add_bos() const override { return add_bos_; }

 private:
  explicit TokenizerImpl(const TokenizerSpec& spec);
  void FillTexts(const TokenizerSpec& spec);
  JoinedText Join(std::span<const TextRun> runs) const;
  void EncodeJoined(const JoinedText& joined, std::vector<TokenId>& out) const;
  bool WantsPrefix(std::string_view stretch, bool first) const;
  void EncodeStretch(std::string_view stretch, bool first, std::vector<TokenId>& out) const;
  void EncodePieces(std::string_view text, std::vector<TokenId>& out) const;

  const TokenizerKind kind_;
  const PreTokenizer pre_;
  const bool nfc_;
  const SpacePrefix space_prefix_;
  const bool add_bos_;
  const std::optional<TokenId> bos_;
  const std::optional<TokenId> eos_;
  const std::vector<TokenType> types_;
  std::vector<bool> ends_;
  std::vector<std::string> bytes_;      // what each token decodes to
  std::vector<std::string> spm_texts_;  // kSpm: the texts as in the file
  absl::flat_hash_map<std::string_view, TokenId> control_;
  SpecialTokens special_;
  std::optional<BpeEncoder> bpe_;
  std::optional<SpmEncoder> spm_;
};

TokenizerImpl::TokenizerImpl(const TokenizerSpec& spec)
    : kind_(spec.kind),
      pre_(spec.pre),
      nfc_(spec.nfc),
      space_prefix_(spec.kind == TokenizerKind::kSpm ? spec.space_prefix : SpacePrefix::kNever),
      add_bos_(spec.add_bos),
      bos_(spec.bos),
      eos_(spec.eos),
      types_(EffectiveTypes(spec)),
      ends_(spec.tokens.size()) {}

void TokenizerImpl::FillTexts(const TokenizerSpec& spec) {
  const bool spm = kind_ == TokenizerKind::kSpm;
  if (spm) spm_texts_ = spec.tokens;
  bytes_.reserve(spec.tokens.size());
  for (TokenId id = 0; id < spec.tokens.size(); ++id) {
    const std::string& text = spec.tokens[id];
    const bool special = IsSpecial(types_[id]);
    if (spm && types_[id] == TokenType::kByte) {
      const std::optional<uint8_t> byte = ByteOfSpmText(text);
      bytes_.push_back(byte ? std::string(1, static_cast<char>(*byte)) : text);
    } else if (spm) {
      bytes_.push_back(WithSpacesRestored(text));
    } else {
      bytes_.push_back(special ? text : BytesOfByteLevelText(text));
    }
  }
  for (TokenId id = 0; id < spec.tokens.size(); ++id) {
    const bool control = types_[id] == TokenType::kControl;
    if (control && !bytes_[id].empty()) control_.emplace(bytes_[id], id);
    if (spec.tokens[id].empty() || (!control && types_[id] != TokenType::kUserDefined)) continue;
    special_.Add(spec.tokens[id], id, control);
    if (control && EndsGenerationByName(spec.tokens[id])) ends_[id] = true;
  }
  if (spec.eos) ends_[*spec.eos] = true;
  if (spec.eot) ends_[*spec.eot] = true;
  for (const uint32_t id : spec.end_of_generation) ends_[id] = true;
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> TokenizerImpl::Make(const TokenizerSpec& spec) {
  EPIC_RETURN_IF_ERROR(CheckSpec(spec));
  // The encoders keep views of the texts inside the tokenizer, so it must not move any more.
  std::unique_ptr<TokenizerImpl> tokenizer(new TokenizerImpl(spec));
  EPIC_RETURN_IF_ERROR(CheckSpecialTokens(spec, tokenizer->types_));
  tokenizer->FillTexts(spec);
  if (spec.kind == TokenizerKind::kBpe) {
    EPIC_ASSIGN_OR_RETURN(tokenizer->bpe_, BpeEncoder::Create(spec, tokenizer->types_, tokenizer->bytes_));
  } else {
    EPIC_ASSIGN_OR_RETURN(tokenizer->spm_,
                          SpmEncoder::Create(spec, tokenizer->types_, tokenizer->spm_texts_));
  }
  return std::unique_ptr<const Tokenizer>(std::move(tokenizer));
}

JoinedText TokenizerImpl::Join(std::span<const TextRun> runs) const {
  JoinedText joined;
  for (const TextRun& run : runs) {
    const size_t begin = joined.text.size();
    kind_ == TokenizerKind::kSpm ? joined.text.append(WithSpacesEscaped(run.text))
                                 : joined.text.append(run.text);
    if (!run.parse_special || joined.text.size() == begin) continue;
    if (!joined.windows.empty() && joined.windows.back().end == begin) {
      joined.windows.back().end = joined.text.size();
    } else {
      joined.windows.push_back({begin, joined.text.size()});
    }
  }
  return joined;
}

absl::StatusOr<std::vector<TokenId>> TokenizerImpl::Encode(std::span<const TextRun> runs) const {
  size_t total = 0;
  for (const TextRun& run : runs) {
    total += run.text.size();
    if (total > kMaxTextBytes) return absl::InvalidArgumentError("text is longer than 1 GiB");
  }
  const JoinedText joined = Join(runs);
  if (const std::optional<size_t> bad = FindInvalidUtf8(joined.text)) {
    return absl::InvalidArgumentError(absl::StrCat("text is not UTF-8 at byte ", *bad));
  }
  std::vector<TokenId> out;
  out.reserve(joined.text.size() / 4 + 8);
  EncodeJoined(joined, out);
  return out;
}

void TokenizerImpl::EncodeJoined(const JoinedText& joined, std::vector<TokenId>& out) const {
  const std::string_view text = joined.text;
  size_t plain = 0;
  auto window = joined.windows.begin();
  for (size_t position = 0; position < text.size();) {
    while (window != joined.windows.end() && window->end <= position) ++window;
    const bool inside = window != joined.windows.end() && window->begin <= position;
    const auto match = special_.Find(text, position, inside ? window->end : 0);
    if (!match) {
      ++position;
      continue;
    }
    EncodeStretch(text.substr(plain, position - plain), plain == 0, out);
    out.push_back(match->id);
    position += match->length;
    plain = position;
  }
  EncodeStretch(text.substr(plain), plain == 0, out);
}

// Spaces of `stretch` are U+2581 already. `first`: it stands at the beginning of the text.
bool TokenizerImpl::WantsPrefix(std::string_view stretch, bool first) const {
  switch (space_prefix_) {
    case SpacePrefix::kNever:
      return false;
    case SpacePrefix::kEach:
      return true;
    case SpacePrefix::kEachUnspaced:
      return !stretch.starts_with(kSpmSpace);
    case SpacePrefix::kFirstUnspaced:
      return first && !stretch.starts_with(kSpmSpace);
  }
  return false;
}

void TokenizerImpl::EncodeStretch(std::string_view stretch, bool first, std::vector<TokenId>& out) const {
  if (stretch.empty()) return;
  if (spm_ && WantsPrefix(stretch, first)) {
    spm_->Encode(absl::StrCat(ToAbsl(kSpmSpace), ToAbsl(stretch)), out);
  } else if (spm_) {
    spm_->Encode(stretch, out);
  } else if (nfc_) {
    EncodePieces(NormalizeNfc(stretch), out);
  } else {
    EncodePieces(stretch, out);
  }
}

void TokenizerImpl::EncodePieces(std::string_view text, std::vector<TokenId>& out) const {
  for (size_t position = 0; position < text.size();) {
    const size_t end = PieceEnd(pre_, text, position);
    bpe_->Encode(text.substr(position, end - position), out);
    position = end;
  }
}

std::string TokenizerImpl::TokenBytes(TokenId id, bool with_special) const {
  if (id >= bytes_.size()) return {};
  const bool hidden = types_[id] == TokenType::kControl || types_[id] == TokenType::kUnknown;
  return hidden && !with_special ? std::string() : bytes_[id];
}

std::string TokenizerImpl::Decode(std::span<const TokenId> ids, bool with_special) const {
  std::string out;
  bool at_start = space_prefix_ != SpacePrefix::kNever;
  for (const TokenId id : ids) {
    const std::string bytes = TokenBytes(id, with_special);
    const bool text = id < types_.size() && !IsControl(id);
    out.append(bytes, at_start && text && !bytes.empty() && bytes[0] == ' ' ? 1 : 0);
    if (text) at_start = false;
  }
  return out;
}

std::optional<TokenId> TokenizerImpl::ControlToken(std::string_view text) const {
  const auto it = control_.find(text);
  if (it == control_.end()) return std::nullopt;
  return it->second;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::Create(const TokenizerSpec& spec) {
  return TokenizerImpl::Make(spec);
}

}  // namespace epic
