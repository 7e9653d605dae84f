#include "daemon/session/grammar_compilers.h"

namespace specd {

using grammar::GrammarCompiler;
using grammar::GrammarCompilerOptions;

std::shared_ptr<GrammarCompiler> GrammarCompilers::ForWidth(int32_t vocab_size) {
  if (!profile_.vocabulary.has_value()) return nullptr;
  MutexLock lock(&mutex_);
  std::weak_ptr<GrammarCompiler>& known = by_width_[vocab_size];
  std::shared_ptr<GrammarCompiler> compiler = known.lock();
  if (compiler == nullptr) {
    compiler = std::make_shared<GrammarCompiler>(
        GrammarCompilerOptions{.vocabulary = &*profile_.vocabulary,
                               .vocab_size = vocab_size,
                               .reasoning = profile_.reasoning,
                               .compile_limits = limits_,
                               .on_compile = on_compile_});
    known = compiler;
  }
  last_ = compiler;
  return compiler;
}

}  // namespace specd
