// GrammarHolder bounds the memory of the constraints that one engine's sequences follow.
//
// All engines of a process share GrammarMemory. A holder may hold as much as it leaves free, so one
// alone has half of the room, and one greedy engine never takes the room of the others. Beyond that
// rule every holder may hold kLeastPart of the bound. Grammars that no sequence follows give way
// first. A grammar that several holders hold counts for each of them. Safe from any thread.
//
//   if (absl::Status status = holder.CheckRoom(); !status.ok()) return status;
//   auto held = holder.Hold(*compiler->Compile(request));   // counts while a copy of it lives
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "speculative/grammar/base/grammar_memory.h"
#include "speculative/grammar/compiler/compiled_grammar.h"

namespace specd::grammar {

class GrammarHolder {
 public:
  // A 256th of the bound: that of 64 engines is the quarter past the room for grammars.
  static constexpr size_t kLeastPart = 256;

  // The memory outlives the holder and what it has held.
  explicit GrammarHolder(GrammarMemory* memory = &GrammarMemory::OfProcess());

  // Whether another grammar may be compiled. The grammars that are held grow as texts are followed.
  absl::Status CheckRoom() const;
  // The same grammar, which counts as long as a copy of the result lives. RESOURCE_EXHAUSTED: the
  // holder would have more than its share.
  CompileResult Hold(std::shared_ptr<const CompiledGrammar> grammar);
  size_t size_bytes() const;

 private:
  struct Held;

  // Whether the holder may hold its grammars and `more` bytes, which the memory has counted.
  absl::Status Check(size_t more) const;

  GrammarMemory& memory_;
  const std::shared_ptr<Held> held_;
};

}  // namespace specd::grammar
