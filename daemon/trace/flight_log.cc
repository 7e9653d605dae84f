#include "daemon/trace/flight_log.h"

namespace specd {
namespace {

// What a round takes in memory besides its rows. Estimate: a task's lists and one decision for each
// place.
uint64_t SizeOf(const FlightRound& flight) {
  uint64_t bytes = flight.bytes.size() + sizeof(FlightRound);
  for (const TraceTask& task : flight.round.tasks) {
    bytes += sizeof(TraceTask) + task.decisions.size() * sizeof(PlaceDecision) +
             task.places.size() * sizeof(TracePlace) + task.edits.size() * sizeof(TokenEdit);
  }
  return bytes;
}

}  // namespace

void FlightLog::Add(FlightRound round) {
  num_bytes_ += SizeOf(round);
  ++num_rounds_;
  entries_.emplace_back(std::move(round));
  while (num_rounds_ > max_rounds_ || (num_bytes_ > max_bytes_ && num_rounds_ > 1)) DropOldest();
}

void FlightLog::DropOldest() {
  if (const auto* round = std::get_if<FlightRound>(&entries_.front())) {
    num_bytes_ -= SizeOf(*round);
    --num_rounds_;
  }
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

void FlightLog::Clear() {
  entries_.clear();
  num_rounds_ = 0;
  num_bytes_ = 0;
}

}  // namespace specd
