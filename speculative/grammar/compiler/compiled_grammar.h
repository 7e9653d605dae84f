// CompiledGrammar is a compiled constraint: what its matchers follow, and what it does not enforce.
//
// It lives as long as a matcher of it. Safe from any number of threads.
//
//   auto grammar = CompiledGrammar::Create(parts, std::move(network), warnings);
//   auto matcher = (*grammar)->NewMatcher({.stop_ids = {2}});
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "speculative/grammar/masks/tokenizer_parts.h"
#include "speculative/grammar/matchers/grammar_matcher.h"
#include "speculative/grammar/matchers/grammar_states.h"
#include "speculative/grammar/network/network.h"

namespace specd::grammar {

class CompiledGrammar;
using CompileResult = absl::StatusOr<std::shared_ptr<const CompiledGrammar>>;

class CompiledGrammar : public std::enable_shared_from_this<CompiledGrammar> {
 public:
  // Unavailable: no memory is left now. ResourceExhausted: the beginnings of the texts are past a
  // limit. A few masks are built to find that out; the first of them is that of the first place.
  // REQUIRES: the network has a text.
  static CompileResult Create(std::shared_ptr<TokenizerParts> parts, Network network,
                              std::vector<std::string> warnings);

  // Builds no mask, and counts `network_bytes` in the memory of the parts.
  CompiledGrammar(std::shared_ptr<TokenizerParts> parts, Network network, size_t network_bytes,
                  std::vector<std::string> warnings);

  std::unique_ptr<GrammarMatcher> NewMatcher(const MatcherOptions& options) const;
  // Lists the parts that lenient mode dropped, and formats that the standard does not name.
  std::span<const std::string> warnings() const { return warnings_; }
  // Grows as texts are followed.
  size_t size_bytes() const { return states_.size_bytes(); }

 private:
  // Builds the mask of the first place, and of a few more if it made many states.
  absl::Status Probe() const;
  // A pointer that holds this object.
  std::shared_ptr<const GrammarStates> states() const { return {shared_from_this(), &states_}; }

  const GrammarStates states_;
  const std::vector<std::string> warnings_;
};

}  // namespace specd::grammar
