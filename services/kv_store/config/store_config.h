// What the settings (common/config) say of a store, in the store's own options. Free functions.
#ifndef EPIC_SERVICES_KV_STORE_CONFIG_STORE_CONFIG_H_
#define EPIC_SERVICES_KV_STORE_CONFIG_STORE_CONFIG_H_

#include <string>

#include "common/base/clock.h"
#include "common/config/config.h"
#include "services/kv_store/embedded_store.h"

namespace epic::kv_store {

// `clock` outlives the store.
EmbeddedStoreOptions StoreOptionsOf(const StoreSettings& settings, const Clock* clock);

// Of the hand-over to processes of this host: the setting, or shm.sock in the data folder.
std::string ShmSocketOf(const StoreSettings& settings);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CONFIG_STORE_CONFIG_H_
