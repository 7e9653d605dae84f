// Resolve turns the plan of a life into its inputs, for the recorder.
//
// A plan gives each draft token as a letter. Resolve makes tokens, kinds, rows and the side channel
// from the letters. It asks a Player for the tokens that a drafter would draw, and writes
// everything into the life. A recording therefore has explicit inputs, and the check needs no plan.
// LifePlan describes the letters. Thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/recorded/life.h"

namespace specd::recorded {

struct LifePlan {
  std::string name;
  std::string params;  // "NAME=TEXT;NAME=TEXT"
  // Steps with "|" between. A step is parts with "&" between, or one call after "!".
  //
  //   part      [FLAGS ":"] [SEQUENCE ">"] LETTERS ["/" MASKS] {"@" PLACE "=" ROW}
  //   FLAGS     D discard, L draft tokens by slot, S side channel, A argmax in place of rows
  //   LETTERS   one for each draft token:
  //             a  the best id of the target row        q  the best id of the draft row, as sampled
  //             s  drawn from the draft row (sampled)    b  the second best id of the target row
  //             r  any id                                R  any id, as sampled
  //             o  an id at the end of the vocabulary    O  the same, as sampled
  //             n  a negative id                         -  -1: no token was drawn
  //             d  the token before
  //   MASKS     one for each place: . none, h half the ids, a all, o one id, n no id
  //   PLACE     N the target row of place N, dN the draft row, mN the mask
  //   ROW       a shape, or a whole text that begins with "#"
  //
  //   calls     !abort !close !state !fork SEED !coins SEED !score MODE NUM_TOP NUM_IDS
  //             !sample SAMPLING NUM_CHILDREN NUM_PREFIX, each with " >SEQUENCE" behind it if not 0
  std::string steps;
  std::string shape = "spiky";  // of the rows
  uint64_t row_seed = 0;
};

// Returns the inputs of a life. Its answers are empty.
Life Resolve(const EngineSpec& engine, const LifePlan& plan);

}  // namespace specd::recorded
