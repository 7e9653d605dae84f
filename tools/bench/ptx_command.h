// RunPtx is the command `specd-bench ptx`: it predicts times of rounds on devices from counts of
// their PTX.
#pragma once

#include <string>

namespace specd::bench {

int RunPtx(const std::string& command);

}  // namespace specd::bench
