#include "tools/bench/c_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tools/bench/rows.h"
#include "tools/bench/timing.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

// With this logit, and 0 for all other ids, any coin draws the id.
constexpr float kBestLogit = 100;
// What is in the place of a token that was not written.
constexpr int32_t kNoAnswer = -2;

void CopyRows(const RowPool& pool, float* to) {
  std::memcpy(to, pool.view().data, static_cast<size_t>(pool.spec().num_rows * pool.row_bytes()));
}

}  // namespace

absl::Status Done(std::string_view call, int code) {
  if (code == SPECD_OK) return absl::OkStatus();
  return absl::InternalError(fmt::format("{}: {} ({})", call, specd_last_error(), code));
}

specd_options CEngine::Options(uint32_t vocab_size, uint32_t batch, uint32_t draft) {
  specd_options options;
  specd_options_init(&options);
  options.vocab_size = vocab_size;
  options.max_batch = batch;
  options.max_draft = draft;
  options.timeout_ms = kTimeoutMs;
  return options;
}

specd_params CEngine::Params(double temperature) {
  specd_params params;
  specd_params_init(&params);
  params.temperature = temperature;
  params.has_seed = 1;
  params.max_tokens = INT32_MAX;
  return params;
}

absl::StatusOr<float*> CEngine::Bind(int role, uint32_t num_rows) {
  specd_region region;
  const uint64_t num_elements = uint64_t{num_rows} * options_.vocab_size;
  SPECD_TRY(Done("specd_alloc", specd_alloc(engine_, num_elements * sizeof(float), &region)));
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.num_rows = num_rows;
  SPECD_TRY(Done("specd_bind", specd_bind(engine_, role, &tensor)));
  return static_cast<float*>(region.data);
}

absl::Status CEngine::Start(const std::string& uri, const specd_options& options,
                            const KnownRows& rows) {
  options_ = options;
  rows_ = rows;
  if (rows_.num_rows == 0) rows_.num_rows = options.max_batch * (options.max_draft + 1);
  SPECD_TRY(Done("specd_open", specd_open(uri.c_str(), &options, &engine_)));
  SPECD_TAKE(float* const target, Bind(SPECD_TARGET_ROWS, rows_.num_rows));
  if (rows.are_drawn) {
    RowSpec spec = {.vocab_size = static_cast<int32_t>(options.vocab_size),
                    .num_rows = rows_.num_rows};
    CopyRows(RowPool(spec), target);
    spec.num_rows = options.max_batch * options.max_draft;
    spec.drafter = true;
    const RowPool drafter(spec);
    SPECD_TAKE(float* const draft, Bind(SPECD_DRAFT_ROWS, static_cast<uint32_t>(spec.num_rows)));
    CopyRows(drafter, draft);
    for (int64_t row = 0; row < spec.num_rows; ++row) {
      drawn_drafts_.push_back(drafter.best_id(row));
    }
    return absl::OkStatus();
  }
  const auto set_best = [&](float* row_data, uint32_t row, uint32_t best) {
    row_data[uint64_t{row} * options.vocab_size + best] = kBestLogit;
  };
  for (uint32_t row = 0; row < rows_.num_rows; ++row) set_best(target, row, BestOf(row));
  if (!rows.has_draft_rows) return absl::OkStatus();
  const uint32_t num_drafts = options.max_batch * options.max_draft;
  SPECD_TAKE(float* const draft, Bind(SPECD_DRAFT_ROWS, num_drafts));
  for (uint32_t row = 0; row < num_drafts; ++row) {
    set_best(draft, row, static_cast<uint32_t>(BestOfDraft(row)));
  }
  return absl::OkStatus();
}

absl::Status CEngine::Open(const std::string& prefix, uint32_t count, specd_params params) {
  specd_sequence_info info = {};
  info.struct_size = sizeof(info);
  for (uint32_t i = 0; i < count; ++i) {
    params.seed = i + 1;
    const std::string name = fmt::format("{}.{}", prefix, i);
    SPECD_TRY(
        Done("specd_open_sequence", specd_open_sequence(engine_, name.c_str(), &params, &info)));
    sequences_.push_back(info.sequence);
  }
  offsets_.clear();  // the next round is prepared anew
  return absl::OkStatus();
}

absl::Status CEngine::CloseAll() {
  offsets_.clear();
  for (const specd_sequence sequence : std::exchange(sequences_, {})) {
    SPECD_TRY(Done("specd_close_sequence", specd_close_sequence(engine_, sequence)));
  }
  return absl::OkStatus();
}

void CEngine::Prepare(uint32_t num_nodes) {
  const size_t count = sequences_.size();
  std::ranges::fill(tokens_, kNoAnswer);
  if (!offsets_.empty() && offsets_.back() == count * num_nodes) return;
  const size_t stride = options_.max_draft + 1;
  offsets_ = {0};
  drafts_.clear();
  target_rows_.clear();
  expected_.assign(count * stride, -1);
  for (size_t i = 0; i < count; ++i) {
    bool is_kept = true;
    for (uint32_t node = 0; node <= num_nodes; ++node) {
      const auto row = static_cast<uint32_t>(i * stride + node) % rows_.num_rows;
      const uint32_t best = BestOf(row);
      target_rows_.push_back(row);
      if (is_kept) expected_[i * stride + node] = static_cast<int32_t>(best);
      if (node == num_nodes) continue;
      const bool is_wrong = IsWrong(i, node);
      drafts_.push_back(static_cast<int32_t>((best + is_wrong) % options_.vocab_size));
      is_kept = is_kept && !is_wrong;
    }
    offsets_.push_back(static_cast<uint32_t>(drafts_.size()));
  }
  if (rows_.are_drawn) drafts_ = drawn_drafts_;
  kinds_.assign(drafts_.size(), SPECD_SAMPLED);
  tokens_.assign(count * stride, kNoAnswer);
  status_.assign(count, 0);
  specd_batch_init(&batch_);
  batch_.num_sequences = static_cast<uint32_t>(count);
  batch_.sequences = sequences_.data();
  batch_.draft_offsets = offsets_.data();
  batch_.tokens = drafts_.data();
  batch_.kinds = rows_.are_drawn ? kinds_.data() : nullptr;
  // Rows that are in order need no list.
  const bool is_full = target_rows_.size() == rows_.num_rows;
  batch_.target_rows = is_full && num_nodes == options_.max_draft ? nullptr : target_rows_.data();
  specd_batch_results_init(&results_);
  results_.max_results = batch_.num_sequences;
  results_.tokens_stride = static_cast<uint32_t>(stride);
  results_.status = status_.data();
  results_.tokens = tokens_.data();
}

absl::Status CEngine::CheckAnswer() {
  const bool is_verified = std::ranges::count(status_, SPECD_STATUS_OK) == std::ssize(status_);
  if (!is_verified || (!rows_.are_drawn && tokens_ != expected_)) {
    return Broken("a round has another answer");
  }
  for (const int32_t id : tokens_) {
    digest_ = (digest_ ^ static_cast<uint32_t>(id)) * 0x100000001b3;  // FNV
  }
  return absl::OkStatus();
}

absl::StatusOr<double> CEngine::RunRound(uint32_t num_nodes) {
  Prepare(num_nodes);
  const SteadyClock::time_point start = SteadyClock::now();
  const int code = specd_verify_batch(engine_, ++num_rounds_, &batch_, &results_, kTimeoutMs);
  const double time_us = MicrosSince(start);
  SPECD_TRY(Done("specd_verify_batch", code));
  confirmed_ns_ = start.time_since_epoch().count() + static_cast<int64_t>(results_.total_ns);
  SPECD_TRY(CheckAnswer());
  return time_us;
}

absl::Status CEngine::Submit(uint32_t num_nodes) {
  Prepare(num_nodes);
  return Done("specd_submit_batch", specd_submit_batch(engine_, ++num_rounds_, &batch_));
}

absl::StatusOr<bool> CEngine::Poll() {
  const int code = specd_poll_batch(engine_, &results_, 0);
  if (code == SPECD_EMPTY) return false;
  SPECD_TRY(Done("specd_poll_batch", code));
  SPECD_TRY(CheckAnswer());
  return true;
}

}  // namespace specd::bench
