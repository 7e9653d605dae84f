#include "speculative/processors/repeat_run.h"

#include <algorithm>

namespace specd {

std::unique_ptr<Processor> RepeatRun::Make(std::span<const double> values) {
  return std::make_unique<RepeatRun>(static_cast<size_t>(values[0]));
}

void RepeatRun::Apply(const TokenHistory& history, PlaceEditor* place) const {
  const std::span<const TokenId> outputs = history.outputs();
  if (outputs.size() < max_run_) return;
  const TokenId last = outputs.back();
  const std::span<const TokenId> run = outputs.last(max_run_);
  if (std::all_of(run.begin(), run.end(), [&](TokenId id) { return id == last; })) {
    place->Ban(last);
  }
}

}  // namespace specd
