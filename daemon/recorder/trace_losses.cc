#include "daemon/recorder/trace_losses.h"

#include <fmt/format.h>

#include <utility>

namespace specd {
namespace {

constexpr int64_t kLogPauseNs = 60'000'000'000;

}  // namespace

TraceLosses::Sums TraceLosses::All() const {
  return {.rounds = disk_rounds_ + trace_.dropped_rounds(),
          .rows = trace_.dropped_rows() + trace_.unread_rows(),
          .bytes = trace_.dropped_bytes()};
}

void TraceLosses::BeginFile() {
  at_begin_ = written_;
  if (!disk_error_.empty()) error_before_ = std::exchange(disk_error_, std::string());
}

std::optional<TraceDrops> TraceLosses::TakeDrops() {
  const Sums all = All();
  if (all == written_) return std::nullopt;
  before_ = std::exchange(written_, all);
  TraceDrops drops = {.time_ns = clock_.NowNs(),
                      .rounds = all.rounds - at_begin_.rounds,
                      .rows = all.rows - at_begin_.rows,
                      .bytes = all.bytes - at_begin_.bytes,
                      .why = Why()};
  error_before_.clear();
  return drops;
}

std::string TraceLosses::Why() const {
  if (trace_.too_large_bytes() > 0) {
    return fmt::format(
        "a round of {} MiB needs a buffer of twice that; raise buffer_mib, or record the rows of "
        "one request",
        (trace_.too_large_bytes() >> 20) + 1);
  }
  if (trace_.unread_rows() > 0) {
    return fmt::format("{} rounds had rows that the device did not give", trace_.unread_rows());
  }
  if (!disk_error_.empty()) return fmt::format("the disk took no more: {}", disk_error_);
  if (!error_before_.empty()) return fmt::format("the disk took no more: {}", error_before_);
  if (!left_out_.empty()) return fmt::format("a round was left out: {}", left_out_);
  return "the buffer was full; raise buffer_mib or every";
}

void TraceLosses::Log() {
  const Sums all = All();
  if (all == logged_ || clock_.NowNs() < log_after_ns_) return;
  Warn(fmt::format("{} rounds were not recorded, and {} without their rows: {}",
                   all.rounds - logged_.rounds, all.rows - logged_.rows, Why()));
  logged_ = all;
}

void TraceLosses::Warn(std::string_view text, int64_t* log_after_ns) {
  const int64_t now_ns = clock_.NowNs();
  if (log_ == nullptr || now_ns < *log_after_ns) return;
  *log_after_ns = now_ns + kLogPauseNs;
  log_(TraceSeverity::kWarning,
       fmt::format("trace of session {}: {}", trace_.session().session_id, text));
}

void TraceLosses::Inform(std::string_view text) const {
  if (log_ == nullptr) return;
  log_(TraceSeverity::kInfo,
       fmt::format("trace of session {}: {}", trace_.session().session_id, text));
}

}  // namespace specd
