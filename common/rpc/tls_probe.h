// Why two parts cannot talk, found by trying: gRPC says of most faults of TLS only that the connection
// closed.
//
// One connection of its own, without gRPC, in bounded time; for error messages, not for decisions. Free
// function, any thread; blocks. Nothing of OpenSSL is in this header.
#ifndef EPIC_COMMON_RPC_TLS_PROBE_H_
#define EPIC_COMMON_RPC_TLS_PROBE_H_

#include <cstdint>
#include <string>

#include "common/rpc/tls_material.h"

namespace epic {

struct TlsProbe {
  std::string address;                    // HOST:PORT
  const TlsMaterial* material = nullptr;  // of this process; null: it speaks plainly
  std::string expected_name;              // in the other side's certificate; empty: the host
  int64_t timeout_ms = 1000;
};

// As half a sentence about the other side. Empty when the fault is not one of TLS: nobody listens there, or
// all is well.
std::string FindTlsFault(const TlsProbe& probe);

}  // namespace epic

#endif  // EPIC_COMMON_RPC_TLS_PROBE_H_
