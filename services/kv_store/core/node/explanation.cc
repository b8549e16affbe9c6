#include "services/kv_store/core/node/explanation.h"

#include <algorithm>
#include <array>

namespace epic::kv_store {
namespace {

constexpr std::array<std::string_view, 13> kNames = {
    "in_memory",    "on_disk",    "no_context", "context_deleted", "context_expired",
    "never_stored", "evicted",    "dropped",    "layout_mismatch", "checksum",
    "io_error",     "old_format", "no_memory"};

std::string Count(uint64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string Span(int64_t ms) {
  if (ms < 10'000) return std::to_string(std::max<int64_t>(ms, 0)) + " ms";
  if (ms < 600'000) return std::to_string(ms / 1000) + " s";
  return std::to_string(ms / 60'000) + " min";
}

std::string TextOf(const KvLayout& layout) {
  return Count(layout.layers, "layer") + " of " + Count(layout.kv_heads, "head") + " of " +
         std::to_string(layout.head_dim) + ", " + Count(layout.tokens, "token") + " from position " +
         std::to_string(layout.first_position) + ", " + (layout.dtype == KvDtype::kBf16 ? "bf16" : "f32");
}

std::string PinText(Pin pin) {
  if (pin == Pin::kNone) return "";
  return pin == Pin::kSoft ? ", pinned softly" : ", pinned";
}

std::string StandingText(const EvictionStanding& standing) {
  std::string text = "idle for " + Span(standing.idle_ms) + " in the " + std::string(standing.queue) +
                     " queue with " + Count(standing.uses, "use") + PinText(standing.pin);
  if (standing.over_quota()) text += ", its tenant over its quota";
  return text;
}

// "where it is: how it stands", for what is there.
std::string PlaceText(const Explanation& e) {
  std::string text =
      e.tiers.in_memory ? (e.tiers.on_disk ? "in memory and on disk" : "in memory only") : "on disk";
  const std::optional<EvictionStanding>& standing = e.tiers.in_memory ? e.memory : e.disk;
  if (standing.has_value()) text += ", " + StandingText(*standing);
  if (e.leases > 0) {
    text += "; " + Count(e.leases, "lease") + " keep it in memory";
  } else if (e.held) {
    text += "; a reader or the writer to disk holds it in memory";
  }
  return text;
}

std::string WhenText(const Explanation& e, int64_t now_ms) {
  return e.gone_at_ms.has_value() ? " " + Span(now_ms - *e.gone_at_ms) + " ago" : "";
}

std::string WritingText(const Explanation& e) {
  if (!e.writing.has_value()) return "; compile it again";
  const Reservations::Writing& writing = *e.writing;
  return "; " + (writing.source.empty() ? "somebody" : writing.source) + " has been writing it for " +
         Span(writing.age_ms) + ", " + std::to_string(writing.layers_finished) + " of " +
         Count(writing.layers, "layer") + " arrived, last sign of life " + Span(writing.silent_ms) + " ago";
}

std::string GoneText(const Explanation& e, int64_t now_ms) {
  const std::string when = WhenText(e, now_ms);
  switch (e.verdict) {
    case Verdict::kEvicted:
      return "it was evicted from memory and disk" + when + " for others";
    case Verdict::kDropped:
      return "it was deleted" + when + ", its context was not";
    case Verdict::kChecksum:
      return "its bytes on disk were damaged, and it was dropped" + when;
    case Verdict::kIoError:
      return "the disk did not give it back, and it was dropped" + when;
    case Verdict::kOldFormat:
      return "it was stored in a format that this version does not read";
    default:
      return "no object of this variant was stored, as far as this node remembers";
  }
}

}  // namespace

std::string_view NameOf(Verdict verdict) { return kNames[static_cast<size_t>(verdict)]; }

std::string SentenceOf(const Explanation& e, int64_t now_ms) {
  switch (e.verdict) {
    case Verdict::kNoContext:
      return "this node knows no such context; create it, or ask the node that has it";
    case Verdict::kContextDeleted:
      return "the context was deleted; create it again to use it";
    case Verdict::kContextExpired:
      return "the context has expired; create it again to use it";
    case Verdict::kInMemory:
      return PlaceText(e);
    case Verdict::kOnDisk:
      return PlaceText(e) + "; it is read to memory when it is asked for";
    case Verdict::kNoMemory:
      return PlaceText(e) + "; reading it needs " + std::to_string(e.memory_needed_bytes) +
             " bytes, which what is leased or being written does not leave of the " +
             std::to_string(e.memory_capacity_bytes) +
             " bytes of host memory; release leases or raise the store's memory";
    case Verdict::kLayoutMismatch:
      return PlaceText(e) + ", with " + TextOf(e.tiers.layout) + ", and not with " +
             TextOf(e.wanted.value_or(KvLayout{})) + " as asked for" + WritingText(e);
    default:
      return GoneText(e, now_ms) + WritingText(e);
  }
}

}  // namespace epic::kv_store
