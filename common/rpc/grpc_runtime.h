// Keeps gRPC's library and its queue of callbacks for the life of the process. gRPC 1.51 ends both with the
// last channel or server, and cannot do so on the queue's own thread: a call's context holds its channel, so
// a client that lets go of everything in the end of its last call would abort the process there. Ending the
// library also waits up to 10 s for what is left. Whoever makes channels asks for this (MakeChannel in
// credentials.h). Any thread.
#ifndef EPIC_COMMON_RPC_GRPC_RUNTIME_H_
#define EPIC_COMMON_RPC_GRPC_RUNTIME_H_

namespace epic {

// The first call makes it so, later ones do nothing.
void KeepGrpcRunning();

}  // namespace epic

#endif  // EPIC_COMMON_RPC_GRPC_RUNTIME_H_
