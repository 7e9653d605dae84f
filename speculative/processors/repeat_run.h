// RepeatRun bans an id that was just emitted max_run times in a row. It is a custom processor, and
// the example to copy.
//
// A model that has fallen into a loop may emit one token without end ("!!!!!!!!"). The prompt does
// not count. Unlike a penalty, this processor changes nothing before the run is full. One sequence
// owns it, like every Processor.
#pragma once

#include <memory>
#include <span>

#include "speculative/processors/processor.h"

namespace specd {

class RepeatRun : public Processor {
 public:
  static constexpr ProcessorParamSpec kParamSpecs[] = {
      {"max_run", 8, 1, 1'000'000, true, "how often an id may be emitted in a row"},
  };
  static std::unique_ptr<Processor> Make(std::span<const double> values);

  explicit RepeatRun(size_t max_run) : max_run_(max_run) {}

  size_t max_edits() const override { return 1; }
  void Apply(const TokenHistory& history, PlaceEditor* place) const override;
  std::unique_ptr<Processor> Clone() const override { return std::make_unique<RepeatRun>(*this); }

 private:
  const size_t max_run_;
};

}  // namespace specd
