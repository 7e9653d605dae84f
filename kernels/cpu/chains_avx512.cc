// ChainFunctions for x86 processors with AVX-512. The file has compiler flags of its own: all code
// that it includes must be a template over the team or always inlined.
#include "kernels/cpu/chains.h"
#include "kernels/cpu/simd_team.h"

namespace specd {

const ChainFunctions kChainsAvx512 = {&RunTaskFrom<SimdTeam>, &TransformRowFrom<SimdTeam>};

}  // namespace specd
