// The sampling parameters of one sequence, the check of them, and what kernels make of them.
//
// Numbers arrive from an engine (over the socket, or through the C header in embedded mode) and are
// checked here once; everything behind trusts them. The parameters are the rows of param_list.inc;
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
inline constexpr size_t kStopStringsMax = 1024;
inline constexpr size_t kStopBytesMax = 32 * 1024;  // of all stop strings together

// Steps 9 to 11: one after another, or all three on the distribution of step 8.
enum class FilterOrder : uint32_t { kSequential = 0, kJoint = 1 };

struct TokenBias {
  TokenId id = 0;
  float bias = 0;
};

// A custom processor by the name it was compiled in under (processor.h), with its parameters.
struct ProcessorParams {
  std::string name;
  std::vector<std::pair<std::string, double>> values;
};

// The members of the next three structs are the rows of param_list.inc, with their defaults.

// The thinking budget of CONTRACT §3, step 6. budget < 0: off.
struct ThinkingParams {
#define SPECD_THINKING_PARAM(type, name, value, ...) type name = value;
#include "speculative/param_list.inc"
};

// The steps a drafter declares it used on its own logits; never taken from the sequence's.
struct DraftParams {
#define SPECD_DRAFT_PARAM(type, name, value, ...) type name = value;
#include "speculative/param_list.inc"
};

// The parameters for the text side are carried with the others, because a parameter has one home,
// and because a verifier without a text side has to refuse stop_strings.
struct SequenceParams {
#define SPECD_PARAM(type, name, value, ...) type name = value;
#include "speculative/param_list.inc"
  bool has_seed = false;  // seed was given
  ThinkingParams thinking;
  DraftParams draft;
};

// The first field outside its range, or the first combination that cannot be honoured, named with
// its value, its range and the remedy (param_table.h, param_rules.h).
absl::Status ValidateParams(const SequenceParams& params, int32_t vocab_size);

// ---- the method of a sequence and of a round ----------------------------------------------------

// Below this temperature a sequence is greedy: 1/T would leave the range in which exp2's argument
// still tells two logits apart (CONTRACT §3).
inline constexpr double kGreedyTemperature = 1e-5;

// Steps 8 to 11 leave no choice: temperature below kGreedyTemperature, or top_k = 1.
bool IsGreedy(const SequenceParams& params);

// What a sequence is opened with, and what its engine is told: kGreedy for every greedy sequence;
// otherwise what was asked for. kAuto stays kAuto, because the drafts of each round decide it.
VerifyMethod SequenceMethod(const SequenceParams& params);

// The method of one round, never kAuto. kAuto becomes kBlock where at least one draft token of the
// round was sampled and kExactMatch where none was (plain sampling among them); any other method
// stays. The kinds say how tokens were drawn, never which, so the choice cannot bias the output.
VerifyMethod ResolveMethod(VerifyMethod sequence_method, bool any_sampled_draft);

// ---- what kernels take of them ------------------------------------------------------------------
// REQUIRES: the params passed ValidateParams.

// c of CONTRACT §9.3: exponents are taken base 2, and the division by T happens once, in double.
// REQUIRES: temperature >= kGreedyTemperature.
float ScaleFor(double temperature);

// Steps 9 to 11. All are off for a greedy sequence, which stops at step 7.
Filters MakeFilters(const SequenceParams& params, int32_t vocab_size);
// The filters a drafter declares it used.
Filters MakeFilters(const DraftParams& params, int32_t vocab_size);

Penalties MakePenalties(const SequenceParams& params);

// The request points into params.logprob_token_ids and is valid as long as that vector is.
ScoreRequest MakeScoreRequest(const SequenceParams& params);

}  // namespace specd
