// CompileCache keeps what GrammarCompiler has compiled, by request, and lets openings with one
// request share one compile.
//
// Errors are kept too: the same wrong schema is not compiled again and again. A refusal that has
// its cause in the machine is not kept, and one that has its cause in time is kept for a while. A
// request that comes while the same request is being compiled waits for it, for wait_ms at most.
// The cache drops what was used least recently. Caches that share a GrammarMemory also share its
// bound: where memory is short, any of them drops grammars of all of them. Safe from any thread.
//
//   CompileCache cache({.bytes_max = 256 << 20, .memory = &memory});
//   auto grammar = cache.FindOrCompile(request, [&] { return compiler.CompileAnew(request); });
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "speculative/grammar/base/grammar_memory.h"
#include "speculative/grammar/base/grammar_request.h"
#include "speculative/grammar/compiler/compiled_grammar.h"

namespace specd::grammar {

struct CompileCacheOptions {
  size_t bytes_max = size_t{256} << 20;                 // of compiled grammars
  GrammarMemory* memory = &GrammarMemory::OfProcess();  // outlives the cache
  int64_t wait_ms = 30'000;                             // for the compile of another caller
  std::function<int64_t()> now_ms = nullptr;            // null: the monotonic clock of the system
};

class CompileCache final : private GrammarMemory::Cache {
 public:
  // How long a compile that took too long is not tried again, the first time; then twice as long
  // each time. A try takes one of the few turns of long compiles (compile_turns.h) for its CPU time
  // of 2 s, so tries of one request take a turn for a thirtieth of the time at most (estimate).
  static constexpr int64_t kFirstPauseMs = 60'000;
  static constexpr int64_t kPauseMsMax = 64 * kFirstPauseMs;

  explicit CompileCache(const CompileCacheOptions& options);
  ~CompileCache();
  CompileCache(const CompileCache&) = delete;
  CompileCache& operator=(const CompileCache&) = delete;

  // Calls `compile` without a lock, unless the answer is known. An answer of DEADLINE_EXCEEDED is
  // kept for a pause. One of UNAVAILABLE is not kept, unless an earlier try took too long: then it
  // is kept for the first pause. Both are RESOURCE_EXHAUSTED for the caller. An exception of
  // `compile` counts as UNAVAILABLE.
  CompileResult FindOrCompile(const GrammarRequest& request,
                              absl::FunctionRef<CompileResult()> compile);

 private:
  struct Entry {
    std::string key;
    uint64_t last_use = 0;  // GrammarMemory::NextUse
    bool is_done = false;
    CompileResult compiled = absl::UnknownError("compiling");
    // The pause after compiles that took too long.
    int64_t pause_ms = 0;  // its length; 0: no compile took too long
    int64_t retry_ms = 0;  // when the pause ends

    bool IsUnused() const;  // no sequence follows its grammar
  };
  using Entries = std::list<std::shared_ptr<Entry>>;

  // An error is small, but takes a place.
  static constexpr size_t kEntriesMax = 4096;

  std::optional<uint64_t> OldestUnused() override;
  void DropUnused(uint64_t last_use) override;

  // All with the lock held.
  std::shared_ptr<Entry> AddEntry(const std::string& key);
  CompileResult Wait(std::unique_lock<std::mutex>& lock, const Entry& entry);
  void Finish(Entry* entry, CompileResult compiled);
  void Forget(const Entry& entry);
  void DropOldest(Entries* dropped);

  int64_t NowMs() const;

  const CompileCacheOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Entries entries_;  // the one used last is at the front
  // If memory runs out while an entry is added, the map is as it was; Abseil's would be broken.
  std::unordered_map<std::string, Entries::iterator> places_;
};

}  // namespace specd::grammar
