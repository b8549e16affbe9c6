#include "common/config/tenant_quotas.h"

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace epic {
namespace {

TEST(TenantQuotasTest, ReadsWhatItSays) {
  const auto quotas = ParseTenantQuotas("a=64MiB/1GiB,b/c=0/10");
  ASSERT_OK(quotas);
  ASSERT_EQ(quotas->size(), 2u);
  EXPECT_EQ((*quotas)[0].tenant, "a");
  EXPECT_EQ((*quotas)[0].memory_bytes, uint64_t{64} << 20);
  EXPECT_EQ((*quotas)[0].disk_bytes, uint64_t{1} << 30);
  EXPECT_EQ((*quotas)[1].tenant, "b/c");
  EXPECT_EQ((*quotas)[1].memory_bytes, 0u);
  EXPECT_EQ((*quotas)[1].disk_bytes, 10u);
  EXPECT_TRUE(ParseTenantQuotas("")->empty());
}

TEST(TenantQuotasTest, RefusesWhatIsNoList) {
  for (const char* text :
       {"a", "a=", "a=1", "a=1/", "a=/1", "a=1/2,", ",a=1/2", "a=1/2,a=3/4", "a=-1/2", "a=1x/2"}) {
    EXPECT_FALSE(ParseTenantQuotas(text).ok()) << text;
  }
}

}  // namespace
}  // namespace epic
