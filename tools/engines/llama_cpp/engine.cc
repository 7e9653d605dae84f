#include "tools/engines/llama_cpp/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "tools/engines/llama_cpp/answers.h"

namespace specd::llama_cpp {
namespace {

using SteadyClock = std::chrono::steady_clock;

// The text side answers within milliseconds, or is gone after 3 seconds.
constexpr int kFinalTimeoutMs = 10000;
constexpr size_t kEosIdsMax = 64;  // specd_options.eos_token_ids

bool IsEmbedded(const std::string& uri) { return uri.starts_with("embedded:"); }

absl::StatusOr<std::vector<int32_t>> EndTokens(const llama_vocab* vocab) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < llama_vocab_n_tokens(vocab); ++id) {
    if (llama_vocab_is_eog(vocab, id)) ids.push_back(id);
  }
  if (ids.size() <= kEosIdsMax) return ids;
  return absl::InvalidArgumentError(fmt::format(
      "model: {} of its ids end an output, and specd takes at most {}; give a GGUF file "
      "with fewer end-of-generation tokens",
      ids.size(), kEosIdsMax));
}

}  // namespace

Engine::Engine(EngineOptions options, std::unique_ptr<CachedModel> model,
               std::unique_ptr<CachedModel> draft_model)
    : options_(std::move(options)), model_(std::move(model)), slots_(options_.max_batch) {
  if (draft_model == nullptr) return;
  assistant_.emplace(std::move(draft_model), options_.max_draft,
                     options_.drafts == Drafts::kSampled);
}

Engine::~Engine() { specd_close(engine_); }

absl::Status Engine::Run(std::span<const Prompt> prompts, std::vector<Generation>* generations) {
  prompts_ = prompts;
  generations_ = generations;
  generations_->assign(prompts.size(), {});
  absl::Status status = Attach();
  if (status.ok()) status = BindRows();
  while (status.ok()) {
    status = CloseFinished();
    if (status.ok()) status = OpenWaiting();
    if (!status.ok() || LiveSequences().empty()) return status;
    status = RunRound();
  }
  return status;
}

absl::Status Engine::Attach() {
  specd_options attach;
  specd_options_init(&attach);
  attach.vocab_size = model_->vocab_size();
  attach.max_batch = options_.max_batch;
  attach.max_draft = options_.max_draft;
  attach.name = "llama_cpp";
  if (!options_.tokenizer.empty()) attach.tokenizer = options_.tokenizer.c_str();
  // A daemon knows the ids that end an output from its own flags.
  std::vector<int32_t> ends;
  if (IsEmbedded(options_.uri)) {
    absl::StatusOr<std::vector<int32_t>> found = EndTokens(model_->vocab());
    if (!found.ok()) return found.status();
    ends = *std::move(found);
    attach.eos_token_ids = {ends.data(), ends.size()};
  }
  return StatusOf(specd_open(options_.uri.c_str(), &attach, &engine_));
}

absl::Status Engine::BindRows() {
  const uint64_t size_bytes = model_->max_rows() * uint64_t{model_->vocab_size()} * sizeof(float);
  specd_region region;
  const bool is_embedded = IsEmbedded(options_.uri);
  int code = is_embedded ? specd_lend(engine_, model_->rows(), size_bytes, &region)
                         : specd_alloc(engine_, size_bytes, &region);
  if (code != SPECD_OK) return StatusOf(code);
  if (!is_embedded) shared_rows_ = static_cast<float*>(region.data);
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.num_rows = model_->max_rows();
  code = specd_bind(engine_, SPECD_TARGET_ROWS, &tensor);
  if (code == SPECD_OK && assistant_.has_value()) code = assistant_->Attach(engine_);
  return StatusOf(code);
}

// ---- sequences ----------------------------------------------------------------------------------

std::vector<LiveSequence*> Engine::LiveSequences() {
  std::vector<LiveSequence*> live;
  for (const std::unique_ptr<LiveSequence>& sequence : slots_) {
    if (sequence != nullptr) live.push_back(sequence.get());
  }
  return live;
}

absl::Status Engine::OpenWaiting() {
  for (uint32_t slot = 0; slot < slots_.size() && next_prompt_ < prompts_.size(); ++slot) {
    if (slots_[slot] != nullptr) continue;
    if (const absl::Status status = OpenSequence(slot, next_prompt_); !status.ok()) return status;
    ++next_prompt_;
  }
  return absl::OkStatus();
}

absl::Status Engine::OpenSequence(uint32_t slot, size_t prompt_index) {
  const Prompt& prompt = prompts_[prompt_index];
  std::vector<const char*> stop_strings;
  for (const std::string& stop : options_.stop_strings) stop_strings.push_back(stop.c_str());
  specd_params params;
  specd_params_init(&params);
  params.seed = options_.seed + prompt_index;
  params.has_seed = 1;
  params.max_tokens = options_.max_tokens;
  params.stop_strings = {stop_strings.data(), stop_strings.size()};
  params.prompt_ids = {prompt.ids.data(), prompt.ids.size()};
  params.numbers = {options_.params.data(), options_.params.size()};
  specd_sequence_info info = {};
  info.struct_size = sizeof(info);
  const int code = specd_open_sequence(engine_, prompt.request_id.c_str(), &params, &info);
  if (code != SPECD_OK) return StatusOf(code);

  auto sequence = std::make_unique<LiveSequence>();
  sequence->prompt_index = prompt_index;
  sequence->slot = slot;
  sequence->sequence = info.sequence;
  sequence->num_prompt = prompt.ids.size();
  sequence->tokens = prompt.ids;
  slots_[slot] = std::move(sequence);
  // The last token of the prompt is the first input of the first round.
  absl::Status status = model_->Feed(slot, std::span(prompt.ids).first(prompt.ids.size() - 1));
  if (status.ok() && assistant_.has_value()) status = assistant_->Open(*slots_[slot]);
  return status;
}

// The text side may have ended a sequence since the last round. Its forward is then not needed.
absl::Status Engine::CloseFinished() {
  for (const LiveSequence* sequence : LiveSequences()) {
    specd_sequence_state state;
    const int code = specd_get_sequence_state(engine_, sequence->sequence, &state);
    if (code != SPECD_OK) return StatusOf(code);
    if (state.finish_reason == SPECD_FINISH_NONE) continue;
    if (const absl::Status status = CloseSequence(sequence->slot); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Engine::CloseSequence(uint32_t slot) {
  const std::unique_ptr<LiveSequence> sequence = std::move(slots_[slot]);
  Generation& generation = (*generations_)[sequence->prompt_index];
  // A stop string in the last tokens may still move the end.
  specd_sequence_state state;
  const int code = specd_sequence_final(engine_, sequence->sequence, &state, kFinalTimeoutMs);
  if (code == SPECD_EMPTY) {
    return absl::DeadlineExceededError(
        fmt::format("the text side said nothing about the end of a sequence for {} ms; is the "
                    "daemon overloaded?",
                    kFinalTimeoutMs));
  }
  if (code != SPECD_OK) return StatusOf(code);
  generation.finish_reason = state.finish_reason;
  generation.tokens.assign(sequence->tokens.begin() + static_cast<ptrdiff_t>(sequence->num_prompt),
                           sequence->tokens.end());
  generation.tokens.resize(std::min<size_t>(generation.tokens.size(), state.kept_tokens));
  absl::Status status = StatusOf(specd_close_sequence(engine_, sequence->sequence));
  if (status.ok()) status = model_->Cut(slot, 0);
  if (status.ok() && assistant_.has_value()) status = assistant_->Close(slot);
  return status;
}

// ---- rounds -------------------------------------------------------------------------------------

absl::Status Engine::RunRound() {
  const std::vector<LiveSequence*> live = LiveSequences();
  absl::Status status = Propose(live);
  if (status.ok()) status = Forward(live);
  if (status.ok()) status = Verify(live);
  return status;
}

absl::Status Engine::Propose(std::span<LiveSequence* const> live) {
  const NgramDrafter ngrams = {.longest = options_.ngram,
                               .num_nodes = options_.max_draft,
                               .width = options_.tree_width,
                               .max_depth = options_.tree_depth};
  for (LiveSequence* sequence : live) {
    const size_t kept = sequence->tokens.size() - sequence->num_prompt;
    // No row follows the last token.
    sequence->room = std::min<size_t>(options_.max_draft, options_.max_tokens - kept - 1);
    sequence->draft = {};
    if (options_.drafts != Drafts::kNgram) continue;
    const absl::Status status = ngrams.Propose(sequence->tokens, sequence->room, &sequence->draft);
    if (!status.ok()) return status;
  }
  return assistant_.has_value() ? assistant_->Propose(live) : absl::OkStatus();
}

// The inputs of a sequence are its last token, whose row is still wanted, and the draft.
absl::Status Engine::Forward(std::span<LiveSequence* const> live) {
  const SteadyClock::time_point start = SteadyClock::now();
  std::vector<std::vector<int32_t>> tokens;
  std::vector<ForwardInput> inputs;
  tokens.reserve(live.size());
  size_t num_rows = 0;
  for (const LiveSequence* sequence : live) {
    tokens.push_back({sequence->tokens.back()});
    tokens.back().insert(tokens.back().end(), sequence->draft.tokens.begin(),
                         sequence->draft.tokens.end());
    inputs.push_back({.slot = sequence->slot,
                      .tokens = tokens.back(),
                      .num_rows = tokens.back().size(),
                      .parents = sequence->draft.parents});
    num_rows += tokens.back().size();
  }
  if (const absl::Status status = model_->Forward(inputs); !status.ok()) return status;
  if (shared_rows_ != nullptr) {
    std::copy_n(model_->rows(), num_rows * model_->vocab_size(), shared_rows_);
  }
  forward_time_ += SteadyClock::now() - start;
  return absl::OkStatus();
}

// A round in which all rows are in the order of the batch.
absl::Status Engine::Verify(std::span<LiveSequence* const> live) {
  const SteadyClock::time_point start = SteadyClock::now();
  std::vector<specd_sequence> sequences;
  std::vector<uint32_t> offsets = {0};
  Draft all;
  for (const LiveSequence* sequence : live) {
    const Draft& draft = sequence->draft;
    sequences.push_back(sequence->sequence);
    all.tokens.insert(all.tokens.end(), draft.tokens.begin(), draft.tokens.end());
    all.parents.insert(all.parents.end(), draft.parents.begin(), draft.parents.end());
    all.rows.insert(all.rows.end(), draft.rows.begin(), draft.rows.end());
    all.weights.insert(all.weights.end(), draft.weights.begin(), draft.weights.end());
    all.masses.insert(all.masses.end(), draft.masses.begin(), draft.masses.end());
    offsets.push_back(static_cast<uint32_t>(all.tokens.size()));
  }
  const std::vector<uint8_t> kinds(all.rows.size(), SPECD_SAMPLED);
  specd_batch batch;
  specd_batch_init(&batch);
  batch.num_sequences = static_cast<uint32_t>(sequences.size());
  batch.sequences = sequences.data();
  batch.draft_offsets = offsets.data();
  batch.tokens = all.tokens.data();
  if (!all.parents.empty()) batch.parents = all.parents.data();
  if (!kinds.empty()) {
    batch.kinds = kinds.data();
    batch.draft_rows = all.rows.data();
    batch.draft_weights = all.weights.data();
    batch.draft_masses = all.masses.data();
  }
  const size_t stride = options_.max_draft + 1;
  std::vector<uint32_t> numbers(4 * live.size());
  std::vector<int32_t> tokens(2 * stride * live.size());
  specd_batch_results results;
  specd_batch_results_init(&results);
  results.max_results = batch.num_sequences;
  results.tokens_stride = static_cast<uint32_t>(stride);
  results.status = numbers.data();
  results.detail = results.status + live.size();
  results.num_kept = results.detail + live.size();
  results.num_accepted = results.num_kept + live.size();
  results.tokens = tokens.data();
  results.path = results.tokens + stride * live.size();
  const int code = specd_verify_batch(engine_, next_round_++, &batch, &results, -1);
  verify_time_ += SteadyClock::now() - start;
  return code != SPECD_OK ? StatusOf(code) : TakeResults(live, results);
}

// Cuts the caches to the tokens that stand, and adds the kept tokens.
absl::Status Engine::TakeResults(std::span<LiveSequence* const> live,
                                 const specd_batch_results& results) {
  for (size_t i = 0; i < live.size(); ++i) {
    LiveSequence& sequence = *live[i];
    if (results.status[i] == SPECD_STATUS_FINISHED) continue;
    if (results.status[i] != SPECD_STATUS_OK) {
      return BadRound(results.status[i], results.detail[i]);
    }
    const size_t num_accepted = results.num_accepted[i];
    const std::span path(results.path + i * results.tokens_stride, num_accepted);
    absl::Status status = sequence.draft.parents.empty()
                              ? model_->Cut(sequence.slot, sequence.tokens.size() + num_accepted)
                              : model_->Keep(sequence.slot, path);
    if (status.ok() && assistant_.has_value()) status = assistant_->Settle(sequence, num_accepted);
    if (!status.ok()) return status;
    const int32_t* kept = results.tokens + i * results.tokens_stride;
    sequence.tokens.insert(sequence.tokens.end(), kept, kept + results.num_kept[i]);
    Generation& generation = (*generations_)[sequence.prompt_index];
    ++generation.num_rounds;
    generation.num_drafted += sequence.draft.tokens.size();
    generation.num_accepted += num_accepted;
  }
  return absl::OkStatus();
}

}  // namespace specd::llama_cpp
