#include "kernels/cpu/simd_team.h"
#include "tests/kernels/bodies/team_facts.h"

namespace specd {

void FindTeamFactsAvx512(const TeamQuestions& ask, TeamFacts* out) {
  SimdTeam team;
  FindTeamFacts(team, ask, out);
}
void FindFirstPassAvx512(const FirstPassQuestions& ask, TeamFacts* out) {
  FindFirstPass<SimdTeam>(ask, out);
}
void FindResidualPassAvx512(const ResidualQuestions& ask, TeamFacts* out) {
  FindResidualPass<SimdTeam>(ask, out);
}

}  // namespace specd
