#include "tools/bench/grammar_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/core/check.h"
#include "kernels/core/draft.h"
#include "kernels/core/edits.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "speculative/round/mask_filler.h"
#include "speculative/sequence/sequence_table.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

void Time(GrammarCase grammar_case, GrammarSamples* samples, absl::FunctionRef<void()> work) {
  const SteadyClock::time_point start = SteadyClock::now();
  work();
  const double time_us = MicrosSince(start);
  (*samples)[static_cast<size_t>(grammar_case)].push_back(time_us);
}

}  // namespace

std::unique_ptr<grammar::GrammarMatcher> GrammarReplay::NewMatcher(const Compiled& compiled) const {
  return compiled->NewMatcher({.stop_ids = {tokens_.back()}});
}

absl::Status GrammarReplay::Check() const {
  SPECD_TAKE(const Compiled compiled, compiler_->CompileAnew(request_));
  const std::unique_ptr<grammar::GrammarMatcher> matcher = NewMatcher(compiled);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const bool is_allowed = matcher->Mask().Allows(tokens_[i]);
    const bool is_accepted = matcher->Accept(tokens_[i]);
    if (is_allowed && is_accepted) continue;
    if (matcher->fault() != grammar::MatcherFault::kNone) {
      return absl::ResourceExhaustedError(
          fmt::format("after {} of {} tokens a mask meets a limit", i, tokens_.size()));
    }
    return absl::InternalError(fmt::format("{}: token {} of {} is {} by the mask and {}", "specd",
                                           i, tokens_.size(), is_allowed ? "allowed" : "forbidden",
                                           is_accepted ? "accepted" : "not accepted"));
  }
  return absl::OkStatus();
}

void GrammarReplay::Run(GrammarSamples* samples) const {
  Compiled compiled;
  Time(GrammarCase::kCompile, samples,
       [&] { compiled = compiler_->CompileAnew(request_).value(); });
  RunMatcher(compiled, samples);
  RunRounds(compiled, samples);
}

void GrammarReplay::RunMatcher(const Compiled& compiled, GrammarSamples* samples) const {
  const std::unique_ptr<grammar::GrammarMatcher> first = NewMatcher(compiled);
  grammar::MaskRow row;
  Time(GrammarCase::kFirstMask, samples, [&] { row = first->Mask(); });
  (*samples)[static_cast<size_t>(GrammarCase::kColdMask)].push_back(
      (*samples)[static_cast<size_t>(GrammarCase::kFirstMask)].back());
  for (size_t i = 0; i + 1 < tokens_.size(); ++i) {
    SPECD_CHECK(first->Accept(tokens_[i]));
    Time(GrammarCase::kColdMask, samples, [&] { row = first->Mask(); });
  }
  const std::unique_ptr<grammar::GrammarMatcher> second = NewMatcher(compiled);
  for (const TokenId token : tokens_) {
    Time(GrammarCase::kWarmMask, samples, [&] { row = second->Mask(); });
    SPECD_CHECK(second->Accept(token));
  }
}

SequenceGrammar GrammarReplay::NewSequence(const Compiled& compiled, size_t at) const {
  return SequenceGrammar::Create(
             NewMatcher(compiled), std::span(tokens_).first(at),
             {.vocab_size = vocab_size_, .max_batch = 1, .max_draft = kDraft, .threads = 1})
      .value();
}

SequenceGrammar GrammarReplay::NewSequence(size_t at) const {
  return NewSequence(compiler_->CompileAnew(request_).value(), at);
}

void GrammarReplay::RunRounds(const Compiled& compiled, GrammarSamples* samples) const {
  SequenceGrammar sequence = NewSequence(compiled, 0);
  std::array<PlaceEdits, kDraft + 1> places = {};
  // The last token of a round is the target's own.
  for (std::span<const TokenId> rest = tokens_; rest.size() > kDraft;
       rest = rest.subspan(kDraft + 1)) {
    const Draft draft = {.num_nodes = kDraft, .tokens = rest.data()};
    bool is_kept = false;
    Time(GrammarCase::kRoundK5, samples, [&] {
      grammar::WorkSlice all;
      int32_t next_place = 0;
      SPECD_CHECK(sequence.Fill(draft, places.data(), &next_place, &all));
      is_kept = sequence.Commit(rest.first(kDraft + 1));
    });
    SPECD_CHECK(is_kept && places[kDraft].grammar_mask != nullptr);
  }
}

void FillBatch(std::span<const GrammarReplay* const> replays, const FillShape& shape,
               FillTimes* times) {
  constexpr auto kDraft = GrammarReplay::kDraft;
  struct Member {
    Sequence sequence;
    Draft draft;
    std::array<PlaceEdits, kDraft + 1> places = {};
  };
  std::vector<Member> members(static_cast<size_t>(shape.num_sequences));
  std::vector<MaskFiller::Job> jobs;
  for (size_t i = 0; i < members.size(); ++i) {
    const GrammarReplay& replay = *replays[i % replays.size()];
    // Different places of the texts, for a batch of any size the same ones.
    const size_t at = i * 7 % (replay.tokens().size() - kDraft);
    Member& member = members[i];
    member.sequence.grammar = replay.NewSequence(at);
    member.draft = {.num_nodes = kDraft, .tokens = replay.tokens().data() + at};
    jobs.push_back({&member.sequence, &member.draft, member.places.data()});
  }
  MaskFiller filler(shape.threads,
                    [] { return int64_t{SteadyClock::now().time_since_epoch().count()}; });
  filler.Start();
  for (int fill = 0; fill <= kWarmFills; ++fill) {
    for (MaskFiller::Job& job : jobs) job.next_place = 0;
    const SteadyClock::time_point begin = SteadyClock::now();
    for (size_t num_filled = 0; num_filled < jobs.size();) {
      num_filled += filler.Fill(std::span(jobs).subspan(num_filled));
    }
    (fill == 0 ? times->cold : times->warm).push_back(MicrosSince(begin));
  }
  for (const Member& member : members) {
    SPECD_CHECK(!member.sequence.grammar_failed && member.places[kDraft].grammar_mask != nullptr);
  }
}

}  // namespace specd::bench
