#include "daemon/server/canary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include "kernels/core/draft.h"
#include "kernels/core/sequence_round.h"
#include "speculative/params/params.h"

namespace specd {
namespace {

// A few tiles, and no whole number of any.
constexpr int32_t kVocabSize = 5000;
// Prime to kVocabSize: the maxima visit every id.
constexpr int32_t kStride = 1237;
constexpr float kMaximum = 1;
constexpr uint32_t kRows[] = {0, 1};

// Below kMaximum, and different for neighbours.
float BackgroundOf(TokenId id) { return -static_cast<float>(id % 97); }

}  // namespace

absl::StatusOr<std::unique_ptr<Canary>> Canary::Create(const Options& options,
                                                       std::unique_ptr<Backend> backend) {
  VerifierOptions verifier;
  verifier.limits = {.vocab_size = kVocabSize, .max_batch = 1, .max_draft = 1};
  verifier.max_sequences = 1;
  absl::StatusOr<std::unique_ptr<Verifier>> made = Verifier::Create(verifier, std::move(backend));
  if (!made.ok()) return made.status();
  return std::unique_ptr<Canary>(new Canary(options, *std::move(made)));
}

Canary::Canary(const Options& options, std::unique_ptr<Verifier> verifier)
    : options_(options),
      rows_(std::size(kRows) * size_t{kVocabSize}),
      verifier_(std::move(verifier)) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    rows_[i] = BackgroundOf(static_cast<TokenId>(i % kVocabSize));
  }
}

void Canary::LookWhileIdle(bool has_worked) {
  if (has_failed_) return;
  if (has_worked) {
    quiet_since_ns_.reset();
    // Busy engines cost no look at the clock.
    if (is_right_) return;
  }
  const int64_t now_ns = options_.clock->NowNs();
  if (!quiet_since_ns_.has_value()) quiet_since_ns_ = now_ns;
  if (now_ns < due_ns_ || (is_right_ && now_ns - *quiet_since_ns_ < kQuietNs)) return;
  const absl::Status verdict = RunRound();
  options_.meters->canary.Add(options_.clock->NowNs() - now_ns);
  due_ns_ = now_ns + options_.interval_ns;
  Judge(verdict);
}

void Canary::Judge(const absl::Status& verdict) {
  VerifyMeters& meters = *options_.meters;
  const uint64_t num_failing = meters.canary_failing.value();
  is_right_ = verdict.ok();
  if (!is_right_) ++meters.canary_failures;
  meters.canary_failing.Set(is_right_ ? 0 : num_failing + 1);
  if (has_failed_) {
    options_.on_device_failure(std::string(verdict.message()));
  } else if (is_right_ == (num_failing > 0)) {
    options_.on_change(verdict);
  }
}

void Canary::MoveMaxima() {
  for (size_t row = 0; row < std::size(kRows); ++row) {
    float* const elements = rows_.data() + row * kVocabSize;
    elements[maxima_[row]] = BackgroundOf(maxima_[row]);
    const uint64_t step = 2 * num_rounds_ + row + 1;
    maxima_[row] = static_cast<TokenId>(step * kStride % kVocabSize);
    elements[maxima_[row]] = kMaximum;
  }
}

absl::Status Canary::RunRound() {
  MoveMaxima();
  // A draft token that stands, and in the next round one that falls.
  const bool accepts = num_rounds_ % 2 == 0;
  const TokenId draft = maxima_[accepts ? 0 : 1];
  TensorView view;
  view.data = rows_.data();
  view.num_rows = std::size(kRows);
  view.row_stride = kVocabSize;
  view.vocab_size = kVocabSize;
  if (absl::Status status = verifier_->BindTarget(view); !status.ok()) return status;
  SequenceParams params;
  params.temperature = 0;
  const absl::StatusOr<SequenceInfo> opened = verifier_->Open(params);
  if (!opened.ok()) return opened.status();
  SequenceInput input;
  input.sequence = opened->handle;
  input.draft.num_nodes = 1;
  input.draft.tokens = &draft;
  input.draft.target_rows = kRows;
  SequenceResult result;
  verifier_->BeginRound({&input, 1}, {&result, 1}, /*asks=*/false);
  while (verifier_->RunPiece()) continue;
  verifier_->EndRound(std::span(&result, 1));
  has_failed_ = result.status == RoundStatus::kDeviceError;
  const absl::Status verdict = has_failed_ ? verifier_->failure() : CompareAnswer(result, accepts);
  verifier_->Close(opened->handle);
  ++num_rounds_;
  return verdict;
}

absl::Status Canary::CompareAnswer(const SequenceResult& result, bool accepts) const {
  const std::span<const TokenId> right(maxima_, accepts ? 2 : 1);
  const std::span<const TokenId> kept(result.tokens, result.num_kept);
  if (result.status == RoundStatus::kOk && result.num_accepted == right.size() - 1 &&
      std::equal(kept.begin(), kept.end(), right.begin(), right.end())) {
    return absl::OkStatus();
  }
  return absl::DataLossError(fmt::format(
      "the round kept the tokens [{}] with {} accepted (status {}), and [{}] with {} accepted is "
      "right",
      fmt::join(kept, ", "), result.num_accepted, static_cast<uint32_t>(result.status),
      fmt::join(right, ", "), right.size() - 1));
}

}  // namespace specd
