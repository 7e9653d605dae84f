// DoctorMembers are what the doctor says of a trace in the data of the report page
// (tools/replay/report/DATA.md): its findings, and acceptance beside its expectation.
//
// Pure functions.
#pragma once

#include <string>

#include "tools/replay/doctor/doctor.h"

namespace specd::replay {

// Returns members of the object `trace`, each after a comma.
std::string DoctorMembers(const Doctor& doctor);

}  // namespace specd::replay
