#include "speculative/grammar/compiler/grammar_compiler.h"

#include <time.h>

#include <new>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "kernels/core/check.h"
#include "speculative/grammar/base/compile_turns.h"
#include "speculative/grammar/base/deep_stack.h"
#include "speculative/grammar/compiler/front_ends.h"
#include "speculative/grammar/masks/token_trie.h"

namespace specd::grammar {
namespace {

// Parts of a text nest, references lead to references, and rules take the places of their calls:
// the compiler recurses as deep, up to kCompileLevelsMax. The caller's stack may be a small one.
constexpr size_t kDeepStackBytes = size_t{64} << 20;

int64_t NowUs() {
  timespec now = {};
  SPECD_CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1'000;
}

// The memory that was taken is given back by now, so the text mostly finds its own.
absl::Status NoMemory() {
  try {
    return absl::ResourceExhaustedError(
        "no memory is left to compile the constraint; try again later");
  } catch (const std::bad_alloc&) {
    return {absl::StatusCode::kResourceExhausted, ""};
  }
}

}  // namespace

GrammarCompiler::GrammarCompiler(const GrammarCompilerOptions& options)
    : options_(options), cache_({.bytes_max = options.cache_bytes, .memory = options.memory}) {
  SPECD_CHECK(options.vocab_size >= 1 && options.vocab_size <= kVocabSizeMax);
}

absl::Status GrammarCompiler::MakeShared() {
  std::shared_ptr<const ReasoningMarkers> reasoning;
  if (!options_.reasoning.end.empty()) {
    absl::StatusOr<std::shared_ptr<const ReasoningMarkers>> markers =
        ReasoningMarkers::Create(options_.reasoning, options_.vocabulary, options_.vocab_size);
    if (!markers.ok()) return markers.status();
    reasoning = *std::move(markers);
  }
  TokenTrie trie = TokenTrie::Build(*options_.vocabulary, options_.vocab_size);
  auto parts = std::make_shared<TokenizerParts>(options_.vocabulary, trie, options_.cache_bytes,
                                                options_.memory);
  made_ = std::make_unique<const Shared>(
      Shared{std::move(parts), ForcedTokenFinder(std::move(trie)), std::move(reasoning)});
  // Pairs with the loads of shared_: what is seen is complete.
  shared_.store(made_.get(), std::memory_order_release);
  return absl::OkStatus();
}

absl::Status GrammarCompiler::Prepare() {
  std::call_once(once_, [this] { refusal_ = MakeShared(); });
  return refusal_;
}

CompileResult GrammarCompiler::Compile(const GrammarRequest& request) {
  try {
    if (absl::Status status = Prepare(); !status.ok()) return status;
    return cache_.FindOrCompile(request, [&] {
      const int64_t started_us = NowUs();
      const CompileTurn turn;
      CompileResult result = CompileAnew(request);
      if (options_.on_compile) options_.on_compile(request, result, NowUs() - started_us);
      return result;
    });
  } catch (const std::bad_alloc&) {
    return NoMemory();
  }
}

CompileResult GrammarCompiler::CompileAnew(const GrammarRequest& request) {
  if (absl::Status status = Prepare(); !status.ok()) return status;
  if (request.text.size() > kGrammarTextBytesMax) {
    return absl::ResourceExhaustedError(fmt::format("the text has {} bytes, at most {} are allowed",
                                                    request.text.size(), kGrammarTextBytesMax));
  }
  CompileResult compiled = absl::UnknownError("");
  absl::Status refusal;
  const absl::Status run = RunOnDeepStack(kDeepStackBytes, [&] {
    refusal = Budget::Run(options_.compile_limits, [&] { compiled = CompileBounded(request); });
  });
  if (!run.ok()) return run;
  if (!refusal.ok()) return refusal;
  return compiled;
}

CompileResult GrammarCompiler::CompileBounded(const GrammarRequest& request) const {
  const std::shared_ptr<TokenizerParts>& parts = made_->parts;
  std::vector<std::string> warnings;
  absl::StatusOr<Network> network = BuildNetwork(request, parts->spelled_bytes, &warnings);
  if (!network.ok()) return network.status();
  return CompiledGrammar::Create(parts, *std::move(network), std::move(warnings));
}

const ForcedTokenFinder* GrammarCompiler::forced_tokens() const {
  const Shared* const shared = shared_.load(std::memory_order_acquire);
  return shared == nullptr ? nullptr : &shared->forced_tokens;
}

std::shared_ptr<const ReasoningMarkers> GrammarCompiler::reasoning() const {
  const Shared* const shared = shared_.load(std::memory_order_acquire);
  return shared == nullptr ? nullptr : shared->reasoning;
}

size_t GrammarCompiler::mask_bytes() const {
  const Shared* const shared = shared_.load(std::memory_order_acquire);
  return shared == nullptr ? 0 : shared->parts->masks.size_bytes();
}

}  // namespace specd::grammar
