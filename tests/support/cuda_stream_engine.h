// CudaStreamEngine is an engine whose forward runs on a GPU, over libspecd and any EngineGpu: a
// fake one in tests/process, a real one in tests/gpu. A forward copies rows on the CUDA stream that
// determine one token each, so the test knows specd's answers.
//
// The CUDA stream notes what the next forward of an engine with a KV cache reads after each round:
// next tokens, kept tokens, their number, and the length of each sequence.
//
// One in four of its sequences is greedy without drafts, and one is greedy with drafts. Two draw
// from rows with a single possible token, by exact_match and by token. In every round the drafts
// are right up to another place. An error ends the process with status 1 and a line that says why.
// If the device lacks a feature, the status is 77. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/support/engine_failure.h"
#include "tests/support/engine_gpu.h"

namespace specd {

class CudaStreamEngine {
 public:
  static constexpr uint32_t kDepth = 4;       // the depth of the ring
  static constexpr uint64_t kLogRounds = 64;  // the rounds in the log
  struct Options {
    std::string uri = {};
    // Rows and slot outputs lie in device memory, for a daemon that runs rounds there; otherwise in
    // memory from specd_alloc.
    bool rows_on_device = false;
    uint32_t vocab_size = 64;
    uint32_t num_sequences = 4;
    int patience_ms = 60'000;        // the limit for every expected event
    uint32_t stream_timeout_ms = 0;  // 0: patience_ms
    uint32_t reconnect_ms = 0;
  };

  CudaStreamEngine(EngineGpu* gpu, const Options& options);
  ~CudaStreamEngine();
  CudaStreamEngine(const CudaStreamEngine&) = delete;
  CudaStreamEngine& operator=(const CudaStreamEngine&) = delete;

  // Enqueues on the CUDA stream: a forward, a round, a note of the values after it, and spoilt
  // rows. Returns SPECD_OK or SPECD_FULL.
  int Enqueue(uint64_t round);
  // Tries Enqueue until there is room. Takes no answer that is still to come.
  void EnqueueWhenFree(uint64_t round);
  // Submits the round alone.
  int Submit(uint64_t round);
  // True if the round was answered as expected; false if the whole round was aborted.
  bool Poll(uint64_t round);
  // The time of one round in us, with its rows ready before, on the CUDA stream or without it.
  double TimeRound(uint64_t round, bool on_stream);

  // Checks the notes of the rounds [first, end), which Poll has found confirmed. They have the
  // status word of an answered round, and each sequence's slot outputs on the device.
  void CheckLog(uint64_t first, uint64_t end);
  bool WasAnswered(uint64_t round);  // as the CUDA stream saw it

  // Replaces each next token by a token of the engine's own; HasOwnTokens says whether these are
  // still there.
  void PutOwnTokens();
  bool HasOwnTokens();

  // The CUDA stream waits until Unblock.
  void Block();
  void Unblock();
  void Synchronize();
  bool IsWaiting();

  // Whether CUDA streams of this device have memory operations.
  bool StreamsCanWait();
  // Checks that CUDA streams wait as the environment asked. If this device cannot wait so, the
  // process ends with status 77.
  void CheckWaits();
  // "MPS", "time-sliced", "none" or "unknown".
  std::string SharingName();
  specd_engine* get() const { return engine_; }
  const Options& options() const { return options_; }
  // The draft tokens of the sequence that brings the most.
  uint32_t max_draft() const;

 private:
  static constexpr uint32_t kMaxDraft = 3;
  static constexpr uint32_t kRowsEach = kMaxDraft + 1;
  static constexpr uint32_t kNumTokens = 16;  // the tokens that rows can determine
  static constexpr uint64_t kPeriod = 8;      // the period of rows; NumRight has a period of 4
  static constexpr int32_t kOwnToken = -77;

  struct Place {
    uint64_t round = 0;
    uint32_t sequence = 0;
  };

  static uint32_t NumDrafts(uint32_t sequence) { return sequence % 4 == 0 ? 0 : kMaxDraft; }
  static uint32_t NumRight(const Place& place);
  static uint32_t IndexAt(const Place& place, uint32_t row);
  int32_t TokenOf(uint32_t index) const;
  int32_t LastToken(const Place& place) const { return TokenOf(IndexAt(place, NumRight(place))); }
  uint32_t RowOf(const Place& place, uint32_t row) const;

  void Open();
  void BindRows();
  void OpenSequences();
  void PrepareForwards();
  void PrepareWords();
  void BindOutput(const specd_region& region, uint32_t role, uint64_t offset_bytes);
  void Forward(uint64_t round, bool is_spoilt);
  void Note(uint64_t round);
  void MakeDrafts(uint64_t round);
  void CheckResult(const specd_result& result, const Place& place);
  // The slot outputs of a sequence after a round.
  void CheckOutputs(const int32_t* outputs, const Place& place) const;
  std::vector<char> ReadDevice(GpuAddress address, uint64_t size_bytes);
  void CopyOnStream(GpuAddress target, GpuAddress source, uint64_t size_bytes, const char* what);

  uint64_t row_bytes() const { return uint64_t{2} * options_.vocab_size; }
  // The bytes of a slot output with one element in a row.
  uint64_t next_bytes() const { return sizeof(int32_t) * uint64_t{options_.num_sequences}; }
  // Slot outputs lie one after another: next tokens, numbers of kept tokens, lengths, and rows of
  // kept tokens.
  uint64_t outputs_bytes() const { return next_bytes() * (3 + kRowsEach); }
  // The bytes of a note: a status word, then slot outputs.
  uint64_t note_bytes() const { return sizeof(uint64_t) + (outputs_bytes() + 7) / 8 * 8; }
  GpuAddress NoteOf(uint64_t round) const { return log_ + round % kLogRounds * note_bytes(); }

  EngineGpu& gpu_;
  const Options options_;
  specd_engine* engine_ = nullptr;
  GpuStream stream_;
  GpuStream reader_;         // for reads while the other CUDA stream waits
  GpuAddress rows_ = 0;      // the device's address, with slot outputs after the rows
  GpuAddress next_ = 0;      // the device's address of next tokens, the first slot output
  GpuAddress forwards_ = 0;  // the rows of a period of forwards, and spoilt rows
  GpuAddress log_ = 0;       // in device memory
  char* words_ = nullptr;    // a page that the device reaches: the gate, own tokens
  GpuAddress words_there_ = 0;
  std::vector<specd_sequence> sequences_;
  std::vector<uint64_t> kept_;  // the number of tokens of each sequence
  uint64_t answered_[kLogRounds] = {};
  std::vector<uint64_t> lengths_[kLogRounds];  // kept_ after the round
  std::vector<specd_draft> drafts_;
  std::vector<int32_t> draft_tokens_;
  std::vector<uint32_t> target_rows_;
};

}  // namespace specd
