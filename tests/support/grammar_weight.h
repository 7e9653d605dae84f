// Weight is a compiled grammar that only takes bytes of a GrammarMemory, for tests of its bounds.
// It has no matchers. Safe from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "speculative/grammar/grammar_backend.h"
#include "speculative/grammar/grammar_memory.h"

namespace specd::grammar {

class Weight : public CompiledGrammar {
 public:
  Weight(GrammarMemory* memory, size_t size_bytes) : bytes_(memory) { bytes_.Add(size_bytes); }

  std::unique_ptr<GrammarMatcher> NewMatcher(const MatcherOptions&) const override {
    return nullptr;
  }
  std::span<const std::string> warnings() const override { return {}; }
  size_t size_bytes() const override { return bytes_.size(); }

 private:
  CountedBytes bytes_;
};

}  // namespace specd::grammar
