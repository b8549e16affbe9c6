#include "common/coordination/etcd/etcd_convert.h"

#include "common/base/absl_std.h"
#include "common/status/error.h"

namespace epic {
namespace {

// The least key above all that begin with `prefix`; one zero byte, which means the end of all keys, where
// there is none.
std::string EndOfPrefix(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 0xFF) prefix.pop_back();
  if (prefix.empty()) return std::string(1, '\0');
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

void SetComparison(const Guard& guard, etcdserverpb::Compare* compare) {
  compare->set_key(guard.key);
  compare->set_result(etcdserverpb::Compare::EQUAL);
  switch (guard.kind) {
    case Guard::Kind::kAbsent:
    case Guard::Kind::kCreatedAt:
      compare->set_target(etcdserverpb::Compare::CREATE);
      compare->set_create_revision(guard.revision);  // 0: absent
      break;
    case Guard::Kind::kModifiedAt:
      compare->set_target(etcdserverpb::Compare::MOD);
      compare->set_mod_revision(guard.revision);
      break;
    case Guard::Kind::kValueIs:
      compare->set_target(etcdserverpb::Compare::VALUE);
      compare->set_value(guard.value);
      break;
  }
}

}  // namespace

EtcdRange ToEtcd(const KeyRange& range) {
  if (!range.is_prefix) return {range.key, {}};
  return {range.key.empty() ? std::string(1, '\0') : range.key, EndOfPrefix(range.key)};
}

etcdserverpb::TxnRequest ToEtcd(const Transaction& transaction) {
  etcdserverpb::TxnRequest request;
  for (const Guard& guard : transaction.guards) {
    SetComparison(guard, request.add_compare());
    request.add_failure()->mutable_request_range()->set_key(guard.key);
  }
  for (const Change& change : transaction.changes) {
    if (change.is_put) {
      etcdserverpb::PutRequest* put = request.add_success()->mutable_request_put();
      put->set_key(change.range.key);
      put->set_value(change.value);
      put->set_lease(change.lease);
    } else {
      EtcdRange range = ToEtcd(change.range);
      etcdserverpb::DeleteRangeRequest* deletion = request.add_success()->mutable_request_delete_range();
      deletion->set_key(std::move(range.key));
      deletion->set_range_end(std::move(range.end));
    }
  }
  return request;
}

KeyValue FromEtcd(const etcdserverpb::KeyValue& item) {
  return {item.key(), item.value(), item.create_revision(), item.mod_revision(), item.lease()};
}

KeyChange FromEtcd(const etcdserverpb::Event& event) {
  return {event.type() == etcdserverpb::Event::PUT, FromEtcd(event.kv())};
}

TransactionResult FromEtcd(const etcdserverpb::TxnResponse& response, size_t guards) {
  TransactionResult result;
  result.applied = response.succeeded();
  result.revision = response.header().revision();
  if (result.applied) return result;
  result.found.resize(guards);
  for (int i = 0; i < response.responses_size() && static_cast<size_t>(i) < guards; ++i) {
    const etcdserverpb::RangeResponse& range = response.responses(i).response_range();
    if (range.kvs_size() > 0) result.found[i] = FromEtcd(range.kvs(0));
  }
  return result;
}

absl::Status FromEtcdStatus(const grpc::Status& status, const std::string& endpoint) {
  const std::string& message = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return absl::OkStatus();
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::FAILED_PRECONDITION:
      return Error(ErrorCode::kInvalidRequest, message);
    case grpc::StatusCode::NOT_FOUND:
      return Error(ErrorCode::kLeaseEnded, "the lease has ended: take another", "lease");
    case grpc::StatusCode::OUT_OF_RANGE:
      return absl::OutOfRangeError(ToAbsl(message));
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return Error(ErrorCode::kDeadline, "the coordination store at " + endpoint + " did not answer in time");
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      if (message.find("space exceeded") != std::string::npos) {
        return Error(ErrorCode::kStorageFull,
                     "the coordination store is full: compact and defragment it, and clear its alarm");
      }
      return Error(ErrorCode::kQueueFull, "the coordination store is busy: try again later");
    default:
      return Error(ErrorCode::kCoordinationUnavailable,
                   "the coordination store at " + endpoint + " does not answer: " + message);
  }
}

}  // namespace epic
