// Counts what the process takes from operator new, to hold readers of untrusted files to a bound. Linking it
// replaces the global operators of the test binary. Thread-safe. Tests only.
#ifndef EPIC_SERVICES_MODEL_TESTING_ALLOCATION_METER_H_
#define EPIC_SERVICES_MODEL_TESTING_ALLOCATION_METER_H_

#include <cstdint>

namespace epic::testing {

// Forgets the peak: it becomes what is allocated now.
void ResetAllocationPeak();
// Bytes that were allocated at once since the last reset, above what was allocated then.
uint64_t AllocationPeakBytes();

}  // namespace epic::testing

#endif  // EPIC_SERVICES_MODEL_TESTING_ALLOCATION_METER_H_
