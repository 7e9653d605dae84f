// MakeStopSet compiles the stop strings and the stop patterns of a request, for all who look for
// them: the check of an opening, rounds, the text side.
//
// The patterns are of ParseRegex's dialect (regex.h) without ^, $ and lookaheads, because a stop is
// searched in a text whose end is not known. From each place of the text the shortest match of a
// pattern counts, so `END.*` is `END`, and a lazy quantifier finds what a greedy one does. A
// pattern is refused by name if it matches the empty text, no text, or if a match may be longer
// than StopPattern::kMatchSizeBytesMax bytes: so much text is held back at most. The work of a
// compile is bounded by counts alone. So every process gives the same answer for the same patterns.
//
//   auto stops = MakeStopSet({"</answer>"}, {"\\n(User|Human) ?:"});
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "detokenizer/stop_matcher.h"

namespace specd::grammar {

absl::StatusOr<std::shared_ptr<const StopSet>> MakeStopSet(
    const std::vector<std::string>& strings, const std::vector<std::string>& patterns);

// InvalidArgument, Unimplemented or ResourceExhausted; each names stop_regex and the place in it.
absl::StatusOr<std::vector<StopPattern>> CompileStopPatterns(std::span<const std::string> patterns);

}  // namespace specd::grammar
