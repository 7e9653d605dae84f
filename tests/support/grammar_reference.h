// GrammarReference decides what a grammar accepts, by an Earley recogniser over its expressions.
//
// Tests compare the engine with it. It shares no code with the engine: it reads GrammarRules
// directly, byte by byte, and it steps characters and automata itself. Simple and slow. The rules
// must be complete when it is constructed, and they must outlive it. Thread safety: as an int.
//
//   GrammarReference reference(rules);
//   CHECK(reference.Accepts("aab"));
//   CHECK(reference.IsPrefix("aa"));
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {

class GrammarReference {
 public:
  // The language of the root rule.
  explicit GrammarReference(const GrammarRules& rules);
  // The language of one expression.
  GrammarReference(const GrammarRules& rules, ExprId root);

  bool Accepts(std::string_view text) const;
  // Some text of the grammar begins with `text`.
  bool IsPrefix(std::string_view text) const;

 private:
  // A part of the text, from byte `origin` on, is the part of `expr` before `state`. The meaning
  // of a state depends on the kind: see Scan and Advance.
  struct Item {
    ExprId expr = 0;
    uint32_t state = 0;
    uint32_t origin = 0;

    friend auto operator<=>(const Item&, const Item&) = default;
  };
  // The items that end at one offset of the text.
  struct ItemSet {
    std::vector<Item> items;
    std::set<Item> known;
    std::map<ExprId, std::vector<Item>> waiting;  // by the expression that they wait for
    std::set<ExprId> empty_here;                  // complete, and begun at this offset

    void Add(const Item& item) {
      if (known.insert(item).second) items.push_back(item);
    }
  };

  void FindProductive();
  bool IsProductive(const Expr& expr) const;
  std::vector<bool> CompletableStates(const ByteDfa& dfa) const;

  bool IsComplete(const Item& item) const;
  // The expressions that may come next in the item; none for one that reads bytes.
  std::vector<ExprId> Awaited(const Item& item) const;
  // The items after the expression `part`, for which it waited.
  std::vector<Item> Advance(const Item& item, ExprId part) const;

  // How far the members of an object have come.
  struct MembersState {
    bool is_after_member = false;  // a separator may follow; or else a member must
    // The first that may still come; in any order the bits of those that were written, and kClosed
    // if no member may follow.
    uint32_t key = 0;
    uint32_t written = 0;  // members
    bool is_met = false;   // the need

    static constexpr uint32_t kClosed = 1 << 13;

    static MembersState Of(uint32_t state) {
      return {(state >> 31) != 0, state >> 16 & 0x3FFF, state & 0xFFFF, (state >> 30 & 1) != 0};
    }
    uint32_t number() const {
      return (is_after_member ? 1U << 31 : 0) | (is_met ? 1U << 30 : 0) | key << 16 | written;
    }
  };
  // The states that one part leads to: each member in the order, or the separator.
  using MembersStep = std::pair<ExprId, MembersState>;
  std::vector<MembersStep> AnyMembersSteps(const Expr& expr, MembersState at) const;
  // Those from which the members can still be ended, by trial.
  std::vector<MembersStep> MembersSteps(const Expr& expr, MembersState at) const;
  bool MembersMayEnd(const Expr& expr, MembersState at) const;
  bool MembersCanEnd(const Expr& expr, MembersState at) const;
  void Scan(const Item& item, uint8_t byte, ItemSet* next) const;
  void Close(uint32_t offset, std::vector<ItemSet>* sets) const;
  // The sets of offsets 0 to text.size(), or fewer if no text begins with `text`.
  std::vector<ItemSet> Run(std::string_view text) const;

  const GrammarRules& rules_;
  ExprId root_;
  std::vector<bool> productive_;                     // by expression: its language is not empty
  std::map<ExprId, std::vector<bool>> completable_;  // the states of each automaton
};

}  // namespace specd::grammar
