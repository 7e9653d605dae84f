// An engine whose forward runs on a GPU, over libspecd and whatever GpuContext there is: pretended
// in tests, real in tools/gpu_check. A forward copies rows on the stream that say one token each,
// so what specd has to answer is known without it.
//
// Of its sequences one in four is greedy and brings no drafts, one is greedy with drafts, and two
// draw from rows with a single possible token, by exact_match and by token. With every round the
// drafts are right up to another place. What is wrong ends the process with status 1, and a line
// that says why; what the device does not have, with status 77. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "kernels/core/gpu_context.h"

namespace specd {

inline constexpr int kEngineFailed = 1;
inline constexpr int kEngineSkips = 77;
inline constexpr char kNoStreamWaits[] = "streams of this device have no memory operations";

[[noreturn]] void DieAsEngine(const std::string& what, int status = kEngineFailed);
void Require(bool is_so, const std::string& otherwise);
void Require(const GpuResult& result, const char* what);

class StreamEngine {
 public:
  static constexpr uint32_t kDepth = 4;       // of the ring
  static constexpr uint64_t kLogRounds = 64;  // the last so many can be looked up
  struct Options {
    std::string uri = {};
    // Rows and next tokens in memory of the device, for a daemon that runs rounds there; else in
    // memory from specd_alloc.
    bool rows_on_device = false;
    uint32_t vocab_size = 64;
    uint32_t num_sequences = 4;
    int patience_ms = 60'000;        // how long what has to happen may take
    uint32_t stream_timeout_ms = 0;  // 0: as long
  };

  StreamEngine(GpuContext* gpu, const Options& options);
  ~StreamEngine();
  StreamEngine(const StreamEngine&) = delete;
  StreamEngine& operator=(const StreamEngine&) = delete;

  // Forward, round, a note of what the stream finds behind it, and the rows spoilt: all on the
  // stream. SPECD_OK or SPECD_FULL.
  int Enqueue(uint64_t round);
  // The same, tried until there is room, which takes no answer that is still to come.
  void EnqueueWhenFree(uint64_t round);
  // The round alone.
  int Submit(uint64_t round);
  // True where the round was answered, as it has to be; false where it was aborted, wholly.
  bool Poll(uint64_t round);
  // One round without the stream, or on it, with its rows there before; what it takes, in us.
  double TimeRound(uint64_t round, bool on_stream);

  // What the stream found behind the rounds [first, end), which were confirmed: the verdict of an
  // answered round, and next tokens on the device that are the last ones of each sequence.
  void CheckLog(uint64_t first, uint64_t end);
  bool WasAnswered(uint64_t round);  // as the stream saw it

  // Puts a token of the engine's own in the place of each next token; and are they still there?
  void PutOwnTokens();
  bool HasOwnTokens();

  // The stream goes no further before Unblock.
  void Block();
  void Unblock();
  void Synchronize();
  bool IsWaiting();

  // Do streams of this device have memory operations?
  bool StreamsCanWait();
  // Whether streams wait themselves is what the environment asked for; ends as not to be had where
  // it asked for what this device does not have.
  void CheckWaits();
  // "MPS", "time-sliced", "none" or "unknown".
  std::string SharingName();
  specd_engine* get() const { return engine_; }
  const Options& options() const { return options_; }
  // Draft tokens of the sequence that brings the most.
  uint32_t max_draft() const;

 private:
  static constexpr uint32_t kMaxDraft = 3;
  static constexpr uint32_t kRowsEach = kMaxDraft + 1;
  static constexpr uint32_t kNumTokens = 16;  // that rows say
  static constexpr uint64_t kPeriod = 8;      // of what rows say; NumRight has one of 4
  static constexpr int32_t kOwnToken = -77;

  struct Place {
    uint64_t round = 0;
    uint32_t sequence = 0;
  };

  static uint32_t NumDrafts(uint32_t sequence) { return sequence % 4 == 0 ? 0 : kMaxDraft; }
  static uint32_t NumRight(const Place& place);
  static uint32_t IndexAt(const Place& place, uint32_t row);
  int32_t TokenOf(uint32_t index) const;
  int32_t LastToken(const Place& place) const;
  uint32_t RowOf(const Place& place, uint32_t row) const;

  void Open();
  void BindRows();
  void OpenSequences();
  void PrepareForwards();
  void PrepareWords();
  void Forward(uint64_t round, bool is_spoilt);
  void Note(uint64_t round);
  void MakeDrafts(uint64_t round);
  void CheckResult(const specd_result& result, const Place& place);
  std::vector<char> ReadDevice(GpuAddress address, uint64_t size_bytes);
  void CopyOnStream(GpuAddress target, GpuAddress source, uint64_t size_bytes, const char* what);

  uint64_t row_bytes() const { return uint64_t{2} * options_.vocab_size; }
  uint64_t next_bytes() const { return sizeof(int32_t) * uint64_t{options_.num_sequences}; }
  // A verdict, then next tokens.
  uint64_t note_bytes() const { return sizeof(uint64_t) + (next_bytes() + 7) / 8 * 8; }
  GpuAddress NoteOf(uint64_t round) const { return log_ + round % kLogRounds * note_bytes(); }

  GpuContext& gpu_;
  const Options options_;
  specd_engine* engine_ = nullptr;
  GpuStream stream_;
  GpuStream reader_;         // for what is read while the other one waits
  GpuAddress rows_ = 0;      // as the device has them, with next tokens behind
  GpuAddress next_ = 0;      // of those
  GpuAddress forwards_ = 0;  // what those of a period write, and spoilt rows
  GpuAddress log_ = 0;       // of the device's own
  char* words_ = nullptr;    // a page that the device reaches: the gate, own tokens
  GpuAddress words_there_ = 0;
  std::vector<specd_sequence> sequences_;
  std::vector<uint64_t> kept_;  // tokens that each has been given
  uint64_t answered_[kLogRounds] = {};
  std::vector<specd_draft> drafts_;
  std::vector<int32_t> draft_tokens_;
  std::vector<uint32_t> target_rows_;
};

}  // namespace specd
