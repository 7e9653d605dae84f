#include "speculative/grammar/compiler/compiled_grammar.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "fmt/format.h"
#include "speculative/grammar/matchers/state_matcher.h"

namespace specd::grammar {
namespace {

// A constraint is followed for this many tokens when it is compiled, and for more if its text then
// goes on in several ways: the ways of an ambiguous constraint grow with its text.
constexpr size_t kProbeSteps = 8;
constexpr size_t kLongProbeSteps = 16;
// A quarter of what a mask may take: later masks may take more than these (docs/GRAMMARS.md,
// "Limits of a sequence").
constexpr uint64_t kProbeUnits = MaskBuilder::kUnitsMax / 4;

const char* FaultName(MatcherFault fault) {
  switch (fault) {
    case MatcherFault::kTooManyWays:
      return "too many ways to go on";
    case MatcherFault::kFull:
      return "too many states";
    case MatcherFault::kTooMuchWork:
      return "too much work";
    case MatcherFault::kNone:
    case MatcherFault::kNoMemory:
      break;
  }
  return "none";
}

}  // namespace

CompiledGrammar::CompiledGrammar(std::shared_ptr<TokenizerParts> parts, Network network,
                                 size_t network_bytes, std::vector<std::string> warnings)
    : states_(std::move(parts), std::move(network), network_bytes),
      warnings_(std::move(warnings)) {}

CompileResult CompiledGrammar::Create(std::shared_ptr<TokenizerParts> parts, Network network,
                                      std::vector<std::string> warnings) {
  const size_t network_bytes = network.size_bytes() + sizeof(CompiledGrammar);
  auto grammar = std::make_shared<const CompiledGrammar>(std::move(parts), std::move(network),
                                                         network_bytes, std::move(warnings));
  const StateId start = grammar->states_.Current()->automaton.start();
  if (start == LazyAutomaton::kFull) {
    return absl::UnavailableError(
        "no memory is left to follow the constraint; close sequences, or try again later");
  }
  if (!LazyAutomaton::IsAlive(start)) {
    return absl::ResourceExhaustedError(fmt::format(
        "the texts of the constraint begin in more than {} ways: join alternatives that begin "
        "alike",
        LazyAutomaton::kItemsMax));
  }
  if (absl::Status status = grammar->Probe(); !status.ok()) return status;
  return grammar;
}

std::unique_ptr<GrammarMatcher> CompiledGrammar::NewMatcher(const MatcherOptions& options) const {
  return std::make_unique<StateMatcher>(states(), options.stop_ids);
}

absl::Status CompiledGrammar::Probe() const {
  StateMatcher matcher(states(), {});
  for (size_t step = 0; step <= kLongProbeSteps; ++step) {
    WorkSlice slice = {.units = kProbeUnits};
    const std::optional<MaskRow> row = matcher.TryMask(&slice);
    const MatcherFault fault = row.has_value() ? matcher.fault() : MatcherFault::kTooMuchWork;
    if (fault == MatcherFault::kNoMemory ||
        (fault == MatcherFault::kFull && states_.parts().memory.IsExhausted())) {
      return absl::UnavailableError("no memory is left to follow the constraint; try again later");
    }
    if (fault != MatcherFault::kNone) {
      return absl::ResourceExhaustedError(
          fmt::format("the mask after {} tokens of a text of the constraint meets a limit already "
                      "({}): shorten repetitions of alternatives that begin alike",
                      step, FaultName(fault)));
    }
    const auto words = row->words();
    const bool has_ids =
        std::any_of(words.begin(), words.end(), [](uint32_t word) { return word != 0; });
    if (step == 0 && !matcher.IsAccepting() && !has_ids) {
      return absl::InvalidArgumentError(
          "no token of the tokenizer begins a text of the constraint");
    }
    if (step >= kProbeSteps && matcher.NumWays() < 2) break;
    // Ids far apart: long tokens and short ones, of several kinds.
    TokenId id = kNoToken;
    for (size_t i = 0; i < words.size() && id == kNoToken; ++i) {
      const size_t at =
          (words.size() * (2 * step + 1) / (2 * kLongProbeSteps + 1) + i) % words.size();
      if (words[at] != 0) id = static_cast<TokenId>(32 * at + std::countr_zero(words[at]));
    }
    if (id == kNoToken || !matcher.Accept(id)) break;
  }
  return absl::OkStatus();
}

}  // namespace specd::grammar
