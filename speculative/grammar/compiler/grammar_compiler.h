// GrammarCompiler compiles the constraints of requests for one tokenizer and one logit width, and
// keeps what it has compiled.
//
// A session asks it when a sequence is opened, before it takes any lock. Requests for the same
// constraint share one compiled grammar and its masks (compile_cache.h). What the grammars share is
// made with the first of them: a compiler without constraints costs nothing. Safe from any thread.
//
//   GrammarCompiler compiler({.vocabulary = &vocabulary, .vocab_size = 128256});
//   auto grammar = compiler.Compile({.kind = GrammarKind::kRegex, .text = "[0-9]+"});
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "detokenizer/vocabulary.h"
#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/base/grammar_memory.h"
#include "speculative/grammar/base/grammar_request.h"
#include "speculative/grammar/compiler/compile_cache.h"
#include "speculative/grammar/compiler/compiled_grammar.h"
#include "speculative/grammar/masks/tokenizer_parts.h"
#include "speculative/grammar/matchers/forced_tokens.h"
#include "speculative/grammar/matchers/reasoning_gate.h"

namespace specd::grammar {

// A compile that has ended, and the time that it took, with the wait for its turn. It runs in the
// thread that compiles.
using OnCompile =
    std::function<void(const GrammarRequest& request, const CompileResult& result, int64_t us)>;

struct GrammarCompilerOptions {
  const Vocabulary* vocabulary = nullptr;  // outlives the compiler and its grammars
  int32_t vocab_size = 0;                  // columns of a row of logits
  // The markers of a model that reasons; an empty end: it does not reason.
  ReasoningTexts reasoning = {};
  size_t cache_bytes = size_t{256} << 20;  // of masks and of compiled grammars, each
  // Outlives the compiler and its grammars.
  GrammarMemory* memory = &GrammarMemory::OfProcess();
  BudgetLimits compile_limits = CompileLimits();  // of one compile
  OnCompile on_compile = nullptr;                 // of Compile, where the cache has no answer
};

class GrammarCompiler {
 public:
  // REQUIRES: vocab_size is in 1 .. kVocabSizeMax.
  explicit GrammarCompiler(const GrammarCompilerOptions& options);
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // Makes what the grammars share, tens of milliseconds for a large vocabulary, if it is not there.
  // InvalidArgument: a marker of `reasoning` is wrong.
  absl::Status Prepare();

  // InvalidArgument: the text is wrong (with the offset or the JSON pointer). Unimplemented: it is
  // right, and cannot be enforced. ResourceExhausted: it is past a limit, or the machine has no
  // room or time now.
  CompileResult Compile(const GrammarRequest& request);
  // Compiles a constraint that nothing else shares, without the cache and without a turn. Also
  // Unavailable: the machine has no room now. DeadlineExceeded: it took more than its CPU time.
  CompileResult CompileAnew(const GrammarRequest& request);

  // Null: nothing was compiled yet. Otherwise the finder lives as long as the compiler.
  const ForcedTokenFinder* forced_tokens() const;
  // Null: the model does not reason, and constraints begin at once; or nothing was compiled yet.
  std::shared_ptr<const ReasoningMarkers> reasoning() const;
  // Bytes of the mask rows that all grammars of the compiler keep.
  size_t mask_bytes() const;

 private:
  // What the grammars share.
  struct Shared {
    std::shared_ptr<TokenizerParts> parts;
    ForcedTokenFinder forced_tokens;
    std::shared_ptr<const ReasoningMarkers> reasoning;
  };

  absl::Status MakeShared();
  CompileResult CompileBounded(const GrammarRequest& request) const;

  const GrammarCompilerOptions options_;
  std::once_flag once_;
  absl::Status refusal_;  // why there is none; written once, by once_
  std::unique_ptr<const Shared> made_;
  std::atomic<const Shared*> shared_{nullptr};
  CompileCache cache_;
};

}  // namespace specd::grammar
