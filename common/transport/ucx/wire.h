// The messages between a reader and a peer that serves, as headers of active messages; the bytes of a piece
// are the body. A table of them stands above each struct.
//
// Every header may come from a liar: Decode checks each length and number against the limits below and gives
// nullopt for anything else. What the numbers mean (whose fetch, which range) is checked by those who use
// them. Little-endian, without padding. Free functions; thread-safe.
#ifndef EPIC_COMMON_TRANSPORT_UCX_WIRE_H_
#define EPIC_COMMON_TRANSPORT_UCX_WIRE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/bytes.h"
#include "common/transport/transport.h"

namespace epic::transport::wire {

inline constexpr uint32_t kMagic = 0x58554345;  // "ECUX"
inline constexpr uint16_t kVersion = 1;
// Of a piece: its bytes, and its blocks, whose checksums are in the header.
inline constexpr uint64_t kMaxPieceBytes = uint64_t{1} << 20;
inline constexpr uint32_t kMaxPieceBlocks = 512;
// Of one Open or Wait.
inline constexpr uint32_t kMaxLayers = 512;
inline constexpr uint32_t kMaxStatusText = 512;

enum class Kind : uint8_t {
  kHello = 1,      // reader -> peer, first on a lane
  kWelcome = 2,    // peer -> reader, the answer
  kOpen = 3,       // reader: a fetch begins
  kWait = 4,       // reader: more layers of it
  kLayer = 5,      // peer: a layer can be read, or never
  kRead = 6,       // reader: give me a piece
  kPiece = 7,      // peer: here it is, or why not
  kConfirm = 8,    // reader: was the lease held until now? The fetch is over
  kConfirmed = 9,  // peer: the answer
  kEnd = 10,       // reader: the fetch is over; no answer
  kPing = 11,      // reader: are you there?
  kPong = 12,      // peer: yes
};

using Secret = std::array<std::byte, 16>;

// magic u32, version u16, secret [16]
struct Hello {
  Secret secret{};
};
// magic u32, version u16, incarnation u64
struct Welcome {
  uint64_t incarnation = 0;
};
// fetch u64, lease {incarnation u64, holder u64, number u64}, count u32, layers u32[count]
struct Open {
  uint64_t fetch = 0;
  LeaseName lease;
  std::vector<uint32_t> layers;
};
// fetch u64, count u32, layers u32[count]
struct Wait {
  uint64_t fetch = 0;
  std::vector<uint32_t> layers;
};
// fetch u64, layer u32, size u64, address u64, status
struct Layer {
  uint64_t fetch = 0;
  uint32_t layer = kAllLayers;  // kAllLayers: of the whole fetch, and never OK
  uint64_t size = 0;            // bytes that the peer has of it
  uint64_t address = 0;         // in the peer's memory, for lanes with RMA; otherwise 0
  absl::Status status;

  static constexpr uint32_t kAllLayers = ~uint32_t{0};
};
// fetch u64, request u64, layer u32, offset u64, length u32, sums_only u8
struct Read {
  uint64_t fetch = 0;
  uint64_t request = 0;  // never used twice on a lane
  uint32_t layer = 0;
  uint64_t offset = 0;
  uint32_t length = 0;     // 1 to kMaxPieceBytes
  bool sums_only = false;  // the checksums only: the bytes come by RMA
};
// request u64, layer u32, offset u64, length u32, incarnation u64, count u32, crcs u32[count], status
struct Piece {
  uint64_t request = 0;
  uint32_t layer = 0;
  uint64_t offset = 0;
  uint32_t length = 0;
  uint64_t incarnation = 0;
  std::vector<uint32_t> crcs;  // of its blocks
  absl::Status status;         // not OK: no body, no checksums
};
// fetch u64
struct Confirm {
  uint64_t fetch = 0;
};
// fetch u64, held u8
struct Confirmed {
  uint64_t fetch = 0;
  bool held = false;
};
// fetch u64
struct End {
  uint64_t fetch = 0;
};
// number u64
struct Ping {
  uint64_t number = 0;
};
// number u64
struct Pong {
  uint64_t number = 0;
};

// A status goes as: code u8, our own code + 1 or 0 u8, length u16, text. REQUIRES, all: within the limits.
std::string Encode(const Hello& message);
std::string Encode(const Welcome& message);
std::string Encode(const Open& message);
std::string Encode(const Wait& message);
std::string Encode(const Layer& message);
std::string Encode(const Read& message);
std::string Encode(const Piece& message);
std::string Encode(const Confirm& message);
std::string Encode(const Confirmed& message);
std::string Encode(const End& message);
std::string Encode(const Ping& message);
std::string Encode(const Pong& message);

std::optional<Hello> DecodeHello(ByteSpan header);
std::optional<Welcome> DecodeWelcome(ByteSpan header);
std::optional<Open> DecodeOpen(ByteSpan header);
std::optional<Wait> DecodeWait(ByteSpan header);
std::optional<Layer> DecodeLayer(ByteSpan header);
std::optional<Read> DecodeRead(ByteSpan header);
std::optional<Piece> DecodePiece(ByteSpan header);
std::optional<Confirm> DecodeConfirm(ByteSpan header);
std::optional<Confirmed> DecodeConfirmed(ByteSpan header);
std::optional<End> DecodeEnd(ByteSpan header);
std::optional<Ping> DecodePing(ByteSpan header);
std::optional<Pong> DecodePong(ByteSpan header);

}  // namespace epic::transport::wire

#endif  // EPIC_COMMON_TRANSPORT_UCX_WIRE_H_
