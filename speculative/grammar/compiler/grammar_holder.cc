#include "speculative/grammar/compiler/grammar_holder.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace specd::grammar {

// Shared with the grammars that are held, which may outlive the holder.
struct GrammarHolder::Held {
  struct Entry {
    std::shared_ptr<const CompiledGrammar> grammar;
    std::weak_ptr<const CompiledGrammar> given;  // what Hold has returned
  };

  void Release(const CompiledGrammar* grammar) {
    std::shared_ptr<const CompiledGrammar> freed;  // without the lock
    const std::lock_guard lock(mutex);
    const auto found = by_grammar.find(grammar);
    // Hold may have given it out anew.
    if (found == by_grammar.end() || !found->second.given.expired()) return;
    freed = std::move(found->second.grammar);
    by_grammar.erase(found);
  }

  mutable std::mutex mutex;
  std::unordered_map<const CompiledGrammar*, Entry> by_grammar;
};

GrammarHolder::GrammarHolder(GrammarMemory* memory)
    : memory_(*memory), held_(std::make_shared<Held>()) {}

size_t GrammarHolder::size_bytes() const {
  const std::lock_guard lock(held_->mutex);
  size_t sum = 0;
  for (const auto& [grammar, entry] : held_->by_grammar) sum += grammar->size_bytes();
  return sum;
}

absl::Status GrammarHolder::Check(size_t more) const {
  const size_t room = memory_.room_bytes();
  // All of it may be this holder's. The sum of many grammars is left for when it matters.
  if (memory_.size_bytes() <= room / 2) return absl::OkStatus();
  const size_t mine = size_bytes() + more;
  memory_.MakeRoom(room - std::min(room, mine));
  const size_t taken = memory_.size_bytes();
  const size_t least = memory_.bytes_max() / kLeastPart;
  if (mine + taken <= room || (mine <= least && !memory_.IsExhausted())) return absl::OkStatus();
  return absl::ResourceExhaustedError(fmt::format(
      "the constraints of this engine's sequences take {:.1f} MiB, this one included, and all "
      "engines leave {:.1f} of {:.1f} MiB free. An engine may take as much as it leaves free, and "
      "always {:.1f} MiB; close sequences, or try again later",
      static_cast<double>(mine) / (1 << 20),
      static_cast<double>(room - std::min(room, taken)) / (1 << 20),
      static_cast<double>(room) / (1 << 20), static_cast<double>(least) / (1 << 20)));
}

absl::Status GrammarHolder::CheckRoom() const { return Check(0); }

CompileResult GrammarHolder::Hold(std::shared_ptr<const CompiledGrammar> grammar) {
  const CompiledGrammar* const key = grammar.get();
  {
    const std::lock_guard lock(held_->mutex);
    const auto found = held_->by_grammar.find(key);
    if (found != held_->by_grammar.end()) {
      if (auto given = found->second.given.lock(); given != nullptr) return given;
    }
  }
  if (absl::Status status = Check(grammar->size_bytes()); !status.ok()) return status;
  // Made and freed without the lock: Release takes it.
  std::shared_ptr<const CompiledGrammar> fresh(
      key, [held = held_, grammar](const CompiledGrammar* released) { held->Release(released); });
  const std::lock_guard lock(held_->mutex);
  Held::Entry& entry = held_->by_grammar[key];
  if (auto given = entry.given.lock(); given != nullptr) return given;
  entry = {.grammar = std::move(grammar), .given = fresh};
  return fresh;
}

}  // namespace specd::grammar
