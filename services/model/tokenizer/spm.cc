#include "services/model/tokenizer/spm.h"

#include <cmath>
#include <limits>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/model/utf8.h"

namespace epic {
namespace {

constexpr uint32_t kEnd = std::numeric_limits<uint32_t>::max();

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::optional<uint8_t> ByteOfSpmText(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return std::nullopt;
  const int high = HexDigit(text[3]);
  const int low = HexDigit(text[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<uint8_t>(high << 4 | low);
}

absl::StatusOr<SpmEncoder> SpmEncoder::Create(const TokenizerSpec& spec, std::span<const TokenType> types,
                                              const std::vector<std::string>& texts) {
  if (spec.scores.size() != texts.size()) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer: scores has ", spec.scores.size(),
                                                   " entries where tokens has ", texts.size()));
  }
  SpmEncoder encoder;
  size_t bytes_found = 0;
  std::array<bool, 256> seen{};
  for (TokenId id = 0; id < texts.size(); ++id) {
    if (std::isnan(spec.scores[id])) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer: scores[", id, "] is not a number"));
    }
    if (types[id] == TokenType::kByte) {
      const std::optional<uint8_t> byte = ByteOfSpmText(texts[id]);
      if (!byte) {
        return absl::InvalidArgumentError(
            absl::StrCat("tokenizer: tokens[", id, "] is a byte token but its text is not <0xNN>"));
      }
      bytes_found += seen[*byte] ? 0 : 1;
      seen[*byte] = true;
      encoder.byte_ids_[*byte] = id;
      continue;
    }
    const bool piece = types[id] == TokenType::kNormal || types[id] == TokenType::kUserDefined ||
                       types[id] == TokenType::kUnused;
    if (!piece || texts[id].empty()) continue;
    encoder.pieces_.emplace(texts[id], Piece{id, spec.scores[id], types[id] == TokenType::kUnused});
    encoder.longest_piece_bytes_ = std::max(encoder.longest_piece_bytes_, texts[id].size());
  }
  encoder.has_bytes_ = bytes_found == 256;
  if (!encoder.has_bytes_ && !spec.unknown) {
    return absl::InvalidArgumentError(
        "tokenizer: unknown is absent and tokens lacks byte tokens, so some texts would have no ids");
  }
  if (!encoder.has_bytes_ && types[*spec.unknown] == TokenType::kControl) {
    return absl::InvalidArgumentError(
        "tokenizer: unknown is a control token, which text of users could then produce; byte tokens are "
        "needed");
  }
  encoder.unknown_ = spec.unknown.value_or(0);
  return encoder;
}

struct SpmEncoder::Merger {
  struct Symbol {
    uint32_t begin;
    uint32_t length;  // 0: merged into the one before
    uint32_t previous;
    uint32_t next;
  };
  struct Candidate {
    float score;
    uint32_t left;
    uint32_t length;
    bool operator<(const Candidate& other) const {
      return score < other.score || (score == other.score && left > other.left);
    }
  };

  Merger(const SpmEncoder& encoder, std::string_view text) : encoder(encoder), text(text) {
    symbols.reserve(text.size());
    for (size_t position = 0; position < text.size();) {
      const auto at = static_cast<uint32_t>(symbols.size());
      const size_t length = Utf8Length(text[position]);
      symbols.push_back({static_cast<uint32_t>(position), static_cast<uint32_t>(length),
                         at == 0 ? kEnd : at - 1, position + length < text.size() ? at + 1 : kEnd});
      position += length;
    }
  }

  std::string_view TextOf(const Symbol& symbol) const { return text.substr(symbol.begin, symbol.length); }

  void Offer(uint32_t left) {
    if (left == kEnd || symbols[left].next == kEnd) return;
    const Symbol& symbol = symbols[left];
    const uint32_t length = symbol.length + symbols[symbol.next].length;
    if (length > encoder.longest_piece_bytes_) return;
    const std::string_view joined = text.substr(symbol.begin, length);
    const auto it = encoder.pieces_.find(joined);
    if (it == encoder.pieces_.end()) return;
    heap.push({it->second.score, left, length});
    if (it->second.unused) made_of[joined] = symbol.length;
  }

  void Run() {
    for (uint32_t i = 0; i < symbols.size(); ++i) Offer(i);
    while (!heap.empty()) {
      const Candidate top = heap.top();
      heap.pop();
      Symbol& symbol = symbols[top.left];
      if (symbol.length == 0 || symbol.next == kEnd) continue;
      Symbol& gone = symbols[symbol.next];
      if (symbol.length + gone.length != top.length) continue;
      symbol.length = top.length;
      symbol.next = gone.next;
      gone.length = 0;
      if (symbol.next != kEnd) symbols[symbol.next].previous = top.left;
      Offer(symbol.previous);
      Offer(top.left);
    }
  }

  const SpmEncoder& encoder;
  std::string_view text;
  std::vector<Symbol> symbols;
  std::priority_queue<Candidate> heap;
  // The length of the left part of the last pair that made an unused piece.
  absl::flat_hash_map<std::string_view, uint32_t> made_of;
};

void SpmEncoder::EmitPiece(std::string_view symbol, bool& after_unknown, std::vector<TokenId>& out) const {
  const auto it = pieces_.find(symbol);
  if (it != pieces_.end()) {
    out.push_back(it->second.id);
    after_unknown = false;
    return;
  }
  if (has_bytes_) {
    for (const char byte : symbol) out.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
    return;
  }
  // Neighbouring unknown characters are one unknown token.
  if (!after_unknown) out.push_back(unknown_);
  after_unknown = true;
}

void SpmEncoder::EmitSymbol(std::string_view symbol, const Merger& merger, bool& after_unknown,
                            std::vector<TokenId>& out) const {
  std::vector<std::string_view> stack = {symbol};
  while (!stack.empty()) {
    const std::string_view top = stack.back();
    stack.pop_back();
    const auto it = merger.made_of.empty() ? merger.made_of.end() : merger.made_of.find(top);
    if (it == merger.made_of.end()) {
      EmitPiece(top, after_unknown, out);
    } else {
      stack.push_back(top.substr(it->second));
      stack.push_back(top.substr(0, it->second));
    }
  }
}

void SpmEncoder::Encode(std::string_view text, std::vector<TokenId>& out) const {
  if (text.empty()) return;
  Merger merger(*this, text);
  merger.Run();
  bool after_unknown = false;
  for (uint32_t at = 0; at != kEnd; at = merger.symbols[at].next) {
    EmitSymbol(merger.TextOf(merger.symbols[at]), merger, after_unknown, out);
  }
}

}  // namespace epic
