// Processor bans, biases or forces tokens at a place because of the tokens before it; the registry
// lists the processors that are compiled in.
//
// Built-in processors (bad words, no-repeat-n-gram, thinking budget) and custom ones share this
// interface. A request names a custom processor and gives it named numbers; code never crosses the
// wire. If you add one, write its class in processors/ and a row of the table in
// registry.cc.
//
// A processor's edits of a place are a function of the tokens before it and of nothing else. They
// may not use a clock, a coin, or a count of calls. At places of a draft the history includes the
// draft prefix. A token that was not accepted is never kept, so nothing is rolled back. The memory
// of Advance only makes Apply cheaper. Not thread-safe; one sequence owns each instance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/params/params.h"
#include "speculative/processors/place_editor.h"
#include "speculative/processors/token_history.h"

namespace specd {

class Processor {
 public:
  virtual ~Processor() = default;

  // The most calls of Ban and AddBias that Apply makes at one place.
  virtual size_t max_edits() const = 0;

  // The memory that grows with the request, touched or not.
  virtual size_t size_bytes() const { return 0; }

  // Says that the last num_new tokens of the history were kept; there is no draft prefix. The first
  // call has the prompt and the outputs with which the sequence was opened. Allocates nothing.
  virtual void Advance(const TokenHistory& history, size_t num_new) {
    static_cast<void>(history);
    static_cast<void>(num_new);
  }

  // Edits the place that follows the history. Allocates nothing.
  virtual void Apply(const TokenHistory& history, PlaceEditor* place) const = 0;

  // Returns a copy in the same state, for a forked sequence.
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

// Lists every custom processor of this build.
std::span<const ProcessorSpec> ProcessorTable();

// Returns INVALID_ARGUMENT for an unknown name or a value out of range, and lists the allowed ones.
absl::StatusOr<std::unique_ptr<Processor>> MakeProcessor(const ProcessorParams& params);

}  // namespace specd
