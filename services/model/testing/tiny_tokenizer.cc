#include "services/model/testing/tiny_tokenizer.h"

#include <array>
#include <cstdio>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/check.h"

namespace epic::testing {

const char kTinyChatTemplate[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% endif %}";

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kWords[] = {" the", " and",  " of",    " to",  " in",  " is",
                                       "er",   "ing",   " that",  "with", " for", " that",
                                       "tion", "hello", " world", "list", "un",   "ion"};
constexpr char kSpmSpace[] = "\u2581";

std::string Utf8(uint32_t code_point) {
  std::string out;
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else {
    out += static_cast<char>(0xC0 | (code_point >> 6));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  }
  return out;
}

// The byte-level alphabet: printable characters of ASCII and Latin-1 stand for themselves, the other bytes in
// order for U+0100 and up.
std::array<std::string, 256> ByteAlphabet() {
  std::array<std::string, 256> alphabet;
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    alphabet[b] = Utf8(itself ? b : next++);
  }
  return alphabet;
}

void AddToken(TokenizerSpec* spec, std::string text, TokenType type) {
  spec->tokens.push_back(std::move(text));
  spec->types.push_back(type);
}

// The characters of a word in the spelling of the vocabulary.
std::vector<std::string> Spell(std::string_view word, const std::array<std::string, 256>* alphabet) {
  std::vector<std::string> symbols;
  for (char c : word) {
    if (alphabet != nullptr) {
      symbols.push_back((*alphabet)[static_cast<uint8_t>(c)]);
    } else {
      symbols.push_back(c == ' ' ? kSpmSpace : std::string(1, c));
    }
  }
  return symbols;
}

// Adds every prefix of every word as a token, in the order in which merges from the left make them.
void AddWords(const std::array<std::string, 256>* alphabet, TokenizerSpec* spec,
              std::vector<std::pair<std::string, std::string>>* merges) {
  std::set<std::string> known(spec->tokens.begin(), spec->tokens.end());
  for (std::string_view word : kWords) {
    const std::vector<std::string> symbols = Spell(word, alphabet);
    std::string prefix = symbols[0];
    for (size_t i = 1; i < symbols.size(); ++i) {
      std::string merged = prefix + symbols[i];
      if (known.insert(merged).second) {
        AddToken(spec, merged, TokenType::kNormal);
        merges->emplace_back(prefix, symbols[i]);
      }
      prefix = std::move(merged);
    }
  }
}

void MakeBpe(TokenizerSpec* spec) {
  for (const char* text : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    AddToken(spec, text, TokenType::kControl);
  }
  const std::array<std::string, 256> alphabet = ByteAlphabet();
  for (const std::string& symbol : alphabet) AddToken(spec, symbol, TokenType::kNormal);
  AddWords(&alphabet, spec, &spec->merges);
  spec->bos = 0;
  spec->eos = 0;
  spec->eot = 2;
  spec->padding = 0;
  spec->nfc = spec->pre == PreTokenizer::kQwen2;
  spec->ignore_merges = spec->pre == PreTokenizer::kLlamaBpe;
  spec->add_bos = spec->pre == PreTokenizer::kLlamaBpe;
}

void MakeSpm(TokenizerSpec* spec) {
  AddToken(spec, "<unk>", TokenType::kUnknown);
  AddToken(spec, "<s>", TokenType::kControl);
  AddToken(spec, "</s>", TokenType::kControl);
  for (int b = 0; b < 256; ++b) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", b);
    AddToken(spec, text, TokenType::kByte);
  }
  AddToken(spec, kSpmSpace, TokenType::kNormal);
  for (char c = '!'; c <= '~'; ++c) AddToken(spec, std::string(1, c), TokenType::kNormal);
  std::vector<std::pair<std::string, std::string>> merges;
  AddWords(nullptr, spec, &merges);
  // Merged tokens by falling score in the order made; everything else lower.
  float score = 0.0f;
  spec->scores.assign(spec->tokens.size() - merges.size(), -1e6f);
  for (size_t i = 0; i < merges.size(); ++i) spec->scores.push_back(score -= 1.0f);
  for (const char* text : {"<|im_start|>", "<|im_end|>"}) {
    AddToken(spec, text, TokenType::kControl);
    spec->scores.push_back(-1e6f);
  }
  spec->bos = 1;
  spec->eos = 2;
  spec->eot = static_cast<uint32_t>(spec->tokens.size()) - 1;
  spec->unknown = 0;
  spec->space_prefix = SpacePrefix::kEach;
  spec->add_bos = true;
}

std::string_view NameOfPre(PreTokenizer pre) {
  switch (pre) {
    case PreTokenizer::kGpt2:
      return "gpt-2";
    case PreTokenizer::kSmolLm:
      return "smollm";
    case PreTokenizer::kQwen2:
      return "qwen2";
    case PreTokenizer::kLlamaBpe:
      return "llama-bpe";
    case PreTokenizer::kNone:
      break;
  }
  EPIC_CHECK(false && "no name for this pre-tokenizer");
  return "";
}

Json ByteLevel(bool use_regex) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json PreTokenizerJson(PreTokenizer pre) {
  const std::string number = pre == PreTokenizer::kLlamaBpe ? "\\p{N}{1,3}" : "\\p{N}";
  const std::string regex = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" + number +
                            "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  switch (pre) {
    case PreTokenizer::kGpt2:
      return ByteLevel(true);
    case PreTokenizer::kSmolLm:
      return {{"type", "Sequence"},
              {"pretokenizers",
               Json::array({{{"type", "Digits"}, {"individual_digits", true}}, ByteLevel(true)})}};
    case PreTokenizer::kQwen2:
    case PreTokenizer::kLlamaBpe:
      return {{"type", "Sequence"},
              {"pretokenizers", Json::array({{{"type", "Split"},
                                              {"pattern", {{"Regex", regex}}},
                                              {"behavior", "Isolated"},
                                              {"invert", false}},
                                             ByteLevel(false)})}};
    case PreTokenizer::kNone:
      return nullptr;
  }
  return nullptr;
}

// SentencePiece's merges as converters write them: every split of a token into two tokens, tokens by score.
Json SpmMerges(const TokenizerSpec& spec) {
  std::map<std::string, uint32_t> ids;
  for (uint32_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.types[i] == TokenType::kNormal) ids[spec.tokens[i]] = i;
  }
  std::multimap<float, Json, std::greater<>> by_score;
  for (const auto& [text, id] : ids) {
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const std::string left = text.substr(0, cut), right = text.substr(cut);
      if (ids.contains(left) && ids.contains(right)) by_score.emplace(spec.scores[id], left + " " + right);
    }
  }
  Json merges = Json::array();
  for (auto& [score, merge] : by_score) merges.push_back(std::move(merge));
  return merges;
}

Json ModelJson(const TokenizerSpec& spec) {
  const bool spm = spec.kind == TokenizerKind::kSpm;
  Json vocab = Json::object();
  for (uint32_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.types[i] != TokenType::kUnused) vocab[spec.tokens[i]] = i;
  }
  Json merges = Json::array();
  for (const auto& [left, right] : spec.merges) merges.push_back(left + " " + right);
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", spm ? Json("<unk>") : Json(nullptr)},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", spm},
                {"byte_fallback", spm},
                {"ignore_merges", spec.ignore_merges}};
  model["vocab"] = std::move(vocab);
  model["merges"] = spm ? SpmMerges(spec) : std::move(merges);
  return model;
}

}  // namespace

TokenizerSpec MakeTinyTokenizer(TokenizerKind kind, PreTokenizer pre, uint32_t vocab) {
  TokenizerSpec spec;
  spec.kind = kind;
  spec.pre = kind == TokenizerKind::kSpm ? PreTokenizer::kNone : pre;
  kind == TokenizerKind::kSpm ? MakeSpm(&spec) : MakeBpe(&spec);
  EPIC_CHECK(spec.tokens.size() <= vocab);
  while (spec.tokens.size() < vocab) {
    AddToken(&spec, "[PAD" + std::to_string(spec.tokens.size()) + "]", TokenType::kUnused);
    if (kind == TokenizerKind::kSpm) spec.scores.push_back(-1e6f);
  }
  return spec;
}

void AddTokenizerToGguf(const TokenizerSpec& spec, GgufWriter* gguf) {
  const bool spm = spec.kind == TokenizerKind::kSpm;
  gguf->SetString("tokenizer.ggml.model", spm ? "llama" : "gpt2");
  if (!spm) gguf->SetString("tokenizer.ggml.pre", NameOfPre(spec.pre));
  gguf->SetStrings("tokenizer.ggml.tokens", spec.tokens);
  std::vector<int32_t> types;
  for (TokenType type : spec.types) types.push_back(static_cast<int32_t>(type));
  gguf->SetI32s("tokenizer.ggml.token_type", types);
  if (spm) gguf->SetF32s("tokenizer.ggml.scores", spec.scores);
  std::vector<std::string> merges;
  for (const auto& [left, right] : spec.merges) merges.push_back(left + " " + right);
  if (!spm) gguf->SetStrings("tokenizer.ggml.merges", merges);
  const std::pair<const char*, std::optional<uint32_t>> ids[] = {
      {"tokenizer.ggml.bos_token_id", spec.bos},
      {"tokenizer.ggml.eos_token_id", spec.eos},
      {"tokenizer.ggml.eot_token_id", spec.eot},
      {"tokenizer.ggml.unknown_token_id", spec.unknown},
      {"tokenizer.ggml.padding_token_id", spec.padding}};
  for (const auto& [key, id] : ids) {
    if (id.has_value()) gguf->SetU32(key, *id);
  }
  gguf->SetBool("tokenizer.ggml.add_bos_token", spec.add_bos);
  gguf->SetBool("tokenizer.ggml.add_space_prefix", spec.space_prefix != SpacePrefix::kNever);
  gguf->SetString("tokenizer.chat_template", kTinyChatTemplate);
}

std::string TokenizerJsonOf(const TokenizerSpec& spec) {
  const bool spm = spec.kind == TokenizerKind::kSpm;
  Json added = Json::array();
  for (uint32_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.types[i] != TokenType::kControl && spec.types[i] != TokenType::kUnknown) continue;
    added.push_back({{"id", i},
                     {"content", spec.tokens[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  Json normalizer = nullptr;
  if (spec.nfc) normalizer = {{"type", "NFC"}};
  if (spm) {
    const Json prepend = {{"type", "Prepend"}, {"prepend", kSpmSpace}};
    const Json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpmSpace}};
    normalizer = {{"type", "Sequence"}, {"normalizers", Json::array({prepend, replace})}};
  }
  Json root = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"added_tokens", added}};
  root["normalizer"] = normalizer;
  root["pre_tokenizer"] = PreTokenizerJson(spec.pre);
  root["post_processor"] = nullptr;
  root["decoder"] = spm ? Json(nullptr) : ByteLevel(true);
  root["model"] = ModelJson(spec);
  return root.dump();
}

std::string TokenizerConfigJsonOf(const TokenizerSpec& spec) {
  Json root = {{"add_bos_token", spec.add_bos},
               {"add_eos_token", spec.add_eos},
               {"clean_up_tokenization_spaces", false}};
  const auto name = [&](const char* key, std::optional<uint32_t> id) {
    root[key] = id.has_value() ? Json(spec.tokens[*id]) : Json(nullptr);
  };
  name("bos_token", spec.bos);
  name("eos_token", spec.eos);
  name("unk_token", spec.unknown);
  name("pad_token", spec.padding);
  root["chat_template"] = kTinyChatTemplate;
  return root.dump();
}

}  // namespace epic::testing
