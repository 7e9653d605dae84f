// GrammarWeights makes compiled grammars that take any number of bytes of a GrammarMemory, for
// tests of its bounds. No text has begun in them, so they take exactly that. Safe from any thread.
//
//   const GrammarWeights weights(&memory);
//   auto grammar = weights.Make(size_t{300} << 20);
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "detokenizer/vocabulary.h"
#include "speculative/grammar/base/grammar_memory.h"
#include "speculative/grammar/compiler/compiled_grammar.h"
#include "speculative/grammar/masks/token_trie.h"
#include "speculative/grammar/masks/tokenizer_parts.h"
#include "speculative/grammar/network/network.h"
#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {

class GrammarWeights {
 public:
  explicit GrammarWeights(GrammarMemory* memory)
      : parts_(std::make_shared<TokenizerParts>(&Tokens(), TokenTrie::Build(Tokens(), 1),
                                                /*mask_bytes=*/1, memory)) {}

  std::shared_ptr<const CompiledGrammar> Make(size_t size_bytes) const {
    GrammarRules rules;
    const RuleId root = rules.AddRule("root");
    rules.Define(root, rules.Literal("a"));
    rules.SetRoot(root);
    return std::make_shared<const CompiledGrammar>(parts_, *Network::Build(rules), size_bytes,
                                                   std::vector<std::string>());
  }

 private:
  static const Vocabulary& Tokens() {
    static const Vocabulary tokens = [] {
      Vocabulary::Builder builder;
      builder.Set(0, "a", {});
      return std::move(builder).Build();
    }();
    return tokens;
  }

  const std::shared_ptr<TokenizerParts> parts_;
};

}  // namespace specd::grammar
