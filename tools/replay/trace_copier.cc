#include "tools/replay/trace_copier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "kernels/core/types.h"

namespace specd::replay {
namespace {

using RowKey = std::pair<TraceTensor, uint32_t>;

// The rows that the tasks of a round name.
std::set<RowKey> NamedRows(const TraceRound& round) {
  std::set<RowKey> named;
  for (const TraceTask& task : round.tasks) {
    for (const uint32_t row : task.target_rows) named.emplace(TraceTensor::kTarget, row);
    for (const uint32_t row : task.draft_rows) named.emplace(TraceTensor::kDraft, row);
    for (const TracePlace& place : task.places) {
      if (place.mask_row >= 0) named.emplace(TraceTensor::kMask, place.mask_row);
      if (place.grammar_mask >= 0) named.emplace(TraceTensor::kGrammarMask, place.grammar_mask);
    }
  }
  return named;
}

uint64_t RowBytes(const TraceRound& round, TraceTensor tensor, uint64_t vocab_size) {
  if (tensor == TraceTensor::kTarget) return vocab_size * uint64_t(SizeBytes(round.target.dtype));
  if (tensor == TraceTensor::kDraft) return vocab_size * uint64_t(SizeBytes(round.draft.dtype));
  return (vocab_size + 31) / 32 * sizeof(uint32_t);
}

absl::Status WithoutRows(const absl::Status& status) {
  return absl::Status(status.code(), fmt::format("{}; give --no-rows to copy without them",
                                                 std::string(status.message())));
}

}  // namespace

absl::StatusOr<TraceCopier::Counts> TraceCopier::Run() {
  TraceItem item;
  for (;;) {
    const absl::StatusOr<bool> more = reader_->Next(&item);
    if (!more.ok()) return more.status();
    if (!*more) break;
    if (absl::Status status = Take(&item); !status.ok()) return status;
  }
  if (counts_.rounds == 0) return counts_;
  TraceDrops drops;
  for (const auto& [file, of_file] : drops_) {
    drops.time_ns = of_file.time_ns;
    drops.rounds += of_file.rounds;
    drops.rows += of_file.rows;
    drops.bytes += of_file.bytes;
    drops.why = of_file.why;
  }
  if (options_.anonymised) drops.why.clear();  // it may name a path
  if (!drops_.empty()) {
    if (absl::Status status = writer_->Write(drops); !status.ok()) return status;
  }
  if (absl::Status status = writer_->Commit(); !status.ok()) return status;
  return counts_;
}

absl::Status TraceCopier::Take(TraceItem* item) {
  if (auto* const info = std::get_if<TraceInfo>(&item->record)) return Begin(std::move(*info));
  if (auto* const drops = std::get_if<TraceDrops>(&item->record)) {
    drops_[item->file] = *drops;
    return absl::OkStatus();
  }
  if (auto* const opening = std::get_if<TraceOpening>(&item->record)) {
    openings_.try_emplace(opening->sequence, std::move(*opening));
    return absl::OkStatus();
  }
  if (const auto* const end = std::get_if<TraceEnd>(&item->record)) {
    const bool is_closed = end->reason == FinishReason::kNone;
    if (is_closed) openings_.erase(end->sequence);
    // The handle of a closed sequence does not come again.
    const bool is_written =
        is_closed ? written_.erase(end->sequence) > 0 : written_.contains(end->sequence);
    return is_written ? writer_->Write(*end) : absl::OkStatus();
  }
  budget_.Begin(item->file);
  return TakeRound(std::move(std::get<TraceRound>(item->record)));
}

absl::Status TraceCopier::Begin(TraceInfo info) {
  if (writer_ != nullptr) return absl::OkStatus();  // a later file of the recording
  absl::StatusOr<std::unique_ptr<TraceWriter>> writer =
      TraceWriter::Create(path_, options_.with_rows && !info.row_file.empty());
  if (!writer.ok()) return writer.status();
  writer_ = *std::move(writer);
  if (options_.anonymised) anonymiser_.Take(&info);
  writer_->Write(std::move(info));
  return absl::OkStatus();
}

bool TraceCopier::Takes(SequenceHandle sequence) const {
  const auto opening = openings_.find(sequence);
  const std::string_view request = opening == openings_.end()
                                       ? std::string_view()
                                       : std::string_view(opening->second.request_id);
  return options_.filter.TakesSequence(sequence, request);
}

bool TraceCopier::Select(TraceRound* round) const {
  if (options_.filter.TakesEverySequence()) return true;
  constexpr uint32_t kNone = ~uint32_t{0};
  std::vector<uint32_t> new_answer(round->answers.size(), kNone);
  std::vector<TraceAnswer> answers;
  for (size_t i = 0; i < round->answers.size(); ++i) {
    if (!Takes(round->answers[i].sequence)) continue;
    new_answer[i] = static_cast<uint32_t>(answers.size());
    answers.push_back(round->answers[i]);
  }
  std::erase_if(round->tasks, [&](const TraceTask& task) {
    return task.answer >= new_answer.size() || new_answer[task.answer] == kNone;
  });
  for (TraceTask& task : round->tasks) task.answer = new_answer[task.answer];
  round->answers = std::move(answers);
  return !round->answers.empty();
}

absl::Status TraceCopier::CopyRows(TraceRound* round) {
  const std::set<RowKey> named = NamedRows(*round);
  std::erase_if(round->rows, [&](const TraceRow& row) {
    return !named.contains({row.tensor, row.index});
  });
  const RowFileReader* file = nullptr;
  if (writer_->has_rows()) {
    const absl::StatusOr<const RowFileReader*> opened = reader_->RowsOf(*round);
    if (!opened.ok()) return WithoutRows(opened.status());
    file = *opened;
  }
  std::vector<std::vector<std::byte>> bytes;
  std::vector<TraceRow*> copied;
  for (TraceRow& row : round->rows) {
    const uint64_t offset = std::exchange(row.offset, kNoOffset);
    if (file == nullptr || offset == kNoOffset) continue;
    std::vector<std::byte> one(RowBytes(*round, row.tensor, reader_->info()->vocab_size));
    const RowFileReader::Place place{.entry_offset = offset / kRowFileAlignment * kRowFileAlignment,
                                     .skip_bytes = offset % kRowFileAlignment};
    const absl::Status read = file->Read(place, one);
    if (!read.ok()) return WithoutRows(read);
    if (absl::Status status = budget_.Take(one.size(), *file); !status.ok()) return status;
    bytes.push_back(std::move(one));
    copied.push_back(&row);
  }
  if (!bytes.empty()) {
    const std::vector<std::span<const std::byte>> pieces(bytes.begin(), bytes.end());
    const absl::StatusOr<uint64_t> written = writer_->WriteRows(pieces);
    if (!written.ok()) return written.status();
    uint64_t offset = *written;
    for (size_t i = 0; i < bytes.size(); ++i) {
      copied[i]->offset = offset;
      offset += bytes[i].size();
    }
    counts_.rows += bytes.size();
  }
  if (round->level == TraceLevel::kRows && file == nullptr) round->level = TraceLevel::kHashes;
  return absl::OkStatus();
}

absl::Status TraceCopier::WriteOpening(SequenceHandle sequence) {
  if (!written_.insert(sequence).second) return absl::OkStatus();
  ++counts_.sequences;
  const auto found = openings_.find(sequence);
  if (found == openings_.end()) return absl::OkStatus();  // the trace does not name it either
  TraceOpening opening = found->second;
  if (options_.anonymised) anonymiser_.Take(&opening);
  return writer_->Write(opening);
}

absl::Status TraceCopier::TakeRound(TraceRound round) {
  if (!options_.filter.TakesRound(round.number) || !Select(&round)) return absl::OkStatus();
  for (const TraceAnswer& answer : round.answers) {
    if (absl::Status status = WriteOpening(answer.sequence); !status.ok()) return status;
  }
  if (options_.anonymised) {
    anonymiser_.Take(&round);
  } else if (absl::Status status = CopyRows(&round); !status.ok()) {
    return status;
  }
  ++counts_.rounds;
  return writer_->Write(round);
}

}  // namespace specd::replay
