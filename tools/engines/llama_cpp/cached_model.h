// CachedModel runs forwards of a GGUF model over several sequences, and keeps their caches.
//
// Every sequence of a forward gets as many positions as the longest, and at least two. Places that
// are not needed hold padding, which is cut from the cache after the forward. llama.cpp's sums for
// one position differ from those for several, so without padding K would change texts
// (docs/CONTRACT.md, section 5, equal rows).
//
//   model->Feed(slot, prompt);                    // all tokens but the last
//   model->Forward({{.slot = slot, .tokens = {last, draft...}, .num_rows = K + 1}});
//   ... rows() ...
//   model->Cut(slot, length);                     // forgets rejected draft tokens
//
// Draft tokens may be a tree. Each of its paths is then a sequence of libllama of its own, which
// shares the cells of the tokens before it. Keep leaves one path of the last forward.
//
// One thread.
#pragma once

#include <llama.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace specd::llama_cpp {

struct ModelOptions {
  std::string name;  // of the flag, for errors
  std::string path;
  uint32_t num_slots = 1;  // sequences in one forward
  uint32_t num_rows = 2;   // rows of one sequence in one forward, at most
  uint32_t num_paths = 0;  // of the tree of one sequence, at most; 0: drafts are chains
  uint32_t context = 0;    // positions of one sequence; 0: as many as the model was trained with
  uint32_t threads = 1;
};

// The tokens of one sequence in a forward. The last num_rows of them get rows. parents: the tokens
// after the first are a tree, and each follows an earlier one of them, or the first (-1). Empty: a
// chain. A tree has at most num_paths paths.
struct ForwardInput {
  uint32_t slot = 0;
  std::span<const int32_t> tokens;
  size_t num_rows = 0;
  std::span<const int32_t> parents = {};
};

// A sequence has an id of libllama, and each path of its tree one more.
inline constexpr uint32_t kLlamaSequencesMax = 256;

class CachedModel {
 public:
  // Refuses models whose cache cannot be cut after a rejected draft.
  static absl::StatusOr<std::unique_ptr<CachedModel>> Load(const ModelOptions& options);

  // Feeds tokens without rows, in forwards of fixed length.
  absl::Status Feed(uint32_t slot, std::span<const int32_t> tokens);
  absl::Status Forward(std::span<const ForwardInput> inputs);

  // The rows of the last forward, in the order of its inputs. The address is the same after every
  // forward, for max_rows() rows.
  float* rows() const { return rows_; }
  size_t max_rows() const { return size_t{options_.num_slots} * options_.num_rows; }

  // Forgets the tokens of a sequence from `length` on, if there are any, and its tree.
  absl::Status Cut(uint32_t slot, size_t length);
  // Keeps the nodes of a path of the sequence's tree in the last forward, from the first one on,
  // and forgets the others.
  absl::Status Keep(uint32_t slot, std::span<const int32_t> path);
  size_t length(uint32_t slot) const { return lengths_[slot]; }

  // The fewest positions that a forward had since Load.
  size_t fewest_positions() const { return fewest_positions_; }

  const llama_vocab* vocab() const { return vocab_; }
  llama_context* context() const { return context_.get(); }
  uint32_t vocab_size() const { return static_cast<uint32_t>(llama_vocab_n_tokens(vocab_)); }
  uint32_t num_positions() const { return num_positions_; }  // of one sequence, padding not counted

 private:
  struct FreeModel {
    void operator()(llama_model* model) const { llama_model_free(model); }
  };
  struct FreeContext {
    void operator()(llama_context* context) const { llama_free(context); }
  };

  explicit CachedModel(ModelOptions options) : options_(std::move(options)) {}
  absl::Status Init();
  absl::Status CheckKind() const;
  absl::Status ReserveRows();
  // The id of libllama of a sequence, or of path i of its tree.
  llama_seq_id IdOf(uint32_t slot) const {
    return static_cast<llama_seq_id>(slot * (1 + options_.num_paths));
  }
  llama_seq_id IdOf(uint32_t slot, size_t path) const {
    return IdOf(slot) + 1 + static_cast<llama_seq_id>(path);
  }
  void AddPosition(int32_t token, std::span<const llama_seq_id> ids, size_t position, bool has_row);
  void AddChain(const ForwardInput& input, size_t width);
  void AddTree(const ForwardInput& input, size_t width);
  absl::Status CutTo(uint32_t slot, size_t length);
  absl::Status Decode();

  const ModelOptions options_;
  std::unique_ptr<llama_model, FreeModel> model_;
  std::unique_ptr<llama_context, FreeContext> context_;  // freed before the model
  const llama_vocab* vocab_ = nullptr;
  uint32_t num_positions_ = 0;
  float* rows_ = nullptr;
  size_t fewest_positions_ = SIZE_MAX;
  std::vector<size_t> lengths_;  // tokens in the cache, for each slot
  // For each slot: a path through each node of the tree of the last forward.
  std::vector<std::vector<size_t>> path_of_node_;

  // The batch of a forward.
  std::vector<int32_t> tokens_;
  std::vector<llama_pos> positions_;
  std::vector<llama_seq_id> ids_;  // those of each position, one position after another
  std::vector<llama_seq_id*> id_pointers_;
  std::vector<int32_t> num_ids_of_;
  std::vector<int8_t> has_row_;
};

}  // namespace specd::llama_cpp
