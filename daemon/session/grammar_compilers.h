// GrammarCompilers makes one GrammarCompiler for each logit width that sessions of a model have.
//
// The daemon has one of it beside its ModelProfile, and an embedded engine has one too. Sessions of
// the same width share a compiler, so they share compiled constraints and masks. A compiler holds a
// trie of the vocabulary, which takes tens of milliseconds to build. The first constraint builds
// it: an attach waits for nothing, and a session without constraints pays nothing. A compiler lives
// while a session of its width does; the one that was asked for last lives on. Safe from any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "daemon/base/mutex.h"
#include "daemon/session/model_profile.h"
#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/compiler/grammar_compiler.h"

namespace specd {

class GrammarCompilers {
 public:
  // The profile outlives this object and every compiler. The limits are those of each compile.
  explicit GrammarCompilers(const ModelProfile* profile,
                            const grammar::BudgetLimits& limits = grammar::CompileLimits(),
                            grammar::OnCompile on_compile = nullptr)
      : profile_(*profile), limits_(limits), on_compile_(std::move(on_compile)) {}

  // Returns null if the profile has no tokenizer. REQUIRES: CheckVocabSize accepts the width.
  std::shared_ptr<grammar::GrammarCompiler> ForWidth(int32_t vocab_size);

 private:
  const ModelProfile& profile_;
  const grammar::BudgetLimits limits_;
  const grammar::OnCompile on_compile_;
  Mutex mutex_;
  absl::flat_hash_map<int32_t, std::weak_ptr<grammar::GrammarCompiler>> by_width_
      ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<grammar::GrammarCompiler> last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace specd
