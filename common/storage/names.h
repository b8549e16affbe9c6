// The names of the enums of common/storage, as the API, its metrics and the tools spell them. Pure.
#ifndef EPIC_COMMON_STORAGE_NAMES_H_
#define EPIC_COMMON_STORAGE_NAMES_H_

#include <string_view>

#include "common/storage/kv_store.h"

namespace epic {

std::string_view NameOf(ContextState state);
std::string_view NameOf(Pin pin);
std::string_view NameOf(Durability durability);
std::string_view NameOf(CompilePrefixKind kind);
std::string_view NameOf(MissCause cause);

}  // namespace epic

#endif  // EPIC_COMMON_STORAGE_NAMES_H_
