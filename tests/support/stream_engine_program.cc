#include "tests/support/stream_engine_program.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/support/c_drafts.h"
#include "tests/support/steps.h"

namespace specd {
namespace {

constexpr uint64_t kWarmUp = 20;
constexpr uint32_t kShortTimeoutMs = 50;  // of streams whose daemon is late on purpose

bool HasLine() {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, 0) > 0;
}

// Rounds [first, first + count), as many in flight as there can be.
void RunChunk(CudaStreamEngine* engine, uint64_t first, uint64_t count) {
  uint64_t sent = first;
  for (uint64_t done = first; done < first + count; ++done) {
    for (; sent < std::min(first + count, done + CudaStreamEngine::kDepth); ++sent) {
      Require(engine->Enqueue(sent) == SPECD_OK, "there is no room for a round");
    }
    Require(engine->Poll(done), "a round is aborted");
  }
  engine->Synchronize();
  engine->CheckLog(first, first + count);
}

int RunRounds(EngineGpu* gpu, const CudaStreamEngine::Options& options, uint64_t num_rounds) {
  CudaStreamEngine engine(gpu, options);
  constexpr uint64_t kChunk = CudaStreamEngine::kLogRounds;
  for (uint64_t done = 0; done < num_rounds; done += kChunk) {
    RunChunk(&engine, done, std::min(kChunk, num_rounds - done));
  }
  engine.CheckWaits();
  Say("ok");
  return 0;
}

// Round by round in turns, so that each stream's wait stands beside the other's.
int RunPair(EngineGpu* gpu, const CudaStreamEngine::Options& options, uint64_t num_rounds) {
  std::vector<std::unique_ptr<CudaStreamEngine>> engines;
  for (int i = 0; i < 2; ++i) engines.push_back(std::make_unique<CudaStreamEngine>(gpu, options));
  uint64_t sent = 0;
  for (uint64_t done = 0; done < num_rounds; ++done) {
    for (; sent < std::min(num_rounds, done + CudaStreamEngine::kDepth); ++sent) {
      for (const auto& engine : engines) {
        Require(engine->Enqueue(sent) == SPECD_OK, "there is no room for a round");
      }
    }
    for (const auto& engine : engines) Require(engine->Poll(done), "a round is aborted");
  }
  for (const auto& engine : engines) {
    engine->Synchronize();
    engine->CheckLog(num_rounds - std::min(num_rounds, CudaStreamEngine::kLogRounds), num_rounds);
    engine->CheckWaits();
  }
  Say("ok");
  return 0;
}

int RunEndless(EngineGpu* gpu, const CudaStreamEngine::Options& options) {
  constexpr uint64_t kChunk = 16;
  CudaStreamEngine engine(gpu, options);
  for (uint64_t done = 0; !HasLine(); done += kChunk) {
    RunChunk(&engine, done, kChunk);
    Say("round " + std::to_string(done + kChunk));
  }
  Say("ok");
  return 0;
}

int RunWait(EngineGpu* gpu, const CudaStreamEngine::Options& options) {
  CudaStreamEngine engine(gpu, options);
  Say("attached");
  AwaitLine();  // the daemon is stopped, and will be killed
  for (uint64_t round = 0; round < 2; ++round) {
    Require(engine.Enqueue(round) == SPECD_OK, "there is no room for a round");
  }
  Require(engine.IsWaiting(), "the stream does not wait");
  Say("waiting");
  // This thread is blocked in the driver, as an engine is. Another thread has to release the CUDA
  // stream.
  engine.Synchronize();
  for (uint64_t round = 0; round < 2; ++round) {
    Require(!engine.WasAnswered(round), "a dead daemon has answered");
    Require(!engine.Poll(round), "a dead daemon has confirmed a round");
  }
  specd_completion done = SizedCompletion();
  Require(specd_poll(engine.get(), &done, options.patience_ms) == SPECD_ERROR_DISCONNECTED,
          "a dead daemon is not noticed");
  Say("released");
  return 0;
}

// Submits the round until it is answered: on a slow machine the deadline may pass first.
void Confirm(CudaStreamEngine* engine, uint64_t round) {
  do {
    engine->EnqueueWhenFree(round);
  } while (!engine->Poll(round));
}

// Once all ring entries are free again, a daemon that was late has no old round left. The new
// rounds have no rows yet. Next tokens must therefore be untouched.
void RunBehindLate(CudaStreamEngine* engine, uint64_t first) {
  const uint64_t end = first + CudaStreamEngine::kDepth;
  engine->Block();
  for (uint64_t round = first; round < end; ++round) engine->EnqueueWhenFree(round);
  Require(engine->HasOwnTokens(), "a late daemon has written over the engine's own next tokens");
  engine->Unblock();
  std::vector<uint64_t> aborted;
  for (uint64_t round = first; round < end; ++round) {
    if (!engine->Poll(round)) aborted.push_back(round);
  }
  for (const uint64_t round : aborted) Confirm(engine, round);
  engine->Synchronize();
}

int RunLate(EngineGpu* gpu, CudaStreamEngine::Options options) {
  options.stream_timeout_ms = kShortTimeoutMs;
  CudaStreamEngine engine(gpu, options);
  Confirm(&engine, 0);
  Say("attached");
  AwaitLine();  // the daemon is stopped
  constexpr uint64_t kFirst = 1;
  constexpr uint64_t kEnd = kFirst + CudaStreamEngine::kDepth;
  for (uint64_t round = kFirst; round < kEnd; ++round) {
    Require(engine.Enqueue(round) == SPECD_OK, "there is no room for a round");
  }
  engine.Synchronize();
  for (uint64_t round = kFirst; round < kEnd; ++round) {
    Require(!engine.WasAnswered(round), "a stopped daemon has answered");
    Require(!engine.Poll(round), "a stopped daemon has confirmed a round");
  }
  engine.PutOwnTokens();
  // All slots are in quarantine, and their rows are spoilt.
  Require(engine.Submit(99) == SPECD_FULL, "a slot of a late daemon was given away");
  Say("aborted");
  AwaitLine();  // the daemon continues
  RunBehindLate(&engine, kFirst);
  Confirm(&engine, kEnd);
  engine.Synchronize();
  engine.CheckLog(kEnd, kEnd + 1);
  Say("ok");
  return 0;
}

int RunStopped(EngineGpu* gpu, CudaStreamEngine::Options options) {
  options.stream_timeout_ms = kShortTimeoutMs;
  CudaStreamEngine engine(gpu, options);
  uint64_t first = 0;
  while (!HasLine()) {
    const uint64_t end = first + CudaStreamEngine::kDepth;
    bool is_aborted = false;
    for (uint64_t round = first; round < end; ++round) engine.EnqueueWhenFree(round);
    for (uint64_t round = first; round < end; ++round) {
      is_aborted = !engine.Poll(round) || is_aborted;
    }
    first = end;
    if (is_aborted) {
      engine.Synchronize();
      engine.PutOwnTokens();
      Say("aborted");
      RunBehindLate(&engine, first);
      first += CudaStreamEngine::kDepth;
    }
    Say("round " + std::to_string(first));
  }
  Say("ok");
  return 0;
}

int RunHeld(EngineGpu* gpu, const CudaStreamEngine::Options& options) {
  CudaStreamEngine engine(gpu, options);
  engine.Block();
  Require(engine.Enqueue(0) == SPECD_OK, "there is no room for a round");
  Say("held");
  AwaitLine();
  Require(engine.IsWaiting(), "a round was answered whose rows were not ready");
  engine.Unblock();
  Require(engine.Poll(0), "a round is aborted");
  engine.Synchronize();
  engine.CheckLog(0, 1);
  Say("ok");
  return 0;
}

// As many rounds in flight as there can be, while daemons come and go. A round that no daemon has
// answered is aborted, for the CUDA stream as in its completion, and the next ones go on behind the
// last one that was kept.
int RunReplaced(EngineGpu* gpu, CudaStreamEngine::Options options) {
  options.reconnect_ms = static_cast<uint32_t>(options.patience_ms);
  CudaStreamEngine engine(gpu, options);
  uint64_t num_aborted = 0;
  for (uint64_t first = 0, end = 0; !HasLine(); first = end) {
    while (end < first + CudaStreamEngine::kDepth && engine.Enqueue(end) == SPECD_OK) ++end;
    std::vector<bool> confirmed;
    for (uint64_t round = first; round < end; ++round) confirmed.push_back(engine.Poll(round));
    engine.Synchronize();
    for (uint64_t round = first; round < end; ++round) {
      Require(engine.WasAnswered(round) == confirmed[round - first],
              "the CUDA stream and the completion of a round differ");
      if (confirmed[round - first]) engine.CheckLog(round, round + 1);
    }
    num_aborted += static_cast<uint64_t>(std::count(confirmed.begin(), confirmed.end(), false));
    Say("round " + std::to_string(end));
  }
  engine.CheckWaits();
  specd_engine_stats stats;
  specd_engine_stats_init(&stats);
  Require(specd_get_engine_stats(engine.get(), &stats) == SPECD_OK, "there are no counts");
  Say("reattached " + std::to_string(stats.reattached) + ", aborted " +
      std::to_string(num_aborted));
  Say("ok");
  return 0;
}

double AtShare(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

void TimeRounds(CudaStreamEngine* engine, const char* road, bool on_stream, uint64_t num_rounds,
                uint64_t* next_round) {
  std::vector<double> times;
  for (uint64_t i = 0; i < kWarmUp; ++i) (void)engine->TimeRound((*next_round)++, on_stream);
  for (uint64_t i = 0; i < num_rounds; ++i) {
    times.push_back(engine->TimeRound((*next_round)++, on_stream));
  }
  std::sort(times.begin(), times.end());
  const CudaStreamEngine::Options& options = engine->options();
  std::printf(
      "{\"suite\":\"daemon\",\"road\":\"%s\",\"median_us\":%.1f,\"p99_us\":%.1f,\"sharing\":\"%s\","
      "\"batch\":%u,\"draft\":%u,\"vocab\":%u,\"dtype\":\"bf16\",\"rounds\":%zu}\n",
      road, AtShare(times, 0.5), AtShare(times, 0.99), engine->SharingName().c_str(),
      options.num_sequences, engine->max_draft(), options.vocab_size, times.size());
}

// As the engine sees it, from the call that submits to the answer in its hands.
int RunTimes(EngineGpu* gpu, CudaStreamEngine::Options options, uint64_t num_rounds) {
  const char* const waits = std::getenv("SPECD_STREAM_WAITS");
  const bool is_host = waits != nullptr && std::strcmp(waits, "host") == 0;
  for (const uint32_t num_sequences : {1u, options.num_sequences}) {
    options.num_sequences = num_sequences;
    CudaStreamEngine engine(gpu, options);
    uint64_t next_round = 0;
    if (!is_host) TimeRounds(&engine, "submit", false, num_rounds, &next_round);
    if (!is_host && !engine.StreamsCanWait()) {
      Say(std::string("without stream: ") + kNoStreamWaits);
      continue;
    }
    TimeRounds(&engine, is_host ? "stream, host waits" : "stream", true, num_rounds, &next_round);
    engine.CheckWaits();
  }
  Say("ok");
  return 0;
}

}  // namespace

int RunStreamEngine(EngineGpu* gpu, const CudaStreamEngine::Options& options,
                    const std::string& mode, uint64_t num_rounds) {
  if (mode == "rounds") return RunRounds(gpu, options, num_rounds);
  if (mode == "pair") return RunPair(gpu, options, num_rounds);
  if (mode == "endless") return RunEndless(gpu, options);
  if (mode == "wait") return RunWait(gpu, options);
  if (mode == "late") return RunLate(gpu, options);
  if (mode == "stopped") return RunStopped(gpu, options);
  if (mode == "replaced") return RunReplaced(gpu, options);
  if (mode == "held") return RunHeld(gpu, options);
  if (mode == "time") return RunTimes(gpu, options, num_rounds);
  std::fprintf(stderr, "engine: no mode '%s'\n", mode.c_str());
  return 2;
}

}  // namespace specd
