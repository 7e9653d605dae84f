// The sampling parameters of one sequence, and the one table that says what each may be.
//
// Numbers arrive from an engine (over the socket, or through the C header in embedded mode) and are
// checked here once; everything behind trusts them. Thread-compatible plain data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/core/round.h"
#include "kernels/core/types.h"

namespace specd {

inline constexpr size_t kStopIdsMax = 64;
inline constexpr size_t kStopStringsMax = 1024;
inline constexpr size_t kStopBytesMax = 32 * 1024;  // of all stop strings together

struct SequenceParams {
  VerifyMethod verify = VerifyMethod::kAuto;
  double temperature = 1.0;
  double draft_temperature = 1.0;
  uint64_t seed = 0;
  bool has_seed = false;
  int64_t max_tokens = 16;
  bool ignore_eos = false;
  std::vector<TokenId> stop_token_ids;
  // For the text side. They are carried with the other parameters because a parameter has one home,
  // and because a verifier without a text side has to refuse the first of them.
  std::vector<std::string> stop_strings;
  bool include_stop = false;
  bool skip_special_tokens = true;
};

// One row of the parameter table.
struct ParamSpec {
  std::string_view field;
  double default_value;
  double minimum;
  double maximum;
  std::string_view meaning;
};

// Every numeric parameter with its default and closed range, in the order of SequenceParams.
std::span<const ParamSpec> ParamTable();

// The first field outside its range, named with its value, its range and the remedy.
absl::Status ValidateParams(const SequenceParams& params, int32_t vocab_size);

// Below this temperature a sequence is greedy: 1/T would leave the range in which exp2's argument
// still tells two logits apart (CONTRACT §3).
inline constexpr double kGreedyTemperature = 1e-5;

// What kAuto means for these parameters; any other method is returned as it is.
VerifyMethod ResolveMethod(const SequenceParams& params);

}  // namespace specd
