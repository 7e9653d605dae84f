#include "ipc/segment/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "ipc/segment/call_layout.h"
#include "kernels/core/check.h"
#include "kernels/core/types.h"

namespace specd {
namespace {

struct Range {
  uint32_t min;
  uint32_t max;
};

absl::Status CheckRange(const char* field, uint32_t value, Range range, const char* remedy) {
  if (value >= range.min && value <= range.max) return absl::OkStatus();
  return MakeError(
      SPECD_ERROR_INVALID_ARGUMENT, field,
      fmt::format("{} = {} is outside {}..{}; {}", field, value, range.min, range.max, remedy));
}

constexpr uint64_t RoundUp(uint64_t value, uint64_t align) {
  return (value + align - 1) / align * align;
}

// In 64 bits, so that the limits may have the largest values of their ranges: below 2^35.
SegmentLayout Compute(const SessionLimits& limits) {
  SegmentLayout layout;

  uint64_t end = sizeof(DraftRecord);
  const auto field = [&end](uint64_t size_bytes) {
    const uint64_t begin = end;
    end += size_bytes;
    return static_cast<uint32_t>(begin);
  };
  layout.draft_tokens_offset = field(sizeof(TokenId) * limits.max_draft);
  layout.draft_target_rows_offset = field(sizeof(uint32_t) * (limits.max_draft + 1));
  layout.draft_draft_rows_offset = field(sizeof(uint32_t) * limits.max_draft);
  layout.draft_kinds_offset = field(sizeof(uint8_t) * limits.max_draft);
  end = RoundUp(end, alignof(double));
  layout.draft_masses_offset = field(sizeof(double) * limits.max_draft);
  layout.draft_weights_offset = field(sizeof(float) * limits.max_draft);
  layout.draft_mask_rows_offset = field(sizeof(int32_t) * (limits.max_draft + 1));
  layout.draft_argmax_offset = field(sizeof(TokenId) * (limits.max_draft + 1));
  layout.draft_parents_offset = field(sizeof(int32_t) * limits.max_draft);
  layout.draft_record_bytes = static_cast<uint32_t>(RoundUp(end, kRecordAlignBytes));

  end = sizeof(ResultRecord);
  layout.result_tokens_offset = field(sizeof(TokenId) * limits.max_output());
  layout.result_path_offset = field(sizeof(int32_t) * limits.max_output());
  layout.result_scores_offset =
      field(sizeof(TokenScore) * uint64_t{limits.max_output()} * limits.max_scores);
  layout.result_record_bytes = static_cast<uint32_t>(RoundUp(end, kRecordAlignBytes));

  end = sizeof(ScoreRecord);
  layout.call_rows_offset = field(sizeof(uint32_t) * limits.max_output());
  layout.call_ids_offset = field(sizeof(TokenId) * limits.max_output());
  layout.call_chosen_offset = field(sizeof(TokenId) * kCallChosenMax);
  const uint64_t children_end = sizeof(ChildrenRecord) + sizeof(TokenId) * limits.max_draft;
  layout.call_record_bytes =
      static_cast<uint32_t>(RoundUp(std::max(end, children_end), kRecordAlignBytes));

  end = sizeof(SegmentPage);
  const auto area = [&end](uint64_t size_bytes) {
    const uint64_t begin = end;
    end = RoundUp(begin + size_bytes, kLineBytes);
    return begin;
  };
  const uint64_t depth = limits.ring_depth;
  layout.draft_payload_bytes = depth * limits.max_batch * layout.draft_record_bytes;
  layout.result_payload_bytes = depth * limits.max_batch * layout.result_record_bytes;
  layout.submission_ring_offset = area(depth * sizeof(SubmissionEntry));
  layout.completion_ring_offset = area(depth * sizeof(CompletionEntry));
  layout.draft_payload_offset = area(layout.draft_payload_bytes);
  layout.result_payload_offset = area(layout.result_payload_bytes);
  layout.sequence_table_offset = area(sizeof(SequenceLine) * limits.max_sequences);
  layout.call_request_bytes = std::max(uint64_t{limits.max_batch} * layout.call_record_bytes,
                                       sizeof(CoinsRecord) + kCallCoinsMax * sizeof(CoinRecord));
  layout.call_answer_bytes =
      std::max(uint64_t{limits.max_batch} * kChildrenAnswerBytes, sizeof(RefusalRecord));
  layout.call_request_offset = area(layout.call_request_bytes);
  layout.call_answer_offset = area(layout.call_answer_bytes);
  layout.round_words_offset = RoundUp(end, kPageBytes);
  layout.round_words_bytes = RoundUp(depth * sizeof(RoundWords), kPageBytes);
  layout.segment_bytes = layout.round_words_offset + layout.round_words_bytes;
  return layout;
}

}  // namespace

absl::Status ValidateLimits(const SessionLimits& limits) {
  absl::Status status = CheckRange("vocab_size", limits.vocab_size, {1, kVocabSizeMax},
                                   "set it to the columns of a logits row");
  if (!status.ok()) return status;
  status = CheckRange("max_batch", limits.max_batch, {1, SessionLimits::kBatchMax},
                      "set it to the most sequences in one round");
  if (!status.ok()) return status;
  status = CheckRange("max_sequences", limits.max_sequences,
                      {limits.max_batch, SessionLimits::kSequencesMax},
                      "it counts open sequences and cannot be below max_batch");
  if (!status.ok()) return status;
  status = CheckRange("max_draft", limits.max_draft, {0, SessionLimits::kDraftMax},
                      "set it to the most draft tokens of one sequence in one round");
  if (!status.ok()) return status;
  status =
      CheckRange("max_path", limits.max_path, {0, limits.max_draft},
                 "set it to the most draft tokens on one path of a tree, or to 0 for max_draft");
  if (!status.ok()) return status;
  status = CheckRange("ring_depth", limits.ring_depth, {1, SessionLimits::kRingDepthMax},
                      "set it to a power of two, 4 is enough for most engines");
  if (!status.ok()) return status;
  if ((limits.ring_depth & (limits.ring_depth - 1)) != 0) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "ring_depth",
                     fmt::format("ring_depth = {} is no power of two; allowed are 1, 2, 4, ... {}",
                                 limits.ring_depth, SessionLimits::kRingDepthMax));
  }
  status = CheckRange("max_scores_per_token", limits.max_scores, {0, SessionLimits::kScoresMax},
                      "set it to 1 + the most logprobs + the most logprob_token_ids of a sequence");
  if (!status.ok()) return status;
  // The largest session without scores stays below the bound.
  if (const uint64_t bytes = Compute(limits).segment_bytes; bytes > kSegmentBytesMax) {
    return MakeError(
        SPECD_ERROR_INVALID_ARGUMENT, "max_scores_per_token",
        fmt::format("max_scores_per_token = {} makes a session of {} bytes, at most {} are "
                    "allowed; lower it, max_batch, max_draft or ring_depth",
                    limits.max_scores, bytes, kSegmentBytesMax));
  }
  return absl::OkStatus();
}

SegmentLayout ComputeLayout(const SessionLimits& limits) {
  SPECD_CHECK(ValidateLimits(limits).ok());
  return Compute(limits);
}

}  // namespace specd
