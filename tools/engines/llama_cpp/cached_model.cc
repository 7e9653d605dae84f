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

  const uint32_t trained = llama_model_n_ctx_train(model_.get());
  num_positions_ = options_.context == 0 ? trained : options_.context;
  if (num_positions_ > trained) {
    return absl::InvalidArgumentError(
        fmt::format("context: {} is outside 1 .. {}, the positions that {} was trained with",
                    num_positions_, trained, options_.name));
  }
  const size_t width = std::max<size_t>(options_.num_rows, kMinPositions);
  const uint32_t batch = std::max(kFeedPositions, options_.num_slots * width);
  llama_context_params params = llama_context_default_params();
  // Padding may lie beyond the last position of a sequence.
  params.n_ctx = options_.num_slots * (num_positions_ + static_cast<uint32_t>(width));
  params.n_batch = params.n_ubatch = batch;  // one forward is never split
  params.n_seq_max = options_.num_slots * (1 + options_.num_paths);
  params.n_outputs_max = std::max(options_.num_slots * options_.num_rows, options_.num_slots);
  params.n_outputs_max_per_seq = options_.num_rows;
  params.n_threads = params.n_threads_batch = static_cast<int32_t>(options_.threads);
  params.swa_full = true;  // a window without its earlier cells could not be cut
  // Paths share cells. Without them a sequence's sums do not depend on the others.
  params.kv_unified = options_.num_paths > 0;
  context_.reset(llama_init_from_model(model_.get(), params));
  if (context_ == nullptr) {
    return absl::ResourceExhaustedError(fmt::format(
        "{}: libllama made no context of {} sequences of {} positions; give a smaller context or "
        "max_batch",
        options_.name, options_.num_slots, num_positions_));
  }
  lengths_.assign(options_.num_slots, 0);
  path_of_node_.resize(options_.num_slots);
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
  ids_.clear();
  num_ids_of_.clear();
  has_row_.clear();
  for (const ForwardInput& input : inputs) {
    if (input.parents.empty()) {
      AddChain(input, width);
    } else {
      AddTree(input, width);
    }
  }
  if (const absl::Status status = Decode(); !status.ok()) return status;
  for (const ForwardInput& input : inputs) {
    // Of a tree only the first token lies in the sequence itself; padding follows it.
    const size_t num_nodes = input.parents.size();
    const size_t length = lengths_[input.slot] + input.tokens.size() - num_nodes;
    lengths_[input.slot] += width - num_nodes;
    if (const absl::Status status = CutTo(input.slot, length); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void CachedModel::AddPosition(int32_t token, std::span<const llama_seq_id> ids, size_t position,
                              bool has_row) {
  tokens_.push_back(token);
  positions_.push_back(static_cast<llama_pos>(position));
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  num_ids_of_.push_back(static_cast<int32_t>(ids.size()));
  has_row_.push_back(has_row ? 1 : 0);
}

void CachedModel::AddChain(const ForwardInput& input, size_t width) {
  const size_t num_tokens = input.tokens.size();
  const llama_seq_id id = IdOf(input.slot);
  for (size_t i = 0; i < width; ++i) {
    const bool is_padding = i >= num_tokens;
    AddPosition(is_padding ? input.tokens.back() : input.tokens[i], {&id, 1},
                lengths_[input.slot] + i, !is_padding && i + input.num_rows >= num_tokens);
  }
}

// A node belongs to the paths of all leaves behind it, and so does the first token, which is the
// sequence's own too. libllama shows a token the cells of its first id.
void CachedModel::AddTree(const ForwardInput& input, size_t width) {
  const size_t num_nodes = input.parents.size();
  std::vector<std::vector<llama_seq_id>> ids(num_nodes + 1);  // of the token at each place
  std::vector<size_t>& path_of_node = path_of_node_[input.slot];
  path_of_node.assign(num_nodes, 0);
  ids[0].push_back(IdOf(input.slot));
  size_t num_paths = 0;
  for (size_t node = num_nodes; node-- > 0;) {
    if (!ids[node + 1].empty()) continue;  // no leaf
    const llama_seq_id id = IdOf(input.slot, num_paths);
    llama_memory_seq_cp(llama_get_memory(context_.get()), IdOf(input.slot), id, 0, -1);
    for (int32_t above = node; above >= 0; above = input.parents[above]) {
      ids[static_cast<size_t>(above) + 1].push_back(id);
      path_of_node[above] = num_paths;
    }
    ids[0].push_back(id);
    ++num_paths;
  }
  std::vector<size_t> depths(num_nodes + 1);  // of the token at each place
  for (size_t place = 0; place <= num_nodes; ++place) {
    if (place > 0) depths[place] = depths[input.parents[place - 1] + 1] + 1;
    AddPosition(input.tokens[place], ids[place], lengths_[input.slot] + depths[place],
                place + input.num_rows >= input.tokens.size());
  }
  for (size_t i = num_nodes + 1; i < width; ++i) {
    AddPosition(input.tokens[0], std::span(ids[0]).first(1), lengths_[input.slot] + i - num_nodes,
                false);
  }
}

absl::Status CachedModel::Decode() {
  id_pointers_.clear();
  size_t first = 0;
  for (const int32_t num_ids : num_ids_of_) {
    id_pointers_.push_back(&ids_[first]);
    first += static_cast<size_t>(num_ids);
  }
  const llama_batch batch{.n_tokens = static_cast<int32_t>(tokens_.size()),
                          .token = tokens_.data(),
                          .embd = nullptr,
                          .pos = positions_.data(),
                          .n_seq_id = num_ids_of_.data(),
                          .seq_id = id_pointers_.data(),
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

absl::Status CachedModel::Keep(uint32_t slot, std::span<const int32_t> path) {
  const size_t length = lengths_[slot];
  if (!path.empty()) {
    const size_t through = path_of_node_[slot][path.back()];
    llama_memory_seq_cp(llama_get_memory(context_.get()), IdOf(slot, through), IdOf(slot),
                        static_cast<llama_pos>(length),
                        static_cast<llama_pos>(length + path.size()));
    lengths_[slot] += path.size();
  }
  return Cut(slot, lengths_[slot]);
}

absl::Status CachedModel::Cut(uint32_t slot, size_t length) {
  for (const size_t path : path_of_node_[slot]) {
    llama_memory_seq_rm(llama_get_memory(context_.get()), IdOf(slot, path), -1, -1);
  }
  path_of_node_[slot].clear();
  return CutTo(slot, length);
}

absl::Status CachedModel::CutTo(uint32_t slot, size_t length) {
  if (length >= lengths_[slot]) return absl::OkStatus();
  if (!llama_memory_seq_rm(llama_get_memory(context_.get()), IdOf(slot),
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
