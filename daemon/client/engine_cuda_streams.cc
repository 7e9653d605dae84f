#include "daemon/client/engine_cuda_streams.h"

#include <utility>

#include "daemon/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/segment/round_words.h"

namespace specd {
namespace {

// Long compared with a round, short compared with the delays that a user notices.
constexpr int kDefaultTimeoutMs = 250;

}  // namespace

EngineCudaStreams::EngineCudaStreams(EngineLink* link, Segment* segment, uint32_t timeout_ms)
    : link_(*link),
      segment_(*segment),
      timeout_ms_(timeout_ms == 0 ? kDefaultTimeoutMs : static_cast<int>(timeout_ms)) {}

void EngineCudaStreams::LetGo() {
  if (streams_ == nullptr) return;
  streams_->watch().LetGo();
  left_.push_back({std::move(words_), std::move(streams_)});
}

absl::Status EngineCudaStreams::CheckMode() const {
  if (!link_.is_embedded()) return absl::OkStatus();
  return MakeError(
      SPECD_ERROR_UNSUPPORTED, "cuda_stream",
      "cuda_stream: embedded mode verifies inside specd_poll, which no CUDA stream can wait for; "
      "synchronize the CUDA stream and use specd_submit or specd_submit_batch, or attach to a "
      "daemon");
}

absl::Status EngineCudaStreams::Open(GpuStream stream) {
  if (streams_ != nullptr) return absl::OkStatus();
  if (may_move_) words_ = std::make_unique<Segment>(segment_.Share());
  Segment* const segment = words_ != nullptr ? words_.get() : &segment_;
  absl::StatusOr<std::unique_ptr<CudaStreams>> opened = CudaStreams::Open(
      {segment, Clock::Real(), int64_t{timeout_ms_} * 1'000'000, link_.hangup_fd()}, stream);
  if (opened.ok()) streams_ = *std::move(opened);
  return opened.status();
}

void EngineCudaStreams::DropUnused() {
  if (!streams_->is_unused()) return;
  (void)streams_->Close(0);
  streams_.reset();
  words_.reset();
}

absl::Status EngineCudaStreams::Check(GpuStream stream, uint64_t number, bool* is_free) {
  if (absl::Status status = Open(stream); !status.ok()) return status;
  absl::Status status = streams_->Check(stream, number, is_free);
  if (!status.ok()) DropUnused();
  return status;
}

absl::Status EngineCudaStreams::Enqueue(GpuStream stream, uint64_t number) {
  if (absl::Status status = streams_->Enqueue(stream, number); !status.ok()) {
    DropUnused();
    return status;
  }
  last_on_stream_ = number;
  last_streams_ = streams_.get();
  return absl::OkStatus();
}

absl::StatusOr<bool> EngineCudaStreams::MarkDrafts(GpuStream stream, uint64_t number) {
  if (absl::Status status = Open(stream); !status.ok()) return status;
  absl::StatusOr<bool> is_marked = streams_->MarkDrafts(stream, number);
  if (!is_marked.ok()) DropUnused();
  return is_marked;
}

absl::Status EngineCudaStreams::GetRoundEnd(specd_round_end* end) const {
  if (last_on_stream_ == 0) {
    return MakeError(SPECD_ERROR_STATE, "end",
                     "no round was submitted with specd_submit_on_stream or "
                     "specd_submit_batch_on_stream");
  }
  *end = {.device_address = last_streams_->StatusAddress(last_on_stream_),
          .answered = PackRoundEnd(last_on_stream_, RoundEnd::kAnswered)};
  return absl::OkStatus();
}

bool EngineCudaStreams::Close(int64_t timeout_ns) {
  for (Words& left : left_) {
    if (!left.streams->Close(timeout_ns)) KeepForever(std::move(left.segment));
  }
  left_.clear();
  if (streams_ == nullptr) return true;
  const bool passed = streams_->Close(timeout_ns);
  last_on_stream_ = 0;
  streams_.reset();
  if (words_ == nullptr) return passed;
  if (!passed) KeepForever(std::move(words_));
  words_.reset();
  return true;
}

}  // namespace specd
