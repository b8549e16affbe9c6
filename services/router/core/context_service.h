// ContextApi: creates contexts and has them compiled, reads, lists, changes and deletes them.
//
// State: none of its own; records are the store's and compiles the compiler's. A create is a task that lives
// in the executor, the registry and the compiler until it ends. Create never blocks; the other calls may
// block on the disk. Thread-safe.
#ifndef EPIC_SERVICES_ROUTER_CORE_CONTEXT_SERVICE_H_
#define EPIC_SERVICES_ROUTER_CORE_CONTEXT_SERVICE_H_

#include <memory>
#include <string>

#include "services/router/core/api.h"
#include "services/router/core/router_parts.h"

namespace epic {

class ContextService final : public ContextApi {
 public:
  explicit ContextService(const RouterParts& parts);

  void Create(const RequestScope& scope, CreateContextRequest request, CreateDone done) override;
  absl::StatusOr<ContextRecord> Get(const RequestScope& scope, const std::string& id) override;
  absl::StatusOr<ContextPage> List(const RequestScope& scope, const ListContextsRequest& request) override;
  absl::StatusOr<ContextRecord> Patch(const RequestScope& scope, const std::string& id,
                                      const PatchContextRequest& request) override;
  absl::Status Delete(const RequestScope& scope, const std::string& id) override;
  void Erase(const RequestScope& scope, const std::string& id, EraseDone done) override;

  // Compiles what the last run left `compiling`, one after another in the background.
  void Redrive(const std::string& tenant);

 private:
  class CreateTask;
  class RedriveTask;

  const std::shared_ptr<const RouterParts> parts_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_CORE_CONTEXT_SERVICE_H_
