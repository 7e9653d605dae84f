// DoctorMembers are what the doctor says of a trace in the data of the report page
// (tools/replay/report/DATA.md): its findings, and acceptance beside its expectation.
//
// Pure functions.
#pragma once

#include <string>

#include "tools/replay/doctor/doctor.h"

namespace specd::replay {

// Returns members of the object `trace`, each after a comma.
// The members of an object: what was reached and accepted, and the expectation of the draft tokens
// whose probability is known, beside what was accepted of these.
std::string AcceptanceMembers(const AcceptanceSum& sum);
std::string DoctorMembers(const Doctor& doctor);

}  // namespace specd::replay
