#include "services/engine/testing/bare_products.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "common/testing/status_matchers.h"

namespace epic::testing {
namespace {

ModelConfig Config() {
  ModelConfig config;
  config.layers = 3;
  config.hidden = 48;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.ffn = 80;
  config.vocab = 100;
  return config;
}

TEST(BareProductsTest, APrefillMultipliesEveryRowInEveryLayerAndOneInTheLastAndTheHead) {
  const ModelConfig config = Config();
  const double q = 64, kv = 64, hidden = 48, ffn = 80;
  const double beyond = q * hidden + hidden * 2 * ffn + ffn * hidden;  // output, gate and up, down
  for (const auto& [tokens, panel] : {std::pair{7u, 7u}, {7u, 3u}, {6u, 2u}, {1u, 512u}}) {
    const double rows = tokens;
    const double expected = 2 * (rows * 2 * ((q + kv) * hidden + beyond) + rows * kv * hidden + q * hidden +
                                 beyond + 100 * hidden);
    EXPECT_EQ(FlopOf(PrefillProducts(config, tokens, panel)), expected) << tokens << " in " << panel;
  }
}

TEST(BareProductsTest, PanelsMeetTheSameMatricesAndAMatrixHasOneShape) {
  const auto once = PrefillProducts(Config(), 4, 4);
  const auto thrice = PrefillProducts(Config(), 12, 4);
  std::map<size_t, std::pair<size_t, size_t>> shapes;
  for (const ProductShape& product : once) shapes[product.matrix] = {product.outputs, product.inputs};
  // Four in each of two layers, five in the last, and the head.
  EXPECT_EQ(shapes.size(), 14u);
  for (const ProductShape& product : thrice) {
    ASSERT_TRUE(shapes.contains(product.matrix));
    EXPECT_EQ(shapes[product.matrix], std::pair(product.outputs, product.inputs));
  }
  EXPECT_EQ(thrice.size(), 2 * (8 + 1) + 14u);
}

TEST(BareProductsTest, RunsInTheFormatThatIsFasterHere) {
  ASSERT_OK_AND_ASSIGN(const DType format, FasterBareFormat(Config(), 2));
  ASSERT_OK_AND_ASSIGN(const auto products, BareProducts::Create(Config(), format, 2));
  for (const uint32_t tokens : {1u, 5u, 9u}) {
    ASSERT_OK_AND_ASSIGN(const double seconds, products->Run(PrefillProducts(Config(), tokens, 4)));
    EXPECT_GT(seconds, 0);
  }
}

}  // namespace
}  // namespace epic::testing
