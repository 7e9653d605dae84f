#include "speculative/grammar/member_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "kernels/core/check.h"
#include "speculative/grammar/counted.h"

namespace specd::grammar {

MemberList::MemberList(List<Member> members, ExprId other, MemberCounts counts, std::string name,
                       JsonText* text, GrammarRules* rules)
    : members_(std::move(members)),
      other_(other),
      counts_(counts),
      name_(std::move(name)),
      text_(*text),
      rules_(*rules) {
  const auto num_required = static_cast<uint32_t>(std::count_if(
      members_.begin(), members_.end(), [](const Member& member) { return member.is_required; }));
  if (counts_.min <= num_required) counts_.min = 0;
  if (other_ == rules_.Never() && counts_.max >= members_.size()) counts_.max = kUnbounded;
  cap_ = counts_.max != kUnbounded ? counts_.max : std::max<size_t>(counts_.min, 1);
}

size_t MemberList::Next(size_t num_written) const {
  return counts_.max == kUnbounded ? std::min(num_written + 1, cap_) : num_written + 1;
}

void MemberList::CountWays() {
  ways_.assign((members_.size() + 1) * (cap_ + 1), 0);
  ways_[0] = 1;
  for (size_t position = 0; position < members_.size(); ++position) {
    for (size_t num_written = 0; num_written <= cap_; ++num_written) {
      if (ways_[NodeOf(position, num_written)] == 0) continue;
      const size_t next = Next(num_written);
      if (next <= cap_) ++ways_[NodeOf(position + 1, next)];
      const bool can_skip = !members_[position].is_required && next != num_written;
      if (can_skip) ++ways_[NodeOf(position + 1, num_written)];
    }
  }
}

ExprId MemberList::Join(Tail tail) {
  std::reverse(tail.begin(), tail.end());
  return rules_.Sequence(tail);
}

MemberList::Tail MemberList::TakeNode(size_t position, size_t num_written) {
  const size_t node = NodeOf(position, num_written);
  // A node of several ways is one call, which each of them copies.
  return ways_[node] > 1 ? tails_[node] : std::move(tails_[node]);
}

MemberList::Tail MemberList::BuildLast(size_t num_written) {
  const auto written = static_cast<uint32_t>(num_written);
  const uint32_t most = counts_.max == kUnbounded ? kUnbounded : counts_.max - written;
  const uint32_t least = counts_.min > written ? counts_.min - written : 0;
  if (other_ == rules_.Never() || most == 0) {
    if (least > 0) return {rules_.Never()};
    return {num_written == 0 ? rules_.Empty() : text_.Space()};
  }
  // Only the first of the others is sure to have a new name.
  if (least > 1) return {rules_.Never()};
  const ExprId more = rules_.Sequence({text_.Comma(), other_});
  if (num_written > 0) return {text_.Space(), rules_.Repeat(more, least, most)};
  const ExprId some = rules_.Sequence(
      {other_, rules_.Repeat(more, 0, most == kUnbounded ? kUnbounded : most - 1), text_.Space()});
  return {least > 0 ? some : rules_.Optional(some)};
}

MemberList::Tail MemberList::BuildNode(size_t position, size_t num_written) {
  const Member& member = members_[position];
  const size_t next = Next(num_written);
  const ExprId text =
      num_written == 0 ? member.text : rules_.Sequence({text_.Comma(), member.text});
  if (next > cap_) {  // no more may be written
    if (member.is_required) return {rules_.Never()};
    return TakeNode(position + 1, num_written);
  }
  Tail taken = TakeNode(position + 1, next);
  if (member.is_required) {
    taken.push_back(text);
    return taken;
  }
  if (next == num_written) {
    taken.push_back(rules_.Optional(text));
    return taken;
  }
  taken.push_back(text);
  const ExprId with = Join(std::move(taken));
  return {rules_.AnyOf({with, Join(TakeNode(position + 1, num_written))})};
}

absl::StatusOr<ExprId> MemberList::Build() {
  if ((members_.size() + 1) * (cap_ + 1) > kMemberNodesMax) {
    return absl::ResourceExhaustedError(fmt::format(
        "{}: minProperties or maxProperties with {} properties needs more than {} nodes; lower the "
        "bound",
        name_, members_.size(), kMemberNodesMax));
  }
  CountWays();
  // Branches are nested no deeper than this before one becomes a rule.
  constexpr size_t kInlineMembersMax = 16;
  tails_.resize(ways_.size());
  for (size_t position = members_.size() + 1; position-- > 0;) {
    for (size_t num_written = 0; num_written <= cap_; ++num_written) {
      const size_t node = NodeOf(position, num_written);
      if (ways_[node] == 0) continue;
      Tail tail =
          position == members_.size() ? BuildLast(num_written) : BuildNode(position, num_written);
      const bool is_branch = position < members_.size() && !members_[position].is_required &&
                             Next(num_written) != num_written;
      if (ways_[node] > 1 || (is_branch && members_.size() > kInlineMembersMax)) {
        const ExprId body = Join(std::move(tail));
        if (body == rules_.Never() || body == rules_.Empty()) {
          tail = {body};
        } else {
          const RuleId rule = rules_.AddRule(fmt::format("{} from {}", name_, position));
          rules_.Define(rule, body);
          tail = {rules_.Call(rule)};
        }
      }
      tails_[node] = std::move(tail);
    }
  }
  const ExprId members = Join(std::move(tails_[0]));
  return rules_.Sequence({text_.Open('{'), members, rules_.Literal("}")});
}

}  // namespace specd::grammar
