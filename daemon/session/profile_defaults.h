// ApplyProfile gives the parameters that an opening leaves out the values of the model's profile,
// for ControlService.
//
// A profile has defaults for constraints, and the markers of a thinking budget. A value that the
// message names stays, also where it is the table's default. Pure functions, safe from any thread.
#pragma once

#include "daemon/session/model_profile.h"
#include "ipc/control/open_sequence_request.h"
#include "ipc/memory/region.h"
#include "speculative/params/params.h"

namespace specd {

// `params` are those of `request`.
void ApplyProfile(const ModelProfile& profile, const OpenSequenceRequest& request,
                  SequenceParams* params);

// Rows of logits that leave scale and cap at 1 and 0 take the profile's. A binding that names one
// of the two speaks for both.
TensorSpec WithProfile(const ModelProfile& profile, TensorSpec spec);

}  // namespace specd
