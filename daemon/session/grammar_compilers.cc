#include "daemon/session/grammar_compilers.h"

#include <mutex>
#include <utility>

namespace specd {
namespace {

using grammar::CompiledGrammar;
using grammar::ForcedTokenFinder;
using grammar::GrammarCompiler;
using grammar::GrammarCompilerOptions;
using grammar::GrammarRequest;
using grammar::ReasoningMarkers;

// Makes the compiler when the first constraint comes.
class LazyCompiler : public GrammarCompiler {
 public:
  explicit LazyCompiler(const GrammarCompilerOptions& options) : options_(options) {}

  absl::StatusOr<std::shared_ptr<const CompiledGrammar>> Compile(
      const GrammarRequest& request) override {
    if (!compiler().ok()) return compiler().status();
    return (*compiler())->Compile(request);
  }

  const ForcedTokenFinder* forced_tokens() const override {
    return compiler().ok() ? (*compiler())->forced_tokens() : nullptr;
  }

  std::shared_ptr<const ReasoningMarkers> reasoning() const override {
    return compiler().ok() ? (*compiler())->reasoning() : nullptr;
  }

 private:
  using Made = absl::StatusOr<std::shared_ptr<GrammarCompiler>>;

  const Made& compiler() const {
    std::call_once(once_, [this] { compiler_ = GrammarCompiler::Create(options_); });
    return compiler_;
  }

  const GrammarCompilerOptions options_;
  mutable std::once_flag once_;
  mutable Made compiler_ = absl::UnknownError("not made");  // written once, by call_once
};

}  // namespace

std::shared_ptr<GrammarCompiler> GrammarCompilers::ForWidth(int32_t vocab_size) {
  if (!profile_.vocabulary.has_value()) return nullptr;
  MutexLock lock(&mutex_);
  std::weak_ptr<GrammarCompiler>& known = by_width_[vocab_size];
  std::shared_ptr<GrammarCompiler> compiler = known.lock();
  if (compiler == nullptr) {
    compiler =
        std::make_shared<LazyCompiler>(GrammarCompilerOptions{.vocabulary = &*profile_.vocabulary,
                                                              .vocab_size = vocab_size,
                                                              .reasoning = profile_.reasoning,
                                                              .compile_limits = limits_});
    known = compiler;
  }
  last_ = compiler;
  return compiler;
}

}  // namespace specd
