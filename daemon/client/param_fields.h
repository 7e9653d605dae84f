// These functions find the number fields of specd_params by the names of the parameter table.
//
// A field is a parameter if it has a parameter's name. A new parameter needs no field: a caller
// names it in specd_params.numbers. Pure functions, safe from any thread.
#pragma once

#include "ipc/control/open_sequence_request.h"
#include "ipc/include/specd/specd.h"

namespace specd {

// Sets the fields to the defaults of the table.
void InitFields(specd_params* params);

// Returns the fields that differ from their defaults.
NamedNumbers ChangedFields(const specd_params& params);

}  // namespace specd
