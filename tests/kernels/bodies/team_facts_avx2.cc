#include "kernels/cpu/simd_team.h"
#include "tests/kernels/bodies/team_facts.h"

namespace specd {

void FindTeamFactsAvx2(const TeamQuestions& ask, TeamFacts* out) {
  SimdTeam team;
  FindTeamFacts(team, ask, out);
}
void FindFirstPassAvx2(const FirstPassQuestions& ask, TeamFacts* out) {
  FindFirstPass<SimdTeam>(ask, out);
}
void FindResidualPassAvx2(const ResidualQuestions& ask, TeamFacts* out) {
  FindResidualPass<SimdTeam>(ask, out);
}

}  // namespace specd
