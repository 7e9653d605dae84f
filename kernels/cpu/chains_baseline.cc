// ChainFunctions for every processor of the build's architecture. If there is no fused multiply-add
// instruction, each one is a call of libm's fmaf, which is right to the bit, and slow.
#include "kernels/cpu/chains.h"
#include "kernels/cpu/scalar_team.h"

namespace specd {

using BaselineTeam = ScalarTeam<CpuTarget::kBaseline>;

const ChainFunctions kChainsBaseline = {&RunTaskFrom<BaselineTeam>,
                                        &TransformRowFrom<BaselineTeam>};

}  // namespace specd
