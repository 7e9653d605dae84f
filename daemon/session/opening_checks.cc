#include "daemon/session/opening_checks.h"

#include <fmt/format.h>

#include <string>

#include "detokenizer/stop_matcher.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "speculative/grammar/front_ends/stop_regex.h"
#include "speculative/params/param_table.h"

namespace specd {

absl::Status OpeningChecks::Check(const SequenceParams& params) const {
  if (params.n < 1 || params.n > kSamplesMax) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "n",
                     fmt::format("n = {} is outside 1 .. {}", params.n, kSamplesMax));
  }
  for (const auto check : {&OpeningChecks::CheckLossy, &OpeningChecks::CheckText,
                           &OpeningChecks::CheckEos, &OpeningChecks::CheckScores}) {
    if (absl::Status status = (this->*check)(params); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status OpeningChecks::CheckLossy(const SequenceParams& params) const {
  if (!IsLossy(params.verify) || options_.allow_lossy) return absl::OkStatus();
  const std::string method = ValueText(*FindParam("verify"), params);
  return MakeError(
      SPECD_ERROR_UNSUPPORTED, "verify",
      fmt::format("verify = {} changes the distribution of the output, and is not allowed here; "
                  "start the daemon with --allow_lossy, set specd_options.allow_lossy = 1 of an "
                  "embedded engine, or take verify = auto, which is lossless",
                  method));
}

absl::Status OpeningChecks::CheckTextSide() const {
  if (options_.text_side && options_.text_side()) return absl::OkStatus();
  return MakeError(
      SPECD_ERROR_UNSUPPORTED, "stop_strings",
      "stop_strings need a detokenizer, as stop_regex does, and none is attached; use a "
      "daemon with --tokenizer (and specd-detok running, if --detokenizer=process), "
      "set stops = inline, or stop in the engine and call specd_abort");
}

absl::Status OpeningChecks::CheckInline(const SequenceParams& params) const {
  if (options_.profile->vocabulary.has_value()) return absl::OkStatus();
  if (params.stops == StopSearch::kInline) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "stops",
                     "stops = inline needs the text of tokens, and no tokenizer is there; start "
                     "specd with --tokenizer, give specd_options.tokenizer to an embedded engine, "
                     "or set stops = auto");
  }
  return MakeError(
      SPECD_ERROR_UNSUPPORTED, "stop_strings",
      "stop_strings need the text of tokens, as stop_regex does, and this engine has no "
      "tokenizer; give it specd_options.tokenizer or profile_file, use a daemon with "
      "--tokenizer, or stop in the engine and call specd_abort");
}

absl::Status OpeningChecks::CheckText(const SequenceParams& params) const {
  if (IsInline(params) || params.stops == StopSearch::kInline) {
    if (absl::Status status = CheckInline(params); !status.ok()) return status;
  } else if (params.HasStops()) {
    if (absl::Status status = CheckTextSide(); !status.ok()) return status;
  }
  return CheckStops(params);
}

absl::Status OpeningChecks::CheckStops(const SequenceParams& params) {
  if (auto stops = StopSet::Create(params.stop_strings); !stops.ok()) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "stop_strings",
                     std::string(stops.status().message()));
  }
  if (params.stop_regex.empty()) return absl::OkStatus();
  const absl::Status status = grammar::MakeStopSet(params.stop_strings, params.stop_regex).status();
  if (status.ok()) return status;
  return MakeError(
      absl::IsUnimplemented(status) ? SPECD_ERROR_UNSUPPORTED : SPECD_ERROR_INVALID_ARGUMENT,
      "stop_regex", std::string(status.message()));
}

absl::Status OpeningChecks::CheckEos(const SequenceParams& params) const {
  if (!params.ignore_eos || !options_.profile->eos_token_ids.empty()) return absl::OkStatus();
  return MakeError(
      SPECD_ERROR_UNSUPPORTED, "ignore_eos",
      "ignore_eos = 1, but no EOS id is known here, so nothing could be ignored; start "
      "specd with --eos_tokens or --eos_token_ids, give specd_options.eos_tokens or "
      "eos_token_ids to an embedded engine, or leave ignore_eos 0");
}

// Checks that results have room for the scores. SequenceOpening refuses values outside the ranges
// of the parameters.
absl::Status OpeningChecks::CheckScores(const SequenceParams& params) const {
  if (params.logprobs < 0 || params.logprobs > kLogprobsMax ||
      params.logprob_token_ids.size() > kLogprobTokenIdsMax) {
    return absl::OkStatus();
  }
  const uint64_t wanted =
      1 + static_cast<uint64_t>(params.logprobs) + params.logprob_token_ids.size();
  if (wanted <= options_.limits.max_scores) return absl::OkStatus();
  return MakeError(
      SPECD_ERROR_INVALID_ARGUMENT, "logprobs",
      fmt::format("logprobs = {} and {} logprob_token_ids are {} scores for each "
                  "token, but max_scores_per_token = {}; raise it in specd_options, or "
                  "ask for fewer",
                  params.logprobs, params.logprob_token_ids.size(), wanted,
                  options_.limits.max_scores));
}

}  // namespace specd
