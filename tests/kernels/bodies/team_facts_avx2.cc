#include "kernels/cpu/simd_team.h"
#include "tests/kernels/bodies/team_facts.h"

namespace specd {

void FindTeamFactsAvx2(const TeamQuestions& ask, TeamFacts* out) {
  FindTeamFacts<SimdTeam>(ask, out);
}
void FindFirstPassAvx2(const FirstPassQuestions& ask, TeamFacts* out) {
  FindFirstPass<SimdTeam>(ask, out);
}

}  // namespace specd
