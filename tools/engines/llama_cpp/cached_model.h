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
  uint32_t context = 0;    // positions of one sequence; 0: as many as the model was trained with
  uint32_t threads = 1;
};

// The tokens of one sequence in a forward. The last num_rows of them get rows.
struct ForwardInput {
  uint32_t slot = 0;
  std::span<const int32_t> tokens;
  size_t num_rows = 0;
};

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

  // Forgets the tokens of a sequence from `length` on, if there are any.
  absl::Status Cut(uint32_t slot, size_t length);
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
  void AddPosition(int32_t token, uint32_t slot, size_t position, bool has_row);
  absl::Status Decode();

  const ModelOptions options_;
  std::unique_ptr<llama_model, FreeModel> model_;
  std::unique_ptr<llama_context, FreeContext> context_;  // freed before the model
  const llama_vocab* vocab_ = nullptr;
  uint32_t num_positions_ = 0;
  float* rows_ = nullptr;
  size_t fewest_positions_ = SIZE_MAX;
  std::vector<size_t> lengths_;  // tokens in the cache, for each slot

  // The batch of a forward.
  std::vector<int32_t> tokens_;
  std::vector<llama_pos> positions_;
  std::vector<llama_seq_id> slots_;
  std::vector<llama_seq_id*> slot_pointers_;
  std::vector<int32_t> num_slots_of_;
  std::vector<int8_t> has_row_;
};

}  // namespace specd::llama_cpp
