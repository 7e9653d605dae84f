// Engine generates texts with a GGUF model, and has specd verify drafts and sample tokens.
//
//   Engine engine(options, std::move(model), std::move(draft_model));
//   absl::Status status = engine.Run(prompts, &generations);
//
// In each round every live sequence gets draft tokens and one forward of the model over all of
// them. When a sequence ends, the next prompt takes its slot. Embedded, specd reads the rows in
// libllama's own memory (specd_lend). Attached, the rows are copied into shared memory. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "specd/specd.h"
#include "tools/engines/llama_cpp/cached_model.h"
#include "tools/engines/llama_cpp/drafters.h"
#include "tools/engines/llama_cpp/params.h"

namespace specd::llama_cpp {

struct EngineOptions {
  std::string uri;
  uint32_t max_batch = 1;
  uint32_t max_draft = 5;  // draft tokens of a sequence in one round
  Drafts drafts = Drafts::kNgram;
  uint32_t ngram = 3;
  // Of n-grams: children of a place and tokens of a path, at most. A width of 1 makes chains.
  uint32_t tree_width = 1;
  uint32_t tree_depth = 64;
  Numbers params;
  uint32_t max_tokens = 80;
  uint64_t seed = 1;  // the i-th prompt (from 0) uses seed + i
  std::vector<std::string> stop_strings;
  std::string tokenizer;  // empty: none
};

struct Prompt {
  std::string request_id;
  std::vector<int32_t> ids;
};

struct Generation {
  std::vector<int32_t> tokens;
  uint64_t num_rounds = 0;
  uint64_t num_drafted = 0;
  uint64_t num_accepted = 0;
  uint32_t finish_reason = SPECD_FINISH_NONE;
};

class Engine {
 public:
  // draft_model may be null. REQUIRES: it has the ids of `model`, and options.drafts is decided.
  Engine(EngineOptions options, std::unique_ptr<CachedModel> model,
         std::unique_ptr<CachedModel> draft_model);
  ~Engine();

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Generates all prompts; call it once.
  absl::Status Run(std::span<const Prompt> prompts, std::vector<Generation>* generations);

  const CachedModel& model() const { return *model_; }
  // The times of the rounds, without prompts and drafters.
  std::chrono::nanoseconds forward_time() const { return forward_time_; }
  std::chrono::nanoseconds verify_time() const { return verify_time_; }

 private:
  absl::Status Attach();
  absl::Status BindRows();
  absl::Status OpenWaiting();
  absl::Status OpenSequence(uint32_t slot, size_t prompt_index);
  absl::Status CloseFinished();
  absl::Status CloseSequence(uint32_t slot);
  absl::Status RunRound();
  absl::Status Propose(std::span<LiveSequence* const> live);
  absl::Status Forward(std::span<LiveSequence* const> live);
  absl::Status Verify(std::span<LiveSequence* const> live);
  absl::Status TakeResults(std::span<LiveSequence* const> live, const specd_batch_results& results);
  std::vector<LiveSequence*> LiveSequences();

  const EngineOptions options_;
  const std::unique_ptr<CachedModel> model_;
  std::optional<AssistantDrafter> assistant_;

  specd_engine* engine_ = nullptr;
  float* shared_rows_ = nullptr;  // attached: a copy of the model's rows; embedded: null
  std::span<const Prompt> prompts_;
  std::vector<Generation>* generations_ = nullptr;
  size_t next_prompt_ = 0;
  uint64_t next_round_ = 1;
  std::vector<std::unique_ptr<LiveSequence>> slots_;
  std::chrono::nanoseconds forward_time_{};
  std::chrono::nanoseconds verify_time_{};
};

}  // namespace specd::llama_cpp
