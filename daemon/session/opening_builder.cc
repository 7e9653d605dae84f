#include "daemon/session/opening_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "daemon/recorder/trace_opening.h"
#include "daemon/session/memory_cost.h"
#include "daemon/session/request_id.h"
#include "daemon/session/text_tail.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "speculative/grammar/front_ends/stop_regex.h"
#include "speculative/params/param_check.h"
#include "speculative/params/param_table.h"

namespace specd {
namespace {

// Of a text for an operator; the memory of a sequence is 4 KiB at least.
constexpr size_t kDescriptionBytesMax = 1024;

// The parameters that were changed, a line each: "top_p = 0.9". Of a list only its length.
std::string DescribeParams(const SequenceParams& params, const SequenceHistory& history) {
  const SequenceParams defaults;
  std::string text = fmt::format("prompt ids = {}\n", history.prompt.size());
  for (const ParamRow& row : ParamTable()) {
    std::string value = ValueText(row, params);
    if (value == ValueText(row, defaults)) continue;
    text += fmt::format("{} = {}\n", row.field, value);
    if (text.size() > kDescriptionBytesMax) break;
  }
  text.resize(std::min(text.size(), kDescriptionBytesMax));
  return text;
}

}  // namespace

absl::StatusOr<std::vector<BuiltSequence>> OpeningBuilder::Build(
    const SequenceParams& params, const SequenceHistory& history) const {
  // Held until the sequences are built and have shares of their own.
  const absl::StatusOr<MemoryShare> building =
      TakeMemory(state_.memory.get(), "the opening", BuildBytes(params, history));
  if (!building.ok()) return building.status();
  if (absl::Status status = checks_.Check(params); !status.ok()) return status;
  absl::StatusOr<Sequence> first = state_.opening.Build(params, history);
  if (!first.ok()) return first.status();
  std::vector<BuiltSequence> built(static_cast<size_t>(params.n));
  for (BuiltSequence& each : built) {
    absl::StatusOr<MemoryShare> share =
        TakeMemory(state_.memory.get(), "the sequence", SequenceBytes(*first, params));
    if (!share.ok()) return share.status();
    each.memory = *std::move(share);
  }
  for (size_t i = 1; i < built.size(); ++i) {
    built[i].sequence = *first;
    built[i].sequence.seed = first->seed + i;
  }
  built[0].sequence = *std::move(first);
  return built;
}

absl::Status OpeningBuilder::CheckTurn(const SequenceParams& params,
                                       const SequenceHistory& history) const {
  // An engine that is gone needs no long work. Whether the session has ended by then is asked
  // again under the lock.
  if (absl::Status status = state_.CheckRunning(); !status.ok()) return status;
  if (history.handle != 0 && params.HasStops() && !checks_.IsInline(params)) {
    // A daemon that has just begun may have its detokenizer in a moment. One without a detokenizer
    // refuses the sequence for good.
    if (absl::Status status = checks_.CheckTextSide(); !status.ok()) {
      if (!state_.options.text_side_comes) return status;
      return MakeError(SPECD_ERROR_EXHAUSTED, "stop_strings", std::string(status.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status OpeningBuilder::PreparePending(const std::string& request_id,
                                            const SequenceHistory& history, SequenceParams* params,
                                            PreparedSequences* to) const {
  if (absl::Status status = CheckTurn(*params, history); !status.ok()) return status;
  if (absl::Status status = checks_.Check(*params); !status.ok()) return status;
  const int32_t vocab_size = state_.options.limits.vocab_size;
  if (absl::Status status = ValidateParams(*params, vocab_size); !status.ok()) return status;
  if (absl::Status s = state_.opening.CheckHistory(*params, history); !s.ok()) return s;
  if (!params->has_seed) params->seed = DrawSeed();
  params->has_seed = true;
  std::vector<std::string> names = NamesOf(request_id, static_cast<size_t>(params->n));
  for (size_t i = 0; i < names.size(); ++i) {
    if (absl::Status status = CheckRequestId(names[i]); !status.ok()) return status;
    BuiltSequence built;
    built.sequence.handle = history.handle;
    // One that was aborted at another daemon, before it was open, never begins.
    const bool is_withdrawn = history.finish_reason == FinishReason::kAbort;
    built.sequence.phase = is_withdrawn ? SequencePhase::kWithdrawn : SequencePhase::kPending;
    if (is_withdrawn) built.sequence.finish_reason = FinishReason::kAbort;
    built.sequence.method = SequenceMethod(*params);
    built.sequence.seed = params->seed + i;
    built.sequence.kept_tokens = static_cast<uint32_t>(history.outputs.size());
    absl::StatusOr<MemoryShare> share =
        TakeMemory(state_.memory.get(), "the sequence", SequenceBytes(built.sequence, *params));
    if (!share.ok()) return share.status();
    built.memory = *std::move(share);
    to->built.push_back(std::move(built));
    // Nothing will move the end of a stream that has not begun.
    to->openings.push_back({.stream = {.settled = true, .request_id = names[i]}});
    to->names.push_back(std::move(names[i]));
  }
  return absl::OkStatus();
}

absl::Status OpeningBuilder::PrepareRefused(const SequenceHistory& history, uint64_t seed,
                                            PreparedSequences* to) const {
  BuiltSequence built;
  built.sequence.handle = history.handle;
  built.sequence.phase = SequencePhase::kPending;
  built.sequence.seed = seed;
  built.sequence.kept_tokens = static_cast<uint32_t>(history.num_given);
  absl::StatusOr<MemoryShare> share =
      TakeMemory(state_.memory.get(), "the sequence", SequenceBytes(built.sequence, {}));
  if (!share.ok()) return share.status();
  built.memory = *std::move(share);
  to->built.push_back(std::move(built));
  to->openings.push_back({.stream = {.settled = true, .request_id = {}}});
  to->names.emplace_back();
  return absl::OkStatus();
}

absl::Status OpeningBuilder::Prepare(const std::string& request_id, const SequenceParams& params,
                                     const SequenceHistory& history, PreparedSequences* to) const {
  if (absl::Status status = CheckTurn(params, history); !status.ok()) return status;
  absl::StatusOr<std::vector<BuiltSequence>> built = Build(params, history);
  if (!built.ok()) return built.status();
  std::vector<std::string> names = NamesOf(request_id, built->size());
  std::shared_ptr<const Stops> stops;
  TextTail tail;
  TextTail begin;  // of what precedes the stream
  const bool is_resumed = history.handle != 0;
  SequenceHistory given = history;
  if (is_resumed) given.outputs = history.outputs.first(history.num_given);
  if (params.HasStops()) {
    stops = std::make_shared<const Stops>(Stops{params.stop_strings, params.stop_regex});
  }
  // An engine that is this process has no operator.
  std::shared_ptr<const std::string> described;
  if (state_.events != nullptr) {
    described = std::make_shared<const std::string>(DescribeParams(params, history));
  }
  const bool is_inline = checks_.IsInline(params);
  if (state_.events != nullptr) begin = MakeTextTail(*state_.options.profile, params, given);
  if (is_inline) tail = MakeTextTail(*state_.options.profile, params, history);
  if (is_inline) {
    if (absl::Status status = BeginText(params, tail, &*built); !status.ok()) return status;
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (absl::Status status = CheckRequestId(names[i]); !status.ok()) return status;
    const SequenceStream stream = {.include_stop = params.include_stop,
                                   .skip_special_tokens = params.skip_special_tokens,
                                   .has_logprobs = (*built)[i].sequence.logprob_sum.enabled(),
                                   .settled = !params.HasStops() || is_inline,
                                   .is_inline = is_inline,
                                   .request_id = names[i],
                                   .stops = stops,
                                   .params = described};
    AnnouncedSequence opening = MakeOpening(stream, (*built)[i].sequence);
    if (opening.event != nullptr) {
      if (is_resumed) {
        opening.event->offset = given.outputs.size();
        const auto own = history.outputs.subspan(given.outputs.size());
        opening.event->opening()->resumed = true;
        opening.event->opening()->resumed_ids.assign(own.begin(), own.end());
      }
      if (absl::Status status = AddTail(begin, &opening.event); !status.ok()) return status;
    }
    if (state_.options.recorder != nullptr) {
      opening.trace = DescribeOpening(names[i], params, history);
    }
    to->built.push_back(std::move((*built)[i]));
    to->names.push_back(std::move(names[i]));
    to->openings.push_back(std::move(opening));
  }
  return absl::OkStatus();
}

absl::Status OpeningBuilder::BeginText(const SequenceParams& params, const TextTail& tail,
                                       std::vector<BuiltSequence>* built) const {
  std::shared_ptr<const StopSet> stops;
  if (params.HasStops()) {
    absl::StatusOr<std::shared_ptr<const StopSet>> made =
        grammar::MakeStopSet(params.stop_strings, params.stop_regex);
    if (!made.ok()) return made.status();
    stops = *std::move(made);
  }
  const uint64_t num_outputs = built->front().sequence.kept_tokens;
  TextStream begin = TextStream::After(
      {.prompt_tail = tail.prompt_ids, .output_tail = tail.output_ids, .num_outputs = num_outputs},
      &*state_.options.profile->vocabulary, std::move(stops),
      {.skip_special_tokens = params.skip_special_tokens,
       .include_stop = params.include_stop,
       .min_tokens = static_cast<uint64_t>(params.min_tokens),
       .reasoning = tail.thought.is_open ? std::make_shared<const ReasoningEnd>(
                                               "", state_.options.profile->reasoning.end)
                                         : nullptr,
       .reasoning_progress = tail.thought.progress});
  // In a daemon the text side publishes the text.
  const SequenceText text(std::move(begin), {.include_stop = params.include_stop,
                                             .is_kept = state_.events == nullptr,
                                             .num_outputs = num_outputs,
                                             .num_reasoning = tail.thought.num_tokens});
  for (BuiltSequence& each : *built) each.sequence.text = text;
  return absl::OkStatus();
}

// The bytes go back when the publisher has taken the event.
absl::Status OpeningBuilder::AddTail(const TextTail& tail,
                                     std::shared_ptr<TokenEvent>* event) const {
  struct Charged {
    MemoryShare memory;
    std::shared_ptr<TokenEvent> event;
  };
  StreamOpening& opening = *(*event)->opening();
  const size_t num_ids =
      tail.prompt_ids.size() + tail.output_ids.size() + opening.resumed_ids.size();
  absl::StatusOr<MemoryShare> memory =
      TakeMemory(state_.memory.get(), "the event of the opening", TailBytes(num_ids));
  if (!memory.ok()) return memory.status();
  opening.prompt_tail = tail.prompt_ids;
  opening.output_tail = tail.output_ids;
  opening.reasoning_tokens = tail.thought.num_tokens;
  if (tail.thought.is_open) {
    opening.reasoning_end = state_.options.profile->reasoning.end;
    opening.reasoning_progress = tail.thought.progress;
  }
  auto charged = std::make_shared<Charged>(Charged{*std::move(memory), std::move(*event)});
  *event = std::shared_ptr<TokenEvent>(charged, charged->event.get());
  return absl::OkStatus();
}

AnnouncedSequence OpeningBuilder::MakeOpening(const SequenceStream& stream,
                                              const Sequence& sequence) const {
  AnnouncedSequence announced = {.stream = stream};
  if (state_.events == nullptr) return announced;
  StreamOpening opening = {.request_id = stream.request_id,
                           .stops_inline = stream.is_inline,
                           .skip_special_tokens = stream.skip_special_tokens,
                           .include_stop = stream.include_stop,
                           .min_tokens = static_cast<uint32_t>(sequence.min_tokens),
                           .profile = state_.options.profile->name,
                           .cumulative_logprob = sequence.logprob_sum.value()};
  if (stream.stops != nullptr) {
    opening.stop_strings = stream.stops->strings;
    opening.stop_regex = stream.stops->regex;
  }
  announced.event = std::make_shared<TokenEvent>(
      TokenEvent{.offset = sequence.kept_tokens, .what = std::move(opening)});
  return announced;
}

}  // namespace specd
