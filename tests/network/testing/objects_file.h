// KV objects as a file between the processes of a test: for each one its layout and its layers, one behind
// the other. Header only; one thread. Tests and benches only.
#ifndef EPIC_TESTS_NETWORK_TESTING_OBJECTS_FILE_H_
#define EPIC_TESTS_NETWORK_TESTING_OBJECTS_FILE_H_

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/transport/testing/test_source.h"

namespace epic::network {

inline void WriteObjects(const std::string& path,
                         const std::vector<std::shared_ptr<const KvObject>>& objects) {
  std::ofstream out(path, std::ios::binary);
  for (const auto& object : objects) {
    const KvLayout layout = object->layout();
    out.write(reinterpret_cast<const char*>(&layout), sizeof(layout));
    for (uint32_t layer = 0; layer < layout.layers; ++layer) {
      const ByteSpan bytes = object->Layer(layer);
      out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
  }
  EPIC_CHECK(out.flush().good());
}

// Their regions in the source, in order. The same in every process that reads the file into a source of the
// same incarnation.
inline std::vector<std::shared_ptr<const transport::Region>> ReadObjects(const std::string& path,
                                                                         transport::TestSource* source) {
  std::vector<std::shared_ptr<const transport::Region>> regions;
  std::ifstream in(path, std::ios::binary);
  KvLayout layout;
  while (in.read(reinterpret_cast<char*>(&layout), sizeof(layout))) {
    std::vector<std::vector<std::byte>> layers(layout.layers);
    for (auto& bytes : layers) {
      bytes.resize(layout.LayerBytes());
      in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
      EPIC_CHECK(in.good());
    }
    regions.push_back(source->PutLayers(regions.size() + 1, layout, std::move(layers)));
  }
  return regions;
}

}  // namespace epic::network

#endif  // EPIC_TESTS_NETWORK_TESTING_OBJECTS_FILE_H_
