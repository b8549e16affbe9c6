// Images of slabs whose bytes follow from a seed, and reads that compare. Tests only.
#ifndef EPIC_SERVICES_KV_STORE_TESTING_SLAB_IMAGES_H_
#define EPIC_SERVICES_KV_STORE_TESTING_SLAB_IMAGES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "services/kv_store/core/aligned_buffer.h"
#include "services/kv_store/core/slab_store.h"

namespace epic::kv_store {

struct TestImage {
  SlabShape shape;
  std::vector<std::string> slabs;

  static TestImage Of(uint64_t seed, uint32_t layers, uint64_t layer_bytes) {
    const uint64_t alignment = layer_bytes < kSlabPageBytes ? 64 : kSlabPageBytes;
    TestImage image{.shape = {.layers = layers,
                              .layer_bytes = layer_bytes,
                              .stride = (layer_bytes + alignment - 1) / alignment * alignment},
                    .slabs = {}};
    Rng rng(seed);
    for (uint32_t layer = 0; layer < layers; ++layer) {
      std::string slab(layer_bytes, '\0');
      for (char& byte : slab) byte = static_cast<char>(rng.Next());
      image.slabs.push_back(std::move(slab));
    }
    return image;
  }
  std::vector<ByteSpan> spans() const {
    std::vector<ByteSpan> spans;
    for (const std::string& slab : slabs) spans.push_back(AsBytes(slab));
    return spans;
  }
};

// Reads layers and compares; fails the test where bytes or order are wrong.
inline absl::Status ReadAndCompare(SlabStore* store, uint64_t number, const TestImage& image,
                                   LayerRange layers) {
  AlignedBuffer out(image.shape.ReadBytes(layers));
  uint32_t next = layers.begin;
  const absl::Status status =
      store->Read(number, image.shape, layers, out.bytes(), [&](uint32_t layer, ByteSpan slab) {
        EXPECT_EQ(layer, next++) << "layers come in order";
        EXPECT_TRUE(AsText(slab) == image.slabs[layer]) << "wrong bytes in layer " << layer;
        const uint64_t at = layer * image.shape.stride - image.shape.PageBegin(layers.begin);
        EXPECT_EQ(slab.data(), out.bytes().data() + at) << "in the caller's memory";
        return absl::OkStatus();
      });
  if (status.ok()) {
    EXPECT_EQ(next, layers.end);
  }
  return status;
}

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TESTING_SLAB_IMAGES_H_
