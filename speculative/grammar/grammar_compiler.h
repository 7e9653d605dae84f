// GrammarCompiler compiles the constraints of requests for one tokenizer and one logit width, and
// keeps what it has compiled.
//
// A session asks it when a sequence is opened, before it takes any lock. Requests for the same
// constraint share one compiled grammar and its masks (compile_cache.h). Safe from any thread.
//
//   auto compiler = GrammarCompiler::Create({.vocabulary = &vocabulary, .vocab_size = 128256});
//   auto grammar = (*compiler)->Compile({.kind = GrammarKind::kRegex, .text = "[0-9]+"});
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "detokenizer/vocabulary.h"
#include "speculative/grammar/budget.h"
#include "speculative/grammar/forced_tokens.h"
#include "speculative/grammar/grammar_backend.h"
#include "speculative/grammar/grammar_memory.h"
#include "speculative/grammar/reasoning_gate.h"

namespace specd::grammar {

struct GrammarCompilerOptions {
  const Vocabulary* vocabulary = nullptr;  // outlives the compiler
  int32_t vocab_size = 0;                  // columns of a row of logits
  // The markers of a model that reasons; an empty end: it does not reason.
  ReasoningTexts reasoning = {};
  size_t cache_bytes = size_t{256} << 20;               // of masks and of compiled grammars, each
  GrammarMemory* memory = &GrammarMemory::OfProcess();  // outlives the compiler
  BudgetLimits compile_limits = CompileLimits();        // of one compile by specd's own engine
};

class GrammarCompiler {
 public:
  virtual ~GrammarCompiler() = default;

  static absl::StatusOr<std::shared_ptr<GrammarCompiler>> Create(
      const GrammarCompilerOptions& options);

  // Errors are those of GrammarBackend::Compile, without Unavailable and DeadlineExceeded, and
  // those of CompileCache.
  virtual absl::StatusOr<std::shared_ptr<const CompiledGrammar>> Compile(
      const GrammarRequest& request) = 0;

  // Null: nothing was compiled yet. Otherwise the finder lives as long as the compiler.
  virtual const ForcedTokenFinder* forced_tokens() const { return nullptr; }

  // Null: the model does not reason, and constraints begin at once.
  virtual std::shared_ptr<const ReasoningMarkers> reasoning() const = 0;
};

}  // namespace specd::grammar
