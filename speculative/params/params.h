// SequenceParams holds the sampling parameters of one sequence; the functions here check them and
// derive the values that kernels use.
//
// An engine sends the numbers (over the socket, or through the C header in embedded mode). They are
// checked here once, and all later code trusts them. The parameters are the rows of param_list.inc;
// param_rules.h has the combinations that are refused. Plain data and pure functions:
// thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/core/round.h"
#include "kernels/core/types.h"
#include "speculative/grammar/base/grammar_request.h"

namespace specd {

inline constexpr size_t kStopIdsMax = 64;
inline constexpr size_t kLogitBiasMax = 1024;
inline constexpr size_t kBadWordsMax = 128;
inline constexpr size_t kBadWordIdsMax = 1024;  // of all bad words together
inline constexpr size_t kNgramWhitelistMax = 1024;
inline constexpr size_t kThinkingEndIdsMax = 64;
inline constexpr int64_t kLogprobsMax = 64;
inline constexpr size_t kLogprobTokenIdsMax = 64;
inline constexpr int64_t kSamplesMax = 64;  // n
inline constexpr size_t kProcessorsMax = 8;
inline constexpr size_t kSyntheticRatesMax = 64;  // a rate for each depth of a draft
inline constexpr size_t kStopStringsMax = 1024;
inline constexpr size_t kStopRegexMax = 64;
inline constexpr size_t kStopBytesMax = 32 * 1024;  // of all stop strings together

// The order of steps 9 to 11: one after another, or all three on the distribution of step 8.
enum class FilterOrder : uint32_t { kSequential = 0, kJoint = 1 };

// What a sequence's text is the decoding of: an output's text goes on after its prompt's, or stands
// by itself. The two differ where the tokenizer's decoder strips leading spaces.
enum class DecodedIds : uint32_t { kPromptAndOutputs = 0, kOutputs = 1 };

// Where stop strings are found: where the process has a place for that (a daemon's text side, an
// embedded engine's rounds), or inside the rounds in any case, which then make the text too.
enum class StopSearch : uint32_t { kAuto = 0, kInline = 1 };

struct TokenBias {
  TokenId id = 0;
  float bias = 0;
};

// A custom processor (processor.h) by the name under which it was compiled in, with its parameters.
struct ProcessorParams {
  std::string name;
  std::vector<std::pair<std::string, double>> values;
};

// The members of the next three structs are the rows of param_list.inc, with their defaults.

// The thinking budget of CONTRACT §3, step 6. budget < 0: off.
struct ThinkingParams {
#define SPECD_THINKING_PARAM(type, name, value, ...) type name = value;
#include "speculative/params/param_list.inc"
};

// The steps that a drafter declares for its own logits. specd never takes them from the sequence's
// parameters.
struct DraftParams {
#define SPECD_DRAFT_PARAM(type, name, value, ...) type name = value;
#include "speculative/params/param_list.inc"
};

// The parameters for the text are here too, because a parameter has one home.
struct SequenceParams {
#define SPECD_PARAM(type, name, value, ...) type name = value;
#include "speculative/params/param_list.inc"
  bool has_seed = false;  // seed was given
  // The text of the constraint that grammar_kind names: a schema, a pattern, a grammar. It is as
  // long as a prompt may be, so it is not a row of the table.
  std::string grammar_text;
  ThinkingParams thinking;
  DraftParams draft;

  // The text may end at a stop string or a pattern.
  bool HasStops() const { return !stop_strings.empty() || !stop_regex.empty(); }
};

// ---- the method of a sequence and of a round ----------------------------------------------------

// A sequence is greedy below this temperature: 1/T would leave the range in which exp2's argument
// still tells two logits apart (CONTRACT §3).
inline constexpr double kGreedyTemperature = 1e-5;

// Tells whether steps 8 to 11 leave no choice: temperature below kGreedyTemperature, or top_k = 1.
bool IsGreedy(const SequenceParams& params);

// Returns the method that a sequence is opened with, which its engine is told. It is kGreedy for
// every greedy sequence, unless a lossy method was asked for, and otherwise the method that was
// asked for. kAuto stays kAuto, because the drafts of each round decide it. With SGLang's generator
// kAuto is kExactMatch, because that generator has no other coins.
VerifyMethod SequenceMethod(const SequenceParams& params);

struct DraftShape {
  bool any_drawn = false;
  bool is_tree = false;
};
// Returns the method of one round, never kAuto. If at least one draft token of the round was drawn,
// kAuto becomes kTree for a tree and kBlock for a chain. If none was, it becomes kExactMatch (plain
// sampling included). kTree and kTraversal of a chain are kToken and kBlock. Any other method
// stays. The kinds say how tokens were drawn, never which, so the choice cannot bias the output.
VerifyMethod ResolveMethod(VerifyMethod sequence_method, const DraftShape& draft);

// ---- what kernels take of them ------------------------------------------------------------------
// REQUIRES: the params passed ValidateParams.

// Returns c of CONTRACT §9.3: exponents are taken base 2, and the division by T happens once, in
// double. REQUIRES: temperature >= kGreedyTemperature.
float ScaleFor(double temperature);

// Makes the filters of steps 9 to 11. All are off for a greedy sequence, which stops at step 7.
Filters MakeFilters(const SequenceParams& params, int32_t vocab_size);
// Makes the filters that a drafter declares.
Filters MakeFilters(const DraftParams& params, int32_t vocab_size);

// Makes the rule of a lossy method, except `rates`: a round sets it to those of its sequence.
LossyRule MakeLossyRule(const SequenceParams& params);

Penalties MakePenalties(const SequenceParams& params);

// The request points into params.logprob_token_ids and is valid as long as that vector is.
ScoreRequest MakeScoreRequest(const SequenceParams& params);

}  // namespace specd
