#include "tools/engines/llama_cpp/cached_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace specd::llama_cpp {
namespace {

constexpr size_t kMinPositions = 2;
// Tokens of a prompt in one forward. It does not depend on K, so K changes no prompt's cache.
constexpr size_t kFeedPositions = 512;

}  // namespace

absl::StatusOr<std::unique_ptr<CachedModel>> CachedModel::Load(const ModelOptions& options) {
  std::unique_ptr<CachedModel> model(new CachedModel(options));
  if (const absl::Status status = model->Init(); !status.ok()) return status;
  return model;
}

absl::Status CachedModel::Init() {
  model_.reset(llama_model_load_from_file(options_.path.c_str(), llama_model_default_params()));
  if (model_ == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("{}: \"{}\" is no model that this libllama ({}) can load; give a GGUF file",
                    options_.name, options_.path, llama_version()));
  }
  vocab_ = llama_model_get_vocab(model_.get());
  if (const absl::Status status = CheckKind(); !status.ok()) return status;

  const auto trained = static_cast<uint32_t>(llama_model_n_ctx_train(model_.get()));
  num_positions_ = options_.context == 0 ? trained : options_.context;
  if (num_positions_ > trained) {
    return absl::InvalidArgumentError(
        fmt::format("context: {} is outside 1 .. {}, the positions that {} was trained with",
                    num_positions_, trained, options_.name));
  }
  const size_t width = std::max<size_t>(options_.num_rows, kMinPositions);
  const auto batch = static_cast<uint32_t>(std::max(kFeedPositions, options_.num_slots * width));
  llama_context_params params = llama_context_default_params();
  // Padding may lie beyond the last position of a sequence.
  params.n_ctx = options_.num_slots * (num_positions_ + static_cast<uint32_t>(width));
  params.n_batch = params.n_ubatch = batch;  // one forward is never split
  params.n_seq_max = options_.num_slots;
  params.n_outputs_max = std::max(options_.num_slots * options_.num_rows, options_.num_slots);
  params.n_outputs_max_per_seq = options_.num_rows;
  params.n_threads = params.n_threads_batch = static_cast<int32_t>(options_.threads);
  params.swa_full = true;     // a window without its earlier cells could not be cut
  params.kv_unified = false;  // a sequence's sums do not depend on the others
  context_.reset(llama_init_from_model(model_.get(), params));
  if (context_ == nullptr) {
    return absl::ResourceExhaustedError(fmt::format(
        "{}: libllama made no context of {} sequences of {} positions; give a smaller context or "
        "max_batch",
        options_.name, options_.num_slots, num_positions_));
  }
  lengths_.assign(options_.num_slots, 0);
  return ReserveRows();
}

absl::Status CachedModel::CheckKind() const {
  const auto refuse = [&](std::string_view why) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: {}; give a causal model that keeps keys and values alone", options_.name, why));
  };
  if (llama_model_has_encoder(model_.get())) return refuse("it has an encoder");
  if (llama_model_is_recurrent(model_.get()) || llama_model_is_hybrid(model_.get())) {
    return refuse("it has a recurrent state, which cannot be cut after a rejected draft");
  }
  if (llama_model_is_diffusion(model_.get())) return refuse("it is a diffusion model");
  if (llama_vocab_type(vocab_) == LLAMA_VOCAB_TYPE_NONE) {
    return refuse("it has no tokenizer, which prompts need");
  }
  return absl::OkStatus();
}

// libllama enlarges its buffer of rows, and so moves it, when a forward has more rows than any
// before. The first forward therefore has all of them.
absl::Status CachedModel::ReserveRows() {
  const std::vector<int32_t> tokens(options_.num_rows, 0);
  std::vector<ForwardInput> inputs;
  for (uint32_t slot = 0; slot < options_.num_slots; ++slot) {
    inputs.push_back({.slot = slot, .tokens = tokens, .num_rows = tokens.size()});
  }
  absl::Status status = Forward(inputs);
  for (uint32_t slot = 0; status.ok() && slot < options_.num_slots; ++slot) status = Cut(slot, 0);
  return status;
}

absl::Status CachedModel::Feed(uint32_t slot, std::span<const int32_t> tokens) {
  while (!tokens.empty()) {
    const size_t count = std::min(tokens.size(), kFeedPositions);
    const ForwardInput input{.slot = slot, .tokens = tokens.first(count)};
    if (const absl::Status status = Forward({&input, 1}); !status.ok()) return status;
    tokens = tokens.subspan(count);
  }
  return absl::OkStatus();
}

absl::Status CachedModel::Forward(std::span<const ForwardInput> inputs) {
  size_t width = kMinPositions;
  for (const ForwardInput& input : inputs) width = std::max(width, input.tokens.size());
  tokens_.clear();
  positions_.clear();
  slots_.clear();
  has_row_.clear();
  for (const ForwardInput& input : inputs) {
    const size_t num_tokens = input.tokens.size();
    for (size_t i = 0; i < width; ++i) {
      const bool is_padding = i >= num_tokens;
      AddPosition(is_padding ? input.tokens.back() : input.tokens[i], input.slot,
                  lengths_[input.slot] + i, !is_padding && i + input.num_rows >= num_tokens);
    }
  }
  if (const absl::Status status = Decode(); !status.ok()) return status;
  for (const ForwardInput& input : inputs) {
    lengths_[input.slot] += width;
    const size_t length = lengths_[input.slot] - width + input.tokens.size();
    if (const absl::Status status = Cut(input.slot, length); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void CachedModel::AddPosition(int32_t token, uint32_t slot, size_t position, bool has_row) {
  tokens_.push_back(token);
  positions_.push_back(static_cast<llama_pos>(position));
  slots_.push_back(static_cast<llama_seq_id>(slot));
  has_row_.push_back(has_row ? 1 : 0);
}

absl::Status CachedModel::Decode() {
  slot_pointers_.clear();
  for (llama_seq_id& slot : slots_) slot_pointers_.push_back(&slot);
  num_slots_of_.assign(tokens_.size(), 1);
  const llama_batch batch{.n_tokens = static_cast<int32_t>(tokens_.size()),
                          .token = tokens_.data(),
                          .embd = nullptr,
                          .pos = positions_.data(),
                          .n_seq_id = num_slots_of_.data(),
                          .seq_id = slot_pointers_.data(),
                          .logits = has_row_.data()};
  if (const int32_t code = llama_decode(context_.get(), batch); code != 0) {
    return absl::InternalError(fmt::format("{}: llama_decode of {} positions answered {}",
                                           options_.name, tokens_.size(), code));
  }
  fewest_positions_ = std::min(fewest_positions_, tokens_.size());
  // The call waits for the forward, and brings the rows into the order of the batch.
  float* const rows = llama_get_logits(context_.get());
  if (rows_ == nullptr) rows_ = rows;
  if (rows != rows_) {
    return absl::InternalError(fmt::format(
        "{}: libllama {} moved its rows, which specd reads in place; attach to a daemon, or use a "
        "version that the README names",
        options_.name, llama_version()));
  }
  return absl::OkStatus();
}

absl::Status CachedModel::Cut(uint32_t slot, size_t length) {
  if (length >= lengths_[slot]) return absl::OkStatus();
  if (!llama_memory_seq_rm(llama_get_memory(context_.get()), static_cast<llama_seq_id>(slot),
                           static_cast<llama_pos>(length), -1)) {
    return absl::InternalError(fmt::format(
        "{}: llama_memory_seq_rm could not cut {} positions to {}; give a model that keeps keys "
        "and values alone",
        options_.name, lengths_[slot], length));
  }
  lengths_[slot] = length;
  return absl::OkStatus();
}

}  // namespace specd::llama_cpp
