// ToyEngine does the work of an inference engine around <specd/specd.h>, with n-gram models in
// place of transformers.
//
// engine.cc shows every call of the interface in its place.
//
//   ToyEngine engine(options, &target, &drafter);
//   EngineResult result = engine.Run(prompts, &report);
//
// In each round every live sequence gets up to num_drafts draft tokens from the drafter. It gets
// one row of the target model more than that. specd answers with the kept tokens. When a sequence
// ends, the next prompt takes its place in the batch.
//
// One thread. Another thread or a signal handler may set `stop`.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "specd/specd.h"
#include "tools/toy_engine/draft_sampler.h"
#include "tools/toy_engine/ngram_model.h"
#include "tools/toy_engine/report.h"
#include "tools/toy_engine/tree_draft.h"

namespace specd::toy {

struct EngineOptions {
  std::string uri;
  int32_t vocab_size = 0;
  int32_t end_token = 0;
  uint32_t max_batch = 4;
  uint32_t num_drafts = 5;      // per sequence and round, at most
  bool sampled_drafts = false;  // true: drawn from the drafter, not its likeliest token
  // Children of a place at each depth of a tree, num_drafts nodes in all; empty: drafts are chains.
  std::vector<uint32_t> widths = {};
  uint32_t sampling = SPECD_MIXED_CHILDREN;  // of a tree
  uint32_t verify = SPECD_VERIFY_AUTO;
  std::vector<float> synthetic_rates = {};  // of SPECD_VERIFY_SYNTHETIC
  double temperature = 0.8;
  double draft_temperature = 1.0;
  uint64_t seed = 0;  // the i-th prompt (from 0) uses seed + i
  uint32_t max_tokens = 160;
  std::vector<std::string> stop_strings;
  uint32_t grammar_kind = SPECD_GRAMMAR_NONE;
  std::string grammar;      // the text of that kind
  bool forced = false;      // tokens that the constraint forces are drafts before the drafter's
  std::string tokenizer;    // for a constraint in embedded mode; a daemon has its own
  uint32_t forward_ms = 0;  // the pretended cost of the model's forward pass
  uint32_t reconnect_ms = 0;
  std::string trace;  // directory of a trace in embedded mode; empty: none
  std::string trace_options;
};

struct Prompt {
  std::string request_id;
  std::vector<int32_t> ids;
};

enum class EngineEnd {
  kDone,
  kError,
  kDisconnected,  // the daemon is gone, or on its way out
  kInterrupted,   // *stop became true
};

struct EngineResult {
  EngineEnd end = EngineEnd::kDone;
  std::string message;  // empty for kDone
};

class ToyEngine {
 public:
  // The models must outlive the engine.
  ToyEngine(EngineOptions options, const NgramModel* target, const NgramModel* drafter,
            const std::atomic<bool>* stop);
  ~ToyEngine();

  ToyEngine(const ToyEngine&) = delete;
  ToyEngine& operator=(const ToyEngine&) = delete;

  // Generates all prompts; call it once. The report holds the results so far, also after an error.
  EngineResult Run(const std::vector<Prompt>& prompts, RunReport* report);

 private:
  struct Stream;  // a live sequence in its slot

  int Attach();
  int BindRows();
  int OpenWaiting();
  int OpenStream(size_t slot, size_t prompt_index);
  int CloseFinished();
  int CloseStream(size_t slot);
  int Propose(size_t slot);
  int ProposeTree(size_t slot, size_t remaining);
  bool HasDraftRows() const { return options_.sampled_drafts || !options_.widths.empty(); }
  int FindForced(const Stream& stream, std::vector<int32_t>* forced);
  int RunRound();
  int AwaitCompletion(specd_completion* completion);
  int TakeResults(const specd_completion& completion);
  int GenerateAll();
  void AbortAll();
  EngineResult ResultOf(int code);

  bool HasLiveStreams() const;
  std::span<float> TargetRow(uint32_t row) const { return RowOf(target_rows_, row); }
  std::span<float> DraftRow(uint32_t row) const { return RowOf(draft_rows_, row); }
  std::span<float> RowOf(float* rows, uint32_t row) const {
    const size_t vocab_size = options_.vocab_size;
    return {rows + row * vocab_size, vocab_size};
  }

  const EngineOptions options_;
  const NgramModel& target_;
  const NgramModel& drafter_;
  const std::atomic<bool>& stop_;

  specd_engine* engine_ = nullptr;
  float* target_rows_ = nullptr;  // max_batch * (num_drafts + 1) rows, shared with specd
  float* draft_rows_ = nullptr;   // max_batch * num_drafts rows after them
  std::vector<float> scratch_row_;

  const std::vector<Prompt>* prompts_ = nullptr;
  RunReport* report_ = nullptr;
  size_t next_prompt_ = 0;
  uint64_t next_round_ = 1;
  std::vector<std::unique_ptr<Stream>> slots_;
  std::vector<size_t> round_slots_;  // slots of the round in flight, in its order
  std::string problem_;  // an error of this program itself; specd_last_error has no words for it
};

}  // namespace specd::toy
