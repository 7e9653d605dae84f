// Processor: a rule that bans, biases or forces tokens by what stands before a place, and the
// registry of those that are compiled in.
//
// The built-in ones (bad words, no-repeat-n-gram, thinking budget) and custom ones share this
// interface. Custom ones are asked for by name with named numbers; code never crosses the wire. To
// add one, write its class in processors/ and a row of the table in processors/registry.cc.
//
// What a processor does to a place is a function of the tokens before it and of nothing else: no
// clock, no coin, no count of calls. Places of a draft are shown with the draft prefix in the
// history, and what was not accepted is simply never kept, so nothing is ever rolled back. What
// Advance remembers only makes Apply cheaper. Not thread-safe; one sequence owns each instance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/params.h"
#include "speculative/place_editor.h"
#include "speculative/token_history.h"

namespace specd {

class Processor {
 public:
  virtual ~Processor() = default;

  // The most calls of Ban and AddBias that Apply makes at one place.
  virtual size_t max_edits() const = 0;

  // The last num_new tokens of the history were kept; there is no draft prefix. The first call
  // brings the prompt and the outputs a sequence was opened with. Allocates nothing.
  virtual void Advance(const TokenHistory& history, size_t num_new) {
    static_cast<void>(history);
    static_cast<void>(num_new);
  }

  // Edits the place that follows the history. Allocates nothing.
  virtual void Apply(const TokenHistory& history, PlaceEditor* place) const = 0;

  // A copy in the same state, for a forked sequence.
  virtual std::unique_ptr<Processor> Clone() const = 0;
};

// One number that a custom processor takes.
struct ProcessorParamSpec {
  std::string_view name;
  double default_value;
  double minimum;
  double maximum;
  bool whole;  // fractions are refused
  std::string_view meaning;
};

struct ProcessorSpec {
  std::string_view name;
  std::string_view meaning;
  std::span<const ProcessorParamSpec> params;
  // `values` are checked and complete, in the order of params.
  std::unique_ptr<Processor> (*make)(std::span<const double> values);
};

// Every custom processor of this build.
std::span<const ProcessorSpec> ProcessorTable();

// INVALID_ARGUMENT names what is unknown or out of range, and what there is.
absl::StatusOr<std::unique_ptr<Processor>> MakeProcessor(const ProcessorParams& params);

}  // namespace specd
