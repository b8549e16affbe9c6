#include "services/model/hf_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/status/status_macros.h"
#include "services/model/hf_spm_scores.h"
#include "services/model/json_file.h"
#include "services/model/model_error.h"

namespace epic {
namespace {

using nlohmann::json;

constexpr std::string_view kSpmSpace = "\u2581";

// Two spellings of the same pattern exist; `digits` is how many of them make a piece.
bool IsCl100kLike(const std::string& regex, std::string_view digits) {
  const std::string rest = absl::StrCat("|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|", ToAbsl(digits),
                                        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+");
  return regex == "(?i:'s|'t|'re|'ve|'m|'ll|'d)" + rest ||
         regex == "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])" + rest;
}

class Reader {
 public:
  Reader(const HfTokenizerFiles& files, TokenizerSpec* spec)
      : files_(files),
        root_(files.tokenizer_path, "", files.tokenizer),
        config_(files.config_path, "", files.config),
        spec_(*spec) {}

  absl::Status Run() {
    EPIC_ASSIGN_OR_RETURN(const std::optional<JsonObject> model, root_.Object("model"));
    if (!model.has_value()) return root_.Bad("model", "is missing");
    EPIC_RETURN_IF_ERROR(ReadKind(*model));
    EPIC_RETURN_IF_ERROR(spec_.kind == TokenizerKind::kBpe ? ReadByteLevel() : ReadSpmShape());
    EPIC_RETURN_IF_ERROR(ReadVocabulary(*model));
    EPIC_RETURN_IF_ERROR(ReadAddedTokens(*model));
    FillGaps();
    EPIC_RETURN_IF_ERROR(ReadMerges(*model));
    EPIC_RETURN_IF_ERROR(ReadSpecialIds());
    return ReadFlags();
  }

 private:
  static std::string TypeOf(const json& value) {
    if (!value.is_object()) return "";
    const auto it = value.find("type");
    return it != value.end() && it->is_string() ? it->get<std::string>() : "";
  }

  // The parts of a normaliser or pre-tokeniser: those of a Sequence, else itself; none when it is null.
  static std::vector<const json*> PartsOf(const json& value, const char* key) {
    std::vector<const json*> parts;
    if (value.is_null()) return parts;
    if (TypeOf(value) != "Sequence") return {&value};
    const auto it = value.find(key);
    if (it == value.end() || !it->is_array()) return {&value};
    for (const json& part : *it) parts.push_back(&part);
    return parts;
  }

  // The bool of an object; `fallback` when it is absent or no bool.
  static bool Flag(const json& value, const char* key, bool fallback) {
    const auto it = value.find(key);
    return it != value.end() && it->is_boolean() ? it->get<bool>() : fallback;
  }
  static std::string Text(const json& value, const char* key) {
    const auto it = value.find(key);
    return it != value.end() && it->is_string() ? it->get<std::string>() : "";
  }

  absl::Status ReadKind(const JsonObject& model) {
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> type, model.String("type"));
    if (type.value_or("BPE") != "BPE") {
      return model.Bad("type", absl::StrCat("is ", Quoted(*type), "; EPIC has BPE"));
    }
    EPIC_ASSIGN_OR_RETURN(const std::optional<bool> fallback, model.Bool("byte_fallback"));
    EPIC_ASSIGN_OR_RETURN(const std::optional<bool> ignore_merges, model.Bool("ignore_merges"));
    EPIC_ASSIGN_OR_RETURN(const std::optional<double> dropout, model.Number("dropout"));
    if (dropout.value_or(0.0) != 0.0) return model.Bad("dropout", "is not supported");
    for (std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> affix, model.String(key));
      if (!affix.value_or("").empty()) return model.Bad(key, "is not supported");
    }
    spec_.kind = fallback.value_or(false) ? TokenizerKind::kSpm : TokenizerKind::kBpe;
    spec_.ignore_merges = ignore_merges.value_or(false);
    if (spec_.kind == TokenizerKind::kSpm && spec_.ignore_merges) {
      return model.Bad("ignore_merges", "is not supported together with byte_fallback");
    }
    return absl::OkStatus();
  }

  absl::Status UnknownPart(std::string_view field, const json& part) const {
    return root_.Bad(field,
                     absl::StrCat("has ", Quoted(part.dump(-1, ' ', true, json::error_handler_t::replace)),
                                  ", which EPIC does not know; it has the tokenizers of GPT-2, SmolLM, "
                                  "Qwen2, Llama 2 and 3 and Mistral"));
  }

  absl::Status ReadByteLevel() {
    for (const json* part : PartsOf(root_.Get("normalizer"), "normalizers")) {
      if (TypeOf(*part) != "NFC") return UnknownPart("normalizer", *part);
      spec_.nfc = true;
    }
    const std::vector<const json*> parts = PartsOf(root_.Get("pre_tokenizer"), "pretokenizers");
    if (parts.empty()) return root_.Bad("pre_tokenizer", "is missing");
    const json& last = *parts.back();
    if (TypeOf(last) != "ByteLevel" || Flag(last, "add_prefix_space", true) || parts.size() > 2) {
      return UnknownPart("pre_tokenizer", root_.Get("pre_tokenizer"));
    }
    const bool gpt2 = Flag(last, "use_regex", true);
    const json& first = *parts.front();
    if (parts.size() == 1 && gpt2) {
      spec_.pre = PreTokenizer::kGpt2;
    } else if (parts.size() == 2 && gpt2 && TypeOf(first) == "Digits" &&
               Flag(first, "individual_digits", false)) {
      spec_.pre = PreTokenizer::kSmolLm;
    } else if (parts.size() == 2 && !gpt2 && TypeOf(first) == "Split") {
      return ReadSplit(first);
    } else {
      return UnknownPart("pre_tokenizer", root_.Get("pre_tokenizer"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadSplit(const json& split) {
    const auto pattern = split.find("pattern");
    const std::string regex =
        pattern != split.end() && pattern->is_object() ? Text(*pattern, "Regex") : std::string();
    if (Text(split, "behavior") != "Isolated" || Flag(split, "invert", false)) {
      return UnknownPart("pre_tokenizer", split);
    }
    if (IsCl100kLike(regex, "\\p{N}")) {
      spec_.pre = PreTokenizer::kQwen2;
    } else if (IsCl100kLike(regex, "\\p{N}{1,3}")) {
      spec_.pre = PreTokenizer::kLlamaBpe;
    } else {
      return UnknownPart("pre_tokenizer", split);
    }
    return absl::OkStatus();
  }

  // Spaces become U+2581 either in the normaliser (older files) or in a Metaspace pre-tokeniser.
  absl::Status ReadSpmShape() {
    spec_.pre = PreTokenizer::kNone;
    bool replaces = false;
    for (const json* part : PartsOf(root_.Get("normalizer"), "normalizers")) {
      const std::string type = TypeOf(*part);
      const auto pattern = part->find("pattern");
      if (type == "Prepend" && Text(*part, "prepend") == kSpmSpace) {
        spec_.space_prefix = SpacePrefix::kEach;
      } else if (type == "Replace" && pattern != part->end() && pattern->is_object() &&
                 Text(*pattern, "String") == " " && Text(*part, "content") == kSpmSpace) {
        replaces = true;
      } else {
        return UnknownPart("normalizer", *part);
      }
    }
    for (const json* part : PartsOf(root_.Get("pre_tokenizer"), "pretokenizers")) {
      const std::string scheme = Text(*part, "prepend_scheme");
      const bool known = scheme == "first" || scheme == "always" || scheme == "never";
      if (TypeOf(*part) != "Metaspace" || Text(*part, "replacement") != kSpmSpace || !known ||
          Flag(*part, "split", true)) {
        return UnknownPart("pre_tokenizer", *part);
      }
      replaces = true;
      // Behind the normaliser's prefix, which runs first, there is nothing that lacks one.
      if (scheme == "never" || spec_.space_prefix == SpacePrefix::kEach) continue;
      spec_.space_prefix = scheme == "first" ? SpacePrefix::kFirstUnspaced : SpacePrefix::kEachUnspaced;
    }
    if (!replaces) return root_.Bad("normalizer", "does not replace spaces as SentencePiece does");
    return absl::OkStatus();
  }

  absl::Status AddToken(const JsonObject& object, std::string_view key, const std::string& text, uint64_t id,
                        TokenType type) {
    if (id >= files_.vocab) {
      return object.Bad(key, absl::StrCat("token ", Quoted(text), " has the id ", id, " and the embedding ",
                                          files_.vocab, " rows"));
    }
    if (present_[id] && spec_.tokens[id] != text) {
      return object.Bad(
          key, absl::StrCat("id ", id, " is given to ", Quoted(spec_.tokens[id]), " and ", Quoted(text)));
    }
    const auto [it, added] = ids_.emplace(text, static_cast<uint32_t>(id));
    if (!added && it->second != id) {
      return object.Bad(key, absl::StrCat("token ", Quoted(text), " has the ids ", it->second, " and ", id));
    }
    present_[id] = true;
    spec_.tokens[id] = text;
    spec_.types[id] = type;
    return absl::OkStatus();
  }

  absl::Status ReadVocabulary(const JsonObject& model) {
    const json& vocab = model.Get("vocab");
    if (!vocab.is_object() || vocab.empty()) return model.Bad("vocab", "must be an object with tokens");
    spec_.tokens.resize(files_.vocab);
    spec_.types.resize(files_.vocab, TokenType::kUnused);
    present_.resize(files_.vocab);
    ids_.reserve(vocab.size());
    for (const auto& [text, id] : vocab.items()) {
      if (!id.is_number_unsigned())
        return model.Bad("vocab", absl::StrCat("token ", Quoted(text), " has no id"));
      const bool byte = spec_.kind == TokenizerKind::kSpm && text.size() == 6 && text.starts_with("<0x") &&
                        text.back() == '>';
      EPIC_RETURN_IF_ERROR(
          AddToken(model, "vocab", text, id.get<uint64_t>(), byte ? TokenType::kByte : TokenType::kNormal));
    }
    return absl::OkStatus();
  }

  absl::Status ReadAddedTokens(const JsonObject& model) {
    const json& added = root_.Get("added_tokens");
    if (added.is_null()) return absl::OkStatus();
    if (!added.is_array()) return root_.Bad("added_tokens", "must be an array");
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> unknown, model.String("unk_token"));
    for (const json& each : added) {
      if (!each.is_object()) return root_.Bad("added_tokens", "must hold objects");
      const JsonObject token(files_.tokenizer_path, "added_tokens.", each);
      EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> content, token.String("content"));
      EPIC_ASSIGN_OR_RETURN(const std::optional<uint64_t> id, token.Uint("id"));
      EPIC_ASSIGN_OR_RETURN(const std::optional<bool> special, token.Bool("special"));
      if (!content.has_value() || content->empty() || !id.has_value()) {
        return token.Bad("content", "and id must be given");
      }
      for (std::string_view flag : {"single_word", "lstrip", "rstrip"}) {
        EPIC_ASSIGN_OR_RETURN(const std::optional<bool> set, token.Bool(flag));
        if (set.value_or(false)) {
          return token.Bad(flag,
                           absl::StrCat("of ", Quoted(*content), " is set, which EPIC does not support"));
        }
      }
      TokenType type = special.value_or(false) ? TokenType::kControl : TokenType::kUserDefined;
      if (spec_.kind == TokenizerKind::kSpm && content == unknown) type = TokenType::kUnknown;
      EPIC_RETURN_IF_ERROR(AddToken(root_, "added_tokens", *content, *id, type));
    }
    return absl::OkStatus();
  }

  void FillGaps() {
    for (size_t id = 0; id < spec_.tokens.size(); ++id) {
      if (!present_[id]) spec_.tokens[id] = absl::StrCat("[PAD", id, "]");
    }
  }

  absl::Status ReadMerges(const JsonObject& model) {
    const json& merges = model.Get("merges");
    if (!merges.is_array()) return model.Bad("merges", "must be an array");
    std::vector<std::pair<std::string, std::string>> pairs;
    pairs.reserve(merges.size());
    for (const json& merge : merges) {
      std::pair<std::string, std::string> pair;
      if (merge.is_string()) {
        const std::string& text = merge.get_ref<const std::string&>();
        const size_t space = text.find(' ', 1);
        if (space != std::string::npos) pair = {text.substr(0, space), text.substr(space + 1)};
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        pair = {merge[0].get<std::string>(), merge[1].get<std::string>()};
      }
      if (!ids_.contains(pair.first) || !ids_.contains(pair.second) ||
          !ids_.contains(pair.first + pair.second)) {
        return model.Bad("merges",
                         absl::StrCat("entry ", pairs.size(), " does not join two tokens to a third"));
      }
      pairs.push_back(std::move(pair));
    }
    if (spec_.kind == TokenizerKind::kBpe) {
      spec_.merges = std::move(pairs);
      return absl::OkStatus();
    }
    const absl::StatusOr<std::vector<float>> scores = SpmScoresFromMerges(spec_.tokens, spec_.types, pairs);
    if (!scores.ok()) return model.Bad("merges", ToStd(scores.status().message()));
    spec_.scores = *scores;
    return absl::OkStatus();
  }

  // The id of a token that tokenizer_config.json names, as a string or as an object with `content`.
  absl::StatusOr<std::optional<uint32_t>> NamedToken(std::string_view key, bool required) const {
    const json& value = config_.Get(key);
    if (value.is_null()) return std::optional<uint32_t>();
    const std::string text = value.is_object()   ? Text(value, "content")
                             : value.is_string() ? value.get<std::string>()
                                                 : std::string();
    const auto it = ids_.find(text);
    if (it != ids_.end()) return std::optional<uint32_t>(it->second);
    if (!required) return std::optional<uint32_t>();
    return config_.Bad(key, absl::StrCat("is ", Quoted(text), ", which is no token"));
  }

  absl::Status ReadSpecialIds() {
    EPIC_ASSIGN_OR_RETURN(spec_.bos, NamedToken("bos_token", true));
    EPIC_ASSIGN_OR_RETURN(spec_.eos, NamedToken("eos_token", true));
    EPIC_ASSIGN_OR_RETURN(spec_.unknown, NamedToken("unk_token", true));
    EPIC_ASSIGN_OR_RETURN(spec_.padding, NamedToken("pad_token", false));
    std::vector<uint32_t> more;
    for (uint32_t id : files_.eos_ids) {
      if (!spec_.eos.has_value()) spec_.eos = id;
      if (id != spec_.eos) more.push_back(id);
    }
    std::sort(more.begin(), more.end());
    more.erase(std::unique(more.begin(), more.end()), more.end());
    if (!more.empty()) spec_.eot = more.front();
    if (more.size() > 1) spec_.end_of_generation.assign(more.begin() + 1, more.end());
    return absl::OkStatus();
  }

  // What the template of a post-processor puts before and after a text.
  absl::Status ReadTemplate(bool* bos, bool* eos) const {
    for (const json* part : PartsOf(root_.Get("post_processor"), "processors")) {
      const std::string type = TypeOf(*part);
      if (type == "ByteLevel") continue;
      const auto single = part->find("single");
      if (type != "TemplateProcessing" || single == part->end() || !single->is_array()) {
        return UnknownPart("post_processor", *part);
      }
      bool text_seen = false;
      for (const json& item : *single) {
        if (item.is_object() && item.contains("SpecialToken")) *(text_seen ? eos : bos) = true;
        if (item.is_object() && item.contains("Sequence")) text_seen = true;
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadFlags() {
    bool bos = false, eos = false;
    EPIC_RETURN_IF_ERROR(ReadTemplate(&bos, &eos));
    EPIC_ASSIGN_OR_RETURN(const std::optional<bool> add_bos, config_.Bool("add_bos_token"));
    EPIC_ASSIGN_OR_RETURN(const std::optional<bool> add_eos, config_.Bool("add_eos_token"));
    spec_.add_bos = add_bos.value_or(bos);
    spec_.add_eos = add_eos.value_or(eos);
    if (spec_.add_bos && !spec_.bos.has_value())
      return config_.Bad("bos_token", "is missing though a BOS is to be added");
    if (spec_.add_eos && !spec_.eos.has_value())
      return config_.Bad("eos_token", "is missing though an EOS is to be added");
    return absl::OkStatus();
  }

  const HfTokenizerFiles& files_;
  const JsonObject root_;
  const JsonObject config_;
  TokenizerSpec& spec_;
  std::vector<bool> present_;  // by id
  absl::flat_hash_map<std::string, uint32_t> ids_;
};

}  // namespace

absl::StatusOr<TokenizerSpec> ReadHfTokenizer(const HfTokenizerFiles& files) {
  TokenizerSpec spec;
  EPIC_RETURN_IF_ERROR(Reader(files, &spec).Run());
  return spec;
}

}  // namespace epic
