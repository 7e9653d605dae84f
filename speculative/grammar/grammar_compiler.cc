#include "speculative/grammar/grammar_compiler.h"

#include <atomic>
#include <mutex>
#include <new>
#include <utility>

#include "speculative/grammar/compile_cache.h"
#include "speculative/grammar/compile_turns.h"
#include "speculative/grammar/specd_backend.h"
#include "speculative/grammar/xgrammar_backend.h"

namespace specd::grammar {
namespace {

using Compiled = CompileResult;

// The memory that was taken is given back by now, so the text mostly finds its own.
absl::Status NoMemory() {
  try {
    return absl::ResourceExhaustedError(
        "no memory is left to compile the constraint; try again later");
  } catch (const std::bad_alloc&) {
    return {absl::StatusCode::kResourceExhausted, ""};
  }
}

class CachingCompiler : public GrammarCompiler {
 public:
  CachingCompiler(const GrammarCompilerOptions& options, std::unique_ptr<GrammarBackend> own,
                  std::shared_ptr<const ReasoningMarkers> reasoning)
      : options_(options),
        own_(std::move(own)),
        reasoning_(std::move(reasoning)),
        cache_({.bytes_max = options.cache_bytes, .memory = options.memory}) {}

  std::shared_ptr<const ReasoningMarkers> reasoning() const override { return reasoning_; }

  const ForcedTokenFinder* forced_tokens() const override {
    // Pairs with the release in Compile: a finder that is seen is complete.
    return forced_.load(std::memory_order_acquire);
  }

  Compiled Compile(const GrammarRequest& request) override {
    try {
      return CompileOrThrow(request);
    } catch (const std::bad_alloc&) {
      return NoMemory();
    }
  }

 private:
  Compiled CompileOrThrow(const GrammarRequest& request) {
    // The trie takes tens of milliseconds, which a round could not wait for.
    std::call_once(forced_once_, [this] {
      finder_ = std::make_unique<ForcedTokenFinder>(
          TokenTrie::Build(*options_.vocabulary, options_.vocab_size));
      forced_.store(finder_.get(), std::memory_order_release);
    });
    return cache_.FindOrCompile(request, [&] { return CompileNow(request); });
  }

  Compiled CompileNow(const GrammarRequest& request) {
    const CompileTurn turn;
    if (request.backend == BackendChoice::kXgrammar) return CompileByXgrammar(request);
    Compiled compiled = own_->Compile(request);
    const bool may_ask = request.backend == BackendChoice::kAuto && !request.lenient;
    if (!may_ask || compiled.status().code() != absl::StatusCode::kUnimplemented) return compiled;
    // Where xgrammar is not installed, the reason why specd's own engine refuses is the answer.
    // Where it has no time, that is the answer: it is not kept, or only for a while.
    Compiled other = CompileByXgrammar(request);
    const bool is_for_now = other.status().code() == absl::StatusCode::kUnavailable ||
                            other.status().code() == absl::StatusCode::kDeadlineExceeded;
    return other.ok() || is_for_now ? other : compiled;
  }

  Compiled CompileByXgrammar(const GrammarRequest& request) {
    if (request.key_order != KeyOrder::kSchema) {
      return absl::UnimplementedError(
          "grammar_key_order: xgrammar keeps the order of the schema; set grammar_backend = specd");
    }
    std::call_once(xgrammar_once_, [this] {
      xgrammar_ =
          LoadXgrammar({.vocabulary = options_.vocabulary, .vocab_size = options_.vocab_size});
    });
    if (!xgrammar_.ok()) return xgrammar_.status();
    return (*xgrammar_)->Compile(request);
  }

  const GrammarCompilerOptions options_;
  const std::unique_ptr<GrammarBackend> own_;
  const std::shared_ptr<const ReasoningMarkers> reasoning_;
  std::once_flag forced_once_;
  std::unique_ptr<ForcedTokenFinder> finder_;
  std::atomic<const ForcedTokenFinder*> forced_{nullptr};
  std::once_flag xgrammar_once_;
  absl::StatusOr<std::shared_ptr<GrammarBackend>> xgrammar_ = absl::UnknownError("not loaded");
  // The grammars in it use the parts of own_, and hold them.
  CompileCache cache_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<GrammarCompiler>> GrammarCompiler::Create(
    const GrammarCompilerOptions& options) {
  absl::StatusOr<std::unique_ptr<SpecdBackend>> own =
      SpecdBackend::Create({.vocabulary = options.vocabulary,
                            .vocab_size = options.vocab_size,
                            .mask_bytes = options.cache_bytes,
                            .memory = options.memory,
                            .compile_limits = options.compile_limits});
  if (!own.ok()) return own.status();
  std::shared_ptr<const ReasoningMarkers> reasoning;
  if (!options.reasoning.end.empty()) {
    absl::StatusOr<std::shared_ptr<const ReasoningMarkers>> markers =
        ReasoningMarkers::Create(options.reasoning, options.vocabulary, options.vocab_size);
    if (!markers.ok()) return markers.status();
    reasoning = *std::move(markers);
  }
  return std::make_shared<CachingCompiler>(options, *std::move(own), std::move(reasoning));
}

}  // namespace specd::grammar
