#include "common/base/request_ids.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "common/base/random.h"

namespace epic {
namespace {

constexpr size_t kMaxBytes = 128;

bool IsSafe(std::string_view id) {
  if (id.empty() || id.size() > kMaxBytes) return false;
  return std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '_' || c == ':' || c == '-';
  });
}

}  // namespace

std::string RequestIds::TakeOrMake(std::string_view sent) {
  if (IsSafe(sent)) return std::string(sent);
  Rng rng(seed_ + made_.fetch_add(1) * 0x9E3779B97F4A7C15ull);
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "req_%016llx%08llx", static_cast<unsigned long long>(rng.Next()),
                static_cast<unsigned long long>(rng.Next() >> 32));
  return text.data();
}

}  // namespace epic
