#include "daemon/session/session_sequences.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "daemon/session/memory_cost.h"
#include "daemon/session/name_claim.h"
#include "daemon/session/request_id.h"
#include "daemon/session/text_tail.h"
#include "daemon/trace/trace_opening.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "speculative/grammar/front_ends/stop_regex.h"

namespace specd {
SessionSequences::SessionSequences(SessionState* state)
    : state_(*state),
      checks_(&state->options),
      streams_(state->options.limits.max_sequences),
      memory_(state->options.limits.max_sequences) {}

// ---- opening

absl::Status SessionSequences::CheckRoom(size_t count) {
  if (absl::Status status = state_.CheckRunning(); !status.ok()) return status;
  if (state_.events == nullptr ||
      state_.events->HasRoom(
          {.events = state_.options.limits.max_sequences + count, .tokens = 0})) {
    return absl::OkStatus();
  }
  return MakeError(SPECD_ERROR_EXHAUSTED, "",
                   "the text side is behind: too many events wait; try again later");
}

absl::StatusOr<std::vector<SessionSequences::Built>> SessionSequences::Build(
    const SequenceParams& params, const SequenceHistory& history) const {
  // Held until the sequences are built and have shares of their own.
  const absl::StatusOr<MemoryShare> building =
      TakeMemory(state_.memory.get(), "the opening", BuildBytes(params, history));
  if (!building.ok()) return building.status();
  if (absl::Status status = checks_.Check(params); !status.ok()) return status;
  absl::StatusOr<Sequence> first = state_.opening.Build(params, history);
  if (!first.ok()) return first.status();
  std::vector<Built> built(static_cast<size_t>(params.n));
  for (Built& each : built) {
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

absl::Status SessionSequences::Prepare(const std::string& request_id, const SequenceParams& params,
                                       const SequenceHistory& history, Prepared* to) const {
  // An engine that is gone needs no long work. Whether the session has ended by then is asked
  // again under the lock.
  if (absl::Status status = state_.CheckRunning(); !status.ok()) return status;
  if (history.handle != 0 && params.HasStops() && !checks_.IsInline(params)) {
    // A daemon that has just begun may have its detokenizer in a moment.
    if (absl::Status status = checks_.CheckTextSide(); !status.ok()) {
      return MakeError(SPECD_ERROR_EXHAUSTED, "stop_strings", std::string(status.message()));
    }
  }
  absl::StatusOr<std::vector<Built>> built = Build(params, history);
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
  const bool is_inline = checks_.IsInline(params);
  if (state_.events != nullptr) begin = MakeTextTail(*state_.options.profile, params, given);
  if (is_inline) tail = MakeTextTail(*state_.options.profile, params, history);
  if (is_inline) {
    if (absl::Status status = BeginText(params, tail, &*built); !status.ok()) return status;
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (absl::Status status = CheckRequestId(names[i]); !status.ok()) return status;
    const Stream stream = {.include_stop = params.include_stop,
                           .skip_special_tokens = params.skip_special_tokens,
                           .has_logprobs = (*built)[i].sequence.logprob_sum.enabled(),
                           .settled = !params.HasStops() || is_inline,
                           .is_inline = is_inline,
                           .request_id = names[i],
                           .stops = stops};
    Opening opening = MakeOpening(stream, (*built)[i].sequence);
    if (opening.event != nullptr) {
      if (is_resumed) {
        opening.event->resumed = true;
        opening.event->offset = given.outputs.size();
        const auto own = history.outputs.subspan(given.outputs.size());
        opening.event->ids.assign(own.begin(), own.end());
      }
      if (absl::Status status = AddTail(begin, &opening.event); !status.ok()) return status;
    }
    if (state_.options.recorder != nullptr) {
      opening.trace = DescribeOpening(names[i], params, history);
    }
    to->built_.push_back(std::move((*built)[i]));
    to->names_.push_back(std::move(names[i]));
    to->openings_.push_back(std::move(opening));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SequenceInfo>> SessionSequences::Open(const std::string& request_id,
                                                                 const SequenceParams& params,
                                                                 const SequenceHistory& history) {
  Prepared prepared;
  if (absl::Status s = Prepare(request_id, params, history, &prepared); !s.ok()) return s;
  size_t ignored = 0;
  return OpenPrepared(std::move(prepared), &ignored);
}

absl::StatusOr<std::vector<SequenceInfo>> SessionSequences::OpenPrepared(Prepared prepared,
                                                                         size_t* refused) {
  std::vector<SequenceInfo> opened;
  opened.reserve(prepared.size());

  MutexLock lock(&state_.mutex);
  if (absl::Status status = CheckRoom(prepared.size()); !status.ok()) return status;
  NameClaim claim(state_.options.names, prepared.names_);
  if (absl::Status status = claim.ClaimAll(); !status.ok()) {
    *refused = claim.num_claimed();
    return status;
  }
  if (absl::Status status = InsertAll(&prepared.built_, &opened); !status.ok()) return status;
  claim.Keep();
  for (size_t i = 0; i < opened.size(); ++i) {
    memory_[SlotOf(opened[i].handle)] = std::move(prepared.built_[i].memory);
    Announce(opened[i], std::move(prepared.openings_[i]));
  }
  return opened;
}

absl::Status SessionSequences::InsertAll(std::vector<Built>* built,
                                         std::vector<SequenceInfo>* opened) {
  // The sequences go back to the caller, who frees them after the lock.
  absl::Cleanup take_back = [this, built, opened] {
    state_.mutex.AssertHeld();
    for (size_t i = 0; i < opened->size(); ++i) {
      state_.verifier->Close((*opened)[i].handle, &(*built)[i].sequence);
    }
  };
  for (Built& each : *built) {
    absl::StatusOr<SequenceInfo> info = state_.verifier->Insert(std::move(each.sequence));
    if (!info.ok()) return info.status();
    opened->push_back(*info);
  }
  std::move(take_back).Cancel();
  return absl::OkStatus();
}

absl::StatusOr<SequenceInfo> SessionSequences::Fork(SequenceHandle source,
                                                    const std::string& request_id,
                                                    std::optional<uint64_t> seed) {
  MutexLock lock(&state_.mutex);
  if (absl::Status status = CheckRoom(1); !status.ok()) return status;
  const Sequence* const parent = state_.verifier->Find(source);
  if (parent == nullptr) {
    return MakeError(SPECD_ERROR_NOT_FOUND, "sequence",
                     state_.verifier->sequences().WhyNotFound(source));
  }
  Stream stream = streams_[SlotOf(source)];
  const bool needs_text_side = stream.stops != nullptr && !stream.is_inline;
  if (needs_text_side) {
    if (absl::Status status = checks_.CheckTextSide(); !status.ok()) return status;
  }
  if (absl::Status status = CheckRequestId(request_id); !status.ok()) return status;
  stream.request_id = request_id;
  stream.settled = !needs_text_side;
  Opening opening = MakeOpening(stream, *parent);
  if (opening.event != nullptr) opening.event->forked_from = stream.id;
  if (state_.trace != nullptr) {
    opening.trace = std::make_unique<TraceOpening>();
    opening.trace->request_id = request_id;
    opening.trace->forked_from = source;
    opening.trace->kept_tokens = parent->kept_tokens;
  }
  SequenceParams texts;  // what the fork's opening and its stream copy
  if (stream.stops != nullptr) {
    texts.stop_strings = stream.stops->strings;
    texts.stop_regex = stream.stops->regex;
  }
  if (stream.is_inline) texts.stops = StopSearch::kInline;
  absl::StatusOr<MemoryShare> share =
      TakeMemory(state_.memory.get(), "the fork", SequenceBytes(*parent, texts));
  if (!share.ok()) return share.status();
  NameClaim claim(state_.options.names, {&request_id, 1});
  if (absl::Status status = claim.ClaimAll(); !status.ok()) return status;
  absl::StatusOr<SequenceInfo> forked = state_.verifier->Fork(source, seed);
  if (!forked.ok()) return forked.status();
  claim.Keep();
  memory_[SlotOf(forked->handle)] = *std::move(share);
  Announce(*forked, std::move(opening));
  return forked;
}

absl::Status SessionSequences::BeginText(const SequenceParams& params, const TextTail& tail,
                                         std::vector<Built>* built) const {
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
  for (Built& each : *built) each.sequence.text = text;
  return absl::OkStatus();
}

// The bytes go back when the publisher has taken the event.
absl::Status SessionSequences::AddTail(const TextTail& tail,
                                       std::shared_ptr<TokenEvent>* event) const {
  struct Charged {
    MemoryShare memory;
    std::shared_ptr<TokenEvent> event;
  };
  const size_t num_ids = tail.prompt_ids.size() + tail.output_ids.size() + (*event)->ids.size();
  absl::StatusOr<MemoryShare> memory =
      TakeMemory(state_.memory.get(), "the event of the opening", TailBytes(num_ids));
  if (!memory.ok()) return memory.status();
  (*event)->prompt_tail = tail.prompt_ids;
  (*event)->output_tail = tail.output_ids;
  (*event)->reasoning_tokens = tail.thought.num_tokens;
  if (tail.thought.is_open) {
    (*event)->reasoning_end = state_.options.profile->reasoning.end;
    (*event)->reasoning_progress = tail.thought.progress;
  }
  auto charged = std::make_shared<Charged>(Charged{*std::move(memory), std::move(*event)});
  *event = std::shared_ptr<TokenEvent>(charged, charged->event.get());
  return absl::OkStatus();
}

SessionSequences::Opening SessionSequences::MakeOpening(const Stream& stream,
                                                        const Sequence& sequence) const {
  Opening opening = {.stream = stream};
  if (state_.events == nullptr) return opening;
  opening.event = std::make_shared<TokenEvent>();
  TokenEvent& event = *opening.event;
  event.kind = TokenEventKind::kOpen;
  event.offset = sequence.kept_tokens;
  event.cumulative_logprob = sequence.logprob_sum.value();
  event.request_id = stream.request_id;
  event.profile = state_.options.profile->name;
  if (stream.stops != nullptr) {
    event.stop_strings = stream.stops->strings;
    event.stop_regex = stream.stops->regex;
  }
  event.include_stop = stream.include_stop;
  event.stops_inline = stream.is_inline;
  event.skip_special_tokens = stream.skip_special_tokens;
  event.min_tokens = static_cast<uint32_t>(sequence.min_tokens);
  return opening;
}

void SessionSequences::Announce(const SequenceInfo& info, Opening opening) {
  const SequenceHandle handle = info.handle;
  if (state_.trace != nullptr) {
    opening.trace->sequence = handle;
    opening.trace->method = info.method;
    opening.trace->seed = info.seed;
    state_.trace->Opened(std::move(opening.trace));
  }
  opening.stream.id = state_.options.names->NextStream();
  if (opening.event != nullptr) {
    opening.event->stream = opening.stream.id;
    opening.event->time_ns = static_cast<uint64_t>(state_.options.clock->NowNs());
  }
  streams_[SlotOf(handle)] = std::move(opening.stream);
  const Sequence& sequence = *state_.verifier->Find(handle);
  WriteState(sequence);
  if (opening.event == nullptr) return;
  state_.events->PushOpening(handle, std::move(opening.event));
  if (sequence.finish_reason != FinishReason::kNone) PushEnd(sequence);
}

absl::StatusOr<SessionSequences::Text> SessionSequences::TextOf(SequenceHandle handle) {
  MutexLock lock(&state_.mutex);
  Sequence* const sequence = state_.verifier->sequences().Find(handle);
  if (sequence == nullptr) {
    return MakeError(SPECD_ERROR_NOT_FOUND, "sequence",
                     state_.verifier->sequences().WhyNotFound(handle));
  }
  if (!sequence->text.empty()) return Text{&sequence->text, sequence->finish_reason};
  return MakeError(SPECD_ERROR_STATE, "sequence",
                   fmt::format("sequence {:#x} was opened without stop_strings and with stops = "
                               "auto, so its rounds make no text; open it with stops = inline",
                               handle));
}

// ---- ends

absl::Status SessionSequences::Close(SequenceHandle handle) {
  // Destroyed after the lock: a long history takes a while. Then its bytes are free.
  MemoryShare memory;
  Sequence removed;
  MutexLock lock(&state_.mutex);
  if (absl::Status status = AbortOpen(handle); !status.ok()) return status;
  Stream& stream = streams_[SlotOf(handle)];
  state_.options.names->Release(stream.request_id);
  stream = {};
  memory = std::move(memory_[SlotOf(handle)]);
  // The verifier keeps a sequence of a round or call that has pieces left.
  if (state_.verifier->sequences().IsHeld(SlotOf(handle))) {
    kept_memory_.push_back(std::move(memory));
  }
  state_.verifier->Close(handle, &removed);
  if (state_.trace != nullptr) state_.trace->Closed(handle);
  state_.channel.WriteState(SlotOf(handle), {});  // an empty state: the handle is stale from now on
  return absl::OkStatus();
}

absl::Status SessionSequences::Abort(SequenceHandle handle) {
  MutexLock lock(&state_.mutex);
  return AbortOpen(handle);
}

absl::Status SessionSequences::AbortOpen(SequenceHandle handle) {
  if (absl::Status status = state_.CheckRunning(); !status.ok()) return status;
  const Sequence* sequence = state_.verifier->Find(handle);
  if (sequence == nullptr) {
    return MakeError(SPECD_ERROR_NOT_FOUND, "sequence",
                     state_.verifier->sequences().WhyNotFound(handle));
  }
  Finish(handle, FinishReason::kAbort, sequence->kept_tokens);
  return absl::OkStatus();
}

void SessionSequences::FinishAll() {
  const bool is_left = state_.is_left.load();
  state_.verifier->sequences().ForEachOpen([this, is_left](Sequence& sequence) {
    state_.mutex.AssertHeld();
    if (!is_left) Finish(sequence.handle, FinishReason::kAbort, sequence.kept_tokens);
    state_.options.names->Release(streams_[SlotOf(sequence.handle)].request_id);
  });
}

void SessionSequences::Finish(SequenceHandle handle, FinishReason reason, uint32_t kept_tokens) {
  const Sequence* before = state_.verifier->Find(handle);
  const bool had_ended = before == nullptr || before->finish_reason != FinishReason::kNone;
  // The engine may have read the last word: a text side that was given up comes too late.
  if (had_ended && streams_[SlotOf(handle)].settled) return;
  const Sequence* sequence = state_.verifier->Finish(handle, reason, kept_tokens);
  if (sequence == nullptr) return;
  WriteState(*sequence);
  if (state_.trace != nullptr) state_.trace->Ended(handle, sequence->finish_reason, kept_tokens);
  // A stream ends once. Only the text side moves an announced end, and it knows the new end.
  if (!had_ended && state_.events != nullptr) PushEnd(*sequence);
}

void SessionSequences::PushEnd(const Sequence& sequence) {
  state_.events->Push({.kind = TokenEventKind::kEnd,
                       .finish_reason = static_cast<uint32_t>(sequence.finish_reason),
                       .sequence = sequence.handle,
                       .stream = streams_[SlotOf(sequence.handle)].id,
                       .offset = sequence.kept_tokens,
                       .time_ns = state_.options.clock->NowNs(),
                       .cumulative_logprob = sequence.logprob_sum.value(),
                       .stop_token = sequence.stop_token});
}

bool SessionSequences::Settle(SequenceHandle handle) {
  const Sequence* const sequence = state_.verifier->Find(handle);
  if (sequence == nullptr) return true;  // closed: no call asks for it
  if (sequence->finish_reason == FinishReason::kNone) return false;
  streams_[SlotOf(handle)].settled = true;
  WriteState(*sequence);
  return true;
}

void SessionSequences::WriteState(const Sequence& sequence) {
  WriteWords(sequence.handle,
             {.generation = GenerationOf(sequence.handle),
              .finish_reason = static_cast<uint32_t>(sequence.finish_reason),
              .kept_tokens = sequence.kept_tokens,
              .end_moved = sequence.end_moved},
             sequence.logprob_sum.value());
}

void SessionSequences::WriteWords(SequenceHandle handle, const SequenceState& word,
                                  double cumulative_logprob) {
  state_.channel.WriteState(SlotOf(handle), word, cumulative_logprob);
  const bool has_ended = word.finish_reason != SPECD_FINISH_NONE;
  if (has_ended && streams_[SlotOf(handle)].settled) {
    state_.channel.WriteFinal(SlotOf(handle), word);
  }
}

// ---- results of rounds

void SessionSequences::WriteEnd(const SequenceResult& result) {
  WriteWords(result.sequence,
             {.generation = GenerationOf(result.sequence),
              .finish_reason = static_cast<uint32_t>(result.finish_reason),
              .kept_tokens = result.total_kept,
              .end_moved = false},
             result.cumulative_logprob);
}

void SessionSequences::Publish(const SequenceResult& result, int64_t time_ns) {
  const Stream& stream = streams_[SlotOf(result.sequence)];
  EventQueue::Header header = {.sequence = result.sequence,
                               .stream = stream.id,
                               .offset = result.total_kept - result.num_kept,
                               .time_ns = time_ns,
                               .cumulative_logprob = result.cumulative_logprob,
                               .stop_token = result.stop_token,
                               .accepted = result.num_accepted,
                               .has_logprobs = stream.has_logprobs};
  if (result.num_kept > 0) {
    state_.events->Push(header, {result.tokens, result.num_kept},
                        {result.scores, size_t{result.num_kept} * result.scores_per_token});
  }
  if (result.finish_reason == FinishReason::kNone) return;
  header.kind = TokenEventKind::kEnd;
  header.finish_reason = static_cast<uint32_t>(result.finish_reason);
  header.offset = result.total_kept;
  header.time_ns = state_.options.clock->NowNs();
  header.accepted = 0;
  header.fault = {.refusal = result.refusal, .place = result.num_kept, .row = result.bad_row};
  state_.events->Push(header);
}

}  // namespace specd
