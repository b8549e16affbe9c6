// The main of every GoogleTest binary.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

// Read by ThreadSanitizer only. The system's Abseil drops the last reference to a Status inside its own
// library (Status::UnrefNonInlined), which is not instrumented: the decrement is not seen, the delete is, and
// a Status that two threads hold copies of is reported as a race.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:absl::*Status::Unref\n"; }

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
