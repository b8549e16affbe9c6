// What a store and a client on the same host say to each other over their unix socket, version 1.
// Little-endian. Free functions without state; every decoder takes hostile bytes. Not here: sockets
// (unix_socket.h), who says what when (server.h, client.h).
//
//   offset  size   field of a frame
//        0     4   magic "EPSH"
//        4     2   version, 1
//        6     2   type (FrameType)
//        8     4   number: an answer has that of its request
//       12     4   body bytes, at most 4096 from a client and 2 MiB from a store
//       16         body
//
//   type          from     body
//   1 hello       client   nothing; the first frame
//   2 welcome     store    incarnation u64, arena bytes u64; the arena's file comes with it (SCM_RIGHTS)
//   3 refused     store    reason: u32 length and text; the connection ends
//   4 lease       client   u8 1 for zero copy, tenant (u32 length, text), Cache ID 36, prefix u8, prefix
//   digest 32,
//                          dtype u8, compute u8, then the layout: layers, kv heads, head dim, tokens, first
//                          position u32 each (its dtype is the variant's)
//   5 answer      store    LeaseAnswer: outcome u8, and
//                            leased:  lease u64, generation u64, build digest 32, L u32 and L layer offsets
//                            u64,
//                                     b u32 and b block checksums u32 (object_codec.h)
//                            miss:    cause u8
//                            refused: reason: u32 length and text
//   6 confirm     client   lease u64: ends a lease for copying
//   7 confirmed   store    u8 1 when readers of the key still get what the lease was for
//   8 release     client   lease u64: ends a zero-copy lease; not answered
#ifndef EPIC_COMMON_STORAGE_SHM_WIRE_H_
#define EPIC_COMMON_STORAGE_SHM_WIRE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/base/digest.h"
#include "common/storage/kv_object.h"
#include "common/storage/kv_store.h"

namespace epic::shm {

inline constexpr uint16_t kWireVersion = 1;
inline constexpr size_t kFrameHeaderBytes = 16;
inline constexpr uint32_t kMaxRequestBytes = 4096;
inline constexpr uint32_t kMaxAnswerBytes = 2 << 20;
inline constexpr uint32_t kMaxTenantBytes = 256;
inline constexpr uint32_t kMaxReasonBytes = 1024;
// Blocks of an object that fit an answer: 64 GiB in blocks of 256 KiB. Others take another way.
inline constexpr uint32_t kMaxBlocks = 1 << 18;

enum class FrameType : uint16_t {
  kHello = 1,
  kWelcome = 2,
  kRefused = 3,
  kLease = 4,
  kAnswer = 5,
  kConfirm = 6,
  kConfirmed = 7,
  kRelease = 8,
};

struct FrameHeader {
  FrameType type = FrameType::kHello;
  uint32_t number = 0;
  uint32_t body_bytes = 0;
  bool operator==(const FrameHeader&) const = default;
};

struct Welcome {
  uint64_t incarnation = 0;
  uint64_t arena_bytes = 0;
  bool operator==(const Welcome&) const = default;
};

struct LeaseRequest {
  bool zero_copy = false;
  std::string tenant;
  ObjectKey key;
  KvLayout layout;  // its dtype is that of key.variant
  bool operator==(const LeaseRequest&) const = default;
};

enum class LeaseOutcome : uint8_t {
  kLeased = 0,
  kMiss = 1,
  kMustCopy = 2,  // it is there, but readers hold as much of the arena as they may
  kRefused = 3,   // the call is wrong, or cannot be answered on this way
};

// Where an object is in the arena, and how to tell that what was read there is it.
struct LeasedObject {
  uint64_t lease = 0;  // of this connection
  uint64_t generation = 0;
  Digest build;
  std::vector<uint64_t> layer_offsets;  // Shape: [layers]; in the arena's file, multiples of 64
  std::vector<uint32_t> block_crcs;     // Shape: [BlockCount(layout)]
  bool operator==(const LeasedObject&) const = default;
};

struct LeaseAnswer {
  LeaseOutcome outcome = LeaseOutcome::kMiss;
  MissCause cause = MissCause::kNeverStored;  // kMiss
  std::string reason;                         // kRefused
  LeasedObject object;                        // kLeased
  bool operator==(const LeaseAnswer&) const = default;
};

// A whole frame. REQUIRES: the body has at most kMaxAnswerBytes.
std::string EncodeFrame(FrameType type, uint32_t number, std::string_view body);
// Errors: InvalidArgument (not a frame, unknown type, a body over the bound), Unimplemented (another
// version). REQUIRES: bytes.size() == kFrameHeaderBytes.
absl::StatusOr<FrameHeader> DecodeFrameHeader(ByteSpan bytes, uint32_t max_body_bytes);

// Bodies. Decoders fail with InvalidArgument and take nothing but what the encoder makes.
std::string EncodeWelcome(const Welcome& welcome);
absl::StatusOr<Welcome> DecodeWelcome(ByteSpan body);
std::string EncodeReason(std::string_view reason);  // cut at kMaxReasonBytes
absl::StatusOr<std::string> DecodeReason(ByteSpan body);
// REQUIRES: the tenant has at most kMaxTenantBytes, layout.dtype == key.variant.dtype, the Cache ID is not
// empty.
std::string EncodeLeaseRequest(const LeaseRequest& request);
// Also validates the layout.
absl::StatusOr<LeaseRequest> DecodeLeaseRequest(ByteSpan body);
// REQUIRES: an object of at most kMaxBlocks blocks.
std::string EncodeLeaseAnswer(const LeaseAnswer& answer);
absl::StatusOr<LeaseAnswer> DecodeLeaseAnswer(ByteSpan body);
std::string EncodeLeaseNumber(uint64_t lease);
absl::StatusOr<uint64_t> DecodeLeaseNumber(ByteSpan body);
std::string EncodeConfirmed(bool current);
absl::StatusOr<bool> DecodeConfirmed(ByteSpan body);

}  // namespace epic::shm

#endif  // EPIC_COMMON_STORAGE_SHM_WIRE_H_
