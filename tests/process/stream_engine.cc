// An engine whose forward runs on a pretended GPU: for tests of what its stream and the daemon do
// to each other, killed, stopped and late. Steps are told on standard output, and the next one is
// begun by a line on standard input. What is wrong ends it with status 1.
//
//   stream_engine URI rounds N   N rounds, ring_depth in flight, without a wait of the CPU
//   stream_engine URI pair N     the same for two engines of one process, each on its own stream
//   stream_engine URI wait       a round whose daemon is killed while the stream waits
//   stream_engine URI late       a daemon that is stopped, and comes back after the deadline
//   stream_engine URI never      a round whose rows are never ready
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/process/engine_steps.h"
#include "tests/support/fake_cuda.h"

namespace specd {
namespace {

constexpr uint32_t kVocab = 64;
constexpr uint32_t kDepth = 4;
constexpr uint32_t kPoison = kVocab - 1;  // what rows say before and after their round
constexpr uint64_t kRoundsMax = 1000;
constexpr int kPatienceMs = 60'000;

class StreamEngine {
 public:
  StreamEngine(const char* uri, uint32_t stream_timeout_ms) : gpu_(FakeCuda(0)) {
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = kVocab;
    options.max_batch = 1;
    options.max_draft = 0;
    options.ring_depth = kDepth;
    options.stream_timeout_ms = stream_timeout_ms;
    options.name = "stream_engine";
    Check(specd_open(uri, &options, &engine_) == SPECD_OK, "open");
    BindRows();
    OpenSequence();
    Check(gpu_.CreateStream(&stream_), "stream");
    Check(gpu_.Allocate(4096, &gate_), "gate");
    PrepareForward();
  }
  ~StreamEngine() { specd_close(engine_); }

  static uint32_t TokenOf(uint64_t round) { return static_cast<uint32_t>(round * 7 % kPoison); }

  // Forward, round, next forward: the row is written, judged and spoilt again, all on the stream.
  int Enqueue(uint64_t round) {
    Forward(round, TokenOf(round));
    const int code = Submit(round);
    if (code != SPECD_OK) return code;
    specd_verdict verdict;
    Check(specd_get_verdict(engine_, &verdict) == SPECD_OK, "verdict");
    answered_[round] = verdict.answered;
    Check(gpu_.Copy(stream_, &seen_[round], reinterpret_cast<void*>(verdict.device_address),
                    sizeof(uint64_t)),
          "copy of the verdict");
    Forward(round, kPoison);
    return SPECD_OK;
  }

  int Submit(uint64_t round) {
    const auto row = static_cast<uint32_t>(round % kDepth);
    specd_draft draft = {};
    draft.sequence = sequence_;
    draft.target_rows = &row;
    return specd_submit_on_stream(engine_, round, &draft, 1, stream_.handle);
  }

  specd_result Poll(uint64_t round) {
    specd_completion done;
    Check(specd_poll(engine_, &done, kPatienceMs) == SPECD_OK, "poll");
    Check(done.round_id == round, "completions out of order");
    Check(done.num_results == 1, "one result");
    return done.results[0];
  }

  // The stream saw the answer when it went on, and not before; the token is that of the row as it
  // was while the stream stood still.
  void CheckAnswered(uint64_t round, uint32_t total_kept) {
    const specd_result result = Poll(round);
    Check(result.status == SPECD_STATUS_OK, "status " + std::to_string(result.status));
    Check(result.num_kept == 1, "one token");
    Check(result.tokens[0] == static_cast<int32_t>(TokenOf(round)),
          "round " + std::to_string(round) + " gave token " + std::to_string(result.tokens[0]));
    Check(result.total_kept == total_kept, "tokens were lost or counted twice");
  }
  void CheckAborted(uint64_t round) {
    const specd_result result = Poll(round);
    Check(result.status == SPECD_STATUS_ABORTED, "status " + std::to_string(result.status));
    Check(result.num_kept == 0, "a token of an aborted round");
    Check(result.sequence == sequence_, "the sequence");
  }

  // Whether streams wait themselves is what this test's environment asked for.
  void CheckWaits() {
    const char* const waits = std::getenv("SPECD_STREAM_WAITS");
    specd_sharing sharing;
    Check(specd_get_sharing(engine_, &sharing) == SPECD_OK, "sharing");
    Check((std::strstr(sharing.text, "CPU thread") != nullptr) ==
              (waits != nullptr && std::strcmp(waits, "host") == 0),
          sharing.text);
  }
  void Synchronize() { Check(gpu_.Synchronize(stream_), "synchronize"); }
  bool WasAnswered(uint64_t round) const { return seen_[round] == answered_[round]; }
  bool IsWaiting() { return gpu_.Query(stream_).code() == kGpuNotReady; }
  void Block() { Check(gpu_.WaitValue(stream_, gate_, GpuWord::k32, 1), "block"); }
  specd_engine* engine() { return engine_; }

 private:
  void BindRows() {
    specd_region region;
    Check(specd_alloc(engine_, sizeof(float) * kVocab * kDepth, &region) == SPECD_OK, "alloc");
    specd_tensor tensor;
    specd_tensor_init(&tensor);
    tensor.region = region.id;
    tensor.num_rows = kDepth;
    Check(specd_bind(engine_, SPECD_TARGET_ROWS, &tensor) == SPECD_OK, "bind");
    Check(gpu_.RegisterHost(region.data, 4096, &rows_), "register");
  }

  void OpenSequence() {
    specd_params params;
    specd_params_init(&params);
    params.temperature = 0;
    params.max_tokens = 1'000'000;
    static int num_opened = 0;
    const std::string name = "s" + std::to_string(getpid()) + "." + std::to_string(++num_opened);
    specd_sequence_info info;
    Check(specd_open_sequence(engine_, name.c_str(), &params, &info) == SPECD_OK, "sequence");
    sequence_ = info.sequence;
  }

  // One row for each token on the device, to be copied as a forward would write them.
  void PrepareForward() {
    std::vector<float> rows(kVocab * kVocab, 0.0f);
    for (uint32_t token = 0; token < kVocab; ++token) rows[token * kVocab + token] = 1.0f;
    Check(gpu_.Allocate(sizeof(float) * rows.size(), &logits_), "logits");
    Check(gpu_.Copy(stream_, reinterpret_cast<void*>(logits_), rows.data(),
                    sizeof(float) * rows.size()),
          "copy");
    for (uint64_t row = 0; row < kDepth; ++row) Forward(row, kPoison);
    Synchronize();
  }

  void Forward(uint64_t round, uint32_t token) {
    constexpr uint64_t kRowBytes = sizeof(float) * kVocab;
    Check(gpu_.Copy(stream_, reinterpret_cast<void*>(rows_ + round % kDepth * kRowBytes),
                    reinterpret_cast<void*>(logits_ + token * kRowBytes), kRowBytes),
          "forward");
  }

  FakeGpuContext& gpu_;
  specd_engine* engine_ = nullptr;
  GpuStream stream_;
  GpuAddress gate_ = 0;
  GpuAddress rows_ = 0;
  GpuAddress logits_ = 0;
  specd_sequence sequence_ = 0;
  uint64_t answered_[kRoundsMax] = {};
  uint64_t seen_[kRoundsMax] = {};  // by the stream
};

void RunRounds(const char* uri, uint64_t num_rounds, size_t num_engines) {
  Check(num_rounds <= kRoundsMax, "too many rounds");
  std::vector<std::unique_ptr<StreamEngine>> engines;
  for (size_t i = 0; i < num_engines; ++i) {
    engines.push_back(std::make_unique<StreamEngine>(uri, kPatienceMs));
  }
  uint64_t sent = 0;
  for (uint64_t done = 0; done < num_rounds; ++done) {
    while (sent < num_rounds && sent < done + kDepth) {
      for (const auto& engine : engines) Check(engine->Enqueue(sent) == SPECD_OK, "submit");
      ++sent;
    }
    for (const auto& engine : engines) {
      engine->CheckAnswered(done, static_cast<uint32_t>(done) + 1);
    }
  }
  for (const auto& engine : engines) {
    engine->Synchronize();
    for (uint64_t round = 0; round < num_rounds; ++round) {
      Check(engine->WasAnswered(round), "the stream passed before the answer");
    }
    engine->CheckWaits();
  }
  Say("ok");
}

void RunWait(const char* uri) {
  StreamEngine engine(uri, kPatienceMs);
  Say("attached");
  AwaitLine();  // the daemon is stopped, and will be killed
  Check(engine.Enqueue(0) == SPECD_OK, "submit");
  Check(engine.Enqueue(1) == SPECD_OK, "submit");
  Check(engine.IsWaiting(), "the stream does not wait");
  Say("waiting");
  // Blocked in the driver, as an engine is: whoever releases the stream is not this thread.
  engine.Synchronize();
  Check(!engine.WasAnswered(0) && !engine.WasAnswered(1), "a dead daemon has answered");
  engine.CheckAborted(0);
  engine.CheckAborted(1);
  specd_completion done;
  Check(specd_poll(engine.engine(), &done, kPatienceMs) == SPECD_ERROR_DISCONNECTED, "gone");
  Say("released");
}

// Submits the round until it is answered: on a slow machine the deadline may pass first, and while
// a late daemon has not noticed there may be no slot.
void Confirm(StreamEngine* engine, uint64_t round, uint32_t total_kept) {
  while (true) {
    const int code = engine->Enqueue(round);
    if (code == SPECD_FULL) {
      specd_completion done;
      Check(specd_poll(engine->engine(), &done, kPatienceMs) == SPECD_EMPTY, "a late answer");
      continue;
    }
    Check(code == SPECD_OK, "submit");
    const specd_result result = engine->Poll(round);
    if (result.status == SPECD_STATUS_ABORTED) continue;
    Check(result.num_kept == 1, "one token");
    Check(result.total_kept == total_kept, "tokens were lost or counted twice");
    Check(result.tokens[0] == static_cast<int32_t>(StreamEngine::TokenOf(round)), "a late row");
    return;
  }
}

void RunLate(const char* uri) {
  StreamEngine engine(uri, 50);
  Confirm(&engine, 0, 1);
  Say("attached");
  AwaitLine();  // the daemon is stopped
  for (uint64_t round = 1; round <= kDepth; ++round) {
    Check(engine.Enqueue(round) == SPECD_OK, "submit");
  }
  engine.Synchronize();
  for (uint64_t round = 1; round <= kDepth; ++round) {
    Check(!engine.WasAnswered(round), "a stopped daemon has answered");
    engine.CheckAborted(round);
  }
  // All slots are in quarantine, and their rows are spoilt.
  Check(engine.Submit(99) == SPECD_FULL, "a slot of a late daemon was given away");
  Say("aborted");
  AwaitLine();  // the daemon goes on
  for (uint64_t round = 1; round <= kDepth; ++round) {
    Confirm(&engine, round, static_cast<uint32_t>(round) + 1);
  }
  Say("ok");
}

void RunNever(const char* uri) {
  StreamEngine engine(uri, kPatienceMs);
  engine.Block();
  Check(engine.Enqueue(0) == SPECD_OK, "submit");
  Say("held");
  AwaitLine();
}

}  // namespace
}  // namespace specd

int main(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[2] : "";
  const uint64_t num_rounds = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0;
  if (mode == "rounds") specd::RunRounds(argv[1], num_rounds, 1);
  if (mode == "pair") specd::RunRounds(argv[1], num_rounds, 2);
  if (mode == "wait") specd::RunWait(argv[1]);
  if (mode == "late") specd::RunLate(argv[1]);
  if (mode == "never") specd::RunNever(argv[1]);
  return 0;
}
