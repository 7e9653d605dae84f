#include "tools/bench/batch_engine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "daemon/trace/crc32.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr uint32_t kPromptIds = 32;

int32_t BestId(uint32_t row, uint32_t vocab_size) {
  return static_cast<int32_t>((7 * row + 3) % vocab_size);
}

}  // namespace

absl::Status BatchEngine::Start(const std::string& uri, const BatchShape& shape) {
  shape_ = shape;
  weights_.assign(shape.forward_bytes / sizeof(uint64_t), 1);
  specd_options options;
  specd_options_init(&options);
  options.vocab_size = shape.vocab_size;
  options.max_batch = shape.batch;
  options.max_sequences = 2 * shape.batch;
  options.max_draft = shape.draft;
  SPECD_TRY(engine_.Open(uri, options));
  SPECD_TRY(BindRows());
  tokens_.resize(size_t{shape.batch} * (shape.draft + 1));
  drawn_.resize(shape_.batch);
  status_.resize(shape_.batch);
  num_kept_.resize(shape_.batch);
  MakeOpenings();
  return OpenForRounds();
}

void BatchEngine::RunForward() {
  constexpr size_t kLineWords = 64 / sizeof(uint64_t);
  for (size_t i = 0; i < weights_.size(); i += kLineWords) forward_sum_ += weights_[i];
}

// The best id of every row is known, and every second sequence has a wrong draft token.
absl::Status BatchEngine::BindRows() {
  const auto& [vocab_size, batch, draft, forward_bytes] = shape_;
  const uint32_t num_places = batch * (draft + 1);
  SPECD_TAKE(float* const rows, engine_.Bind(SPECD_TARGET_ROWS, num_places, vocab_size));
  SPECD_TAKE(float* const draft_rows, engine_.Bind(SPECD_DRAFT_ROWS, batch, vocab_size));
  for (uint32_t i = 0; i < num_places; ++i) {
    const uint64_t at = uint64_t{i} * vocab_size + static_cast<uint32_t>(BestId(i, vocab_size));
    rows[at] = 8;
    // With this logit any coin draws the id.
    if (i < batch) draft_rows[at] = 100;
    rows_.push_back(i);
  }
  for (uint32_t i = 0; i < batch; ++i) {
    offsets_.push_back(i * draft);
    for (uint32_t k = 0; k < draft; ++k) {
      const int32_t best = BestId(i * (draft + 1) + k, vocab_size);
      const bool is_wrong = i % 2 == 1 && k == 2;
      drafts_.push_back(is_wrong ? (best + 1) % static_cast<int32_t>(vocab_size) : best);
    }
  }
  offsets_.push_back(batch * draft);
  return absl::OkStatus();
}

void BatchEngine::MakeOpenings() {
  for (uint32_t i = 0; i < shape_.batch * kPromptIds; ++i) {
    prompts_.push_back(static_cast<int32_t>(i % shape_.vocab_size));
  }
  params_.resize(shape_.batch);
  for (uint32_t i = 0; i < shape_.batch; ++i) {
    specd_params_init(&params_[i]);
    params_[i].top_p = 0.9;
    params_[i].temperature = 0.5 + i / 512.0;
    params_[i].has_seed = 1;
    params_[i].seed = i;
    params_[i].prompt_ids = {prompts_.data() + size_t{i} * kPromptIds, kPromptIds};
    names_.push_back(fmt::format("bench-{}-{}", getpid(), i));
  }
  for (const std::string& name : names_) name_pointers_.push_back(name.c_str());
  specd_sequence_info info = {};
  info.struct_size = sizeof(info);
  infos_.assign(shape_.batch, info);
}

absl::Status BatchEngine::OpenForRounds() {
  specd_params params;
  specd_params_init(&params);
  params.temperature = 0;
  params.max_tokens = INT32_MAX;
  for (uint32_t i = 0; i < shape_.batch; ++i) {
    SPECD_TAKE(const specd_sequence_info info,
               engine_.OpenSequence(fmt::format("rounds-{}-{}", getpid(), i), params));
    sequences_.push_back(info.sequence);
    specd_draft_request& request = requests_.emplace_back();
    request.struct_size = sizeof(request);
    request.sequence = info.sequence;
    request.row = i;
    request.mask_row = -1;
    request.num_children = 1;
  }
  children_.resize(shape_.batch);
  for (specd_draft_children& each : children_) each.struct_size = sizeof(each);
  return absl::OkStatus();
}

void BatchEngine::AddToDigest(const std::vector<int32_t>& ids) {
  const std::string_view bytes(reinterpret_cast<const char*>(ids.data()),
                               ids.size() * sizeof(int32_t));
  digest_ = JoinCrc32(digest_, Crc32(bytes), bytes.size());
}

absl::StatusOr<double> BatchEngine::RoundBatch() {
  specd_batch batch;
  specd_batch_init(&batch);
  batch.num_sequences = shape_.batch;
  batch.sequences = sequences_.data();
  batch.draft_offsets = offsets_.data();
  batch.tokens = drafts_.data();
  specd_batch_results results;
  specd_batch_results_init(&results);
  results.max_results = shape_.batch;
  results.tokens_stride = shape_.draft + 1;
  results.status = status_.data();
  results.num_kept = num_kept_.data();
  results.tokens = tokens_.data();
  const SteadyClock::time_point start = SteadyClock::now();
  SPECD_TRY(Done("specd_verify_batch", specd_verify_batch(engine_.get(), engine_.NextRound(),
                                                          &batch, &results, CEngine::kTimeoutMs)));
  const double time_us = MicrosSince(start);
  for (const uint32_t status : status_) {
    if (status != SPECD_STATUS_OK) return absl::InternalError("a sequence was not verified");
  }
  AddToDigest(tokens_);
  return time_us;
}

absl::StatusOr<double> BatchEngine::RoundEach() {
  const SteadyClock::time_point start = SteadyClock::now();
  std::vector<specd_draft> parts(shape_.batch);
  for (uint32_t i = 0; i < shape_.batch; ++i) {
    parts[i].struct_size = sizeof(specd_draft);
    parts[i].sequence = sequences_[i];
    parts[i].num_nodes = shape_.draft;
    parts[i].tokens = drafts_.data() + offsets_[i];
    parts[i].target_rows = rows_.data() + offsets_[i] + i;
  }
  const double made_us = MicrosSince(start);
  specd_completion done;
  SPECD_TAKE(const double time_us, engine_.RunRound(parts, &done));
  std::fill(tokens_.begin(), tokens_.end(), -1);
  for (uint32_t i = 0; i < shape_.batch; ++i) {
    const specd_result& result = done.results[i];
    std::copy_n(result.tokens, result.num_kept, tokens_.data() + size_t{i} * (shape_.draft + 1));
  }
  AddToDigest(tokens_);
  return made_us + time_us;
}

absl::StatusOr<double> BatchEngine::OpenBatch() {
  specd_openings openings;
  specd_openings_init(&openings);
  openings.num_openings = openings.max_infos = shape_.batch;
  openings.request_ids = name_pointers_.data();
  openings.params = params_.data();
  openings.infos = infos_.data();
  const SteadyClock::time_point start = SteadyClock::now();
  SPECD_TRY(Done("specd_open_sequences", specd_open_sequences(engine_.get(), &openings)));
  return CloseAll(MicrosSince(start));
}

absl::StatusOr<double> BatchEngine::OpenEach() {
  const SteadyClock::time_point start = SteadyClock::now();
  for (uint32_t i = 0; i < shape_.batch; ++i) {
    SPECD_TRY(Done("specd_open_sequence",
                   specd_open_sequence(engine_.get(), name_pointers_[i], &params_[i], &infos_[i])));
  }
  return CloseAll(MicrosSince(start));
}

absl::StatusOr<double> BatchEngine::Draw(uint32_t count) {
  const SteadyClock::time_point start = SteadyClock::now();
  for (uint32_t first = 0; first < shape_.batch; first += count) {
    SPECD_TRY(Done("specd_sample_draft",
                   specd_sample_draft(engine_.get(), &requests_[first], count, &children_[first])));
    for (uint32_t i = first; i < first + count; ++i) {
      if (children_[i].status != SPECD_STATUS_OK) {
        return absl::InternalError("a sequence has no draft token");
      }
      drawn_[i] = children_[i].children[0].id;
    }
  }
  const double time_us = MicrosSince(start);
  AddToDigest(drawn_);
  return time_us;
}

absl::StatusOr<double> BatchEngine::CloseAll(double time_us) {
  for (const specd_sequence_info& info : infos_) {
    SPECD_TRY(Done("specd_close_sequence", specd_close_sequence(engine_.get(), info.sequence)));
  }
  return time_us;
}

absl::Status BatchEngine::Run(std::string_view work, int count, Times* times_us) {
  for (int i = 0; i < count; ++i) {
    RunForward();
    SPECD_TAKE(times_us->emplace_back(), work == "round_batch"  ? RoundBatch()
                                         : work == "round_each" ? RoundEach()
                                         : work == "open_batch" ? OpenBatch()
                                         : work == "open_each"  ? OpenEach()
                                         : work == "draw_batch" ? Draw(shape_.batch)
                                                                : Draw(1));
  }
  return absl::OkStatus();
}

}  // namespace specd::bench
