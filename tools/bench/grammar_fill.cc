#include "tools/bench/grammar_fill.h"

#include <algorithm>
#include <array>
#include <span>

#include "kernels/core/check.h"
#include "kernels/core/draft.h"
#include "kernels/core/edits.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "speculative/round/mask_filler.h"
#include "speculative/sequence/sequence_table.h"
#include "tools/bench/timing.h"

namespace specd::bench {
namespace {

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now().time_since_epoch())
      .count();
}

// The part of a sequence in a round.
struct Member {
  Sequence sequence;
  Draft draft;
  std::array<PlaceEdits, GrammarFill::kDraft + 1> places = {};
};

bool IsLongEnough(const GrammarFill::Text& text) {
  return text.tokens.size() > GrammarFill::kDraft;
}

}  // namespace

bool GrammarFill::IsAnyLongEnough(const std::vector<Text>& texts) {
  return std::any_of(texts.begin(), texts.end(), IsLongEnough);
}

GrammarFill::GrammarFill(grammar::GrammarCompiler* compiler, std::vector<Text> texts,
                         int32_t vocab_size)
    : compiler_(*compiler), texts_(std::move(texts)), vocab_size_(vocab_size) {
  std::erase_if(texts_, [](const Text& text) { return !IsLongEnough(text); });
  SPECD_CHECK(!texts_.empty());
}

GrammarFill::Samples GrammarFill::Run(const Batch& batch) const {
  const auto num_sequences = static_cast<size_t>(batch.num_sequences);
  std::vector<Member> members(num_sequences);
  std::vector<MaskFiller::Job> jobs;
  for (size_t i = 0; i < num_sequences; ++i) {
    const Text& text = texts_[i % texts_.size()];
    // Different places of the texts, for a batch of any size the same ones.
    const size_t at = i * 7 % (text.tokens.size() - kDraft);
    const std::span<const TokenId> tokens(text.tokens);
    Member& member = members[i];
    auto matcher =
        compiler_.CompileAnew(text.request).value()->NewMatcher({.stop_ids = {tokens.back()}});
    member.sequence.grammar =
        SequenceGrammar::Create(
            std::move(matcher), tokens.first(at),
            {.vocab_size = vocab_size_, .max_batch = 1, .max_draft = kDraft, .threads = 1})
            .value();
    member.draft = {.num_nodes = kDraft, .tokens = tokens.data() + at};
    jobs.push_back({&member.sequence, &member.draft, member.places.data()});
  }
  MaskFiller filler(batch.threads, NowNs);
  filler.Start();
  Samples samples;
  for (int fill = 0; fill <= kWarmFills; ++fill) {
    for (MaskFiller::Job& job : jobs) job.next_place = 0;
    const SteadyClock::time_point begin = SteadyClock::now();
    for (size_t num_filled = 0; num_filled < jobs.size();) {
      num_filled += filler.Fill(std::span(jobs).subspan(num_filled));
    }
    (fill == 0 ? samples.cold : samples.warm).push_back(MicrosSince(begin));
  }
  for (const Member& member : members) {
    SPECD_CHECK(!member.sequence.grammar_failed && member.places[kDraft].grammar_mask != nullptr);
  }
  return samples;
}

}  // namespace specd::bench
