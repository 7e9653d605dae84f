#include "daemon/recorder/flight_log.h"

namespace specd {
namespace {

// The memory that a round takes besides its rows. Estimate: a task's lists and one decision for
// each place.
uint64_t BytesOf(const FlightRound& flight) {
  uint64_t bytes = flight.bytes.size() + flight.round.rows.size() * sizeof(TraceRow) +
                   flight.round.answers.size() * sizeof(TraceAnswer);
  for (const TraceTask& task : flight.round.tasks) {
    bytes += sizeof(TraceTask) + task.decisions.size() * sizeof(PlaceDecision) +
             task.places.size() * sizeof(TracePlace) + task.edits.size() * sizeof(TokenEdit);
  }
  return bytes;
}

uint64_t BytesOf(const TraceOpening& opening) {
  uint64_t bytes = opening.request_id.size() + opening.constraint.size() +
                   opening.stop_token_ids.size() * sizeof(TokenId) +
                   opening.list_hashes.size() * sizeof(uint64_t);
  for (const auto& number : opening.numbers) bytes += sizeof(number) + number.first.size();
  for (const std::string& name : opening.lists) bytes += sizeof(name) + name.size();
  return bytes;
}

uint64_t BytesOf(const TraceEnd&) { return 0; }

}  // namespace

uint64_t FlightLog::SizeOf(const Entry& entry) {
  return sizeof(Entry) + std::visit([](const auto& record) { return BytesOf(record); }, entry);
}

void FlightLog::Add(FlightRound round) {
  ++num_rounds_;
  Push(std::move(round));
}

void FlightLog::Add(TraceOpening opening) { Push(std::move(opening)); }

void FlightLog::Add(const TraceEnd& end) { Push(end); }

void FlightLog::Push(Entry entry) {
  num_bytes_ += SizeOf(entry);
  entries_.push_back(std::move(entry));
  while (num_rounds_ > max_rounds_ || (num_bytes_ > max_bytes_ && entries_.size() > 1)) {
    DropOldest();
  }
}

void FlightLog::DropOldest() {
  num_bytes_ -= SizeOf(entries_.front());
  if (std::holds_alternative<FlightRound>(entries_.front())) --num_rounds_;
  entries_.pop_front();
}

std::unordered_set<SequenceHandle> FlightLog::OpenedHere() const {
  std::unordered_set<SequenceHandle> opened;
  for (const Entry& entry : entries_) {
    if (const auto* opening = std::get_if<TraceOpening>(&entry)) opened.insert(opening->sequence);
  }
  return opened;
}

std::unordered_set<SequenceHandle> FlightLog::Named() const {
  std::unordered_set<SequenceHandle> named;
  for (const Entry& entry : entries_) {
    const auto* round = std::get_if<FlightRound>(&entry);
    if (round == nullptr) continue;
    for (const TraceAnswer& answer : round->round.answers) named.insert(answer.sequence);
  }
  return named;
}

std::unordered_map<SequenceHandle, uint32_t> FlightLog::KeptBefore() const {
  std::unordered_map<SequenceHandle, uint32_t> kept;
  for (const Entry& entry : entries_) {
    const auto* round = std::get_if<FlightRound>(&entry);
    if (round == nullptr) continue;
    for (const TraceAnswer& answer : round->round.answers) {
      if (!IsCommitted(SequenceResult{.status = answer.status})) continue;  // it may have no sums
      kept.try_emplace(answer.sequence, answer.total_kept - answer.num_kept);
    }
  }
  return kept;
}

}  // namespace specd
