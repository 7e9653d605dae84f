// FinishName and StatusText name specd's answers in the words of the toy engine's report.
// Pure functions.
#pragma once

#include <cstdint>

namespace specd::toy {

// Returns "stop" for SPECD_FINISH_STOP, and so on.
const char* FinishName(uint32_t reason);
// Returns the reason of a SPECD_STATUS_... that ends a stream.
const char* StatusText(uint32_t status);

}  // namespace specd::toy
