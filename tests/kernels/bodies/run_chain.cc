#include "tests/kernels/bodies/run_chain.h"

namespace specd {

template TaskOutcome RunTask(ScalarTeam<CpuTarget::kBaseline>&, const RoundBatch&, const Task&,
                             const TaskWorkspace&, const KeyedCoins&, const TaskOutput&);
template TaskOutcome RunTask(EmulatedTeam&, const RoundBatch&, const Task&, const TaskWorkspace&,
                             const KeyedCoins&, const TaskOutput&);

}  // namespace specd
