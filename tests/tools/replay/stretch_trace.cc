// Writes a long trace in the time of a copy, for the test of specd-replay's memory.
//
//   specd_stretch_trace IN OUT COPIES
//
// OUT has the records of IN that many times. Numbers and times of rounds go on, each copy has
// sequences of its own, which are closed at its end, and its rows lie in OUT's row file again.

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "kernels/core/check.h"
#include "tools/replay/trace_reader.h"
#include "tools/replay/trace_writer.h"

namespace specd::replay {
namespace {

class Stretcher {
 public:
  Stretcher(const std::string& from, const std::string& to) {
    TraceReader reader({from});
    TraceItem item;
    for (absl::StatusOr<bool> more = true; (more = reader.Next(&item)).value();) {
      items_.push_back(item);
    }
    for (const TraceItem& one : items_) {
      if (const auto* round = std::get_if<TraceRound>(&one.record)) last_ = *round;
    }
    const absl::StatusOr<const RowFileReader*> rows = reader.Rows();
    if (rows.ok()) {
      rows_.resize((*rows)->file_size_bytes() - kRowFileAlignment);
      SPECD_CHECK((*rows)->Read({.entry_offset = kRowFileAlignment}, rows_).ok());
    }
    writer_ = *TraceWriter::Create(to, rows.ok());
  }

  void Write(uint64_t num_copies) {
    for (copy_ = 0; copy_ < num_copies; ++copy_) {
      if (!rows_.empty()) {
        const std::span<const std::byte> piece(rows_);
        row_offset_ = *writer_->WriteRows({&piece, 1});
      }
      for (const TraceItem& item : items_) {
        std::visit([this](auto record) { Write(std::move(record)); }, item.record);
      }
      for (const SequenceHandle sequence : open_) {
        SPECD_CHECK(
            writer_->Write(TraceEnd{.time_ns = TimeOf(last_.times.answered), .sequence = sequence})
                .ok());
      }
      open_.clear();
    }
    SPECD_CHECK(writer_->Commit().ok());
  }

 private:
  SequenceHandle HandleOf(SequenceHandle sequence) const {
    constexpr uint64_t kGenerations = 16;  // of one copy
    return sequence + (copy_ * kGenerations << 32);
  }
  int64_t TimeOf(int64_t time_ns) const {
    constexpr int64_t kCopyNs = 1'000'000'000;
    return time_ns == 0 ? 0 : time_ns + static_cast<int64_t>(copy_) * kCopyNs;
  }

  void Write(TraceInfo info) {
    if (copy_ == 0) writer_->Write(std::move(info));
  }
  void Write(TraceOpening opening) {
    opening.time_ns = TimeOf(opening.time_ns);
    opening.sequence = HandleOf(opening.sequence);
    opening.request_id += fmt::format("-{}", copy_);
    open_.push_back(opening.sequence);
    SPECD_CHECK(writer_->Write(opening).ok());
  }
  void Write(TraceEnd end) {
    end.time_ns = TimeOf(end.time_ns);
    end.sequence = HandleOf(end.sequence);
    SPECD_CHECK(writer_->Write(end).ok());
  }
  void Write(const TraceDrops&) {}
  void Write(TraceRound round) {
    round.number += copy_ * last_.number;
    TraceTimes& times = round.times;
    for (int64_t* time_ns : {&times.submitted, &times.taken, &times.packed, &times.ran,
                             &times.committed, &times.answered}) {
      *time_ns = TimeOf(*time_ns);
    }
    for (TraceAnswer& answer : round.answers) answer.sequence = HandleOf(answer.sequence);
    for (TraceRow& row : round.rows) {
      if (row.offset != kNoOffset) row.offset = row.offset - kRowFileAlignment + row_offset_;
    }
    SPECD_CHECK(writer_->Write(round).ok());
  }

  std::vector<TraceItem> items_;
  std::vector<std::byte> rows_;  // after the header of the row file
  TraceRound last_;
  std::unique_ptr<TraceWriter> writer_;
  uint64_t copy_ = 0;
  uint64_t row_offset_ = 0;
  std::vector<SequenceHandle> open_;
};

int Main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: specd_stretch_trace IN OUT COPIES\n");
    return 2;
  }
  Stretcher(argv[1], argv[2]).Write(std::strtoull(argv[3], nullptr, 10));
  return 0;
}

}  // namespace
}  // namespace specd::replay

int main(int argc, char** argv) { return specd::replay::Main(argc, argv); }
