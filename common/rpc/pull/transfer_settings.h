// What the settings transport.* (common/config) say, in the options of those who serve and pull. Pure.
#ifndef EPIC_COMMON_RPC_PULL_TRANSFER_SETTINGS_H_
#define EPIC_COMMON_RPC_PULL_TRANSFER_SETTINGS_H_

#include "common/config/config.h"
#include "common/rpc/pull/transfers.h"
#include "common/transport/transport.h"
#include "common/transport/ucx/ucx_settings.h"

namespace epic {

// REQUIRES, all: LoadConfig accepted the settings.
TransferOptions TransferOptionsOf(const TransportSettings& settings);
transport::UcxSettings UcxSettingsOf(const TransportSettings& settings);
// Whether transport.paths names it.
bool Names(const TransportSettings& settings, transport::PathKind path);

}  // namespace epic

#endif  // EPIC_COMMON_RPC_PULL_TRANSFER_SETTINGS_H_
