// RecordDifference compares the records of a round on a device with those on the CPU, for the suite
// "gpu".
#pragma once

#include <doctest/doctest.h>
#include <spdlog/fmt/fmt.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/support/decision_text.h"
#include "tests/support/round_case.h"

namespace specd {

// The first answer of a round on the device that is another than the CPU's; "" if there is none.
inline std::string AnswerDifference(const RoundCase& on_device, const RoundCase& on_cpu,
                                    int32_t num_tasks) {
  for (int32_t i = 0; i < num_tasks; ++i) {
    if (on_device.answer(i) == on_cpu.answer(i)) continue;
    return fmt::format("sequence {}\n  device: {}\n  CPU:    {}", i, on_device.answer(i),
                       on_cpu.answer(i));
  }
  return "";
}

// The first difference between the answers or the records of a round, after `change`, on the device
// and on the CPU; "" if there is none.
inline std::string RecordDifference(
    Backend& device, Backend& cpu, const RoundCase::Options& options, DecisionCounts* counts,
    const std::function<void(RoundCase&)>& change = [](RoundCase&) {}) {
  const int32_t num_places = options.max_draft + 1;
  RoundCase recorded(options);
  RoundCase on_cpu(options);
  for (RoundCase* const round : {&recorded, &on_cpu}) change(*round);
  const std::vector<PlaceDecision> decisions = DecisionsOf(device, recorded.All(), num_places);
  const std::vector<PlaceDecision> expected = DecisionsOf(cpu, on_cpu.All(), num_places);
  const std::string difference = AnswerDifference(recorded, on_cpu, options.batch);
  if (!difference.empty()) return difference;
  for (int32_t i = 0; i < options.batch; ++i) {
    const auto first = static_cast<size_t>(i * num_places);
    for (int32_t place = 0; place < num_places; ++place) {
      const std::string text = DecisionText(decisions[first + static_cast<size_t>(place)]);
      const std::string wanted = DecisionText(expected[first + static_cast<size_t>(place)]);
      if (text == wanted) continue;
      return fmt::format("sequence {}, place {}\n  device: {}\n  CPU:    {}", i, place, text,
                         wanted);
    }
    counts->Add(recorded.task(i), recorded.outcome(i),
                std::span(decisions).subspan(first, static_cast<size_t>(num_places)));
  }
  return "";
}

}  // namespace specd
