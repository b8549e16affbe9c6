#include "services/engine/bench/sections.h"

namespace epic::engine_bench {
namespace {

constexpr Section kSections[] = {
    {"equality", "a link over whole chunks equals a full prefill (required)", true, CheckEquality},
    {"links-m", "time to the first token, full against legolink-16, 8 x 512 + 64", true, TimeLinksM},
    {"choices-m", "legolink-16 against cacheblend-0.15 and query-guided-16, 8 x 512 + 64", true,
     TimeChoicesM},
    {"links-l", "as links-m, 7 x 1024 + 64", false, TimeLinksL},
    {"choices-l", "as choices-m, 7 x 1024 + 64", false, TimeChoicesL},
    {"prefix-m", "legolink-0 over bos4 objects against one exact prefix as long, 8 x 512 + 64", false,
     TimePrefixM},
    {"prefix-l", "as prefix-m, 7 x 1024 + 64", false, TimePrefixL},
    {"overlap", "a link over objects that are being fetched at a stated rate, 8 x 512 + 64, one thread", true,
     TimeOverlap},
    {"compile", "tokens/s of 64 short chunks, one after another and at once", true, TimeCompiles},
    {"decode", "tokens/s of 1 and of 8 sequences behind 64 tokens", true, TimeDecode},
    {"decode-shared", "tokens/s of 8 sequences over the same 8 x 512 tokens, and over copies of them", false,
     TimeSharedDecode},
    {"sharing", "memory of 16 requests at once over the same 8 contexts", false, MeasureSharing},
    {"memory", "memory of a link by prompt length, up to the context's limit", false, MeasureLinkMemory},
    {"memory-full", "the same of a full prefill, up to 4096 + 64", false, MeasureFullMemory},
};

}  // namespace

std::span<const Section> Sections() { return kSections; }

}  // namespace epic::engine_bench
