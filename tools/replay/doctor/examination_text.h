// PrintFindings, PrintAll and JsonOf show an examination: as sentences, with its tables, and as
// JSON.
//
// They print to stdout. One thread.
#pragma once

#include <string>

#include "tools/replay/doctor/examination.h"
#include "tools/terminal/terminal.h"

namespace specd::replay {

// Prints the sentences, faults first.
void PrintFindings(const Examination& examination, const Paint& paint);
// Prints the sentences, and the tables that they come from.
void PrintAll(const Examination& examination, const Paint& paint);
// Returns one object, without a newline at its end.
std::string JsonOf(const Examination& examination);

}  // namespace specd::replay
