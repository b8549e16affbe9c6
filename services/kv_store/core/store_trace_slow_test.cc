// As store_trace_test.cc, with more seeds.
#include <gtest/gtest.h>

#include "services/kv_store/testing/store_trace.h"

namespace epic::kv_store {
namespace {

TEST(StoreTraceSlowTest, TheStoreAnswersAsTheModelAllows) { RunTraces(10'001, 2'000); }

}  // namespace
}  // namespace epic::kv_store
