// DetailName names the reasons of refusals as the C header does, for programs and metrics.
//
// Pure function, safe from any thread.
#pragma once

#include "kernels/core/refusal.h"

namespace specd {

// "SPECD_DETAIL_TARGET_NAN". REQUIRES: one of the values of Refusal.
const char* DetailName(Refusal refusal);

}  // namespace specd
