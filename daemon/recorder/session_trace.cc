#include "daemon/recorder/session_trace.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "kernels/core/check.h"

namespace specd {
namespace {

constexpr uint32_t kNoAnswer = ~uint32_t{0};

// The open chunk of a file, the record that is encoded, the openings of the open sequences, and a
// byte for each slot. Estimate.
constexpr uint64_t kWriterBytes = uint64_t{4} << 20;
// A place of a round that is computed again: rows, edits, decisions and workspaces. Estimate.
constexpr uint64_t kCheckedPlaceBytes = 1024;

}  // namespace

SessionTrace::SessionTrace(const TraceOptions& options, TraceSession session, Clock* clock,
                           DoorbellLine* writer_bell, MemoryShare memory)
    : memory_(std::move(memory)),
      options_(options),
      session_(std::move(session)),
      clock_(clock),
      writer_bell_(writer_bell),
      ring_(options.buffer_bytes),
      copier_(session_.limits),
      wanted_(session_.max_sequences, options.request.empty() ? 1 : 0),
      decisions_(static_cast<size_t>(session_.limits.max_batch) *
                 (static_cast<size_t>(session_.limits.max_draft) + 1)),
      decisions_stride_(session_.limits.max_draft + 1),
      answer_of_(static_cast<size_t>(session_.limits.max_batch)) {
  selected_.reserve(answer_of_.size());
}

uint64_t SessionTrace::SizeBytes(const TraceOptions& options, const BackendLimits& limits) {
  const uint64_t tasks = static_cast<uint64_t>(limits.max_batch);
  const uint64_t places = tasks * (static_cast<uint64_t>(limits.max_draft) + 1);
  // A checked round is computed with workspaces and lists of its own.
  const uint64_t checked = options.check == 0 ? 0 : places * kCheckedPlaceBytes;
  return options.buffer_bytes * (options.flight > 0 ? 2 : 1) + places * sizeof(PlaceDecision) +
         tasks * 2 * sizeof(uint32_t) + RowCopier::SizeBytes(limits) + checked + kWriterBytes;
}

SessionTrace::~SessionTrace() {
  // Openings in the ring that no writer has taken.
  while (const auto record = ring_.Front()) {
    if (record->kind == static_cast<uint32_t>(TraceKind::kOpening)) {
      TraceOpening* opening = nullptr;
      std::memcpy(&opening, record->bytes.data(), sizeof(opening));
      delete opening;
    }
    ring_.Pop();
  }
}

// The writer looks by itself every few milliseconds, so a round costs no system call. It is woken
// when the ring fills faster, and when the session ends.
void SessionTrace::Wake(bool is_urgent) {
  if (is_urgent || ring_.IsFillingUp()) writer_bell_.Ring();
}

// ---- rounds

bool SessionTrace::Select(const RoundBatch& batch) {
  selected_.clear();
  for (int32_t i = 0; i < batch.num_tasks; ++i) {
    if (WantsSlot(batch.tasks[i].slot)) selected_.push_back(static_cast<uint32_t>(i));
  }
  return !selected_.empty() || options_.request.empty();
}

void SessionTrace::Begin(RoundBatch* batch) {
  ++num_rounds_;
  has_begun_ = true;
  copy_ = nullptr;
  is_lost_ = false;
  is_skipped_ = !Select(*batch);
  facts_.times.packed = clock_->NowNs();
  if (is_skipped_) return;
  for (const uint32_t task : selected_) {
    const int32_t num_places = batch->tasks[task].draft.num_nodes + 1;
    std::fill_n(&decisions_[size_t{task} * static_cast<size_t>(decisions_stride_)], num_places,
                PlaceDecision{});
  }
  batch->decisions = decisions_.data();
  batch->decisions_stride = decisions_stride_;
}

void SessionTrace::Ran(const RanRound& round) {
  if (is_skipped_) return;
  const int64_t ran_ns = clock_->NowNs();
  NoRows no_rows = NoRows::kNone;
  if (WantsRows()) no_rows = CopyWithRows(round);
  if (copy_ == nullptr) is_lost_ = !CopyRound(round, TraceLevel::kRounds);
  if (is_lost_) return;
  facts_.no_rows = no_rows;
  facts_.times.ran = ran_ns;
}

NoRows SessionTrace::CopyWithRows(const RanRound& round) {
  if (!round.is_intact) return NoRows::kChanged;
  if (CopyRound(round, options_.level)) {
    if (copy_ != nullptr) return NoRows::kNone;
    ++unread_rows_;
    return NoRows::kUnread;
  }
  ++dropped_rows_;
  return NoRows::kNoRoom;
}

bool SessionTrace::CopyRound(const RanRound& round, TraceLevel level) {
  const RoundCopier::Selection selection = {.level = level,
                                            .tasks = selected_,
                                            .all_places = options_.all_places,
                                            .max_answers = answer_of_.size()};
  const uint64_t size_bytes = copier_.Measure(round, selection);
  std::byte* const memory = ring_.Reserve(size_bytes);
  if (memory == nullptr) {
    dropped_bytes_ += size_bytes;
    if (size_bytes > ring_.record_bytes_max() &&
        size_bytes > too_large_bytes_.load(std::memory_order_relaxed)) {
      too_large_bytes_.store(size_bytes, std::memory_order_relaxed);
    }
    return false;
  }
  copy_ = copier_.Copy(round, selection, memory);
  return true;
}

void SessionTrace::AddAnswer(const SequenceResult& result) {
  RoundCopy& copy = *copy_;
  copy.answers.data()[copy.answers.size()] = {.sequence = result.sequence,
                                              .status = result.status,
                                              .refusal = result.refusal,
                                              .finish_reason = result.finish_reason,
                                              .num_accepted = result.num_accepted,
                                              .num_kept = result.num_kept,
                                              .total_kept = result.total_kept,
                                              .stop_token = result.stop_token};
  copy.answers = {copy.answers.data(), copy.answers.size() + 1};
}

void SessionTrace::Committed(std::span<const SequenceResult> results,
                             std::span<const uint32_t> task_results) {
  if (copy_ == nullptr) return;
  facts_.times.committed = clock_->NowNs();
  AddAnswers(results);
  for (size_t i = 0; i < copy_->tasks.size(); ++i) {
    const uint32_t result = task_results[selected_[i]];
    copy_->tasks[i].answer = answer_of_[result];
  }
}

void SessionTrace::AddAnswers(std::span<const SequenceResult> results) {
  for (size_t i = 0; i < results.size(); ++i) {
    answer_of_[i] = kNoAnswer;
    if (!WantsSlot(SlotOf(results[i].sequence)) && !options_.request.empty()) continue;
    answer_of_[i] = static_cast<uint32_t>(copy_->answers.size());
    AddAnswer(results[i]);
  }
}

void SessionTrace::CopyCalledOff(std::span<const SequenceResult> results) {
  ++num_rounds_;
  const bool has_wanted =
      options_.request.empty() ||
      std::any_of(results.begin(), results.end(), [this](const SequenceResult& result) {
        return WantsSlot(SlotOf(result.sequence));
      });
  if (!has_wanted) return;
  constexpr size_t kHeadBytes = (sizeof(RoundCopy) + 15) / 16 * 16;
  std::byte* const memory = ring_.Reserve(kHeadBytes + results.size() * sizeof(TraceAnswer));
  is_lost_ = memory == nullptr;
  if (is_lost_) return;
  copy_ = new (memory) RoundCopy();
  copy_->status = RoundStatus::kAborted;
  if (WantsRows()) facts_.no_rows = NoRows::kChanged;
  copy_->answers = {reinterpret_cast<TraceAnswer*>(memory + kHeadBytes), size_t{0}};
  AddAnswers(results);
}

void SessionTrace::Answered(std::span<const SequenceResult> results, int64_t answered_ns) {
  if (!std::exchange(has_begun_, false)) CopyCalledOff(results);
  if (std::exchange(is_lost_, false)) ++dropped_rounds_;
  RoundCopy* const copy = std::exchange(copy_, nullptr);
  if (copy == nullptr) return;
  // A round may be called off after its commit was refused; the engine's answers are the last word.
  for (size_t i = 0; i < results.size(); ++i) {
    if (answer_of_[i] != kNoAnswer) copy->answers[answer_of_[i]].status = results[i].status;
  }
  facts_.number = num_rounds_;
  facts_.times.answered = answered_ns;
  facts_.level = copy->level;
  facts_.status = copy->status;
  static_cast<TraceRoundFacts&>(*copy) = std::exchange(facts_, {});
  const std::byte* const begin = reinterpret_cast<const std::byte*>(copy);
  const auto* const end =
      reinterpret_cast<const std::byte*>(copy->answers.data() + copy->answers.size());
  ring_.Publish(static_cast<uint32_t>(TraceKind::kRound), static_cast<uint64_t>(end - begin));
  Wake(false);
}

// ---- sequences

bool SessionTrace::Wants(std::string_view request_id) const {
  const std::string_view wanted = options_.request;
  // Samples after the first have the names "ID#1", "ID#2" and so on.
  return wanted.empty() || request_id == wanted ||
         (request_id.size() > wanted.size() && request_id.substr(0, wanted.size()) == wanted &&
          request_id[wanted.size()] == '#');
}

void SessionTrace::Opened(std::unique_ptr<TraceOpening> opening) {
  const uint32_t slot = SlotOf(opening->sequence);
  const bool from_wanted = opening->forked_from != 0 && WantsSlot(SlotOf(opening->forked_from));
  const bool is_wanted = Wants(opening->request_id) || from_wanted;
  if (slot < wanted_.size()) wanted_[slot] = is_wanted ? 1 : 0;
  if (!is_wanted) return;
  opening->time_ns = clock_->NowNs();
  std::byte* const memory = ring_.Reserve(sizeof(TraceOpening*), true);
  if (memory == nullptr) return ++dropped_rounds_;
  TraceOpening* const raw = opening.release();
  std::memcpy(memory, &raw, sizeof(raw));
  ring_.Publish(static_cast<uint32_t>(TraceKind::kOpening), sizeof(raw));
  Wake(false);
}

void SessionTrace::Ended(SequenceHandle sequence, FinishReason reason, uint32_t kept_tokens) {
  if (!WantsSlot(SlotOf(sequence))) return;
  std::byte* const memory = ring_.Reserve(sizeof(TraceEnd), true);
  if (memory == nullptr) return ++dropped_rounds_;
  const TraceEnd end = {.time_ns = clock_->NowNs(),
                        .sequence = sequence,
                        .reason = reason,
                        .kept_tokens = kept_tokens};
  std::memcpy(memory, &end, sizeof(end));
  ring_.Publish(static_cast<uint32_t>(TraceKind::kEnd), sizeof(end));
  Wake(false);
}

void SessionTrace::Closed(SequenceHandle sequence) {
  Ended(sequence, FinishReason::kNone, 0);
  const uint32_t slot = SlotOf(sequence);
  // A round in progress still has an answer for it. The next opening of the slot decides anew.
  if (slot < wanted_.size() && !options_.request.empty() && copy_ == nullptr) wanted_[slot] = 0;
}

void SessionTrace::EndSession() {
  // Pairs with the acquire in ended(): a writer that sees the end finds every record before it.
  ended_.store(true, std::memory_order_release);
  Wake(true);
}

}  // namespace specd
