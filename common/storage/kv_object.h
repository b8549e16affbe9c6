// KV objects: the keys and values that one compile of a context produced, immutable, shared by every reader.
//
// A KvObject is read through KvObject::Layer; whoever holds the shared_ptr holds a lease: the bytes stay
// where they are until the last holder lets go. Objects are made by an ObjectWriter of a KvStore
// (kv_store.h).
#ifndef EPIC_COMMON_STORAGE_KV_OBJECT_H_
#define EPIC_COMMON_STORAGE_KV_OBJECT_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/base/bytes.h"
#include "common/base/digest.h"
#include "common/storage/cache_id.h"

namespace epic {

enum class KvDtype : uint8_t { kF32 = 0, kBf16 = 1 };
constexpr size_t SizeOf(KvDtype dtype) { return dtype == KvDtype::kF32 ? 4 : 2; }

// The arithmetic of the compile. Part of an object's identity: a link reads objects of its own compute format
// only.
enum class ComputeFormat : uint8_t { kF32 = 0, kBf16 = 1 };

// What a compile put before the chunk and threw away (design of compile prefixes: none, bos, bos4, system).
enum class CompilePrefixKind : uint8_t { kNone = 0, kBos = 1, kBos4 = 2, kSystem = 3 };

// Shape of an object. Per layer one slab [2][kv_heads][tokens][head_dim], K first, then V.
struct KvLayout {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t tokens = 0;
  KvDtype dtype = KvDtype::kBf16;
  // Position of row 0 at compile time: the length of the dropped compile prefix. K is stored rotated at
  // first_position + row.
  uint32_t first_position = 0;

  uint64_t HeadBytes() const { return uint64_t{tokens} * head_dim * SizeOf(dtype); }
  uint64_t LayerBytes() const { return 2 * uint64_t{kv_heads} * HeadBytes(); }
  uint64_t TotalBytes() const { return layers * LayerBytes(); }
  auto operator<=>(const KvLayout&) const = default;
};

// Which compile of a context: digest over {compile prefix tokens, KV dtype, layout version, compute format}.
struct ObjectVariant {
  CompilePrefixKind prefix = CompilePrefixKind::kNone;
  Digest prefix_tokens;  // SHA-256 of the prefix's token ids as u32; zero for kNone
  KvDtype dtype = KvDtype::kBf16;
  ComputeFormat compute = ComputeFormat::kF32;

  auto operator<=>(const ObjectVariant&) const = default;
  // SHA-256(field("epic.object_variant.v1") prefix kind u8, prefix digest, dtype u8, layout version u32,
  // compute u8).
  Digest ToDigest() const;
};

struct ObjectKey {
  CacheId id;
  ObjectVariant variant;
  auto operator<=>(const ObjectKey&) const = default;
};

// One object in host memory. Whole and verified, or still on its way: read from a disk, pulled from a peer,
// or being compiled. Then its layers come in order, each whole and verified before it counts, and an error
// ends it for good. The last one counts only once whoever lends the bytes has confirmed that they were lent
// until then: what is computed from all layers may be shown. Thread-safe; a layer that is there never
// changes.
class KvObject {
 public:
  virtual ~KvObject() = default;
  virtual const KvLayout& layout() const = 0;
  // Hash of the object's block checksums: two compiles with the same bits have the same build. REQUIRES: the
  // last layer is there, unless whoever gave the object says that it was known before.
  virtual const Digest& build() const = 0;
  // The slab of one layer, aligned to at least 64 bytes. Shape: [2][kv_heads][tokens][head_dim].
  // REQUIRES: layer < layout().layers, and that layer is there.
  virtual ByteSpan Layer(uint32_t layer) const = 0;

  // How many layers are there, from 0 on. Never goes down. Cheap.
  virtual uint32_t ReadyLayers() const { return layout().layers; }
  // Returns when layer `layer` is there, at once for whole objects. Blocks for as long as whoever brings it
  // may take, who bounds that. REQUIRES: layer < layout().layers.
  // Errors: what ended the object; it has no more layers then than it had, and should be let go of.
  virtual absl::Status WaitLayer(uint32_t /*layer*/) const { return absl::OkStatus(); }
  // Calls `ready` once, as soon as WaitLayer(layer) would not block: within this call or on the thread that
  // brings the layers or ends them, where it must be cheap and must not block. For those who must not block
  // either.
  virtual void OnLayer(uint32_t /*layer*/, std::function<void()> ready) const { ready(); }
};

// True when no value is NaN or infinite. Shape: any number of values of `dtype`.
bool AllFinite(ByteSpan values, KvDtype dtype);
// The same for every key and value of an object.
bool AllFinite(const KvObject& object);

}  // namespace epic

#endif  // EPIC_COMMON_STORAGE_KV_OBJECT_H_
