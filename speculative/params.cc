#include "speculative/params.h"

#include <fmt/format.h>

#include <cmath>

namespace specd {
namespace {

constexpr ParamSpec kTable[] = {
    {"temperature", 1.0, 0.0, 2.0, "0 is greedy; below 1e-5 as well"},
    {"draft_temperature", 1.0, kGreedyTemperature, 2.0,
     "the temperature the drafter drew sampled tokens with"},
    {"max_tokens", 16.0, 1.0, 2147483647.0, "kept tokens after which the sequence finishes"},
};

absl::Status OutOfRange(const ParamSpec& spec, double value) {
  return absl::InvalidArgumentError(fmt::format("{} = {} is outside {} .. {} ({}); default {}",
                                                spec.field, value, spec.minimum, spec.maximum,
                                                spec.meaning, spec.default_value));
}

absl::Status CheckNumbers(const SequenceParams& params) {
  const double values[] = {params.temperature, params.draft_temperature,
                           static_cast<double>(params.max_tokens)};
  static_assert(std::size(values) == std::size(kTable));
  for (size_t i = 0; i < std::size(kTable); ++i) {
    // Written so that NaN fails too.
    if (!(values[i] >= kTable[i].minimum && values[i] <= kTable[i].maximum)) {
      return OutOfRange(kTable[i], values[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStops(const SequenceParams& params, int32_t vocab_size) {
  if (params.stop_token_ids.size() > kStopIdsMax) {
    return absl::InvalidArgumentError(fmt::format("stop_token_ids: {} ids, at most {} are allowed",
                                                  params.stop_token_ids.size(), kStopIdsMax));
  }
  for (TokenId id : params.stop_token_ids) {
    if (id < 0 || id >= vocab_size) {
      return absl::InvalidArgumentError(fmt::format(
          "stop_token_ids: {} is outside 0 .. {} (vocab_size - 1)", id, vocab_size - 1));
    }
  }
  if (params.stop_strings.size() > kStopStringsMax) {
    return absl::InvalidArgumentError(
        fmt::format("stop_strings: {} strings, at most {} are allowed", params.stop_strings.size(),
                    kStopStringsMax));
  }
  size_t bytes = 0;
  for (size_t i = 0; i < params.stop_strings.size(); ++i) {
    if (params.stop_strings[i].empty()) {
      return absl::InvalidArgumentError(
          fmt::format("stop_strings[{}] is empty: it would match everywhere; leave it out", i));
    }
    bytes += params.stop_strings[i].size();
  }
  if (bytes > kStopBytesMax) {
    return absl::InvalidArgumentError(fmt::format(
        "stop_strings: {} bytes together, at most {} are allowed", bytes, kStopBytesMax));
  }
  return absl::OkStatus();
}

// A method that contradicts the temperature is refused rather than bent to fit.
absl::Status CheckMethod(const SequenceParams& params) {
  const auto method = static_cast<uint32_t>(params.verify);
  if (method > static_cast<uint32_t>(VerifyMethod::kToken)) {
    return absl::InvalidArgumentError(fmt::format(
        "verify = {} is unknown; use 0 (auto), 1 (greedy), 2 (exact_match) or 3 (token)", method));
  }
  const bool greedy = params.temperature < kGreedyTemperature;
  if (params.verify == VerifyMethod::kGreedy && !greedy) {
    return absl::InvalidArgumentError(
        fmt::format("verify = greedy with temperature = {}: greedy needs temperature 0; set it, or "
                    "take verify = auto",
                    params.temperature));
  }
  if (params.verify == VerifyMethod::kToken && greedy) {
    return absl::InvalidArgumentError(
        "verify = token with temperature = 0: a greedy sequence has no coins to throw; take "
        "verify = auto");
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const ParamSpec> ParamTable() { return kTable; }

absl::Status ValidateParams(const SequenceParams& params, int32_t vocab_size) {
  if (absl::Status status = CheckNumbers(params); !status.ok()) return status;
  if (absl::Status status = CheckMethod(params); !status.ok()) return status;
  return CheckStops(params, vocab_size);
}

VerifyMethod ResolveMethod(const SequenceParams& params) {
  if (params.temperature < kGreedyTemperature) return VerifyMethod::kGreedy;
  return params.verify == VerifyMethod::kAuto ? VerifyMethod::kExactMatch : params.verify;
}

}  // namespace specd
