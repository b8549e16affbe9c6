#include "services/model/tokenizer/bpe.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/model/utf8.h"

namespace epic {
namespace {

// Pieces up to this many bytes are merged by scanning; longer ones with a heap.
constexpr size_t kShortPiece = 32;

bool IsPrintableByte(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

// Code points below 0x144 to the byte they stand for, or -1. Bytes that are not printable in Latin-1 are
// numbered from U+0100 on, in order.
std::array<int16_t, 0x144> MakeAlphabet() {
  std::array<int16_t, 0x144> alphabet;
  alphabet.fill(-1);
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    alphabet[IsPrintableByte(byte) ? byte : next++] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

// The bytes of a text in the alphabet; nullopt when a character is not in it.
std::optional<std::string> DecodeAlphabet(std::string_view text) {
  static const std::array<int16_t, 0x144> alphabet = MakeAlphabet();
  std::string bytes;
  for (size_t position = 0; position < text.size();) {
    const Utf8Step step = DecodeUtf8(text, position);
    if (!step.valid || step.code_point >= alphabet.size() || alphabet[step.code_point] < 0)
      return std::nullopt;
    bytes.push_back(static_cast<char>(alphabet[step.code_point]));
    position += step.length;
  }
  return bytes;
}

absl::Status MergeError(size_t index, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer: merges[", index, "] ", std::string(what)));
}

}  // namespace

std::string BytesOfByteLevelText(std::string_view text) {
  return DecodeAlphabet(text).value_or(std::string(text));
}

bool IsByteLevelText(std::string_view text) { return DecodeAlphabet(text).has_value(); }

absl::StatusOr<BpeEncoder> BpeEncoder::Create(const TokenizerSpec& spec, std::span<const TokenType> types,
                                              const std::vector<std::string>& bytes) {
  BpeEncoder encoder;
  for (TokenId id = 0; id < bytes.size(); ++id) {
    const bool ordinary = types[id] != TokenType::kControl && types[id] != TokenType::kUserDefined;
    if (ordinary && bytes[id].size() == 1 && IsByteLevelText(spec.tokens[id])) {
      encoder.byte_ids_[static_cast<uint8_t>(bytes[id][0])] = id;
    }
  }
  if (std::all_of(encoder.byte_ids_.begin(), encoder.byte_ids_.end(),
                  [](TokenId id) { return id == kNoToken; })) {
    return absl::InvalidArgumentError(
        "tokenizer: tokens has no single-byte token, so it is no byte-level BPE");
  }
  if (absl::Status status = encoder.AddMerges(spec, types); !status.ok()) return status;
  encoder.AddWholePieces(spec, types, bytes);
  return encoder;
}

absl::Status BpeEncoder::AddMerges(const TokenizerSpec& spec, std::span<const TokenType> types) {
  absl::flat_hash_map<std::string_view, TokenId> by_text;
  by_text.reserve(spec.tokens.size());
  for (TokenId id = 0; id < spec.tokens.size(); ++id) {
    by_text.emplace(spec.tokens[id], id);
  }
  const auto is_control = [&](const auto& it) { return types[it->second] == TokenType::kControl; };
  merges_.reserve(spec.merges.size());
  std::string merged;
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    const auto& [left, right] = spec.merges[i];
    merged.assign(left).append(right);
    const auto left_it = by_text.find(left);
    const auto right_it = by_text.find(right);
    const auto merged_it = by_text.find(merged);
    if (left_it == by_text.end()) return MergeError(i, "has a left part that is no token");
    if (right_it == by_text.end()) return MergeError(i, "has a right part that is no token");
    if (merged_it == by_text.end()) return MergeError(i, "makes a text that is no token");
    // The reference takes the text of a control token out before anything merges, so this joins nothing
    // there; and text of users must not become one.
    if (is_control(left_it) || is_control(right_it) || is_control(merged_it)) continue;
    // The last of equal pairs counts, as in the reference.
    merges_[uint64_t{left_it->second} << 32 | right_it->second] = {static_cast<uint32_t>(i),
                                                                   merged_it->second};
  }
  return absl::OkStatus();
}

void BpeEncoder::AddWholePieces(const TokenizerSpec& spec, std::span<const TokenType> types,
                                const std::vector<std::string>& bytes) {
  whole_.reserve(bytes.size());
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < bytes.size(); ++id) {
    const bool ordinary = types[id] == TokenType::kNormal || types[id] == TokenType::kUserDefined;
    if (!ordinary || bytes[id].empty() || !IsByteLevelText(spec.tokens[id])) continue;
    if (spec.ignore_merges) {
      whole_.emplace(bytes[id], id);
      continue;
    }
    ids.clear();
    MergeAny(bytes[id], ids);
    if (ids.size() == 1) whole_.emplace(bytes[id], ids[0]);
  }
}

BpeEncoder::Merge BpeEncoder::Find(TokenId left, TokenId right) const {
  const auto it = merges_.find(uint64_t{left} << 32 | right);
  return it == merges_.end() ? Merge{} : it->second;
}

void BpeEncoder::Encode(std::string_view piece, std::vector<TokenId>& out) const {
  if (const auto it = whole_.find(piece); it != whole_.end()) {
    out.push_back(it->second);
    return;
  }
  MergeAny(piece, out);
}

void BpeEncoder::MergeAny(std::string_view piece, std::vector<TokenId>& out) const {
  piece.size() <= kShortPiece ? MergeShort(piece, out) : MergeLong(piece, out);
}

void BpeEncoder::MergeShort(std::string_view piece, std::vector<TokenId>& out) const {
  TokenId ids[kShortPiece];
  Merge next[kShortPiece];  // of ids[i] with ids[i + 1]
  size_t count = 0;
  for (const char byte : piece) {
    const TokenId id = byte_ids_[static_cast<uint8_t>(byte)];
    if (id != kNoToken) ids[count++] = id;
  }
  for (size_t i = 0; i + 1 < count; ++i) next[i] = Find(ids[i], ids[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (next[i].rank < next[best].rank) best = i;
    }
    if (next[best].rank == kNoRank) break;
    ids[best] = next[best].id;
    std::copy(ids + best + 2, ids + count, ids + best + 1);
    std::copy(next + best + 1, next + count - 1, next + best);
    --count;
    if (best + 1 < count) next[best] = Find(ids[best], ids[best + 1]);
    if (best > 0) next[best - 1] = Find(ids[best - 1], ids[best]);
  }
  out.insert(out.end(), ids, ids + count);
}

// Symbols in a doubly linked list; a heap of the pairs that may merge, with entries that turn stale.
struct BpeEncoder::LinkedMerger {
  static constexpr uint32_t kEnd = std::numeric_limits<uint32_t>::max();
  struct Symbol {
    TokenId id;  // kNoToken: merged into the one before
    uint32_t previous;
    uint32_t next;
    Merge merge;  // with the next symbol
  };

  explicit LinkedMerger(const BpeEncoder& encoder) : encoder(encoder) {}

  void Offer(uint32_t at) {
    Symbol& symbol = symbols[at];
    symbol.merge = symbol.next == kEnd ? Merge{} : encoder.Find(symbol.id, symbols[symbol.next].id);
    // Rank first, then position: the smallest is the lowest rank, leftmost.
    if (symbol.merge.rank != kNoRank) heap.push(uint64_t{symbol.merge.rank} << 32 | at);
  }

  void Run() {
    for (uint32_t i = 0; i + 1 < symbols.size(); ++i) Offer(i);
    while (!heap.empty()) {
      const uint64_t top = heap.top();
      heap.pop();
      const auto at = static_cast<uint32_t>(top);
      Symbol& symbol = symbols[at];
      if (symbol.id == kNoToken || symbol.merge.rank != top >> 32) continue;
      Symbol& gone = symbols[symbol.next];
      symbol.id = symbol.merge.id;
      symbol.next = gone.next;
      gone.id = kNoToken;
      if (symbol.next != kEnd) symbols[symbol.next].previous = at;
      Offer(at);
      if (symbol.previous != kEnd) Offer(symbol.previous);
    }
  }

  const BpeEncoder& encoder;
  std::vector<Symbol> symbols;
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<uint64_t>> heap;
};

void BpeEncoder::MergeLong(std::string_view piece, std::vector<TokenId>& out) const {
  LinkedMerger merger(*this);
  merger.symbols.reserve(piece.size());
  for (const char byte : piece) {
    const TokenId id = byte_ids_[static_cast<uint8_t>(byte)];
    if (id == kNoToken) continue;
    const auto at = static_cast<uint32_t>(merger.symbols.size());
    merger.symbols.push_back({id, at == 0 ? LinkedMerger::kEnd : at - 1, at + 1, {}});
  }
  if (merger.symbols.empty()) return;
  merger.symbols.back().next = LinkedMerger::kEnd;
  merger.Run();
  for (uint32_t at = 0; at != LinkedMerger::kEnd; at = merger.symbols[at].next)
    out.push_back(merger.symbols[at].id);
}

}  // namespace epic
