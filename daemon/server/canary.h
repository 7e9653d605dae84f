// Canary runs a small round with a known answer on the daemon's device, for the verify thread.
//
// An idle daemon learns nothing of its device from engines. The canary asks the device itself: one
// greedy round over two rows, through the same verifier as an engine's. The places of the maxima
// and the verdict change from round to round, so an answer of an earlier round is wrong. It runs
// where no round has run for a second, so engines that are busy do not wait for it: their rounds
// say the same. After a wrong answer it runs again on time, between rounds too, until the device is
// right. One thread, except for the meters.
//
//   auto canary = Canary::Create({.clock = Clock::Real(), .meters = meters}, *MakeBackend("cpu"));
//   while (...) if (!loop.Step()) (*canary)->LookWhileIdle(has_worked);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/clock.h"
#include "daemon/metrics/meters.h"
#include "kernels/backend.h"
#include "speculative/verifier.h"

namespace specd {

class Canary {
 public:
  static constexpr int64_t kQuietNs = 1'000'000'000;

  struct Options {
    int64_t interval_ns = 10'000'000'000;
    Clock* clock = nullptr;
    VerifyMeters* meters = nullptr;  // which outlive the canary
    // The first wrong answer after right ones, with its reason, and the first right one after
    // wrong ones, with OK.
    std::function<void(const absl::Status& verdict)> on_change;
    // The device failed in a round: at most once, and no round follows.
    std::function<void(std::string_view why)> on_device_failure;
  };

  // Errors are those of Backend::Prepare.
  static absl::StatusOr<std::unique_ptr<Canary>> Create(const Options& options,
                                                        std::unique_ptr<Backend> backend);

  // Call it where no round is under way. has_worked: rounds have run since the last call.
  void LookWhileIdle(bool has_worked);

 private:
  Canary(const Options& options, std::unique_ptr<Verifier> verifier);

  // OK, or what is wrong with the answer.
  absl::Status RunRound();
  absl::Status CompareAnswer(const SequenceResult& result, bool accepts) const;
  void MoveMaxima();
  void Judge(const absl::Status& verdict);

  const Options options_;
  std::vector<float> rows_;  // two
  TokenId maxima_[2] = {};   // the id with the greatest logit of each row
  const std::unique_ptr<Verifier> verifier_;

  uint64_t num_rounds_ = 0;
  int64_t due_ns_ = 0;
  std::optional<int64_t> quiet_since_ns_;
  bool is_right_ = false;  // the last answer; before the first round nothing is known
  bool has_failed_ = false;
};

}  // namespace specd
