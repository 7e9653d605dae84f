// MemberList writes the members of an object: declared ones in their order, then any others.
//
// Its size grows with the number of members: a rule means "from member i on, with n written",
// and is shared by all ways that lead there.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/grammar/counted.h"
#include "speculative/grammar/grammar_rules.h"
#include "speculative/grammar/json_text.h"

namespace specd::grammar {

struct Member {
  ExprId text = 0;  // "name" : value
  bool is_required = false;
};

struct MemberCounts {
  uint32_t min = 0;
  uint32_t max = kUnbounded;
};

inline constexpr size_t kMemberNodesMax = 65536;

class MemberList {
 public:
  // `other` is any further member; Never if there is none. `name` is for the rules.
  MemberList(List<Member> members, ExprId other, MemberCounts counts, std::string name,
             JsonText* text, GrammarRules* rules);

  // The object, with its braces. RESOURCE_EXHAUSTED past kMemberNodesMax.
  // REQUIRES: if there are others, the required members are at least counts.min - 1. Two others may
  // have one name, so they count as one.
  absl::StatusOr<ExprId> Build();

 private:
  // The text from a node on, its parts in reverse.
  using Tail = List<ExprId>;

  size_t NodeOf(size_t position, size_t num_written) const {
    return position * (cap_ + 1) + num_written;
  }
  // The count after one more member; cap_ + 1 if there may be none.
  size_t Next(size_t num_written) const;
  void CountWays();
  Tail BuildLast(size_t num_written);
  Tail BuildNode(size_t position, size_t num_written);
  // `tail` as one expression; it is consumed.
  ExprId Join(Tail tail);
  Tail TakeNode(size_t position, size_t num_written);

  const List<Member> members_;
  const ExprId other_;
  MemberCounts counts_;
  const std::string name_;
  JsonText& text_;
  GrammarRules& rules_;
  size_t cap_ = 1;       // counts are told apart up to here
  List<uint32_t> ways_;  // edges into each node
  List<Tail> tails_;
};

}  // namespace specd::grammar
