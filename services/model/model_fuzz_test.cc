// Random byte flips, insertions and truncations of model files: a load ends in a Model or in an error,
// whatever the bytes, and within a bound of memory. Seeds are fixed; a failing one is in the message.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/model/model.h"
#include "services/model/testing/allocation_meter.h"
#include "services/model/testing/gguf_writer.h"
#include "services/model/testing/tiny_model.h"
#include "services/model/tokenizer.h"

namespace epic {
namespace {

using epic::testing::GgufWriter;
using epic::testing::ReadFileOrDie;
using epic::testing::TempDir;
using epic::testing::TinyModel;
using epic::testing::TinyModelSpec;
using epic::testing::WriteFileOrDie;

TinyModelSpec Small(TokenizerKind tokenizer) {
  TinyModelSpec spec;
  spec.layers = 1;
  spec.hidden = spec.ffn = 32;
  spec.heads = 2;
  spec.kv_heads = 1;
  spec.tokenizer = tokenizer;
  spec.matrix_type = TensorType::kBf16;
  return spec;
}

// One to four changes within the first `reach` bytes.
std::string Mutate(std::string bytes, uint64_t reach, Rng* rng) {
  const uint64_t changes = 1 + rng->Below(4);
  for (uint64_t i = 0; i < changes && !bytes.empty(); ++i) {
    const uint64_t at = rng->Below(std::min<uint64_t>(reach, bytes.size()));
    switch (rng->Below(6)) {
      case 0:
        bytes[at] = static_cast<char>(rng->Next());
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng->Below(8)));
        break;
      case 2:
        bytes[at] = static_cast<char>(rng->Below(2) == 0 ? 0 : 0xFF);
        break;
      case 3:
        bytes.insert(at, 1 + rng->Below(8), static_cast<char>(rng->Next()));
        break;
      case 4:
        bytes.erase(at, 1 + rng->Below(8));
        break;
      default:
        if (rng->Below(4) == 0) bytes.resize(at);
        break;
    }
  }
  return bytes;
}

// Loads and, where that works, touches everything a model gives.
void LoadAndUse(const std::string& path, uint64_t file_bytes) {
  epic::testing::ResetAllocationPeak();
  const auto model = Model::Load(path);
  EXPECT_LE(epic::testing::AllocationPeakBytes(), 64 * file_bytes + (4u << 20));
  if (!model.ok()) {
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << model.status();
    EXPECT_FALSE(model.status().message().empty());
    return;
  }
  const ModelConfig& config = (*model)->config();
  std::vector<float> row(config.hidden);
  DequantizeRow((*model)->embedding(), config.vocab - 1, row);
  DequantizeRow((*model)->head(), config.vocab - 1, row);
  DequantizeRow((*model)->layer(config.layers - 1).q, 0, row);
  const auto tokenizer = Tokenizer::Create((*model)->tokenizer_spec());
  if (tokenizer.ok()) {
    EXPECT_OK((*tokenizer)->Encode("hello the world 123"));
  }
}

class ModelFuzzTest : public ::testing::TestWithParam<TokenizerKind> {
 protected:
  TempDir dir_;
};

TEST_P(ModelFuzzTest, GgufFilesLoadOrFailCleanly) {
  std::vector<GgufWriter::Field> fields;
  const std::string good = TinyModel(Small(GetParam())).Gguf().Finish(&fields);
  const uint64_t header = fields.back().offset;
  const std::string path = dir_.path() + "/model.gguf";
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    // The tables of tokens are most of the header; half of the runs stay before and after them.
    const bool tail = rng.Below(2) == 0;
    std::string bytes = tail ? good.substr(0, header - 2000) + Mutate(good.substr(header - 2000), 2000, &rng)
                             : Mutate(good, rng.Below(2) == 0 ? 1000 : header, &rng);
    WriteFileOrDie(path, bytes);
    if (bytes.empty()) continue;
    LoadAndUse(path, bytes.size());
    if (HasFailure()) return;
  }
}

TEST_P(ModelFuzzTest, FoldersLoadOrFailCleanly) {
  const std::string folder = dir_.path() + "/model";
  TinyModel(Small(GetParam())).WriteHuggingFace(folder);
  const std::pair<const char*, int> files[] = {{"config.json", 400},
                                               {"tokenizer.json", 400},
                                               {"tokenizer_config.json", 100},
                                               {"generation_config.json", 50},
                                               {"model.safetensors", 400}};
  for (const auto& [name, iterations] : files) {
    const std::string path = folder + "/" + name;
    const std::string good = ReadFileOrDie(path);
    for (int seed = 1; seed <= iterations; ++seed) {
      SCOPED_TRACE(std::string(name) + " seed " + std::to_string(seed));
      Rng rng(static_cast<uint64_t>(seed));
      const std::string bytes = Mutate(good, std::min<uint64_t>(good.size(), 20000), &rng);
      WriteFileOrDie(path, bytes);
      LoadAndUse(folder, bytes.size() + 100000);
      if (HasFailure()) return;
    }
    WriteFileOrDie(path, good);
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, ModelFuzzTest,
                         ::testing::Values(TokenizerKind::kBpe, TokenizerKind::kSpm));

}  // namespace
}  // namespace epic
