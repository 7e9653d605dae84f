// The fields of specd_params that are numbers, found by the names of the parameter table.
//
// A field is a parameter because it is called as one: a new parameter needs none, and is then named
// in specd_params.numbers. Pure functions, safe from any thread.
#pragma once

#include "ipc/control/open_sequence_request.h"
#include "ipc/include/specd/specd.h"

namespace specd {

// The defaults of the table.
void InitFields(specd_params* params);

// The fields that differ from their defaults.
NamedNumbers ChangedFields(const specd_params& params);

}  // namespace specd
