#include "daemon/client/round_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "daemon/client/struct_array.h"
#include "ipc/base/error.h"

namespace specd {
namespace {

static_assert(sizeof(specd_token_score) == sizeof(TokenScore) &&
                  offsetof(specd_token_score, id) == offsetof(TokenScore, id) &&
                  offsetof(specd_token_score, value) == offsetof(TokenScore, value) &&
                  offsetof(specd_token_score, rank) == offsetof(TokenScore, rank),
              "scores are handed on as they are");

absl::Status TooSmall(std::string_view field, uint32_t value, uint32_t needed,
                      std::string_view why) {
  return MakeError(SPECD_ERROR_INVALID_ARGUMENT, field,
                   fmt::format("{} = {} is less than {}, {}", field, value, needed, why));
}

bool HasRows(const specd_batch_results& results) {
  return results.tokens != nullptr || results.path != nullptr || results.scores != nullptr;
}

// Writes one field of every result, if its array is wanted.
template <class T, class Field>
void Put(std::span<const SequenceResult> from, T* to, Field field) {
  if (to == nullptr) return;
  for (const SequenceResult& result : from) *to++ = static_cast<T>(field(result));
}

// Copies `count` ids, and fills the rest of the row with -1.
void PutRow(const int32_t* ids, uint32_t count, uint32_t stride, int32_t* row) {
  std::copy_n(ids, count, row);
  std::fill(row + count, row + stride, -1);
}

void PutScores(const SequenceResult& result, const specd_batch_results& results,
               specd_token_score* row) {
  constexpr specd_token_score kNone = {.id = -1, .value = 0, .rank = 0};
  const uint32_t width = results.scores_stride;
  const uint32_t count = result.scores_per_token;
  const auto* from = reinterpret_cast<const specd_token_score*>(result.scores);
  for (uint32_t i = 0; i < results.tokens_stride; ++i, row += width) {
    const uint32_t there = i < result.num_kept ? count : 0;
    if (there > 0) std::copy_n(from + size_t{i} * count, there, row);
    std::fill(row + there, row + width, kNone);
  }
}

bool Fits(std::span<const SequenceResult> from, const specd_batch_results& results) {
  if (from.size() > results.max_results) return false;
  return std::all_of(from.begin(), from.end(), [&](const SequenceResult& result) {
    return (!HasRows(results) || result.num_kept <= results.tokens_stride) &&
           (results.scores == nullptr || result.scores_per_token <= results.scores_stride);
  });
}

}  // namespace

void CompletionWriter::Write(const CompletionView& view, specd_completion* completion) {
  const size_t size = completion->result_size;
  results_.resize((view.results.size() * size + sizeof(uint64_t) - 1) / sizeof(uint64_t));
  const OutputArray<specd_result> results(reinterpret_cast<char*>(results_.data()), size);
  for (size_t i = 0; i < view.results.size(); ++i) {
    const SequenceResult& from = view.results[i];
    results.Put(i, {.sequence = from.sequence,
                    .status = static_cast<uint32_t>(from.status),
                    .finish_reason = static_cast<uint32_t>(from.finish_reason),
                    .num_accepted = from.num_accepted,
                    .num_kept = from.num_kept,
                    .total_kept = from.total_kept,
                    .stop_token = from.stop_token,
                    .detail = static_cast<uint32_t>(from.refusal),
                    .scores_per_token = from.scores_per_token,
                    .tokens = from.tokens,
                    .path = from.path,
                    .scores = reinterpret_cast<const specd_token_score*>(from.scores),
                    .cumulative_logprob = from.cumulative_logprob,
                    .verify = static_cast<uint32_t>(from.method),
                    .bad_row = from.bad_row,
                    .lossy = IsLossy(from.method) ? 1u : 0u,
                    .reserved = 0});
  }
  const OutputArray<specd_completion> out(reinterpret_cast<char*>(completion),
                                          completion->struct_size);
  out.Put(0, {.struct_size = completion->struct_size,
              .result_size = completion->result_size,
              .round_id = view.round_id,
              .num_results = static_cast<uint32_t>(view.results.size()),
              .reserved = 0,
              .results = reinterpret_cast<const specd_result*>(results_.data()),
              .verify_ns = view.done_ns - view.taken_ns,
              .total_ns = view.done_ns - view.submit_ns});
}

absl::Status CheckRoom(const specd_batch_results& results, const RoundSize& round,
                       const SessionLimits& limits) {
  if (results.reserved != 0) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "reserved", "reserved must be 0");
  }
  if (results.max_results < round.num_sequences) {
    return TooSmall("max_results", results.max_results, round.num_sequences,
                    "the number of sequences in the round; give longer arrays");
  }
  if (HasRows(results) && results.tokens_stride < round.max_nodes + 1) {
    return TooSmall("tokens_stride", results.tokens_stride, round.max_nodes + 1,
                    "1 + the draft tokens of the longest draft; give longer rows");
  }
  if (results.scores != nullptr && results.scores_stride < limits.max_scores) {
    return TooSmall("scores_stride", results.scores_stride, limits.max_scores,
                    "max_scores_per_token of specd_open; give longer rows");
  }
  return absl::OkStatus();
}

absl::Status WriteResults(const CompletionView& view, specd_batch_results* results) {
  const std::span<const SequenceResult> from = view.results;
  if (!Fits(from, *results)) {
    return MakeError(
        SPECD_ERROR_INTERNAL, "",
        "the daemon's answer has more than its round asked for; close and attach again");
  }
  Put(from, results->status, [](const auto& r) { return r.status; });
  Put(from, results->finish_reason, [](const auto& r) { return r.finish_reason; });
  Put(from, results->num_accepted, [](const auto& r) { return r.num_accepted; });
  Put(from, results->num_kept, [](const auto& r) { return r.num_kept; });
  Put(from, results->total_kept, [](const auto& r) { return r.total_kept; });
  Put(from, results->stop_token, [](const auto& r) { return r.stop_token; });
  Put(from, results->detail, [](const auto& r) { return r.refusal; });
  Put(from, results->bad_row, [](const auto& r) { return r.bad_row; });
  Put(from, results->verify, [](const auto& r) { return r.method; });
  Put(from, results->scores_per_token, [](const auto& r) { return r.scores_per_token; });
  Put(from, results->cumulative_logprob, [](const auto& r) { return r.cumulative_logprob; });
  const size_t stride = results->tokens_stride;
  for (size_t i = 0; i < from.size(); ++i) {
    const SequenceResult& result = from[i];
    if (results->tokens != nullptr) {
      PutRow(result.tokens, result.num_kept, results->tokens_stride, results->tokens + i * stride);
    }
    if (results->path != nullptr) {
      PutRow(result.path, result.num_accepted, results->tokens_stride, results->path + i * stride);
    }
    if (results->scores != nullptr) {
      PutScores(result, *results, results->scores + i * stride * results->scores_stride);
    }
  }
  results->round_id = view.round_id;
  results->verify_ns = view.done_ns - view.taken_ns;
  results->total_ns = view.done_ns - view.submit_ns;
  results->num_results = static_cast<uint32_t>(from.size());
  return absl::OkStatus();
}

}  // namespace specd
