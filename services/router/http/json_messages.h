// Messages and their content parts out of a JSON tree. Shared by chat, contexts and templates. Only .cc files
// of this folder include this header. Pure functions.
#ifndef EPIC_SERVICES_ROUTER_HTTP_JSON_MESSAGES_H_
#define EPIC_SERVICES_ROUTER_HTTP_JSON_MESSAGES_H_

#include <vector>

#include "services/router/core/api.h"
#include "services/router/http/json_parse.h"

namespace epic {

// The field "messages" of `fields`, which must be there. Errors go to `fields`.
std::vector<ChatMessage> ReadMessages(JsonFields& fields);

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_HTTP_JSON_MESSAGES_H_
