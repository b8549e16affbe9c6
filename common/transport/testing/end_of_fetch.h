// A listener that waits for the end of a fetch and looks at nothing else; fetch_log.h looks at all. For
// benches and for processes of tests.
#ifndef EPIC_COMMON_TRANSPORT_TESTING_END_OF_FETCH_H_
#define EPIC_COMMON_TRANSPORT_TESTING_END_OF_FETCH_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "common/status/ending.h"
#include "common/transport/transport.h"

namespace epic::transport {

class EndOfFetch final : public FetchListener {
 public:
  void OnRange(size_t, const absl::Status&, std::span<const uint32_t>) override {}
  void OnDone(const absl::Status& status) override { ending_.Set(status); }
  absl::Status Wait() { return ending_.Wait(); }

 private:
  Ending ending_;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_TESTING_END_OF_FETCH_H_
