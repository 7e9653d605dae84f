#include "daemon/session/session_sequences.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "daemon/recorder/trace_opening.h"
#include "daemon/session/memory_cost.h"
#include "daemon/session/name_claim.h"
#include "daemon/session/request_id.h"
#include "daemon/session/text_tail.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "speculative/grammar/base/compile_cancel.h"

namespace specd {
SessionSequences::SessionSequences(SessionState* state)
    : state_(*state),
      builder_(state),
      reports_(state),
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

absl::StatusOr<std::vector<SequenceInfo>> SessionSequences::Open(const std::string& request_id,
                                                                 const SequenceParams& params,
                                                                 const SequenceHistory& history) {
  PreparedSequences prepared;
  if (absl::Status s = builder_.Prepare(request_id, params, history, &prepared); !s.ok()) return s;
  size_t ignored = 0;
  return OpenPrepared(std::move(prepared), &ignored);
}

absl::StatusOr<std::vector<SequenceInfo>> SessionSequences::OpenPrepared(PreparedSequences prepared,
                                                                         size_t* refused) {
  std::vector<SequenceInfo> opened;
  opened.reserve(prepared.size());

  MutexLock lock(&state_.mutex);
  if (absl::Status status = CheckRoom(prepared.size()); !status.ok()) return status;
  NameClaim claim(state_.options.names, prepared.names);
  if (absl::Status status = claim.ClaimAll(); !status.ok()) {
    *refused = claim.num_claimed();
    return status;
  }
  if (absl::Status status = InsertAll(&prepared.built, &opened); !status.ok()) return status;
  claim.Keep();
  for (size_t i = 0; i < opened.size(); ++i) {
    memory_[SlotOf(opened[i].handle)] = std::move(prepared.built[i].memory);
    Announce(opened[i], std::move(prepared.openings[i]));
  }
  return opened;
}

absl::Status SessionSequences::InsertAll(std::vector<BuiltSequence>* built,
                                         std::vector<SequenceInfo>* opened) {
  // The sequences go back to the caller, who frees them after the lock.
  absl::Cleanup take_back = [this, built, opened] {
    state_.mutex.AssertHeld();
    for (size_t i = 0; i < opened->size(); ++i) {
      state_.verifier->Close((*opened)[i].handle, &(*built)[i].sequence);
    }
  };
  for (BuiltSequence& each : *built) {
    absl::StatusOr<SequenceInfo> info = state_.verifier->Insert(std::move(each.sequence));
    if (!info.ok()) return info.status();
    opened->push_back(*info);
  }
  std::move(take_back).Cancel();
  return absl::OkStatus();
}

// ---- openings that are pending

bool SessionSequences::IsPending(SequenceHandle handle) {
  const Sequence* const sequence = state_.verifier->Find(handle);
  return sequence != nullptr && sequence->phase == SequencePhase::kPending;
}

bool SessionSequences::IsAnyPending(std::span<const SequenceHandle> handles) {
  MutexLock lock(&state_.mutex);
  return !state_.ended.load() && std::any_of(handles.begin(), handles.end(), [this](auto handle) {
    state_.mutex.AssertHeld();
    return IsPending(handle);
  });
}

void SessionSequences::BuildPending(const PendingOpening& opening) {
  if (!IsAnyPending(opening.sequences)) return;
  // Its stream begins here, also if another daemon has had the sequence pending.
  SequenceHistory history = opening.open.history();
  history.handle = 0;
  PreparedSequences prepared;
  absl::Status status;
  try {
    status = builder_.Prepare(opening.request_id, opening.open.params, history, &prepared);
    if (status.ok()) return FillPending(opening.sequences, std::move(prepared));
  } catch (const std::bad_alloc&) {
    status = OutOfMemory();
  }
  if (grammar::CompileCancel::IsRefusal(status)) return;  // the next daemon may build it
  FailPending(opening.sequences, status);
}

void SessionSequences::FillPending(std::span<const SequenceHandle> handles,
                                   PreparedSequences prepared) {
  MutexLock lock(&state_.mutex);
  if (state_.ended.load()) return;  // the next daemon may build it
  for (size_t i = 0; i < handles.size(); ++i) {
    if (!IsPending(handles[i])) continue;
    BuiltSequence& built = prepared.built[i];
    built.sequence.handle = handles[i];
    if (absl::Status status = CheckRoom(1); !status.ok()) {
      FailOne(handles[i], status);
      continue;
    }
    const absl::StatusOr<SequenceInfo> info = state_.verifier->Fill(std::move(built.sequence));
    if (!info.ok()) {
      FailOne(handles[i], info.status());
      continue;
    }
    memory_[SlotOf(handles[i])] = std::move(built.memory);
    Announce(*info, std::move(prepared.openings[i]));
  }
}

void SessionSequences::FailPending(std::span<const SequenceHandle> handles,
                                   const absl::Status& why) {
  MutexLock lock(&state_.mutex);
  if (state_.ended.load()) return;
  for (const SequenceHandle handle : handles) FailOne(handle, why);
}

void SessionSequences::FailOne(SequenceHandle handle, const absl::Status& why) {
  if (!state_.verifier->Fail(handle)) return;
  failures_[handle] = why;
  WriteState(*state_.verifier->Find(handle));
}

absl::StatusOr<SequenceInfo> SessionSequences::FindOpened(SequenceHandle handle) {
  MutexLock lock(&state_.mutex);
  const Sequence* const sequence = state_.verifier->Find(handle);
  if (sequence == nullptr) {
    return MakeError(SPECD_ERROR_NOT_FOUND, "sequence",
                     state_.verifier->sequences().WhyNotFound(handle));
  }
  if (IsPending(handle)) return MakeError(SPECD_ERROR_STATE, "sequence", WhyPending(handle));
  if (const auto failure = failures_.find(handle); failure != failures_.end()) {
    return failure->second;
  }
  return SequenceInfo{.handle = handle,
                      .seed = sequence->seed,
                      .method = sequence->method,
                      .constraint = sequence->constraint};
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
  SequenceStream stream = streams_[SlotOf(source)];
  const bool needs_text_side = stream.stops != nullptr && !stream.is_inline;
  if (needs_text_side) {
    if (absl::Status status = builder_.checks().CheckTextSide(); !status.ok()) return status;
  }
  if (absl::Status status = CheckRequestId(request_id); !status.ok()) return status;
  stream.request_id = request_id;
  stream.settled = !needs_text_side;
  stream.rounds = stream.accepted = 0;
  AnnouncedSequence opening = builder_.MakeOpening(stream, *parent);
  if (opening.event != nullptr) opening.event->opening()->forked_from = stream.id;
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

void SessionSequences::Announce(const SequenceInfo& info, AnnouncedSequence opening) {
  const SequenceHandle handle = info.handle;
  opening.stream.opened_ns = state_.options.clock->NowNs();
  const SequencePhase phase = state_.verifier->Find(handle)->phase;
  if (phase == SequencePhase::kPending || phase == SequencePhase::kWithdrawn) {
    streams_[SlotOf(handle)] = std::move(opening.stream);
    return WriteState(*state_.verifier->Find(handle));
  }
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
  if (sequence.finish_reason != FinishReason::kNone) {
    reports_.PushEnd(streams_[SlotOf(handle)], sequence);
  }
}

absl::StatusOr<SessionSequences::Text> SessionSequences::TextOf(SequenceHandle handle) {
  MutexLock lock(&state_.mutex);
  Sequence* const sequence = state_.verifier->sequences().Find(handle);
  if (sequence == nullptr) {
    return MakeError(SPECD_ERROR_NOT_FOUND, "sequence",
                     state_.verifier->sequences().WhyNotFound(handle));
  }
  if (IsPending(handle)) return MakeError(SPECD_ERROR_STATE, "sequence", WhyPending(handle));
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
  SequenceStream& stream = streams_[SlotOf(handle)];
  state_.options.names->Release(stream.request_id);
  failures_.erase(handle);
  const bool has_begun = stream.id != 0;
  stream = {};
  memory = std::move(memory_[SlotOf(handle)]);
  // The verifier keeps a sequence of a round or call that has pieces left.
  if (state_.verifier->sequences().IsHeld(SlotOf(handle))) {
    kept_memory_.push_back(std::move(memory));
  }
  state_.verifier->Close(handle, &removed);
  if (state_.trace != nullptr && has_begun) state_.trace->Closed(handle);
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
  if (streams_[SlotOf(handle)].id == 0) return;  // a pending sequence has no stream
  if (state_.trace != nullptr) state_.trace->Ended(handle, sequence->finish_reason, kept_tokens);
  // A stream ends once. Only the text side moves an announced end, and it knows the new end.
  if (!had_ended && state_.events != nullptr) {
    reports_.PushEnd(streams_[SlotOf(handle)], *sequence);
  }
}

bool SessionSequences::Settle(SequenceHandle handle) {
  const Sequence* const sequence = state_.verifier->Find(handle);
  if (sequence == nullptr) return true;  // closed: no call asks for it
  if (sequence->finish_reason == FinishReason::kNone) return false;
  streams_[SlotOf(handle)].settled = true;
  WriteState(*sequence);
  return true;
}

// ---- for an operator

std::vector<SequenceFacts> SessionSequences::List(const SequenceFilter& filter, uint32_t first_slot,
                                                  size_t max) {
  std::vector<SequenceFacts> found;
  MutexLock lock(&state_.mutex);
  state_.verifier->sequences().ForEachOpen([&](const Sequence& sequence) {
    state_.mutex.AssertHeld();
    const uint32_t slot = SlotOf(sequence.handle);
    const SequenceStream& stream = streams_[slot];
    if (slot < first_slot || found.size() == max) return;
    if (!filter.IsMet(stream.request_id, stream.id)) return;
    found.push_back({.sequence = sequence.handle,
                     .stream = stream.id,
                     .request_id = stream.request_id,
                     .phase = sequence.phase,
                     .finish_reason = sequence.finish_reason,
                     .method = sequence.method,
                     .seed = sequence.seed,
                     .tokens = sequence.kept_tokens,
                     .rounds = stream.rounds,
                     .accepted = stream.accepted,
                     .opened_ns = stream.opened_ns,
                     .params = stream.params});
  });
  return found;
}

uint32_t SessionSequences::AbortMatching(const SequenceFilter& filter) {
  uint32_t count = 0;
  MutexLock lock(&state_.mutex);
  if (!state_.CheckRunning().ok()) return 0;
  state_.verifier->sequences().ForEachOpen([&](const Sequence& sequence) {
    state_.mutex.AssertHeld();
    const SequenceStream& stream = streams_[SlotOf(sequence.handle)];
    if (sequence.finish_reason != FinishReason::kNone) return;
    if (!filter.IsMet(stream.request_id, stream.id)) return;
    Finish(sequence.handle, FinishReason::kAbort, sequence.kept_tokens);
    ++count;
  });
  return count;
}

uint32_t SessionSequences::CountRunning() {
  uint32_t count = 0;
  MutexLock lock(&state_.mutex);
  state_.verifier->sequences().ForEachOpen([&count](const Sequence& sequence) {
    if (sequence.finish_reason == FinishReason::kNone) ++count;
  });
  return count;
}

}  // namespace specd
