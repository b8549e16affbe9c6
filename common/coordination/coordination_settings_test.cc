#include "common/coordination/coordination_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace epic {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::StatusIs;

TEST(CoordinationSettingsTest, DefaultsAreGoodOnceThereIsAnEndpoint) {
  CoordinationSettings settings;
  EXPECT_THAT(ValidateCoordination(settings),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("endpoints")));
  settings.endpoints = {"127.0.0.1:2379", "[::1]:2379"};
  EXPECT_OK(ValidateCoordination(settings));
}

TEST(CoordinationSettingsTest, NamesEverythingThatIsWrong) {
  CoordinationSettings settings;
  settings.endpoints = {"nowhere", "127.0.0.1:0"};
  settings.prefix = "no slash";
  settings.lease_ms = 100;
  settings.stale_ms = 0;
  settings.grace_ms = 199;
  EXPECT_THAT(ValidateCoordination(settings),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("nowhere"), HasSubstr("127.0.0.1:0"), HasSubstr("prefix"),
                             HasSubstr("lease: "), HasSubstr("stale age"), HasSubstr("grace"))));
}

}  // namespace
}  // namespace epic
