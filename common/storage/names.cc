#include "common/storage/names.h"

#include <array>

namespace epic {
namespace {

// Names are in the order of their enum.
template <typename Enum, size_t kCount>
std::string_view NameIn(const std::array<std::string_view, kCount>& names, Enum value) {
  return names[static_cast<size_t>(value)];
}

constexpr std::array<std::string_view, 3> kStates = {"compiling", "ready", "failed"};
static_assert(kStates.size() == 1 + static_cast<size_t>(ContextState::kFailed));
constexpr std::array<std::string_view, 3> kPins = {"none", "soft", "hard"};
static_assert(kPins.size() == 1 + static_cast<size_t>(Pin::kHard));
constexpr std::array<std::string_view, 3> kDurabilities = {"one", "replicas", "object"};
static_assert(kDurabilities.size() == 1 + static_cast<size_t>(Durability::kObject));
constexpr std::array<std::string_view, 4> kPrefixes = {"none", "bos", "bos4", "system"};
static_assert(kPrefixes.size() == 1 + static_cast<size_t>(CompilePrefixKind::kSystem));
constexpr std::array<std::string_view, 9> kCauses = {"never_stored",    "evicted",   "deleted",
                                                     "layout_mismatch", "checksum",  "io_error",
                                                     "old_format",      "no_memory", "disk_slow"};
static_assert(kCauses.size() == 1 + static_cast<size_t>(MissCause::kDiskSlow));

}  // namespace

std::string_view NameOf(ContextState state) { return NameIn(kStates, state); }
std::string_view NameOf(Pin pin) { return NameIn(kPins, pin); }
std::string_view NameOf(Durability durability) { return NameIn(kDurabilities, durability); }
std::string_view NameOf(CompilePrefixKind kind) { return NameIn(kPrefixes, kind); }
std::string_view NameOf(MissCause cause) { return NameIn(kCauses, cause); }

}  // namespace epic
