#include "tools/bench/answer_difference.h"

#include <fmt/format.h>

#include <bit>

namespace specd::bench {
namespace {

bool IsSame(const TaskOutcome& a, const TaskOutcome& b) {
  return a.status == b.status && a.num_accepted == b.num_accepted && a.num_tokens == b.num_tokens &&
         a.empty_residuals == b.empty_residuals && a.invalid_drafts == b.invalid_drafts &&
         a.point_masses == b.point_masses && a.fault == b.fault;
}

bool IsSame(const TokenScore& a, const TokenScore& b) {
  return a.id == b.id && a.rank == b.rank &&
         std::bit_cast<uint32_t>(a.value) == std::bit_cast<uint32_t>(b.value);
}

}  // namespace

std::string DifferenceOf(const RoundSet& set, int32_t round, const RoundAnswer& answer,
                         const RoundAnswer& expected) {
  const auto num_scores = static_cast<size_t>(set.scores_stride());
  for (int32_t s = 0; s < set.shape().batch; ++s) {
    const TaskOutcome& device = answer.outcomes[static_cast<size_t>(s)];
    const TaskOutcome& cpu = expected.outcomes[static_cast<size_t>(s)];
    if (!IsSame(device, cpu)) {
      return fmt::format(
          "round {}, sequence {}: the device accepted {} of {} tokens with status {} and fault {}, "
          "the CPU {} of {} with status {} and fault {}",
          round, s, device.num_accepted, device.num_tokens, static_cast<int>(device.status),
          static_cast<int>(device.fault), cpu.num_accepted, cpu.num_tokens,
          static_cast<int>(cpu.status), static_cast<int>(cpu.fault));
    }
    for (int32_t i = 0; i < cpu.num_tokens; ++i) {
      const auto at = static_cast<size_t>(s * set.shape().rows_of_sequence() + i);
      if (answer.tokens[at] != expected.tokens[at]) {
        return fmt::format("round {}, sequence {}, place {}: token {} of the device, {} of the CPU",
                           round, s, i, answer.tokens[at], expected.tokens[at]);
      }
      for (size_t k = 0; k < num_scores; ++k) {
        const TokenScore& got = answer.scores[at * num_scores + k];
        const TokenScore& wanted = expected.scores[at * num_scores + k];
        if (IsSame(got, wanted)) continue;
        return fmt::format(
            "round {}, sequence {}, place {}, score {}: id {}, value {}, rank {} of the device, "
            "id {}, value {}, rank {} of the CPU",
            round, s, i, k, got.id, got.value, got.rank, wanted.id, wanted.value, wanted.rank);
      }
    }
  }
  return "";
}

}  // namespace specd::bench
