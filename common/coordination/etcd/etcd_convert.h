// Between etcd's wire and the types of coordinator.h; the only place that knows both, errors included. Free
// functions.
#ifndef EPIC_COMMON_COORDINATION_ETCD_ETCD_CONVERT_H_
#define EPIC_COMMON_COORDINATION_ETCD_ETCD_CONVERT_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "common/coordination/coordinator.h"
#include "etcd/v3/etcd.pb.h"

namespace epic {

// What a range means on the wire.
struct EtcdRange {
  std::string key;
  std::string end;  // empty: one key
};
EtcdRange ToEtcd(const KeyRange& range);
// Where it is not applied, the keys of its guards are read in the same step.
etcdserverpb::TxnRequest ToEtcd(const Transaction& transaction);
KeyValue FromEtcd(const etcdserverpb::KeyValue& item);
KeyChange FromEtcd(const etcdserverpb::Event& event);
// `guards`: how many the transaction had.
TransactionResult FromEtcd(const etcdserverpb::TxnResponse& response, size_t guards);

// Errors of calls, as coordinator.h lists them; `endpoint` is named where it does not answer.
absl::Status FromEtcdStatus(const grpc::Status& status, const std::string& endpoint);

}  // namespace epic

#endif  // EPIC_COMMON_COORDINATION_ETCD_ETCD_CONVERT_H_
